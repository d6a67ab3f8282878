"""`ludus/textworld-v0`: text games of TextWorld (Côté et al., arXiv 1806.11532).

    user       Your task: ... unlock the safe with the latchkey.
               You are in the studio. You see: safe (locked). Exits: west. You carry: nothing.
    assistant  go west
    user       You are in the cellar. You see: shelf (on it: latchkey). Exits: east. ...
    ...
    assistant  unlock safe with latchkey                              reward 1

Games are made by TextWorld's own maker, from seeds or before in a pool, and run in its Python
engine.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message

from ..protocol import Info, TextEnv
from ..tasks import TaskSet
from .engine import Game
from .games import GameFolder, Games, MadeGames
from .view import Situation, View, answer

MOST_COMMAND_CHARS = 200

Stepped = tuple[str, float, bool, bool, Info]


class TextWorld(TextEnv):
    """Win text games by commands: go, take, open, unlock, put, cook.

    Args:
        games: a folder of games made before; empty makes them from seeds, about a second each.
        rooms: of a game that is made.
        objects: in it.
        min_steps: fewest commands that win it.
        max_steps: most.
        slack: turns a policy has, as a multiple of the commands that win.
        show_commands: whether every observation lists what is possible now.
        dense: the reward is progress, turn by turn; it adds up to 1. Else 1 for winning.
        seed: of the split of a folder without folders for splits.
        validation: its share for validation.
        test: its share for test.

    Raises:
        ConfigError: a setting cannot be, or there are no games.
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
        for name, value, most in (("rooms", rooms, 20), ("objects", objects, 40)):
            if not 1 <= value <= most:
                raise ConfigError(f"{name} must be from 1 to {most}, got {value}")
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
        self.game: Game | None = None
        self.situation = Situation((), (), None)
        self._length = 1

    def tasks(self, split: str) -> TaskSet:
        """Endless for games that are made, else those of the folder."""
        return self.games.tasks(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Begin the game of the task."""
        self.game = self.games.game(self.task)
        self.situation = self.game.reset()
        self._length = max(1, len(self.situation.way or ()))
        turns = math.ceil(self.slack * self._length)
        briefing = msgspec.structs.replace(self.briefing(), max_turns=turns)
        task = f"Your task: {' '.join(self.game.objective.split())}"
        return f"{task}\n\n{self._shown(View(self.situation).look())}", {"briefing": briefing}

    def step(self, action: str | Message) -> Stepped:
        """Carry out a command, if it is possible now."""
        assert self.game is not None  # the session refuses a step before reset
        said = (action if isinstance(action, str) else action.text).rpartition("</think>")[2]
        command = self._possible(said)
        if command is None:
            return self._shown("That is not possible now."), 0.0, False, False, {"invalid": 1}
        before = self._progress()
        self.situation = self.game.step(command)
        seen = answer(command, self.situation, self.game.descriptions)
        over = self.situation.won or self.situation.lost
        reward = self._progress() - before if self.dense else float(self.situation.won)
        return (seen if over else self._shown(seen)), reward, over, False, {}

    def _possible(self, said: str) -> str | None:
        """The command that was meant, whatever case and space it is written with."""
        if len(said) > MOST_COMMAND_CHARS:
            return None
        wanted = " ".join(said.split()).casefold()
        return next((one for one in self.situation.commands if one.casefold() == wanted), None)

    def _progress(self) -> float:
        """How much of the way lies behind: a potential, so that what detours give is taken back."""
        if self.situation.won:
            return 1.0
        way = self.situation.way
        return 0.0 if way is None else max(0.0, 1 - len(way) / self._length)

    def _shown(self, seen: str) -> str:
        if not self.show_commands:
            return seen
        return f"{seen}\n\nPossible: {', '.join(self.situation.commands)}"

    def demonstrate(self) -> str | None:
        """The next command of a way that wins; where there is none any more, any command."""
        ways = self.situation.way or self.situation.commands
        return ways[0] if ways else None
