"""Names on the command line: `-vN` is an environment, a bare name a verifier, `URL#NAME` remote."""

from __future__ import annotations

import re
from enum import StrEnum

from ludus.envs import env_ids
from ludus.errors import UnknownName
from ludus.rewards import verifier_names


class NameKind(StrEnum):
    """What a name stands for."""

    ENVIRONMENT = "environment"
    VERIFIER = "verifier"


class UnknownThing(UnknownName):
    """Neither an environment nor a verifier."""

    kind = "environment or verifier"


def kind_of(name: str) -> NameKind:
    """What `name`, with or without a server's URL before it and arguments after, is."""
    return NameKind.ENVIRONMENT if re.search(r"-v\d+(\?|$)", name) else NameKind.VERIFIER


def ensure_known(name: str) -> None:
    """Refuse a local name nobody registered, naming near misses of both kinds.

    Raises:
        UnknownThing: there is none.
    """
    known = [*env_ids(), *verifier_names()]
    bare = name.partition("?")[0]
    if "#" not in name and bare not in known:
        raise UnknownThing.near(bare, known, hint="ludus list")
