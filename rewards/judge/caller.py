"""Calls to a judge's server: answers are cached, equal questions that are under way are joined, and
the calls are bounded in number, time and tokens.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from ludus.errors import BudgetExceeded, ConfigError, RequestTimeout
from ludus.llm.client import ChatClient
from ludus.llm.limits import TokenBudget
from ludus.messages import Message
from ludus.wire.client import RetryPolicy

from ..measured import KnownJudge
from .card import JudgeCard
from .prompt import VERSION, JudgeQuestion, repaired
from .reading import UnreadableVerdict
from .store import JudgementStore

T = TypeVar("T")


class JudgeServer(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a judge's server and the settings of each request.

    Args:
        base_url: address of an OpenAI-compatible server, up to and with `/v1`.
        model: name of the model on that server.
        temperature: 0 makes judgements repeatable where the server is.
        max_tokens: most tokens of one answer.
        guided: send a JSON schema as `response_format`; servers that refuse the field need False.
        concurrency: most requests to this server at once.
        deadline_s: seconds for one question with its retries and its repair.

    Raises:
        ConfigError: a bound that is not positive, or a temperature below 0.
    """

    base_url: str
    model: str
    temperature: float = 0.0
    max_tokens: int = 512
    guided: bool = True
    concurrency: int = 64
    deadline_s: float = 120.0

    def __post_init__(self) -> None:
        for name in ("max_tokens", "concurrency", "deadline_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"a judge's {name} must be positive, got {getattr(self, name)}")
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(f"a judge's temperature must be 0 or more, got {self.temperature}")

    @property
    def attempt_s(self) -> float:
        """Seconds of a single attempt: half the deadline, so that a second attempt fits."""
        return self.deadline_s / 2


@dataclass(slots=True)
class Effort:
    """Counts of the requests, cached answers, repairs and tokens that judging took."""

    asked: int = 0
    """Requests that a server answered."""
    cached: int = 0
    """Answers that came from the store."""
    joined: int = 0
    """Questions that waited for an equal one under way."""
    repaired: int = 0
    """Answers that could not be read and were asked for again."""
    tokens: int = 0

    def add(self, effort: Effort) -> None:
        """Add the counts of `effort` to these counts."""
        self.asked += effort.asked
        self.cached += effort.cached
        self.joined += effort.joined
        self.repaired += effort.repaired
        self.tokens += effort.tokens

    def metrics(self) -> dict[str, float]:
        """Return the counts as metrics of a verdict."""
        return {
            "judge/asked": float(self.asked), "judge/cached": float(self.cached + self.joined),
            "judge/repaired": float(self.repaired), "judge/tokens": float(self.tokens),
        }  # fmt: skip


class _Kept(msgspec.Struct, frozen=True):
    """The part of an answer that the store keeps: what a verdict is read from, nothing that varies
    from call to call.
    """

    text: str
    finish: str
    top: dict[str, float] | None = None
    """Log-probabilities of the first token's candidates, where they were asked for."""
    tokens: int = 0


@dataclass(slots=True)
class _Fetch:
    """A request under way, shared by all callers of an equal question. The request is cancelled
    once no caller waits for the answer.
    """

    task: asyncio.Task[_Kept]
    waiting: int = 0
    given_up: bool = False
    """Whether the last caller left before the answer came; nobody may join the request then."""

    async def answer(self) -> _Kept:
        """Wait for the server's answer together with the other callers of the request."""
        self.waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self.waiting -= 1
            if not self.waiting and not self.task.done():
                self.given_up = True
                self.task.cancel()


@dataclass(slots=True)
class JudgeCaller:
    """Asks a single judge, through a client of the event loop that asks.

    Args:
        server: address of the judge and settings of each request.
        store: keeps answers; equal questions are asked once.
        budget: bound on tokens; once it is spent, nothing is asked any more.
        api_key: the server's API key; None reads LUDUS_API_KEY.
        card: the measured error of this judge, where it is known.
        special: the special tokens of the judge's tokenizer, where they are known.
    """

    server: JudgeServer
    store: JudgementStore = field(default_factory=JudgementStore)
    budget: TokenBudget | None = None
    api_key: str | None = None
    card: JudgeCard | None = None
    special: Sequence[str] = ()
    _client: ChatClient | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _under_way: dict[str, _Fetch] = field(default_factory=dict[str, Any])

    @property
    def judges(self) -> list[KnownJudge]:
        """The model that is asked, with the judge's measured error where a card was given."""
        return [self.card.known() if self.card else KnownJudge(model=self.server.model)]

    async def ask(
        self, question: JudgeQuestion, read: Callable[[str], T], effort: Effort, *, draw: int = 0
    ) -> T:
        """Ask the question and return the verdict that `read` finds in the judge's answer.

        An answer that cannot be read is asked for once more.

        Args:
            question: the prompt and the form of its answer.
            read: raises UnreadableVerdict where the answer holds no verdict.
            effort: counts what it took.
            draw: number of the answer, for several answers to one question; the seed.

        Raises:
            UnreadableVerdict: neither answer can be read.
            BudgetExceeded: no tokens are left.
            RemoteError: what the server met, or RequestTimeout past the deadline.
        """
        async with self._deadline("verdict"):
            stored = await self._answer(question, effort, draw)
            try:
                return read(_whole_text(stored))
            except UnreadableVerdict:
                effort.repaired += 1
                stored = await self._answer(repaired(question), effort, draw)
                return read(_whole_text(stored))

    async def first_token(self, question: JudgeQuestion, effort: Effort) -> dict[str, float] | None:
        """Return the log-probabilities of the candidates for the answer's first token, in nats;
        None where the server reports no log-probabilities.

        Raises:
            BudgetExceeded, RemoteError: as `ask`.
        """
        extra = {"logprobs": True, "top_logprobs": 20, "max_tokens": 1}
        async with self._deadline("token"):
            return (await self._answer(question, effort, 0, **extra)).top

    @asynccontextmanager
    async def _deadline(self, wanted: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.server.deadline_s):
                yield
        except TimeoutError as error:
            # Either the deadline passed here, or the client gave up on its attempts and says why.
            last = f": {error}" if isinstance(error, RequestTimeout) else ""
            raise RequestTimeout(
                f"the judge gave no {wanted} within {self.server.deadline_s:g} s{last}"
            ) from None

    async def close(self) -> None:
        """Close connections and the store."""
        for fetch in self._under_way.values():
            fetch.task.cancel()
        if self._client is not None:
            await self._client.close()
            self._client = None
        self.store.close()

    async def _answer(
        self, question: JudgeQuestion, effort: Effort, draw: int, **extra: Any
    ) -> _Kept:
        question = question.without(self.special) if self.special else question
        sampling: dict[str, Any] = {
            "temperature": self.server.temperature, "max_tokens": self.server.max_tokens,
            **question.request(guided=self.server.guided and bool(question.schema)), **extra,
        }  # fmt: skip
        request: dict[str, Any] = {
            "version": VERSION, "model": self.server.model, "draw": draw,
            "messages": question.messages, "sampling": sampling,
        }  # fmt: skip
        canonical = JudgementStore.canonical(msgspec.to_builtins(request))
        key = JudgementStore.key(canonical)
        stored = self.store.get(key)
        if stored is not None:
            effort.cached += 1
            return msgspec.json.decode(stored, type=_Kept)
        self._attach()
        under_way = self._under_way.get(key)
        if under_way is not None and not under_way.given_up:
            effort.joined += 1
            return await under_way.answer()
        fetch = self._under_way[key] = _Fetch(
            asyncio.create_task(self._fetch(key, canonical, question.messages, request))
        )

        # The dictionary is bound now, since `_attach` makes another for another event loop.
        def forget(_: object, requests: dict[str, _Fetch] = self._under_way) -> None:
            if requests.get(key) is fetch:  # A later request may have taken its place.
                del requests[key]
            if not fetch.task.cancelled():
                fetch.task.exception()  # read, since its callers may all have left before it came

        fetch.task.add_done_callback(forget)
        fetched = await fetch.answer()
        effort.asked += 1
        effort.tokens += fetched.tokens
        return fetched

    async def _fetch(
        self, key: str, canonical: bytes, messages: list[Message], request: dict[str, Any]
    ) -> _Kept:
        if self.budget is not None and self.budget.spent.total >= self.budget.max_tokens:
            raise BudgetExceeded(f"the judge's budget of {self.budget.max_tokens} tokens is spent")
        assert self._client is not None
        completion = await self._client.complete(
            messages, seed=request["draw"], **request["sampling"]
        )
        tokens = completion.usage.total if completion.usage else 0
        stored = self.store.put(
            key,
            canonical,
            msgspec.json.encode(
                _Kept(completion.message.text, completion.finish, completion.first_token, tokens)
            ),
        )
        return msgspec.json.decode(stored, type=_Kept)

    def _attach(self) -> None:
        """Open a client on the running loop, unless a client of this loop is open. The client of an
        earlier loop is left behind, since connections belong to the loop that opened them.
        """
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop, self._under_way = loop, {}
            self._client = ChatClient(
                self.server.base_url,
                self.server.model,
                api_key=self.api_key,
                patience=RetryPolicy(
                    # Within the deadline of the question, so that the last cause is told.
                    timeout_s=_WITHIN * self.server.deadline_s,
                    attempt_timeout_s=self.server.attempt_s,
                    first_wait_s=0.25,
                    max_wait_s=10.0,
                ),
                concurrency=self.server.concurrency,
                budget=self.budget,
            )


_WITHIN = 0.9
"""The share of a question's deadline that one request with its attempts may take."""


def _whole_text(stored: _Kept) -> str:
    if stored.finish == "length":
        raise UnreadableVerdict("the answer was cut off by its token limit; raise max_tokens")
    return stored.text
