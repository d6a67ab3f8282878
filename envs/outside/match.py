"""A game of several players, each a policy with a separate episode.

    match = Match("textarena/TicTacToe-v0")
    episodes = await asyncio.gather(*(
        play(make_async(seat), policy, role=f"player-{seat.number}")
        for seat, policy in zip(match.seats, policies)
    ))

Each seat is an environment: its observations are what its player sees, its steps wait for the turns
of the others, and its reward is what the game gives its player at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from ludus.errors import ConfigError, RewardUnavailable
from ludus.messages import Message
from ludus.verdict import Verdict

from ..gym import run_sync
from ..protocol import Briefing, Info, TextEnv
from ..registry import build_env
from ..session import EnvSession
from ..tasks import TaskSet
from .peer_env import PeerEnv

TURN_TIMEOUT_S = 600.0
"""For how long a player may wait for the turns of the others, in seconds."""

Work = Coroutine[Any, Any, Any]
"""A reset or a step of the game."""


class MatchTurn(msgspec.Struct, frozen=True):
    """What a player is told at the player's turn, or at the end of the game."""

    observation: str = ""
    reward: float = 0.0
    over: bool = False
    failure: Verdict | None = None
    """Why the game has no rewards."""
    briefing: Briefing = Briefing()
    info: Info = {}


