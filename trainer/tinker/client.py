"""A client of the Tinker API: a session, one model, and the model's samplers.

What is sent is sent again until it is answered, under the same number, which the server does once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from ludus.background import end_task
from ludus.errors import (
    ConfigError,
    RequestRejected,
    RequestTimeout,
    ServerFault,
    ServerUnreachable,
    SessionGone,
    Unauthorized,
)
from ludus.secret import NO_SECRET, Secret
from ludus.wire.address import is_loopback
from ludus.wire.resolver import SharedResolver

from . import wire
from .wire import PROTOBUF, Datum, ForwardBackward, Passed, SampledSequence

SCHEME = "tinker"
SDK_VERSION = "0.38.0"
"""The version of the SDK whose wire this is, as servers ask for it."""
PATIENCE_S = 300.0
"""Seconds for which a request is sent again; the SDK's own."""
RESULT_S = 3600.0
"""Seconds that a result may take."""
REQUEST_S = 60.0
BEAT_S = 10.0
MAX_WAIT_S = 30.0
FIRST_PAUSE_S, MAX_PAUSE_S = 0.02, 2.0
"""The least seconds from one question for a result to the next, at first and at most."""
RETRIED = (408, 409, 429)
PROMISES = 8
"""How often an answer is sampled whose promise the server has lost."""
CHUNK_ROWS, CHUNK_BYTES = 1024, 4_000_000
"""The most rows of a request, and about how many bytes they have."""


def address_of(learner: str) -> str:
    """Return the HTTP address of `tinker://HOST[:PORT][/PATH]`: plain on this machine, TLS
    elsewhere; `tinker+http://` is plain anywhere.

    Raises:
        ConfigError: the address has another scheme, or no host.

    >>> address_of("tinker://127.0.0.1:8765"), address_of("tinker://trainer.example/api")
    ('http://127.0.0.1:8765', 'https://trainer.example/api')
    """
    parts = urlsplit(learner)
    if parts.scheme not in (SCHEME, f"{SCHEME}+http") or not parts.hostname:
        raise ConfigError(f"learner is tinker://HOST:PORT, got {learner!r}")
    plain = parts.scheme == f"{SCHEME}+http" or is_loopback(parts.hostname)
    return f"{'http' if plain else 'https'}://{parts.netloc}{parts.path}".rstrip("/")


