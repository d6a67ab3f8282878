"""The health of a server: `/healthz` tells a running server, `/readyz` a server that takes new
work.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .routes import Load, Service


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/healthz` and `/readyz`."""

    status: str
    """ok or ready, or the problems of the services."""
    instance: str
    """Name of the running server; another name after a restart."""
    services: dict[str, Load] = {}


def readiness(services: Sequence[Service], instance: str, *, stopping: bool) -> tuple[bool, Health]:
    """Return whether every service takes work, and the load and problems of each."""
    loads = {service.name: service.load() for service in services}
    problems = [load.problem for load in loads.values() if load.problem]
    problems += ["stopping"] if stopping else []
    status = "; ".join(problems) or "ready"
    return not problems, Health(status=status, instance=instance, services=loads)
