"""An engine in a separate process with separate threads: sampling and learning overlap, and a crash
of either leaves the other alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ludus.agent.engine import Generation, Sampling, WeightSource
from ludus.agent.images import PlacedImage
from ludus.errors import EngineLost

from ...models.weight_files import as_file
from ..local import EngineClosed
from .life import EngineCalls, EngineLife
from .messages import (
    DoneReply,
    EngineSpec,
    GenerateCall,
    GeneratedReply,
    LoadCall,
    ScoreCall,
    ScoredReply,
    SwitchCall,
)


class ProcessEngine:
    """A local engine in another process of this machine.

    The engine has random weights until the first `set_weights`. When the process is killed or
    hangs, every waiting call raises `EngineLost`, and so does every later call, until `revive`; an
    `EnginePool` does that in the background.

    Args:
        spec: what the process builds.
        name: the name in messages.
        log: the file for the output of the process.
        startup_timeout_s: the time limit for the start of the process.
    """

    def __init__(
        self,
        spec: EngineSpec,
        *,
        name: str = "the engine process",
        log: Path,
        startup_timeout_s: float = 600.0,
    ) -> None:
        self.spec = spec
        self.name = name
        self.log = log
        self.startup_timeout_s = startup_timeout_s
        self._life: EngineCalls | None = None
        self._max_length = 0
        self._version = spec.version
        self._closed = False

    @property
    def version(self) -> int:
        """The version of the current weights."""
        return self._version

    @property
    def max_length(self) -> int:
        """The most tokens of prompt and answer together; 0 before the first start."""
        return self._max_length

    @property
    def pid(self) -> int:
        """The id of the process.

        Raises:
            EngineLost: no process runs.
        """
        life = self._living()
        assert isinstance(life, EngineLife)
        return life.worker.pid

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        """Sample a continuation of `ids`; see `Engine.generate`.

        Raises:
            EngineLost: the process is gone, or ended meanwhile.
        """
        call = GenerateCall(list(ids), sampling, list(images))
        return (await self._living().ask(call, GeneratedReply)).generation

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        """Return the log-probability of each id at temperature 1; the first is 0."""
        call = ScoreCall(list(ids), list(images))
        return (await self._living().ask(call, ScoredReply)).logprobs

    async def set_weights(self, source: WeightSource, version: int) -> None:
        """Install new weights by a file, between two forward passes; running requests continue.

        Raises:
            WeightsRefused: the weights are not those of this model.
            EngineLost: the process is gone, or ended meanwhile.
        """
        async with as_file(source) as file:
            await self._living().ask(LoadCall(str(file.path), version), DoneReply)
        self._version = version

    async def pause(self) -> None:
        """Stop sampling until `resume`; requests wait."""
        await self._switch("pause")

    async def resume(self) -> None:
        """Continue the sampling that `pause` stopped."""
        await self._switch("resume")

    async def abort(self) -> None:
        """Answer every request with the tokens sampled so far."""
        await self._switch("abort")

    async def check(self) -> None:
        """Return once the process has answered a ping.

        Raises:
            EngineLost: the process is gone.
        """
        await self._living().ping()

    async def revive(self) -> None:
        """Start the process, after ending an older process; the weights are random.

        Raises:
            LudusError: the process does not start.
        """
        if self._closed:
            raise EngineClosed(f"{self.name} was closed")
        if self._life is not None:
            await self._life.end()
        self._life = await self._begin()
        self._max_length = self._life.max_length

    async def _begin(self) -> EngineCalls:
        """Start an engine."""
        return await EngineLife.begin(
            self.spec, name=self.name, log=self.log, timeout_s=self.startup_timeout_s
        )

    async def close(self) -> None:
        """End the process; waiting calls raise `EngineLost`."""
        self._closed = True
        if self._life is not None:
            await self._life.end()

    async def _switch(self, act: Literal["pause", "resume", "abort"]) -> None:
        await self._living().ask(SwitchCall(act), DoneReply)

    def _living(self) -> EngineCalls:
        if self._closed:
            raise EngineClosed(f"{self.name} was closed")
        if self._life is None:
            raise EngineLost(f"{self.name} was not started")
        return self._life
