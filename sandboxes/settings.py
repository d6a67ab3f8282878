"""Settings of the operator of a sandbox, from arguments or from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

from .network import NetworkPolicy

TIER_VARIABLE = "LUDUS_SANDBOX"
IMAGE_VARIABLE = "LUDUS_SANDBOX_IMAGE"
RUNTIME_VARIABLE = "LUDUS_SANDBOX_RUNTIME"
NETWORK_VARIABLE = "LUDUS_SANDBOX_NETWORK"
TENANTS_VARIABLE = "LUDUS_SANDBOX_TENANTS"


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Settings with which a sandbox is opened."""

    size: int | None = None
    """The number of slots of each kind; by default twice the cores this process may use."""
    image: str | None = None
    """For the tier `docker`: an image the engine has; by default this machine's programs are used.
    """
    runtime: str | None = None
    """For the tier `docker`: an OCI runtime the engine knows, such as gVisor's "runsc"."""
    network: NetworkPolicy | None = None
    """The hosts that runs with `network=True` may reach; without a policy such runs are refused."""

    readable: tuple[str, ...] = ()
    """Files and folders of this machine that every program may read, at the same paths."""

    for_tenants: bool = False
    """Whether a development tier is chosen only by its name; a server has it so."""

    @property
    def are_for_docker(self) -> bool:
        """Whether a setting is given that only the tier `docker` understands."""
        return bool(self.image or self.runtime)

    @classmethod
    def from_environment(cls) -> Self:
        """Return the settings that environment variables give; see `ludus.sandboxes.api`.

        The tier (`LUDUS_SANDBOX`) is not a part of the settings.

        Raises:
            ConfigError: `LUDUS_SANDBOX_NETWORK` is not a list of hosts.
        """
        hosts = os.environ.get(NETWORK_VARIABLE)
        return cls(
            image=os.environ.get(IMAGE_VARIABLE) or None,
            runtime=os.environ.get(RUNTIME_VARIABLE) or None,
            network=NetworkPolicy.parse(hosts) if hosts else None,
            for_tenants=os.environ.get(TENANTS_VARIABLE) == "1",
        )


DEFAULTS = SandboxSettings()
