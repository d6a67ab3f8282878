"""A ludus server as a sandbox: every call is written once and works over either transport.

Whatever is sent again is safe to repeat: programs and gradings leave nothing behind, and cells
carry a `seq`. A program with a network may have left something there, so it is sent again only if
the server says that it was not started.

What keeps the server from answering is an `infra_error` or an `unavailable` verdict, never a
program's fault. Only what a repetition cannot help raises: a wrong token, or a wrong request.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from ludus.errors import (
    ConfigError,
    LudusError,
    Overloaded,
    RemoteError,
    RequestRejected,
    Unauthorized,
    UnknownName,
)
from ludus.verdict import Verdict
from ludus.wire.client import Client, HttpRequest, Retry, RetryPolicy, Transport, protocol_error
from ludus.wire.codec import Format
from ludus.wire.faults import error_of, is_too_large

from ..grading.hidden_tests import KINDS, Grading, TestResult
from ..languages import LANGUAGES, UnknownLanguage
from ..protocol import DEFAULT_LIMITS, Execution, ExecutionStatus
from .sandbox_wire import (
    MAX_BATCH,
    ExecuteBatchReply,
    ExecuteBatchRequest,
    ExecuteBody,
    ExecuteItem,
    GradeBody,
    GradeReply,
    SandboxCard,
)

T = TypeVar("T")

TOKEN_VARIABLE = "LUDUS_TOKEN"

QUEUE_S = 30.0
"""Seconds that a call waits for a slot on the server.

