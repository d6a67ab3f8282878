"""The notation of names on the command line: `-vN` ends an environment, `URL#NAME` is remote."""

from __future__ import annotations

import re
from enum import StrEnum

from ludus.envs import env_ids
from ludus.envs.outside.sources import is_outside
from ludus.errors import UnknownName
from ludus.rewards import verifier_names


class NameKind(StrEnum):
    """The kind of thing that a name stands for."""

    ENVIRONMENT = "environment"
    VERIFIER = "verifier"


class UnknownThing(UnknownName):
    """A name belongs neither to an environment nor to a verifier."""

    kind = "environment or verifier"


def kind_of(name: str) -> NameKind:
    """Tell the kind of `name`, with or without a server's URL in front and arguments behind."""
    is_environment = re.search(r"-v\d+(\?|$)", name) or is_outside(name.rpartition("#")[2])
    return NameKind.ENVIRONMENT if is_environment else NameKind.VERIFIER


def ensure_known(name: str) -> None:
    """Refuse a local name that nobody registered, with the closest names of both kinds.

    Names on a server are let pass, since only the server knows its names.

    Raises:
        UnknownThing: neither an environment nor a verifier has this name.
    """
    known_names = [*env_ids(), *verifier_names()]
    bare = name.partition("?")[0]
    if "#" not in name and bare not in known_names and not is_outside(bare):
        raise UnknownThing.near(
            bare, known_names, hint="ludus list; a file of yours is named by --import"
        )
