"""The error of a server that cannot bind a port."""

from __future__ import annotations

import errno

from ludus.errors import ConfigError


def cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    """Build the error for a failure to bind `host:port`, with what to try instead."""
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} on {host} is in use; choose another with --port, or --port 0 for any "
            "free one"
        )
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}")
