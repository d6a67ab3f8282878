"""`ludus/functions-v0`: the policy carries out small algorithms, call by call, on hidden data.

    user       A hidden list of whole numbers. Find two different positions whose items add up to 61
    assistant  length()
    tool       14
    assistant  item(index=0)
    tool       33
    ...
    assistant  done(first=2, second=11)                  reward 1

After CodeGym (arXiv 2509.17325): the tools are primitive steps of an algorithm, so an episode takes
as many calls as the algorithm does, and every one of them matters. Difficulty is the number of
calls an expert needs. No answer can be guessed from what is shown.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message, ToolCall, assistant

from ...problem_files import split_of
from ...protocol import Briefing, Info, TextEnv
from ...tasks import SPLITS, GeneratedTasks, Task
from ...tools import Tool
from .moves import FunctionGame, Merge, Shorten, Sort
from .problems import Islands, LargestRun, Loop, Pair, Rising, Roads

GAMES: dict[str, type[FunctionGame]] = {
    game.name: game
    for game in (LargestRun, Pair, Rising, Islands, Roads, Loop, Merge, Sort, Shorten)
}
MAX_DRAWS, MAX_SIZES = 100, 200
"""How many problems of a kind and size are drawn until the split and the number of calls fit, and
how many kinds and sizes are tried.
"""
NO_CALL = "Call a tool; done gives the answer."


class Problems(GeneratedTasks):
    """A task set with a problem per seed; the difficulty is the number of the expert's calls."""

    def __init__(self, split: str, games: Sequence[str], calls: tuple[int, int]) -> None:
        super().__init__(split)
        self.games = tuple(games)
        self.calls = calls

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty."""
        task = super().at(index)
        return msgspec.structs.replace(task, difficulty=float(calls_of(self.game(task))))

    def game(self, task: Task) -> FunctionGame:
        """Return a fresh instance of the problem of `task`.

        Raises:
            ConfigError: no problem of the task's split takes as many calls as asked for.
        """
        rng, (low, high) = random.Random(f"functions/{task.seed}"), self.calls
        for _ in range(MAX_SIZES):
            kind, size = GAMES[rng.choice(self.games)], rng.randint(low, high)
            for _ in range(MAX_DRAWS):
                new_game = kind.draw(rng, size)
                if split_of(new_game.text()) == task.split and low <= calls_of(new_game) <= high:
                    return new_game
        raise ConfigError(
            f"no problem of split {task.split!r} takes from {low} to {high} calls, of "
            f"{', '.join(self.games)}; widen min_calls and max_calls"
        )


def calls_of(game: FunctionGame) -> int:
    """Return how many calls the expert makes, the answer included."""
    return sum(1 for _ in game.expert())


def said_by(game: FunctionGame, call: ToolCall) -> str:
    """Return the answer of `game` to a call, which may change the game."""
    said = getattr(game, call.name)(**call.arguments)
    return said if isinstance(said, str) else json.dumps(said)


class Functions(TextEnv):
    """An environment for small algorithms, whose data can be reached through primitive steps alone.

    Args:
        min_calls: the fewest calls an expert needs.
        max_calls: the most calls an expert needs; up to 200.
        games: the problems to draw from: largest_run, pair, rising, islands, roads, loop, merge,
            sort, shorten. Empty means all.
        slack: the most turns, as a multiple of the expert's calls.
        calls_per_turn: how many calls of a turn are run; the others are refused.

    Raises:
        ConfigError: a setting is out of range, or a split would have no such problem.
    """

    system_prompt = (
        "Solve the task by calling the tools. You see nothing but what they say; answer with done."
    )

    def __init__(
        self,
        *,
        min_calls: int = 10,
        max_calls: int = 90,
        games: Sequence[str] = (),
        slack: float = 2.0,
        calls_per_turn: int = 1,
    ) -> None:
        unknown = [name for name in games if name not in GAMES]
        if unknown:
            raise ConfigError(f"games are {', '.join(GAMES)}, got {unknown[0]!r}")
        if not 4 <= min_calls <= max_calls <= 200 or max_calls - min_calls < 4:
            raise ConfigError(
                "need 4 <= min_calls, min_calls + 4 <= max_calls <= 200, got "
                f"{min_calls}, {max_calls}"
            )
        if slack < 1 or calls_per_turn < 1:
            raise ConfigError(
                f"need slack >= 1 and calls_per_turn >= 1, got {slack}, {calls_per_turn}"
            )
        self.calls = (min_calls, max_calls)
        self.games = tuple(games) or tuple(GAMES)
        self.slack = slack
        self.max_calls = calls_per_turn
        self.game: FunctionGame | None = None
        self._expert: Iterator[ToolCall] = iter(())
        self._made: list[ToolCall] = []
        self._repeated = 0  # calls up to which the expert has made one again
        for split in SPLITS:
            self.tasks(split).at(0)

    def tasks(self, split: str) -> Problems:
        """Return an endless task set; no problem is in two splits."""
        return Problems(split, self.games, self.calls)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Show the problem, and offer the tools of the problem as tools of the episode."""
        self.game = self.tasks(self.task.split).game(self.task)
        self._expert = self.game.expert()
        self._made = []
        self._repeated = 0
        briefing = Briefing(
            system_prompt=self.system_prompt,
            tools=[tool.spec for tool in self.game.tools.values()],
            max_turns=int(self.slack * calls_of(self.game)),
        )
        return self.game.question, {"briefing": briefing}

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools of the episode's problem, by name."""
        return {} if self.game is None else self.game.tools

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Answer a turn without a call, which changes nothing."""
        return NO_CALL, 0.0, False, False, {}

    def gold(self) -> object | None:
        """Return a right answer of the problem."""
        return None if self.game is None else self.game.answer()

    def demonstrate(self) -> Message | None:
        """Return the expert's next call, for a policy that has made all calls before."""
        proposed = next(self._expert, None)
        if proposed is None:
            return None
        self._made.append(proposed)
        return assistant("", [proposed])

    def demonstrate_summary(self, *, newest: bool) -> str | None:
        """Summarise the calls of the expert, with the results.

        A call whose result the window does not show is left out, and made again where that changes
        nothing, but once: where the result is carried into the next window instead, the expert has
        to get on. Where a call changes the data the expert goes on, which is right under
        `last_pair = "carry"` alone: a policy that loses a change cannot know of it.
        """
        if self.game is None:
            return None
        known = self._made if newest else self._made[:-1]
        if not newest and self.game.repeatable and self._repeated < len(self._made):
            self._repeated = len(self._made)
            self._expert = chain([self._made.pop()], self._expert)
        copy = self.tasks(self.task.split).game(self.task)
        return copy.summary([(call, said_by(copy, call)) for call in known])
