"""The kinds of environments that other projects bring, and the catalogues of families."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import msgspec

from ludus.errors import ConfigError, UnknownEnv
from ludus.registry import load_offered, offered_names

ENTRY_POINT_GROUP = "ludus.env_kinds"
"""The entry points by which a package offers a `EnvKind` of its own."""


@dataclass(frozen=True, kw_only=True)
class EnvKind:
    """A kind of environments of another project, run in a separate interpreter.

    A package of one's own offers a kind by an entry point of the group `ludus.env_kinds`, whose
    name is the part of an id before the slash.
    """

    name: str
    """The part of an id before the slash."""
    about: str
    """What the kind is, in a sentence."""
    requires: tuple[str, ...]
    """What `ludus env install` installs, as pip reads it."""
    package: str
    """The package that has to be importable."""
    adapter: str
    """The adapter's module below `inside`, or a file: see `ludus.envs.outside.inside.contract`."""
    first: tuple[str, ...] = ()
    """What is installed before the rest."""
    evaluates: str = ""
    """What of a policy's text the peer's code evaluates; such a kind runs behind walls only."""
    walls: bool = True
    """Whether an environment can run behind walls, without files to write, network and programs."""
    deterministic: bool = True
    """Whether task, seed and actions fix an episode."""
    any_family: bool = False
    """Whether families that the catalogue does not have may be asked for."""
    files: tuple[str, ...] = ()
    """Settings that name files, which the environment may read behind its walls."""
    scratch: bool = False
    """Whether an environment needs a folder for temporary files; it is removed with its process."""
    prefers: tuple[str, ...] = ()
    """The versions of Python that suit the package better than ours, the best one first."""
    hint: str = ""
    """What else is needed before the first episode, such as data."""


KINDS: dict[str, EnvKind] = {
    kind.name: kind
    for kind in (
        EnvKind(
            name="reasoning-gym",
            about="Puzzles made from seeds, each with a scorer of its own.",
            requires=("reasoning-gym>=0.1.19",),
            package="reasoning_gym",
            adapter="inside.adapters.for_reasoning_gym",
            evaluates="answers, by eval and by sympy's parse_expr",
        ),
        EnvKind(
            name="textarena",
            about="Games in words for one player and more.",
            requires=("textarena>=0.7", "numpy"),
            package="textarena",
            adapter="inside.adapters.for_textarena",
            prefers=("3.12", "3.13"),  # the syntax of a few of its files is newer than 3.11
        ),
        EnvKind(
            name="gem",
            about="Games, and problems of data sets, of the General Experience Maker.",
            requires=("gem-llm>=0.0.3", "datasets", "pylatexenc"),
            package="gem",
            adapter="inside.adapters.for_gem",
            evaluates="answers of reasoning-gym; programs too, which the owner's sandbox runs",
            files=("data",),
            scratch=True,
        ),
        EnvKind(
            name="verifiers",
            about="Tasksets of verifiers, version 1, played as one answer to a prompt.",
            requires=("verifiers>=0.4",),
            package="verifiers",
            adapter="inside.adapters.for_verifiers",
            files=("path",),
            any_family=True,
            hint="A taskset is a package of its own: ludus env install verifiers --package NAME",
        ),
        EnvKind(
            name="inspect",
            about="Evaluations of inspect_ai, whose solvers ask the policy.",
            requires=("inspect_ai>=0.3.200", "inspect-evals"),
            package="inspect_ai",
            adapter="inside.adapters.for_inspect",
            files=("path",),
            scratch=True,
            any_family=True,
            hint="Most evaluations of inspect-evals download a data set when they are made.",
        ),
        EnvKind(
            name="alfworld",
            about="Household tasks in words, of ALFWorld.",
            requires=("alfworld>=0.4",),
            package="alfworld",
            adapter="inside.adapters.for_alfworld",
            files=("data",),
            scratch=True,
            hint="Its games are a download: alfworld-download writes them to ALFWORLD_DATA.",
        ),
    )
}
"""The kinds that ludus brings adapters for, by name."""


class Family(msgspec.Struct, frozen=True, omit_defaults=True):
    """A family of environments in the catalogue."""

    name: str
    topic: str = ""
    variants: list[str] = []
    """The peer's own variants of the family; empty where there is one alone."""
    players: list[int] = []
    """The fewest and the most players of a game."""
    needs: str = ""
    """What has to be downloaded, or set, before it can be played; empty if nothing."""
    problem: str = ""
    """Why the family cannot be played with the version of the catalogue, whatever is downloaded."""


class Catalogue(msgspec.Struct, frozen=True):
    """The families of a kind, as read from a version of the package."""

    package: str
    version: str
    families: list[Family]

    def family(self, name: str) -> Family | None:
        """Return the family of this name, or None."""
        return next((family for family in self.families if family.name == name), None)


@cache
def catalogue(kind: str) -> Catalogue | None:
    """Return the catalogue of a kind; None for a kind without a catalogue."""
    place = files(__package__ or "").joinpath("catalogue", f"{kind}.json")
    if not place.is_file():
        return None
    return msgspec.json.decode(place.read_bytes(), type=Catalogue)


def kind_names() -> list[str]:
    """Return the names of all kinds that run in a separate interpreter."""
    return sorted({*KINDS, *offered_names(ENTRY_POINT_GROUP)})


def find_kind(name: str) -> EnvKind:
    """Return the kind of this name.

    Raises:
        UnknownEnv: there is none; the message names the nearest.
        ConfigError: a package offers something else under this name.
    """
    if name in KINDS:
        return KINDS[name]
    offered = load_offered(ENTRY_POINT_GROUP, name)
    if offered is None:
        raise UnknownEnv.near(name, kind_names(), hint="ludus list --available")
    if not isinstance(offered, EnvKind) or offered.name != name:
        raise ConfigError(
            f"what is offered as the kind {name!r} is {offered!r:.80}, not that EnvKind"
        )
    return offered