class TinkerClient:
    """Talks to a server; everything runs on one event loop.

    Args:
        learner: the address, as `tinker://HOST:PORT`.
        key: the API key.
    """

    def __init__(self, learner: str, key: Secret = NO_SECRET) -> None:
        self.address = address_of(learner)
        self.key = key
        self.session = ""
        self.model = ""
        self.max_length = 0
        """The most tokens of a prompt and its answer; 0 where the server does not say."""
        self._http: aiohttp.ClientSession | None = None
        self._beat: asyncio.Task[None] | None = None
        self._numbers = self._samplers = self._samples = 0

    async def open(self, base_model: str) -> None:
        """Begin a session.

        Raises:
            ConfigError: the server does not have the model.
            RemoteError: it does not answer, or refuses.
        """
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=REQUEST_S),
            connector=aiohttp.TCPConnector(resolver=SharedResolver()),
        )
        await self.post("client/config", {"sdk_version": SDK_VERSION})
        listed = await self.ask("GET", "get_server_capabilities")
        models = {each.get("model_name"): each for each in listed["supported_models"]}
        if base_model not in models:
            raise ConfigError(
                f"the learner at {self.address} has no model {base_model!r}, but "
                f"{', '.join(map(str, models)) or 'none'}: name one by learner_model"
            )
        self.max_length = int(models[base_model].get("max_context_length") or 0)
        body = {"sdk_version": SDK_VERSION, "tags": ["ludus"], "user_metadata": None}
        self.session = (await self.post("create_session", body))["session_id"]
        self._beat = asyncio.create_task(self._keep_alive(), name="ludus-tinker-beat")

    async def close(self) -> None:
        """End the session with all models."""
        beat, self._beat = self._beat, None
        await end_task(beat)
        if self._http is None:
            return
        try:
            if self.session:
                await self._finish()
        finally:
            http, self._http = self._http, None
            await http.close()

    async def _finish(self) -> None:
        with suppress(Exception):  # it ends by itself too
            body = {"reason": {"type": "success"}, "detail": None}
            async with asyncio.timeout(REQUEST_S):
                await self.post(f"sessions/{self.session}/finish", body)

    # --- the model ------------------------------------------------------------------------------

    async def create(self, base_model: str, lora: Mapping[str, Any] | None) -> None:
        """Make the model, with an adapter or whole."""
        body = {"session_id": self.session, "model_seq_id": 0, "base_model": base_model}
        created = await self.do("create_model", {**body, **({"lora_config": lora} if lora else {})})
        self.model = created["model_id"]

    async def load(self, path: str) -> None:
        """Load a checkpoint, optimizer included, into the model."""
        await self.do("load_weights", {**self._next(), "path": path, "optimizer": True})

    async def passed(
        self,
        data: Sequence[Datum],
        loss: str,
        config: Mapping[str, float] | None = None,
        *,
        forward_only: bool = False,
    ) -> Passed:
        """Make a pass over rows, in as many requests as needed.

        Args:
            data: the rows.
            loss: a name that the server knows.
            config: settings of the loss; by default the server's own.
            forward_only: whether the gradient is left out.

        Returns:
            the log-probabilities of all rows, and the sums.
        """
        promises = list[Any]()
        for part in chunks(data):
            self._numbers += 1
            request = ForwardBackward(
                self.model, self._numbers, part, loss, {**(config or {})}, forward_only
            )
            promises.append(
                await self.post("forward_backward", wire.write_forward_backward(request))
            )
        logprobs, metrics = list[wire.Array](), dict[str, float]()
        for promise in promises:
            passed = wire.read_passed(await self.result(promise["request_id"]))
            logprobs += passed.logprobs
            for name, value in passed.metrics.items():
                metrics[name] = metrics.get(name, 0.0) + value
        return Passed(logprobs, metrics)

    async def step(self, settings: wire.AdamParams) -> dict[str, float]:
        """Make an update, and return the metrics."""
        body = {**self._next(), "adam_params": msgspec.to_builtins(settings)}
        return (await self.do("optim_step", body)).get("metrics") or {}

    async def save(self, name: str) -> str:
        """Write a checkpoint to continue from, and return the path."""
        body = {**self._next(), "path": name, "overwrite": True}
        path: str = (await self.do("save_weights", body))["path"]
        return path

    async def snapshot(self) -> str:
        """Open a sampling session of the current weights, and return the session's name."""
        body = {**self._next(), "sampling_session_seq_id": self._samplers}
        self._samplers += 1
        name: str = (await self.do("save_weights_for_sampler", body))["sampling_session_id"]
        return name

    async def sample(
        self,
        sampler: str,
        ids: Sequence[int],
        settings: Mapping[str, Any],
        *,
        prompt_logprobs: bool = False,
    ) -> tuple[SampledSequence, list[float] | None]:
        """Sample an answer, and score the prompt if that is asked for.

        Raises:
            SessionGone: the sampler is gone, or `PROMISES` promises in a row were lost.
        """
        for left in reversed(range(PROMISES)):
            number = self._samples
            self._samples += 1
            body = {
                "sampling_session_id": sampler,
                "seq_id": number,
                "num_samples": 1,
                "prompt": {"chunks": [{"type": "encoded_text", "tokens": list(ids)}]},
                "sampling_params": settings,
                "prompt_logprobs": prompt_logprobs,
            }
            # A refusal here is of the sampler itself, which no repetition brings back.
            promise = await self.post("asample", body)
            try:
                samples, scored = wire.read_samples(await self.result(promise["request_id"]))
            except SessionGone:
                if not left:
                    raise
                continue  # the promise was lost, as after a restart: sampled anew
            return samples[0], scored
        raise AssertionError("the last promise is answered or raises")

    def _next(self) -> dict[str, Any]:
        self._numbers += 1
        return {"model_id": self.model, "seq_id": self._numbers}

    # --- requests -------------------------------------------------------------------------------

    async def do(self, path: str, body: Any) -> Any:
        """Submit a request, and wait for the outcome."""
        return await self.result((await self.post(path, body))["request_id"])

    async def result(self, request_id: str) -> Any:
        """Return the result of a promise: bytes of protobuf, or JSON.

        Raises:
            RequestRejected: it failed, by a mistake of ours.
            ServerFault: it failed, by one of theirs.
            RequestTimeout: it was not there in time.
        """
        until, pause_s = time.monotonic() + RESULT_S, FIRST_PAUSE_S
        while (asked_at := time.monotonic()) < until:
            outcome = await self.post("retrieve_future", {"request_id": request_id})
            if isinstance(outcome, bytes):
                return outcome
            if "error" in outcome:
                kind = ServerFault if outcome.get("category") == "server" else RequestRejected
                raise kind(f"the learner at {self.address}: {outcome['error']}")
            if outcome.get("type") != "try_again":
                return outcome
            # One server holds the question while there is no result, another answers at once.
            await asyncio.sleep(asked_at + pause_s - time.monotonic())
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        raise RequestTimeout(f"the learner at {self.address} gave no result in {RESULT_S:g} s")

    async def post(self, path: str, body: Any) -> Any:
        """Send JSON, or the bytes of a protobuf message; see `ask`."""
        return await self.ask("POST", path, body)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request until it is answered, and return JSON or the bytes of protobuf.

        Raises:
            ServerUnreachable: nobody answers.
            Unauthorized, SessionGone, RequestRejected: the request is refused.
        """
        until, wait_s, why = time.monotonic() + PATIENCE_S, 0.25, ""
        while True:
            try:
                status, kind, data = await self._once(method, path, body)
            except (aiohttp.ClientError, TimeoutError) as error:
                why = str(error) or type(error).__name__
            else:
                if status == 200:
                    return data if kind == PROTOBUF else msgspec.json.decode(data)
                why = f"status {status}: {data[:300].decode(errors='replace')}"
                if status < 500 and status not in RETRIED:
                    kinds = {401: Unauthorized, 403: Unauthorized, 410: SessionGone}
                    refused = kinds.get(status, RequestRejected)
                    raise refused(f"the learner at {self.address} refuses {path}: {why}")
            if time.monotonic() + wait_s > until:
                raise ServerUnreachable(f"the learner at {self.address} does not answer: {why}")
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_WAIT_S)

    async def _once(self, method: str, path: str, body: Any) -> tuple[int, str, bytes]:
        assert self._http is not None, "the client is not open"
        protobuf = isinstance(body, bytes)
        headers = {"X-API-Key": self.key.reveal() or "tml-none", "Accept": f"{PROTOBUF}, */*"}
        if body is not None:
            headers["Content-Type"] = PROTOBUF if protobuf else "application/json"
        data = body if protobuf or body is None else msgspec.json.encode(body)
        url = f"{self.address}/api/v1/{path}"
        async with self._http.request(method, url, data=data, headers=headers) as reply:
            return reply.status, reply.content_type, await reply.read()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            with suppress(aiohttp.ClientError, TimeoutError):
                await self._once("POST", "session_heartbeat", {"session_id": self.session})


def chunks(data: Sequence[Datum]) -> list[Sequence[Datum]]:
    """Cut rows into requests.

    >>> import numpy as np
    >>> row = Datum(np.zeros(3, "i4"), {})
    >>> [len(part) for part in chunks([row] * 2050)]
    [1024, 1024, 2]
    """
    parts, first, size = list[Sequence[Datum]](), 0, 0.0
    for number, datum in enumerate(data):
        more = 4 * len(datum.tokens) + sum(each.nbytes for each in datum.inputs.values())
        if number > first and (number - first == CHUNK_ROWS or size + more > CHUNK_BYTES):
            parts.append(data[first:number])
            first, size = number, 0.0
        size += more
    return [*parts, data[first:]] if len(data) else []
