"""Sources of games: made from seeds, or a folder of games made beforehand."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ludus.errors import ConfigError

from ...splits import ProblemSet, check_shares
from ...tasks import SPLITS, GeneratedTasks, ListedTasks, Task, TaskSet
from .engine import GameSize, TextworldGame, game_of, load_textworld, made_game


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
