"""The engines of a pool: the state of each, and which engine knows a prompt's beginning.

Prompts are cut into blocks, and the name of a block depends on all blocks before it, so that the
longest known beginning is found by looking up each block once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from ludus.agent.engine import Engine, Generation, Sampling
from ludus.agent.images import PlacedImage
from ludus.agent.trajectory import Finish
from ludus.wire.fleet import FleetMember


class PooledEngine(Engine, Protocol):
    """An engine that can be lost and come back."""

    @property
    def name(self) -> str:
        """The name in messages."""
        ...

    async def check(self) -> None:
        """Return if the engine is alive.

        Raises:
            RemoteError: the engine does not answer; `EngineLost` if it will not by itself.
        """
        ...

    async def revive(self) -> None:
        """Restart the engine, or wait for a restart; the weights are then unknown.

        Raises:
            LudusError: the engine did not come back in time.
        """
        ...


@dataclass(eq=False)
class PoolRequest:
    """A request to the pool, with what was sampled so far; engines may change under way."""

    ids: Sequence[int]
    sampling: Sampling
    images: Sequence[PlacedImage]
    target: Seat | None = None
    """Where the request continues once its engine has given it up."""
    losses: int = 0
    """How many engines were lost while they sampled this request."""
    aborted: bool = False
    made: Generation = field(
        default_factory=lambda: Generation(ids=[], logprobs=[], finish=Finish.ABORT, versions=[])
    )

    @property
    def prompt(self) -> list[int]:
        """The ids to continue: the prompt, and what was sampled elsewhere."""
        return [*self.ids, *self.made.ids]

    @property
    def rest(self) -> Sampling:
        """The sampling of the remaining tokens, which continues the random numbers."""
        done = len(self.made.ids)
        return msgspec.structs.replace(
            self.sampling,
            max_tokens=self.sampling.max_tokens - done,
            drawn=self.sampling.drawn + done,
        )

    @property
    def key(self) -> tuple[int, int, int]:
        """A name of what is asked, which is the same when the caller makes the request again."""
        return hash(tuple(self.ids)), self.sampling.seed, self.sampling.max_tokens

    def add(self, part: Generation) -> None:
        """Append what an engine has sampled."""
        self.made = Generation(
            ids=self.made.ids + part.ids,
            logprobs=self.made.logprobs + part.logprobs,
            finish=part.finish,
            versions=self.made.versions + part.versions,
        )


class Seat(FleetMember):
    """An engine's place in a pool.

    Args:
        index: the place.
        engine: the engine.
    """

    def __init__(self, index: int, engine: PooledEngine) -> None:
        super().__init__(engine.name, "was given no weights yet")
        self.index = index
        self.engine = engine
        self.running: set[PoolRequest] = set()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def open(self) -> None:
        """Let the engine serve, with a new `lost` future: the old future stays set for those who
        waited on the engine when it was lost.
        """
        super().open()
        self.lost = asyncio.get_running_loop().create_future()

    def shut(self, why: str) -> None:
        """Take the engine out of routing, and wake all who wait for an answer."""
        super().shut(why)
        if not self.lost.done():
            self.lost.set_result(None)


BLOCK = 16
"""How many tokens are a block; a prompt's last tokens that fill no block are not looked at."""
MAX_BLOCKS = 200_000
"""How many blocks are remembered: the prompts of some hundred episodes."""


class PrefixRoutes:
    """Remembers the engine that was last given each beginning of a prompt."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self.max_blocks = max_blocks
        self._holders: OrderedDict[int, int] = OrderedDict()

    def longest(self, ids: Sequence[int]) -> tuple[int, int]:
        """Return how many tokens of a prompt an engine has seen, and the index of that engine;
        (0, -1) if none has.
        """
        names = _names(ids)
        for count in range(len(names), 0, -1):
            holder = self._holders.get(names[count - 1])
            if holder is not None:
                return count * BLOCK, holder
        return 0, -1

    def note(self, ids: Sequence[int], holder: int) -> None:
        """Remember that an engine computes `ids`; the beginnings unused for longest are dropped."""
        for name in _names(ids):
            self._holders[name] = holder
            self._holders.move_to_end(name)
        while len(self._holders) > self.max_blocks:
            self._holders.popitem(last=False)

    def forget(self, holder: int) -> None:
        """Forget an engine whose keys and values are gone."""
        gone = [name for name, engine in self._holders.items() if engine == holder]
        for name in gone:
            del self._holders[name]


def _names(ids: Sequence[int]) -> list[int]:
    names: list[int] = []
    name = 0
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        # Hashes of integers are the same in every process, unlike those of strings.
        name = hash((name, *ids[start : start + BLOCK]))
        names.append(name)
    return names
