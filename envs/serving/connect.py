"""`ludus.connect(url)`: the environments and verifiers of a server, used like local objects."""

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
from ludus.wire.address import choose
from ludus.wire.carrier import Carrier, ClientStream
from ludus.wire.client import AsyncTransport, Client, RetryPolicy, Traffic, run_blocking
from ludus.wire.codec import Format
from ludus.wire.sync_transport import SyncTransport

from ..gym import GymEnv
from .client import BlockingSession, OneByOne, RemoteSession, card_of, send_batch
from .env_wire import EnvCard, EnvList, Operation, Reply


class RemoteServer:
    """A connection to a server, or to several servers that share the sessions.

    `make` and `envs` block; the objects from `make_async` and `verifier` are async. Nothing is sent
    before the first call that needs an answer.
    """

    def __init__(
        self, urls: list[str], *, token: Secret, policy: RetryPolicy, format: Format, stream: bool
    ) -> None:
        self.urls = urls
        self.traffic = Traffic()
        """Counts the requests and sessions of all connections."""
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
        """Return the cards of the environments that the server offers; asked once and kept."""
        return self.env_list().envs

    def env_list(self) -> EnvList:
        """Return what the server says of its environments; asked once and kept."""
        if self._cards is None:
            self._cards = run_blocking(self._sync_clients[0].get("/v1/envs", EnvList))
        return self._cards

    def make(self, env_id: str) -> GymEnv:
        """Return a `gymnasium.Env` whose episodes are played on the server.

        Raises:
            UnknownEnv: the server does not offer it; the message names the nearest id.
        """
        card = card_of(env_id, self.env_list())
        session = BlockingSession(
            env_id, lambda key: OneByOne(self._sync_clients[choose(self.urls, key)]), card=card
        )
        return GymEnv(session, run_blocking, remake=partial(self.make, env_id))

    def make_async(self, env_id: str) -> RemoteSession:
        """Return an environment with `async` reset, step and close. Nothing is sent before the
        first reset, and operations that are begun together share one request.
        """
        return RemoteSession(env_id, lambda key: self._operators[choose(self.urls, key)])

    def verifiers(self) -> list[VerifierCard]:
        """Return the cards of the verifiers that the server offers."""
        verifier_list = run_blocking(self._sync_clients[0].get("/v1/verifiers", VerifierList))
        return verifier_list.verifiers

    def verifier(self, name: str) -> RemoteVerifier:
        """Return a verifier on the server, used as `await verifier.score(sample)`; sends nothing
        yet.
        """
        return RemoteVerifier(name, self._scorers)

    def group_verifier(self, name: str) -> RemoteGroupVerifier:
        """Return a verifier that compares the answers of a group: `await
        verifier.score_group(samples)`.
        """
        return RemoteGroupVerifier(name, self._scorers)

    def score(self, verifier: str, sample: Sample) -> Verdict:
        """Score an answer; blocks.

        Raises:
            UnknownVerifier: the server does not offer it; the message names the nearest name.
            RemoteError: the server could not be reached.
        """
        self.traffic.operations += 1
        body = {"verifier": verifier, "sample": sample}
        return run_blocking(self._sync_clients[0].post("/v1/score", body, Verdict))

    def score_batch(self, verifier: str, samples: Sequence[Sample]) -> list[Verdict]:
        """Score many answers in a single request; blocks.

        Raises:
            LudusError: the first error among the answers.
        """
        scores = [Score(verifier=verifier, sample=sample) for sample in samples]
        self.traffic.operations += len(scores)
        answers = run_blocking(send_scores(self._sync_clients[0], scores))
        return [_verdict(answer) for answer in answers]

    def close(self) -> None:
        """Close the blocking connections; `aclose` closes the async connections too."""
        run_blocking(self._sync_transport.close())

    async def aclose(self) -> None:
        """Close all connections; call this on the event loop that used the client."""
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
        url: `http://host:port`, or several addresses separated by commas: each session lives on one
            of the servers.
        token: the server's bearer token, in clear or as `env:NAME`; the default is the environment
            variable LUDUS_TOKEN.
        timeout_s: the limit in seconds for one call with all its retries. It should exceed the
            server's own limit on a step, so that the server's answer comes first.
        attempt_timeout_s: the limit in seconds for one attempt; the same operation is then sent
            again, so that a reply lost on the way is recovered.
        format: `msgpack` or `json`.
        stream: whether async operations go over one long-lived connection to each server. Where the
            server or a proxy does not support streams, plain HTTP is used without a warning.

    Raises:
        ConfigError: an address is missing or repeated, or the format is unknown.
    """
    urls = [part.strip().rstrip("/") for part in url.split(",") if part.strip()]
    if not urls or len(set(urls)) != len(urls):
        raise ConfigError(f"connect() takes one or more different addresses, got {url!r}")
    if format not in ("json", "msgpack"):
        raise ConfigError(f"format is 'json' or 'msgpack', got {format!r}")
    given_token = token if token is not None else os.environ.get("LUDUS_TOKEN", "")
    return RemoteServer(
        urls,
        token=Secret.of(given_token),
        policy=RetryPolicy(timeout_s=timeout_s, attempt_timeout_s=attempt_timeout_s),
        format=Format.JSON if format == "json" else Format.MSGPACK,
        stream=stream,
    )
