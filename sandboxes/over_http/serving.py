"""The services that `ludus serve 'sandbox?slots=8'` puts on a server."""

from __future__ import annotations

import difflib

import msgspec

from ludus.errors import ConfigError
from ludus.wire.routes import Service

from ..fusion.routes import FusionService
from ..network import NetworkPolicy
from ..open import refuse_unknown
from .runner import Runner, SandboxChoice
from .sandbox_wire import Bounds
from .service import SandboxService

NAME = "sandbox"


class SandboxServeOptions(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a sandbox server: the bounds, and the following."""

    tier: str | None = None
    """The name of the tier; by default the strongest that works."""
    slots: int | None = None
    """How many programs run at a time; by default twice the number of cores."""
    image: str | None = None
    """An image for the tier `docker`, which is then the default tier."""
    network: str | None = None
    """The hosts that programs with a network may reach ("example.org,*.example.net")."""
    fusion: bool = True
    """Whether SandboxFusion's routes are served too."""


def sandbox_services(**arguments: object) -> list[Service]:
    """Return the services of a sandbox server.

    Raises:
        ConfigError: an argument is unknown, or its value cannot work.
    """
    options = _read(arguments)
    if options.tier:
        refuse_unknown(options.tier)
    if options.slots is not None and options.slots < 1:
        raise ConfigError(f"slots must be at least 1, got {options.slots}")
    bounds = Bounds(**{name: getattr(options, name) for name in Bounds.__struct_fields__})
    network = NetworkPolicy.parse(options.network) if options.network else None
    runner = Runner(
        SandboxChoice(tier=options.tier, image=options.image, network=network),
        slots=options.slots,
        bounds=bounds,
    )
    services: list[Service] = [SandboxService(runner)]
    return [*services, FusionService(runner)] if options.fusion else services


def _read(arguments: dict[str, object]) -> SandboxServeOptions:
    option_names = SandboxServeOptions.__struct_fields__
    for name in arguments:
        if name not in option_names:
            close_names = difflib.get_close_matches(name, option_names, n=1)
            hint = (
                f"did you mean {close_names[0]!r}?"
                if close_names
                else f"known: {', '.join(option_names)}"
            )
            raise ConfigError(f"a sandbox server has no setting {name!r}; {hint}")
    try:
        return msgspec.convert(arguments, SandboxServeOptions)
    except msgspec.ValidationError as error:
        raise ConfigError(f"sandbox: {error}") from None
