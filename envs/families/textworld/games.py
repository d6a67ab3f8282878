"""Describes what a player of a text game can see, from the facts of the game's state.

TextWorld writes its own prose only in games compiled for the Z-machine, a C interpreter that reads
whatever a policy types. Here games run in Python, accept only commands that are possible, and have
prose of our own (decision 0514).
"""

from __future__ import annotations

import hashlib
import importlib
import random
import re
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from ludus.errors import ConfigError, MissingExtra

from ...problem_files import ProblemSet, check_shares
from ...tasks import SPLITS, GeneratedTasks, ListedTasks, Task, TaskSet

PLAYER = "P"
"""The name of the player in TextWorld's facts."""
INVENTORY = "I"
"""The name in TextWorld's facts of the place where carried things are."""
_DIRECTIONS = ("north", "east", "south", "west")
_STATES = (
    *("open", "closed", "locked", "raw", "cooked", "fried", "roasted", "grilled", "burned"),
    *("uncut", "chopped", "sliced", "diced"),
)
# A description may hold `[noun]`, the thing's name, and conditions such as `[if open]`.
_CONDITION = re.compile(r"\[(?!noun\]).*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ViewFact:
    """A fact of the game: `open(safe)`, `at(P, cellar)`, `north_of(shower, cellar)`."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of a game."""

    facts: tuple[ViewFact, ...]
    commands: tuple[str, ...]
    """The commands that are possible now."""
    way: tuple[str, ...] | None
    """The commands that win from here; None where the game cannot be won any more."""
    won: bool = False
    lost: bool = False


class View:
    """Describes a situation in words, with what the player can see."""

    def __init__(self, situation: Situation) -> None:
        self._facts = situation.facts

    @property
    def room(self) -> str:
        """The room in which the player is."""
        places = (fact.arguments[1] for fact in self._pairs("at") if fact.arguments[0] == PLAYER)
        return next(places, "nowhere")

    def look(self) -> str:
        """Describe the room, the things in the room, the exits, and what the player carries."""
        objects = [
            object_name for object_name in self._second("at", self.room) if object_name != PLAYER
        ]
        exits: list[str] = []
        for direction in _DIRECTIONS:
            for room in self._second(f"{direction}_of", self.room):
                door = self._door(room)
                if door:
                    exits.append(f"{direction} (through {self.described(door)})")
                elif ViewFact("free", (self.room, room)) in self._facts:  # nothing is in the way
                    exits.append(direction)
        return "\n".join(
            [
                f"You are in the {self.room}.",
                f"You see: {'; '.join(map(self.described, objects)) or 'nothing'}.",
                f"Exits: {', '.join(exits) or 'none'}.",
                self.inventory(),
            ]
        )

    def inventory(self) -> str:
        """Describe what the player carries."""
        carried_objects = self._second("in", INVENTORY)
        return f"You carry: {', '.join(map(self.described, carried_objects)) or 'nothing'}."

    def described(self, name: str) -> str:
        """Describe a thing with the state, and with the things on top or, if open, inside."""
        states = [state for state in _STATES if ViewFact(state, (name,)) in self._facts]
        inside = (
            self._second("in", name) if "closed" not in states and "locked" not in states else []
        )
        # Things in a closed container are not seen.
        notes = [*states]
        if objects_on := self._second("on", name):
            notes.append(f"on it: {', '.join(map(self.described, objects_on))}")
        if inside:
            notes.append(f"in it: {', '.join(map(self.described, inside))}")
        return f"{name} ({', '.join(notes)})" if notes else name

    def _door(self, room: str) -> str:
        """Return the door between this room and another; empty without a door."""
        # A fact `link(room, door, room)` names a door.
        for fact in self._facts:
            if fact.name == "link" and (fact.arguments[0], fact.arguments[-1]) == (self.room, room):
                return fact.arguments[1]
        return ""

    def _second(self, name: str, second: str) -> list[str]:
        """Return the first arguments of the facts `name` whose second argument is `second`."""
        return [f.arguments[0] for f in self._pairs(name) if f.arguments[1] == second]

    def _pairs(self, name: str) -> list[ViewFact]:
        return [fact for fact in self._facts if fact.name == name and len(fact.arguments) == 2]


def plain_description(name: str, description: str) -> str:
    """Return TextWorld's description of a thing, up to where the text depends on the state.

    >>> plain_description("safe", "The [noun] looks strong. [if open]It is open.[end if]")
    'The safe looks strong.'
    """
    return _CONDITION.sub("", description).replace("[noun]", name).strip()


def answer(command: str, situation: Situation, descriptions: Mapping[str, str]) -> str:
    """Describe the effect of a command that was carried out.

    Args:
        command: the command.
        situation: the situation after the command.
        descriptions: name of a thing -> TextWorld's description.
    """
    view = View(situation)
    if command == "inventory":
        return view.inventory()
    verb, _, name = command.partition(" ")
    if verb == "examine":
        description = plain_description(name, descriptions.get(name, ""))
        return f"{view.described(name)}. {description}".strip()
    return view.look()


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


class Games(Protocol):
    """A task set per split, and the game of each task."""

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split."""
        ...

    def game(self, task: Task) -> TextworldGame:
        """Return the game of a task, ready to start."""
        ...


class GameTasks(GeneratedTasks):
    """A task set with a game per seed; the difficulty is the number of commands that win."""

    def __init__(self, split: str, steps: tuple[int, int]) -> None:
        super().__init__(split)
        self._steps = steps

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty."""
        task = super().at(index)
        steps = float(random.Random(f"steps/{task.seed}").randint(*self._steps))
        return Task(id=task.id, split=task.split, seed=task.seed, difficulty=steps)


class MadeGames:
    """Games that are made when needed, which takes about a second each.

    Args:
        rooms: the number of rooms of a game.
        objects: the number of objects of a game.
        steps: the fewest and the most commands that win a game.

    Raises:
        MissingExtra: textworld is not installed.
    """

    def __init__(self, *, rooms: int, objects: int, steps: tuple[int, int]) -> None:
        load_textworld()
        self._rooms, self._objects, self._steps = rooms, objects, steps

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set; no task is in two splits."""
        return GameTasks(split, self._steps)

    def game(self, task: Task) -> TextworldGame:
        """Make the game of a task from the task's seed."""
        return game_of(self.content(task))

    def content(self, task: Task) -> bytes:
        """Return the .json of the task's game."""
        steps = int(GameTasks(task.split, self._steps).find(task.id).difficulty or 1)
        size = GameSize(rooms=self._rooms, objects=self._objects, steps=steps)
        digest = hashlib.blake2b(f"textworld/{task.seed}".encode(), digest_size=4).digest()
        return made_game(int.from_bytes(digest), size)


@dataclass(frozen=True, slots=True)
class _Filed:
    """A game of a folder."""

    id: str
    path: Path
    difficulty: float | None = None


class GameFolder:
    """The games of a folder, in the layout of `tw-make` and `build_pool`.

    Folders `train`, `validation` and `test` inside the folder are the splits; without them games
    are split by a digest of their file names.

    Args:
        folder: the folder with the .json files.
        seed: seeds the split by digest.
        validation: the share for validation, in a split by digest.
        test: the share for test, in a split by digest.

    Raises:
        ConfigError: there are no games.
        MissingExtra: textworld is not installed.
    """

    def __init__(self, folder: str, *, seed: int, validation: float, test: float) -> None:
        check_shares(validation, test)
        root = Path(folder)
        filed = {split: _games_in(root / split, f"{split}/") for split in SPLITS}
        loose = _games_in(root, "")
        if not loose and not any(filed.values()):
            raise ConfigError(f"no games in {folder!r}: it needs .json files of TextWorld")
        load_textworld()
        self._paths = {game.id: game.path for part in (loose, *filed.values()) for game in part}
        self._tasks: dict[str, ListedTasks] = {
            split: ListedTasks(split, [Task(id=game.id, split=split) for game in games])
            for split, games in filed.items()
        }
        if not any(filed.values()):
            shared = ProblemSet(loose, seed=seed, validation=validation, test=test)
            self._tasks = {split: shared.tasks(split) for split in SPLITS}

    def tasks(self, split: str) -> TaskSet:
        """Return the games of a split."""
        GeneratedTasks(split)  # raises for an unknown split
        return self._tasks[split]

    def game(self, task: Task) -> TextworldGame:
        """Load the game of a task from the folder."""
        return TextworldGame(self._paths[task.id])


def _games_in(folder: Path, prefix: str) -> list[_Filed]:
    return [_Filed(f"{prefix}{path.stem}", path) for path in sorted(folder.glob("*.json"))]


def build_pool(
    folder: str | Path,
    *,
    train: int,
    validation: int = 0,
    test: int = 0,
    games: MadeGames | None = None,
) -> Path:
    """Make games beforehand: the games of the first tasks of `ludus/textworld-v0`.

    Args:
        folder: where the games are written, a folder for each split.
        train, validation, test: the number of games of each split.
        games: what the games are like; by default 4 rooms, 6 objects and 2 to 5 steps.

    Returns:
        The folder, to be passed as `games=`.
    """
    games = games or MadeGames(rooms=4, objects=6, steps=(2, 5))
    root = Path(folder)
    for split, count in (("train", train), ("validation", validation), ("test", test)):
        (root / split).mkdir(parents=True, exist_ok=True)
        tasks = games.tasks(split)
        for index in range(count):
            (root / split / f"{index}.json").write_bytes(games.content(tasks.at(index)))
    return root
