"""Makes, loads and plays TextWorld games (Côté et al., arXiv 1806.11532) in Python."""

from __future__ import annotations

import importlib
import tempfile
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ludus.errors import ConfigError, MissingExtra

from .view import Situation, ViewFact

_library = threading.Lock()
"""Guards TextWorld's maker and loader, which keep global state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameSize:
    """The size of a game that is to be made."""

    rooms: int
    objects: int
    steps: int
    """The number of commands that win the game."""


class TextworldGame:
    """A game that is being played.

    Args:
        path: a .json file of TextWorld's maker.

    Raises:
        ConfigError: the file is not a game.
        MissingExtra: textworld is not installed.
    """

    def __init__(self, path: Path) -> None:
        library = load_textworld()
        infos = library.EnvInfos(
            policy_commands=True, admissible_commands=True, facts=True, won=True, lost=True,
            objective=True, game=True,
        )  # fmt: skip
        try:
            with _library:
                self._env: Any = library.start(str(path), infos)
        except Exception as error:  # TextWorld's loader raises many kinds of errors
            raise ConfigError(
                f"{str(path)!r} is not a game of TextWorld: {type(error).__name__}: {error}"
            ) from error
        self.objective = ""
        self.descriptions: dict[str, str] = {}
        """Name of a thing -> its description, in TextWorld's own notation."""

    def reset(self) -> Situation:
        """Start the game from the beginning."""
        state = self._env.reset()
        self.objective = str(state["objective"])
        self.descriptions = {
            info.name: info.desc for info in state["game"].infos.values() if info.name and info.desc
        }
        return _situation(state)

    def step(self, command: str) -> Situation:
        """Carry out a command that is possible now."""
        state, _, _ = self._env.step(command)
        return _situation(state)


def _situation(state: Any) -> Situation:
    has_won, has_lost = bool(state["won"]), bool(state["lost"])
    commands_left = tuple(state["policy_commands"] or ())
    return Situation(
        facts=tuple(
            ViewFact(fact.name, tuple(str(argument.name) for argument in fact.arguments))
            for fact in state["facts"]
        ),
        commands=tuple(state["admissible_commands"]),
        way=commands_left if commands_left or has_won else None,
        won=has_won,
        lost=has_lost,
    )


@lru_cache(maxsize=256)
def made_game(seed: int, size: GameSize) -> bytes:
    """Make a game from `seed` and return the .json, which is the same in every process.

    Raises:
        ConfigError: TextWorld cannot make such a game.
        MissingExtra: textworld is not installed.
    """
    library = load_textworld()
    options = library.GameOptions()
    options.seeds = seed
    options.nb_rooms, options.nb_objects = size.rooms, size.objects
    options.chaining.min_length = options.chaining.max_length = size.steps
    options.chaining.max_depth = size.steps
    with _library, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "game.json"
        try:
            library.generator.make_game(options).save(str(path))
        except Exception as error:
            raise ConfigError(
                f"TextWorld cannot make a game of {size} from seed {seed}: {error}"
            ) from error
        return path.read_bytes()


def game_of(content: bytes) -> TextworldGame:
    """Load a game from the bytes of a .json file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "game.json"
        path.write_bytes(content)
        return TextworldGame(path)


def load_textworld() -> ModuleType:
    """Import the library.

    Raises:
        MissingExtra: textworld is not installed.
    """
    try:
        library = importlib.import_module("textworld")
        importlib.import_module("textworld.generator")
    except ImportError:
        raise MissingExtra.of("textworld", needed_for="ludus/textworld-v0") from None
    return library
