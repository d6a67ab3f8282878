"""An engine over HTTP: a vLLM server whose weights are replaced while it samples."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence

import msgspec

from ludus.agent import Generation, Sampling
from ludus.errors import ConfigError, RequestTimeout, ServerFault

from .calls import (
    ENGINE_PREFIX,
    GENERATE,
    GenerateBody,
    GenerateReply,
    SamplingBody,
    read_generation,
    read_scores,
    sampling_body,
)
from .client import Client
from .probe import Probe, compare
from .served import Served
from .server import Server
from .weight_files import write_weights

ABORT_TIMEOUT_S = 60.0
ABORT_AGAIN_S = 0.05
"""A request that was on its way is not known to the server yet, so an abort is sent again."""


class Loaded(msgspec.Struct):
    """What one worker says of a load."""

    tensors: int = 0
    error: str = ""


class LoadReply(msgspec.Struct):
    """Of `/collective_rpc`: one result a worker."""

    results: list[Loaded]


class Ignored(msgspec.Struct):
    """A reply whose status says all."""


class VLLMEngine:
    """Samples from a vLLM server.

    What a request samples is not fixed by its seed: that is the local engine's.

    Args:
        client: of the server.
        served: what it serves.
        weights_folder: where weights are written for it; see `write_weights`.
        server: its process, if it is ours to end.
        probe: what to compare after a publish.
        keep_cache: whether running requests keep the keys and values of older weights over a
            publish; otherwise those are computed again with the new.
        request_timeout_s: for one answer, and for loading weights.
    """

    def __init__(
        self,
        client: Client,
        served: Served,
        *,
        weights_folder: str = "",
        server: Server | None = None,
        probe: Probe | None = None,
        keep_cache: bool = False,
        request_timeout_s: float = 600.0,
    ) -> None:
        self.client = client
        self.served = served
        self.probe = probe
        self.keep_cache = keep_cache
        self.request_timeout_s = request_timeout_s
        self.publishes = 0
        self.probed = 0.0
        """The difference the last probe found, in nats."""
        self.weights_folder = weights_folder
        self._server = server
        self._version = served.version
        self._salt = uuid.uuid4().hex
        self._control = asyncio.Lock()
        self._held = False
        self._unproved = False
        self._running: set[str] = set()

    @property
    def version(self) -> int:
        """Of the weights now in use."""
        return self._version

    @property
    def max_length(self) -> int:
        """Most tokens of prompt and answer together: one less than the server's, which needs
        room for a token even to score.
        """
        return self.served.max_model_len - 1

    async def generate(self, ids: Sequence[int], sampling: Sampling) -> Generation:
        """Continue `ids`; see `Engine.generate`, but for the seed.

        Raises:
            ConfigError: the request cannot be served.
            RemoteError: the server failed, or did not answer in time.
        """
        if not ids:
            raise ConfigError("cannot continue an empty prompt")
        if len(ids) + sampling.max_tokens > self.max_length:
            raise ConfigError(
                f"{len(ids)} prompt tokens and {sampling.max_tokens} to sample exceed the engine's "
                f"{self.max_length}"
            )
        reply = await self._generate(ids, sampling_body(sampling))
        return read_generation(reply, unlabelled=self.served.version)

    async def logprobs(self, ids: Sequence[int]) -> list[float]:
        """Log-probability of each id at temperature 1; the first reads 0."""
        if len(ids) > self.max_length:
            raise ConfigError(f"{len(ids)} tokens exceed the engine's {self.max_length}")
        scoring = SamplingBody(max_tokens=1, prompt_logprobs=0)
        return read_scores(await self._generate(ids, scoring), ids)

    async def set_weights(self, weights: Mapping[str, object], version: int) -> None:
        """Put new weights in place while requests run; they go on with them.

        Raises:
            ServerFault: the server could not load them.
            StaleWeights: it says it has, but samples from others.
        """
        async with self._control:
            path = await asyncio.to_thread(write_weights, weights, folder=self.weights_folder)
            try:
                await self._swap(str(path), version)
            finally:
                path.unlink(missing_ok=True)
            self.publishes += 1
            await self._prove()

    async def pause(self) -> None:
        """Hold sampling; requests wait."""
        async with self._control:
            self._held = True
            await self._pause(clear_cache=False)

    async def resume(self) -> None:
        """Go on."""
        async with self._control:
            self._held = False
            await self._act("/resume")

    async def abort(self) -> None:
        """End our requests; each answers with what it has. Those of other clients go on."""
        deadline = time.monotonic() + ABORT_TIMEOUT_S
        ours = set(self._running)
        while left := ours & self._running:
            if time.monotonic() > deadline:
                raise RequestTimeout(
                    f"{len(left)} requests did not end within {ABORT_TIMEOUT_S:g} s of their abort"
                )
            # An empty list would abort those of everyone.
            await self._act("/abort_requests", {"request_ids": [ENGINE_PREFIX + i for i in left]})
            await asyncio.sleep(ABORT_AGAIN_S)

    async def close(self) -> None:
        """End the server if it is ours, else only our requests."""
        try:
            if self._server is None and self._running:
                await self.abort()
        finally:
            await self.client.close()
            if self._server is not None:
                await self._server.close()

    async def _generate(self, ids: Sequence[int], sampling: SamplingBody) -> GenerateReply:
        request_id = uuid.uuid4().hex
        body = GenerateBody(
            request_id=request_id,
            model=self.served.model,
            token_ids=ids,
            cache_salt=self._salt,
            sampling_params=sampling,
        )
        self._running.add(request_id)
        try:
            return await self.client.post(
                GENERATE, body, GenerateReply, timeout_s=self.request_timeout_s
            )
        finally:
            self._running.discard(request_id)

    async def _swap(self, path: str, version: int) -> None:
        """Load a file between two steps of the server, and label what it samples from then on.

        Paused, so that no token is sampled between the load and its label. Whatever happens, the
        server is not left paused.
        """
        await self._pause(clear_cache=not self.keep_cache)
        try:
            await self._load(path)
            await self._act("/update_weight_version", {"new_version": str(version)})
            self._version = version
            # Cached prefixes of older weights are found by nobody.
            self._salt = f"{uuid.uuid4().hex}-{version}"
        finally:
            if not self._held:
                await self._act("/resume")

    async def _prove(self) -> None:
        """Compare with the learner when it is time; while sampling is held, later."""
        if self.probe is None:
            return
        self._unproved |= self.probe.due(self.publishes)
        if self._unproved and not self._held:
            self.probed = await compare(self, self.probe)
            self._unproved = False

    async def _load(self, path: str) -> None:
        reply = await self.client.post(
            "/collective_rpc",
            {"method": "ludus_load", "kwargs": {"path": path}},
            LoadReply,
            timeout_s=self.request_timeout_s,
        )
        failed = [one.error for one in reply.results if one.error]
        if failed:
            raise ServerFault(
                f"a vLLM worker could not load {path!r} ({failed[0]}); a server elsewhere needs "
                "vllm.weights_folder on a disk that both see"
            )

    async def _pause(self, *, clear_cache: bool) -> None:
        # `keep` alone also drops caches, against vLLM's own description of it.
        params = {"mode": "keep", "clear_cache": str(clear_cache).lower()}
        await self._act("/pause", params=params)

    async def _act(
        self, path: str, body: object = None, *, params: Mapping[str, str] | None = None
    ) -> None:
        await self.client.post(path, body or {}, Ignored, params=params)
