"""A port that cannot be had, told in one line."""

from __future__ import annotations

import errno

from ludus.errors import ConfigError


def cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    """What to say where binding `host:port` failed."""
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} on {host} is in use; choose another with --port, or --port 0 for any "
            "free one"
        )
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}")
