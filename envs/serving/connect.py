"""`ludus.connect(url)`: environments and verifiers of a server as if they were here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from typing import Self

from ludus.errors import ConfigError, LudusError
from ludus.rewards import Sample
from ludus.rewards.serving.client import RemoteGroupVerifier, RemoteVerifier, send_scores
from ludus.rewards.serving.reward_wire import Score, VerifierCard, VerifierList
from ludus.secret import Secret
from ludus.verdict import Verdict
from ludus.wire.affinity import choose
from ludus.wire.async_transport import AsyncTransport
from ludus.wire.carrier import Carrier
from ludus.wire.client import Client, RetryPolicy, Traffic, run_blocking
from ludus.wire.codec import Format
from ludus.wire.stream_client import ClientStream
from ludus.wire.sync_transport import SyncTransport

from ..gym import GymEnv
from .client import BlockingSession, RemoteSession, card_of
from .env_wire import EnvCard, EnvList, Operation, Reply
from .operators import OneByOne, send_batch


class RemoteServer:
    """One server, or several that share the sessions between them.

    `make` and `envs` block; what `make_async` and `verifier` give is async. Nothing is sent before
    it is needed.
    """

    def __init__(
        self, urls: list[str], *, token: Secret, policy: RetryPolicy, format: Format, stream: bool
    ) -> None:
        self.urls = urls
        self.traffic = Traffic()
        """Counts over all connections."""
        self._async_transport = AsyncTransport()
        self._sync_transport = SyncTransport()
        build = partial(Client, token=token, policy=policy, format=format, traffic=self.traffic)
        self.async_clients = [build(url, self._async_transport) for url in urls]
        self._sync_clients = [build(url, self._sync_transport) for url in urls]
        self._streams = [
            ClientStream(client, self._async_transport) if stream else None
            for client in self.async_clients
        ]
        pairs = list(zip(self.async_clients, self._streams, strict=True))
        self._operators: list[Carrier[Operation, Reply]] = [
            Carrier(*pair, Reply, send_batch) for pair in pairs
        ]
        self._scorers: list[Carrier[Score, Verdict]] = [
            Carrier(*pair, Verdict, send_scores) for pair in pairs
        ]
        self._cards: EnvList | None = None

    def envs(self) -> list[EnvCard]:
        """What environments it offers."""
        return self._env_list().envs

    def make(self, env_id: str) -> GymEnv:
        """A `gymnasium.Env` played over there.

        Raises:
            UnknownEnv: not served; the message names the near miss.
        """
        card = card_of(env_id, self._env_list())
        session = BlockingSession(env_id, self._one_by_one, card=card)
        return GymEnv(session, run_blocking, remake=partial(self.make, env_id))

    def make_async(self, env_id: str) -> RemoteSession:
        """An environment with `async` reset, step and close; calls made together travel together.
        Nothing is sent before the first reset.
        """
        return RemoteSession(env_id, self._operator)

    def verifiers(self) -> list[VerifierCard]:
        """What verifiers it offers."""
        served = run_blocking(self._sync_clients[0].get("/v1/verifiers", VerifierList))
        return served.verifiers

    def verifier(self, name: str) -> RemoteVerifier:
        """A verifier over there: `await verifier.score(sample)`. Nothing is sent before."""
        return RemoteVerifier(name, self._scorers)

    def group_verifier(self, name: str) -> RemoteGroupVerifier:
        """One that also compares the answers of a group: `await verifier.score_group(samples)`."""
        return RemoteGroupVerifier(name, self._scorers)

    def score(self, verifier: str, sample: Sample) -> Verdict:
        """Score one answer; blocks.

        Raises:
            UnknownVerifier: not served; the message names the near miss.
            RemoteError: the server could not be asked.
        """
        self.traffic.operations += 1
        body = {"verifier": verifier, "sample": sample}
        return run_blocking(self._sync_clients[0].post("/v1/score", body, Verdict))

    def score_batch(self, verifier: str, samples: Sequence[Sample]) -> list[Verdict]:
        """Score many answers in one request; blocks.

        Raises:
            LudusError: the first that an item failed with.
        """
        scores = [Score(verifier=verifier, sample=sample) for sample in samples]
        self.traffic.operations += len(scores)
        answers = run_blocking(send_scores(self._sync_clients[0], scores))
        return [_verdict(answer) for answer in answers]

    def close(self) -> None:
        """Close the blocking connections."""
        run_blocking(self._sync_transport.close())

    async def aclose(self) -> None:
        """Close all connections; call it on the event loop that used them."""
        self.close()
        await asyncio.gather(*(carrier.close() for carrier in self._operators))
        await asyncio.gather(*(carrier.close() for carrier in self._scorers))
        for stream in self._streams:
            if stream is not None:
                await stream.close()
        await self._async_transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _env_list(self) -> EnvList:
        if self._cards is None:
            self._cards = run_blocking(self._sync_clients[0].get("/v1/envs", EnvList))
        return self._cards

    def _operator(self, key: str) -> Carrier[Operation, Reply]:
        return self._operators[choose(self.urls, key)]

    def _one_by_one(self, key: str) -> OneByOne:
        return OneByOne(self._sync_clients[choose(self.urls, key)])


def _verdict(answer: Verdict | LudusError) -> Verdict:
    if isinstance(answer, LudusError):
        raise answer
    return answer


def connect(
    url: str,
    *,
    token: str | Secret | None = None,
    timeout_s: float = 120.0,
    attempt_timeout_s: float = 40.0,
    format: str = "msgpack",
    stream: bool = True,
) -> RemoteServer:
    """Connect to `ludus serve`.

    Args:
        url: `http://host:port`, or several separated by commas: each session lives on one of them.
        token: the server's bearer token, itself or as `env:NAME`; by default the environment
            variable LUDUS_TOKEN.
        timeout_s: for one call, all its retries together; longer than the server's own limit on a
            step, so that its answer comes first.
        attempt_timeout_s: for one of them; a reply lost on the way is then asked for again.
        format: `msgpack` or `json`.
        stream: carry what is asked asynchronously over one long-lived connection to each server.
            Where the server or a proxy has none, plain HTTP is used without being told.

    Raises:
        ConfigError: an address that is none.
    """
    urls = [part.strip().rstrip("/") for part in url.split(",") if part.strip()]
    if not urls or len(set(urls)) != len(urls):
        raise ConfigError(f"connect() takes one or more different addresses, got {url!r}")
    if format not in ("json", "msgpack"):
        raise ConfigError(f"format is 'json' or 'msgpack', got {format!r}")
    given = token if token is not None else os.environ.get("LUDUS_TOKEN", "")
    return RemoteServer(
        urls,
        token=Secret.of(given),
        policy=RetryPolicy(timeout_s=timeout_s, attempt_timeout_s=attempt_timeout_s),
        format=Format.JSON if format == "json" else Format.MSGPACK,
        stream=stream,
    )
