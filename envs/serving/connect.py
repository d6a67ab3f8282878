"""`ludus.connect(url)`: the environments and verifiers of a server, used like local objects."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from ludus.errors import ConfigError, LudusError
from ludus.rewards import Sample
from ludus.rewards.serving.client import (
    RemoteGroupVerifier,
    RemoteVerifier,
    answers_of,
    batch_of,
    batches_of,
)
from ludus.rewards.serving.reward_wire import Score, ScoreBatchReply, VerifierCard, VerifierList
from ludus.secret import Secret
from ludus.verdict import Verdict
from ludus.wire.address import format_served, parse_served
from ludus.wire.client import AsyncTransport, Body, Client, RetryPolicy, Traffic, Way, run_blocking
from ludus.wire.codec import Format
from ludus.wire.replicas import BlockingReplicas, Replicas, SessionSeats
from ludus.wire.roster import Roster
from ludus.wire.sync_transport import SyncTransport
from ludus.wire.tls import client_context

from ..gym import GymEnv
from .client import EPISODES, BlockingSession, RemoteSession, card_of
from .env_wire import EnvCard, EnvList

T = TypeVar("T")
UNIX = "unix:"


class RemoteServer:
    """A connection to a server, or to several servers that share the sessions.

    `make` and `envs` block; the objects from `make_async` and `verifier` are async. Nothing is sent
    before the first call that needs an answer.
    """

    def __init__(
        self,
        roster: Roster,
        *,
        token: Secret,
        policy: RetryPolicy,
        format: Format,
        stream: bool,
        way: Way,
    ) -> None:
        self.traffic = Traffic()
        """Counts the requests and sessions of all connections."""
        build = partial(Client, token=token, policy=policy, format=format, traffic=self.traffic)
        self._sync_transport = SyncTransport(way=way)
        transport, looks = AsyncTransport(way=way), AsyncTransport(way=way)
        self.replicas = Replicas(
            roster, lambda url: build(url, transport), transport, looks, stream=stream
        )
        self._blocking = BlockingReplicas(roster, lambda url: build(url, self._sync_transport))
        self._cards: EnvList | None = None

    @property
    def urls(self) -> list[str]:
        """The addresses of the servers, as far as is known."""
        return self.replicas.roster.urls

    def envs(self) -> list[EnvCard]:
        """Return the cards of the environments that the server offers; asked once and kept."""
        return self.env_list().envs

    def env_list(self) -> EnvList:
        """Return the server's list of environments, which is asked for once and kept."""
        if self._cards is None:
            self._cards = self._ask("GET", "/v1/envs", None, EnvList)
        return self._cards

    def make(self, env_id: str, **arguments: Any) -> GymEnv:
        """Return a `gymnasium.Env` whose episodes are played on the server.

        Raises:
            UnknownEnv: the server does not offer it; the message names the nearest id.
            ConfigError: there are arguments, which the server fixes; the message says where they
                go, and what a client chooses.
        """
        card = card_of(env_id.partition("?")[0], self.env_list())
        _refuse_arguments(env_id, arguments, list(card.reset_options))
        session = BlockingSession(env_id, SessionSeats(self._blocking, EPISODES), card=card)
        return GymEnv(session, run_blocking, remake=partial(self.make, env_id))

    def make_async(self, env_id: str, **arguments: Any) -> RemoteSession:
        """Return an environment with `async` reset, step and close. Nothing is sent before the
        first reset, and operations that are begun together share one request.

        Raises:
            ConfigError: there are arguments; see `make`.
        """
        _refuse_arguments(env_id, arguments, ["what its card names in reset_options"])
        return RemoteSession(env_id, SessionSeats(self.replicas, EPISODES))

    def verifiers(self) -> list[VerifierCard]:
        """Return the cards of the verifiers that the server offers."""
        return self._ask("GET", "/v1/verifiers", None, VerifierList).verifiers

    def verifier(self, name: str, **options: Any) -> RemoteVerifier:
        """Return a verifier on the server, used as `await verifier.score(sample)`; sends nothing
        yet.

        Raises:
            ConfigError: there are options, which the server fixes; the message says where they go.
        """
        _refuse_options(name, options)
        return RemoteVerifier(name, self.replicas)

    def group_verifier(self, name: str, **options: Any) -> RemoteGroupVerifier:
        """Return a verifier that compares the answers of a group: `await
        verifier.score_group(samples)`.

        Raises:
            ConfigError: there are options; see `verifier`.
        """
        _refuse_options(name, options)
        return RemoteGroupVerifier(name, self.replicas)

    def score(self, verifier: str, sample: Sample) -> Verdict:
        """Score an answer; blocks.

        Raises:
            UnknownVerifier: the server does not offer it; the message names the nearest name.
            RemoteError: the server could not be reached.
        """
        self.traffic.operations += 1
        return self._ask("POST", "/v1/score", {"verifier": verifier, "sample": sample}, Verdict)

    def score_batch(self, verifier: str, samples: Sequence[Sample]) -> list[Verdict]:
        """Score many answers in as few requests as the server's limits allow; blocks.

        Raises:
            LudusError: the first error among the answers.
        """
        scores = [Score(verifier=verifier, sample=sample) for sample in samples]
        self.traffic.operations += len(scores)
        verdicts: list[Verdict] = []
        for batch in batches_of(scores):
            reply = self._ask("POST", "/v1/score_batch", batch_of(batch), ScoreBatchReply)
            for answer in answers_of(reply, batch):
                if isinstance(answer, LudusError):
                    raise answer
                verdicts.append(answer)
        return verdicts

    def _ask(self, method: str, path: str, body: Body | None, as_type: type[T]) -> T:
        return run_blocking(self._blocking.call(method, path, body, as_type))

    def close(self) -> None:
        """Close the blocking connections; `aclose` closes the async connections too."""
        run_blocking(self._sync_transport.close())

    async def aclose(self) -> None:
        """Close all connections; call this on the event loop that used the client."""
        self.close()
        await self.replicas.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def connect(
    url: str,
    *,
    token: str | Secret | None = None,
    timeout_s: float = 120.0,
    attempt_timeout_s: float = 40.0,
    format: str = "msgpack",
    stream: bool = True,
    authority: str = "",
    certificate: str = "",
) -> RemoteServer:
    """Connect to `ludus serve`.

    Args:
        url: `http://host:port`, several addresses separated by commas, a name that resolves to
            several servers (`dns+http://host:port`), or a file with an address a line
            (`file:/path`); see `Roster`. Each session lives on one of the servers. A server with a
            Unix socket is `unix:/path`.
        token: the server's bearer token, in clear or as `env:NAME`; the default is the environment
            variable LUDUS_TOKEN.
        timeout_s: the limit in seconds for one call with all its retries. It should exceed the
            server's own limit on a step, so that the server's answer comes first.
        attempt_timeout_s: the limit in seconds for one attempt; the same operation is then sent
            again, so that a reply lost on the way is recovered.
        format: `msgpack` or `json`.
        stream: whether async operations go over one long-lived connection to each server. Where the
            server or a proxy does not support streams, plain HTTP is used without a warning.
        authority: a PEM file with the authorities to trust, instead of the system's.
        certificate: a PEM file with a certificate and key to show to the server.

    Raises:
        ConfigError: an address is missing, malformed or repeated, a name does not resolve, a file
            cannot be read, a limit is not above 0, or the format is unknown.
    """
    if format not in ("json", "msgpack"):
        raise ConfigError(f"format is 'json' or 'msgpack', got {format!r}")
    if not isinstance(url, str):  # a caller without types
        raise ConfigError(
            "connect() takes one or more addresses in one text, separated by commas, got "
            f"{url!r:.80}"
        )
    for name, limit in (("timeout_s", timeout_s), ("attempt_timeout_s", attempt_timeout_s)):
        if not 0 < limit < math.inf:
            raise ConfigError(f"{name} is a number of seconds above 0, got {limit!r}")
    given_token = token if token is not None else os.environ.get("LUDUS_TOKEN", "")
    is_socket = url.startswith(UNIX)
    roster = Roster("http://localhost" if is_socket else url)
    way = Way(
        tls=client_context(authority, certificate),
        server_name=roster.server_name if url.startswith("dns+https://") else "",
        socket=url.removeprefix(UNIX) if is_socket else "",
    )
    return RemoteServer(
        roster,
        token=Secret.of(given_token),
        policy=RetryPolicy(timeout_s=timeout_s, attempt_timeout_s=attempt_timeout_s),
        format=Format.JSON if format == "json" else Format.MSGPACK,
        stream=stream,
        way=way,
    )


def _refuse_options(name: str, options: Mapping[str, Any]) -> None:
    bare, written = parse_served(name)
    if options or written:
        served = format_served(bare, {**written, **options})
        raise ConfigError(f"a server fixes the options of its verifiers: ludus serve {served!r}")


def _refuse_arguments(env_id: str, arguments: Mapping[str, Any], choices: Sequence[str]) -> None:
    name, written = parse_served(env_id)
    if arguments or written:
        served = format_served(name, {**written, **arguments})
        raise ConfigError(
            f"a server fixes the constructor arguments of its environments: ludus serve "
            f"{served!r}; a client chooses in reset(seed=..., options=...): "
            f"{', '.join(['task', 'split', *choices])}"
        )
