"""`ludus/textworld-v0`: the policy plays text games of TextWorld (Côté et al., arXiv 1806.11532).

    user       Your task: ... unlock the safe with the latchkey.
               You are in the studio. You see: safe (locked). Exits: west. You carry: nothing.
    assistant  go west
    user       You are in the cellar. You see: shelf (on it: latchkey). Exits: east. ...
    ...
    assistant  unlock safe with latchkey                              reward 1

TextWorld's own maker makes the games, from seeds or beforehand in a pool; they run in its Python
engine.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message

from ...protocol import Info, TextEnv
from ...tasks import TaskSet, digest_of
from .games import GameFolder, Games, MadeGames, Situation, TextworldGame, View, answer

MAX_COMMAND_CHARS = 200

Stepped = tuple[str, float, bool, bool, Info]


class TextWorld(TextEnv):
    """An environment of text games that are won by commands: go, take, open, unlock, put, cook.

    Args:
        games: a folder of games made beforehand; empty makes games from seeds, which takes about a
            second each.
        rooms: the number of rooms of a game that is made.
        objects: the number of objects of a game that is made.
        min_steps: the fewest commands that win a game.
        max_steps: the most commands that win a game.
        slack: the most turns, as a multiple of the commands that win.
        show_commands: whether every observation lists the possible commands.
        dense: reward the progress of each turn, which adds up to 1 for winning and is negative
            farther from the goal than the start; else reward 1 for winning.
        seed: seeds the split of a folder that has no folders for splits.
        validation: the share of such a folder for validation.
        test: the share of such a folder for test.

    Raises:
        ConfigError: a setting is out of range, or there are no games.
        MissingExtra: the extra `textworld` is not installed.
    """

    system_prompt = "Play the game: do what the task says, one command a turn."
    answer_format = "Say nothing but the command."

    def __init__(
        self,
        games: str = "",
        *,
        rooms: int = 4,
        objects: int = 6,
        min_steps: int = 2,
        max_steps: int = 5,
        slack: float = 3.0,
        show_commands: bool = True,
        dense: bool = False,
        seed: int = 0,
        validation: float = 0.1,
        test: float = 0.1,
    ) -> None:
        for name, value, limit in (("rooms", rooms, 20), ("objects", objects, 40)):
            if not 1 <= value <= limit:
                raise ConfigError(f"{name} must be from 1 to {limit}, got {value}")
        if not 1 <= min_steps <= max_steps <= 20:
            raise ConfigError(
                f"need 1 <= min_steps <= max_steps <= 20, got {min_steps}, {max_steps}"
            )
        if not 1 <= slack <= 100:
            raise ConfigError(f"slack must be from 1 to 100, got {slack:g}")
        self.games: Games = (
            GameFolder(games, seed=seed, validation=validation, test=test)
            if games
            else MadeGames(rooms=rooms, objects=objects, steps=(min_steps, max_steps))
        )
        self.slack = slack
        self.show_commands = show_commands
        self.dense = dense
        self.game: TextworldGame | None = None
        self.situation = Situation((), (), None)
        self._length = 1

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set for games that are made, else the games of the folder."""
        return self.games.tasks(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Start the game of the task."""
        self.game = self.games.game(self.task)
        self.situation = self.game.reset()
        self._length = max(1, len(self.situation.way or ()))
        turns = math.ceil(self.slack * self._length)
        briefing = msgspec.structs.replace(self.briefing(), max_turns=turns)
        task = f"Your task: {' '.join(self.game.objective.split())}"
        return f"{task}\n\n{self._with_commands(View(self.situation).look())}", {
            "briefing": briefing
        }

    def step(self, action: str | Message) -> Stepped:
        """Carry out a command; an impossible command changes nothing."""
        assert self.game is not None  # the session refuses a step before reset
        text = action if isinstance(action, str) else action.text
        # The possible command that was meant, ignoring case and extra spaces, or None.
        folded_text = " ".join(text.split()).casefold() if len(text) <= MAX_COMMAND_CHARS else ""
        possible = {command.casefold(): command for command in self.situation.commands}
        command = possible.get(folded_text)
        if command is None:
            seen = self._with_commands("That is not possible now.")
            return seen, 0.0, False, False, {"invalid": 1}
        before = self._progress()
        self.situation = self.game.step(command)
        seen = answer(command, self.situation, self.game.descriptions)
        has_ended = self.situation.won or self.situation.lost
        reward = self._progress() - before if self.dense else float(self.situation.won)
        return (seen if has_ended else self._with_commands(seen)), reward, has_ended, False, {}

    def _progress(self) -> float:
        """Return how much of the way is done, from -1 to 1; 0 at the start.

        The number is a potential: the reward is the difference of two turns, so that what a detour
        earns is taken back on the way. Below 0 is farther from the goal than the start: if that
        cost nothing, commands at random would earn on average. A game that is lost is at -1.
        """
        if self.situation.won:
            return 1.0
        remaining = self.situation.way
        return -1.0 if remaining is None else max(-1.0, 1 - len(remaining) / self._length)

    def _with_commands(self, seen: str) -> str:
        if not self.show_commands:
            return seen
        # In the order of the alphabet the last command often wins: `take`, `unlock`.
        commands = sorted(
            self.situation.commands, key=lambda command: digest_of(self.task.id, command)
        )
        return f"{seen}\n\nPossible: {', '.join(commands)}"

    def demonstrate(self) -> str | None:
        """Return the next command of a winning way; where the game is lost, any command."""
        ways = self.situation.way or self.situation.commands
        return ways[0] if ways else None