class Match:
    """A game whose seats are all played by policies, on a single event loop.

    A game begins when every seat was reset, on the task and the seed of the first of them, and the
    next when every seat was reset again. A seat that is reset or closed in the midst of a game, or
    a turn that takes too long, ends the game for all, without a reward.

    Args:
        env_id: a game that tells its players, such as `textarena/TicTacToe-v0`.
        turn_timeout_s: for how long a player may wait for the others, in seconds.
        arguments: the arguments of the game, such as `players` or `variant`.

    Raises:
        ConfigError: the environment is not a game of several players.
    """

    def __init__(
        self, env_id: str, *, turn_timeout_s: float = TURN_TIMEOUT_S, **arguments: Any
    ) -> None:
        game = build_env(env_id, **{**arguments, "seat": -1})
        if not isinstance(game, PeerEnv) or game.about.players < 2:
            game.close()
            raise ConfigError(f"{env_id} is not a game of several players")
        self.id, self.turn_timeout_s = env_id, turn_timeout_s
        self.game = game
        self._session = EnvSession(game, env_id)
        self.seats = [MatchSeat(self, number) for number in range(game.about.players)]
        """The seats, in the order of their players' numbers."""
        self._waiting: dict[int, asyncio.Future[MatchTurn]] = {}
        self._asked: tuple[str, int | None] = ("", None)
        self._turn_of = -1
        """The player whose turn it is; -1 between games, and while one is made."""
        self._playing = False
        self._number = 0
        """The number of the game: what a game answers after its end is told to nobody."""
        self._one_call = asyncio.Lock()
        """Held while the game answers, also if nobody waits for the answer any more."""
        self._briefing = Briefing()

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of the game."""
        return self._session.tasks(split)

    async def join(self, number: int, task: str, seed: int | None) -> MatchTurn:
        """Take part in the next game; return at the player's first turn, or at the end."""
        self._break(f"player {number} began another game")
        if not self._waiting:
            self._asked = (task, seed)
        mine = self._wait(number)
        if len(self._waiting) < len(self.seats):
            return await self._next_turn(mine, number)
        named, given = self._asked
        self._playing = True
        return await self._next_turn(
            mine, number, self._session.reset(seed=given, options={"task": named})
        )

    async def act(self, number: int, action: str | Message) -> MatchTurn:
        """Play an action at the player's turn; return at the player's next turn, or at the end."""
        if self._turn_of != number:
            return MatchTurn(
                over=True, failure=Verdict.unavailable("another player ended the game")
            )
        return await self._next_turn(self._wait(number), number, self._session.step(action))

    async def leave(self, number: int) -> None:
        """Leave the game; a game in progress ends for all players."""
        self._break(f"player {number} left the game")
        self._waiting.pop(number, None)

    async def close(self) -> None:
        """End a game that is being played, and release the match."""
        self._end(Verdict.unavailable("the match was closed"))
        await self._session.close()

    def _wait(self, number: int) -> asyncio.Future[MatchTurn]:
        mine = self._waiting[number] = asyncio.get_running_loop().create_future()
        return mine

    async def _next_turn(
        self, mine: asyncio.Future[MatchTurn], number: int, work: Work | None = None
    ) -> MatchTurn:
        """Let the game do `work`, and return what the player is told next."""
        try:
            if work is not None:
                await self._go_on(work)
            return await self._heard(mine, number)
        except asyncio.CancelledError:
            self._give_up(mine, number, f"player {number} gave up")
            raise

    async def _heard(self, mine: asyncio.Future[MatchTurn], number: int) -> MatchTurn:
        try:
            return await asyncio.wait_for(mine, self.turn_timeout_s)
        except TimeoutError:
            late = f"player {number} waited for {self.turn_timeout_s:g} s for the others"
            self._give_up(mine, number, late)
            return MatchTurn(over=True, failure=Verdict.unavailable(late))

    def _give_up(self, mine: asyncio.Future[MatchTurn], number: int, why: str) -> None:
        if self._waiting.get(number) is mine:
            del self._waiting[number]
            self._break(why)

    async def _go_on(self, work: Work) -> None:
        """Let the game answer, and tell the player whose turn it is, or all at the end."""
        game = self._number
        try:
            # The game is answered in order, whatever becomes of those who asked.
            answered = await asyncio.shield(asyncio.create_task(self._answer(work, game)))
            if game == self._number:
                self._tell_next(answered)
        except RewardUnavailable as error:
            if game == self._number:
                self._end(error.verdict)
        except Exception as error:
            if game == self._number:
                self._end(Verdict.unavailable(f"{type(error).__name__}: {error}"))
            raise

    async def _answer(self, work: Work, game: int) -> Any:
        async with self._one_call:
            if game == self._number:
                return await asyncio.to_thread(run_sync, work)
            work.close()
            return None

    def _tell_next(self, answered: Any) -> None:
        observation, info = answered[0], answered[-1]
        if isinstance(info.get("briefing"), Briefing):
            self._briefing = info["briefing"]
        if "rewards" in info:
            outcome = {"reason": info["reason"], "rewards": info["rewards"]}
            turns = {
                number: MatchTurn(
                    info["shown"][str(number)],
                    info["rewards"][str(number)],
                    over=True,
                    info=outcome,
                )
                for number in self._waiting
            }
            self._end_with(turns)
            return
        self._turn_of = int(info["player"])
        turn = MatchTurn(str(observation), briefing=self._briefing)
        _tell(self._waiting.pop(self._turn_of), turn)

    def _break(self, why: str) -> None:
        """End a game that is being played or made."""
        if self._playing:
            self._end(Verdict.unavailable(why))

    def _end(self, failure: Verdict) -> None:
        self._end_with(dict.fromkeys(self._waiting, MatchTurn(over=True, failure=failure)))

    def _end_with(self, turns: dict[int, MatchTurn]) -> None:
        self._playing, self._turn_of = False, -1
        self._number += 1
        for number, turn in turns.items():
            _tell(self._waiting[number], turn)
        self._waiting.clear()


class MatchSeat(TextEnv):
    """The seat of a player in a match; made by `Match`."""

    deterministic = False  # the others' actions decide, too

    def __init__(self, match: Match, number: int) -> None:
        self.match = match
        self.number = number

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of the game."""
        return self.match.tasks(split)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Wait for all players, and for this player's first turn."""
        turn = await self.match.join(self.number, self.task.id, seed)
        if turn.over:
            raise RewardUnavailable(
                turn.failure or Verdict.invalid(f"no turn for player {self.number} in this game")
            )
        return turn.observation, {"briefing": turn.briefing, "player": self.number}

    async def step(self, action: str | Message) -> tuple[str, float | Verdict, bool, bool, Info]:
        """Play an action, and wait for this player's next turn, or for the end."""
        turn = await self.match.act(self.number, action)
        reward = turn.reward if turn.failure is None else turn.failure
        return turn.observation, reward, turn.over, False, turn.info

    async def close(self) -> None:
        """Leave the match."""
        await self.match.leave(self.number)


def _tell(future: asyncio.Future[MatchTurn], turn: MatchTurn) -> None:
    if not future.done():  # a player that gave up waiting
        future.set_result(turn)
