"""What the operator of a sandbox sets, by arguments or by the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

from .network import NetworkPolicy

TIER_VARIABLE = "LUDUS_SANDBOX"
IMAGE_VARIABLE = "LUDUS_SANDBOX_IMAGE"
RUNTIME_VARIABLE = "LUDUS_SANDBOX_RUNTIME"
NETWORK_VARIABLE = "LUDUS_SANDBOX_NETWORK"


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """How a sandbox is opened."""

    size: int | None = None
    """Slots of each kind; twice the cores if left out."""
    image: str | None = None
    """For the tier `docker`: an image the engine has; this machine's programs if left out."""
    runtime: str | None = None
    """For the tier `docker`: an OCI runtime the engine knows, such as gVisor's "runsc"."""
    network: NetworkPolicy | None = None
    """What runs with `network=True` may reach; without it there are none."""

    @property
    def are_for_docker(self) -> bool:
        """Whether only the tier `docker` can have them."""
        return bool(self.image or self.runtime)

    @classmethod
    def from_environment(cls) -> Self:
        """Those the environment names.

        Raises:
            ConfigError: a value that cannot be meant.
        """
        hosts = os.environ.get(NETWORK_VARIABLE)
        return cls(
            image=os.environ.get(IMAGE_VARIABLE) or None,
            runtime=os.environ.get(RUNTIME_VARIABLE) or None,
            network=NetworkPolicy.parse(hosts) if hosts else None,
        )


DEFAULTS = SandboxSettings()