After that the server answers 429, and the call is sent again.
"""

PATIENCE = 8.0
"""On an overloaded machine, a server gives a program up after this many times its wall limit."""

MARGIN_S = 15.0
"""The time for the network in both directions, and for ending a program, in seconds."""

Answer = Execution | LudusError


class SandboxCalls:
    """The calls to a sandbox server.

    Args:
        url: the server's address, `http://host:port`.
        transport: carries the requests.
        token: the server's bearer token; by default the environment variable LUDUS_TOKEN.
        timeout_s: how long, in seconds from the first failure, a call is tried again, while the
            server is overloaded, out of reach or restarting.
    """

    def __init__(
        self, url: str, transport: Transport, *, token: str | None, timeout_s: float
    ) -> None:
        self.client = Client(
            url,
            transport,
            token=os.environ.get(TOKEN_VARIABLE, "") if token is None else token,
            policy=RetryPolicy(timeout_s=timeout_s),
            format=Format.MSGPACK,
        )

    async def card(self) -> SandboxCard:
        """Return the server's tier, languages and bounds.

        Raises:
            RemoteError: the server gives no answer.
        """
        return await self.client.get("/v1/sandbox", SandboxCard)

    async def execute(self, body: ExecuteBody) -> Execution:
        """Run a program.

        Raises:
            ConfigError, UnknownLanguage: the server cannot run the program.
            Unauthorized: the token is wrong.
        """
        on = Overloaded if body.network else LudusError
        body = msgspec.structs.replace(body, queue_timeout_s=body.queue_timeout_s or QUEUE_S)
        try:
            request = self.client.build("POST", "/v1/execute", body)
            return await self.call(work_s(body), request, Execution, on=on)
        except LudusError as error:
            return execution_of(error)

    async def execute_batch(self, bodies: Sequence[ExecuteBody]) -> list[Answer]:
        """Run many programs; return, in order, each execution or the reason for the failure.

        Programs that find no free slot are sent again.

        Raises:
            Unauthorized: the token is wrong.
        """
        answers: dict[int, Answer] = {}
        pending = list(range(len(bodies)))
        retry: Retry | None = None
        while pending:
            for position, answer in zip(pending, await self._batches(bodies, pending), strict=True):
                answers[position] = answer
            before = pending
            # A program with a network may have acted already; it is sent again only if it found no
            # slot.
            pending = [
                position
                for position in before
                if isinstance(answers[position], Overloaded)
                or (getattr(answers[position], "retryable", False) and not bodies[position].network)
            ]
            # As long as programs get through, the server is not hopeless: the time starts again.
            if retry is None or len(pending) < len(before):
                retry = Retry(self.client.policy, self.client.rng)
            if pending:
                error = answers[pending[0]]
                assert isinstance(error, LudusError)
                try:
                    seconds = retry.wait_s(error, met=self.client.contact.made)
                except LudusError:
                    break  # no time is left for another request
                await self.client.transport.sleep(seconds)
        return [_settled(answers[item]) for item in range(len(bodies))]

    async def _batches(self, bodies: Sequence[ExecuteBody], pending: list[int]) -> list[Answer]:
        answers: list[Answer] = []
        for start in range(0, len(pending), MAX_BATCH):
            answers += await self._batch(
                [bodies[position] for position in pending[start : start + MAX_BATCH]]
            )
        for place, index in enumerate(pending):
            answer = answers[place]
            # The output did not fit into the reply of the batch, and is asked for by itself.
            if isinstance(answer, LudusError) and is_too_large(answer):
                if bodies[index].network:  # it has run, and may have acted
                    answers[place] = Execution(
                        status=ExecutionStatus.INFRA_ERROR,
                        detail="its output is lost: it did not fit the reply of its batch, and a "
                        "program with a network is not run twice; send it alone",
                    )
                    continue
                try:
                    answers[place] = await self.execute(bodies[index])
                except (ConfigError, UnknownName) as error:
                    answers[place] = error
        return answers

    async def _batch(self, bodies: Sequence[ExecuteBody]) -> list[Answer]:
        """Send a single request, or two halves where the request is too large for the server."""
        on = Overloaded if any(body.network for body in bodies) else LudusError
        longest_s = sum(map(work_s, bodies))
        batch = ExecuteBatchRequest(items=list(bodies))
        try:
            request = self.client.build("POST", "/v1/execute_batch", batch)
            reply = await self.call(longest_s, request, ExecuteBatchReply, on=on)
        except RemoteError as error:
            if is_too_large(error) and len(bodies) > 1:
                half = len(bodies) // 2
                return [*await self._batch(bodies[:half]), *await self._batch(bodies[half:])]
            try:
                return [execution_of(error)] * len(bodies)
            except ConfigError as refused:
                if not is_too_large(error):
                    raise
                return [refused]  # the other programs of the batch are none the worse for it
        if len(reply.items) != len(bodies):
            raise protocol_error(f"{self.client.url} answered {len(reply.items)} of {len(bodies)}")
        return [_answer(item) for item in reply.items]

    async def grade(self, body: GradeBody) -> Grading:
        """Grade a solution.

        Raises:
            ConfigError: an unknown kind, or more time than the server grants.
            Unauthorized: the token is wrong.
        """
        per_case = KINDS.get(body.kind) == "stdin"
        longest_s = body.options.timeout_s * (len(body.tests) if per_case else 1)
        body = msgspec.structs.replace(body, queue_timeout_s=body.queue_timeout_s or QUEUE_S)
        try:
            request = self.client.build("POST", "/v1/grade", body)
            reply = await self.call(longest_s, request, GradeReply)
        except LudusError as error:
            execution = execution_of(error)
            return Grading(Verdict.unavailable(execution.detail))
        results = (
            TestResult(result.passed, result.detail, result.seconds) for result in reply.results
        )
        return Grading(reply.verdict, tuple(results), reply.tier)

    async def call(
        self,
        longest_s: float,
        request: HttpRequest,
        as_type: type[T],
        *,
        on: type[LudusError] = LudusError,
    ) -> T:
        """Make a call that may take `longest_s` on the server, with repetitions while time is left.

        Args:
            longest_s: how long the work itself may take, in seconds.
            request: the request, as `self.client.build` makes it.
            as_type: the type of the reply.
            on: the errors after which the call is repeated, where that may help at all.

        Raises:
            LudusError: what the server met, or why it could not be asked.
        """
        attempt_s = QUEUE_S + PATIENCE * longest_s + MARGIN_S

        async def attempt() -> T:
            return await self.client.attempt(request, as_type, attempt_s)

        return await try_patiently(self.client, attempt, on=on)


async def try_patiently(
    client: Client, attempt: Callable[[], Awaitable[T]], *, on: type[LudusError] = LudusError
) -> T:
    """Try until success, a hopeless error, or the end of the client's patience.

    The patience begins with the first failure, since the work itself may take longer.

    Args:
        client: gives the patience (`policy.timeout_s`).
        attempt: makes a single attempt.
        on: the errors after which to try again, where that may help at all.

    Raises:
        LudusError: the error of the last attempt.
    """
    try:
        return await attempt()
    except on as error:
        failed = error
    return await client.keep_trying(lambda _: attempt(), on=on, failed=failed)


def work_s(body: ExecuteBody) -> float:
    """Return how long a program may run, in seconds, with the compiler."""
    language = LANGUAGES.get(body.language)
    compiles = language is None or bool(language.compile)
    compile_s = (body.compile_s or DEFAULT_LIMITS.compile_s) if compiles else 0.0
    return (body.timeout_s or DEFAULT_LIMITS.timeout_s) + compile_s


def execution_of(error: LudusError) -> Execution:
    """Return what a failed call means for the program.

    Raises:
        LudusError: the request itself is at fault, as it would be locally.
    """
    if isinstance(error, RequestRejected):
        raise ConfigError(str(error)) from error
    if isinstance(error, UnknownName):
        raise UnknownLanguage(*error.args) from error
    if isinstance(error, RemoteError) and not isinstance(error, Unauthorized):
        detail = f"{type(error).__name__}: {error}"
        return Execution(status=ExecutionStatus.INFRA_ERROR, detail=detail)
    raise error


def _answer(item: ExecuteItem) -> Answer:
    if item.error is not None:
        return error_of(item.error, item.status)
    return item.execution or protocol_error(f"an item with status {item.status} and nothing in it")


def _settled(answer: Answer) -> Answer:
    """Return the final answer to an item: an error only where the item cannot be run."""
    if isinstance(answer, Execution):
        return answer
    try:
        return execution_of(answer)
    except LudusError as error:
        return error
