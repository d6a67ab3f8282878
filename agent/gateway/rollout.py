"""One rollout of an agent behind the gateway: its calls, budgets, retries and end."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from ludus.errors import BrokenGeneration
from ludus.messages import Message, Role, ToolCall, assistant
from ludus.verdict import Verdict

from ..images import images_of
from ..rows import MIN_ANSWER_TOKENS, TokenWriter, extension_behind
from ..trajectory import FAILURES, Finish, Segment, Stop, Trajectory, Turn
from .tree import Cause, PolicyCall, Tree, TreePlace, Untrained
from .wire import STOPPED, AgentAnswer, AgentRequest, Choice, GatewayRefusal

logger = logging.getLogger(__name__)

MAX_SPENT = 3
"""Calls beyond the budget that are told to stop; later ones are refused."""
MAX_SAMPLES = 64


class RolloutLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a rollout."""

    max_calls: int = 256
    """The most answers of the policy, each of several samples counted."""
    max_tokens: int = 1 << 20
    """The most sampled tokens of all answers."""
    window: int | None = None
    """The most tokens of a prompt and its answer; None means the engine's limit."""


@dataclass(frozen=True, slots=True)
class _Given:
    """An answer and the calls that it shows."""

    answer: AgentAnswer
    calls: list[PolicyCall]


class Rollout:
    """Answers one agent's calls, and keeps every sampled token.

    Args:
        writer: writes the rows.
        limits: the bounds.
        seed: the seed of the sampling. A call's own seed comes from this, its prompt and its place
            among equal prompts, so it does not depend on the order in which parallel calls arrive.

    Attributes:
        id: the public name.
        key: the secret that the agent sends as its API key.
        stop: why the rollout ended; None while it runs.
        counts: what happened, by name, for the metrics of the trajectory.
    """

    def __init__(
        self, writer: TokenWriter, limits: RolloutLimits | None = None, *, seed: int = 0
    ) -> None:
        self.id = f"ro_{secrets.token_hex(6)}"
        self.key = f"sk-ludus-{secrets.token_hex(20)}"
        self.limits = limits or RolloutLimits()
        self.tree = Tree()
        self.stop: Stop | None = None
        self.counts: Counter[str] = Counter()
        self.reward: float | None = None
        self.touched = time.monotonic()
        self._writer = writer
        self._seed = seed
        self._window = min(self.limits.window or writer.engine.max_length, writer.engine.max_length)
        self._ids: dict[str, ToolCall] = {}
        """The calls as sampled, by the ids that the agent was given."""
        self._answered: dict[bytes, asyncio.Task[_Given]] = {}
        self._spent = 0
        self._waiting = 0

    async def answer(
        self, request: AgentRequest, body: bytes
    ) -> tuple[AgentAnswer, list[PolicyCall]]:
        """Answer a request.

        A repeated attempt with an equal body gets the stored answer, or waits for the one that is
        being sampled. Sampling goes on when the client leaves, since its SDK may repeat the call.

        Args:
            request: the request.
            body: its bytes, which tell a repeated attempt from a new request.

        Returns:
            The answer and its calls; who delivers it tells `delivered`.

        Raises:
            GatewayRefusal: the request cannot be answered, or the rollout has ended.
        """
        if self.stop is not None:
            raise GatewayRefusal(
                f"rollout {self.id} has ended ({self.stop}): it answers no further call",
                status=410,
                code="rollout_ended",
            )
        self.touched = time.monotonic()
        digest = blake2b(body, digest_size=16).digest()
        task = self._answered.get(digest) if request.attempt else None
        if task is not None:
            self.counts["retries"] += 1
        elif self.is_spent:
            return self._say_stop(request), []
        else:
            task = asyncio.create_task(self._answer(request), name=f"{self.id} call")
            self._answered[digest] = task
            task.add_done_callback(_read)
        given = await asyncio.shield(task)
        return given.answer, given.calls

    @property
    def is_spent(self) -> bool:
        """Whether no call is left."""
        has_calls = len(self.tree.calls) < self.limits.max_calls
        return not has_calls or self.tree.sampled >= self.limits.max_tokens

    def _say_stop(self, request: AgentRequest) -> AgentAnswer:
        """Tell the agent to stop, by an answer that is no part of any row."""
        self._spent += 1
        self.counts["calls_over_budget"] += 1
        if self._spent > MAX_SPENT:
            raise GatewayRefusal(
                f"the budget of rollout {self.id} is spent: {len(self.tree.calls)} calls, "
                f"{self.tree.sampled} sampled tokens",
                code="budget_spent",
            )
        choice = Choice(message=assistant(STOPPED), finish=Finish.STOP)
        return _answer_of(request, [choice], 0, 0)

    async def _answer(self, request: AgentRequest) -> _Given:
        messages = [self._as_sampled(message) for message in request.messages]
        self._refuse(request, messages)
        left = self.limits.max_calls - len(self.tree.calls)
        samples = min(request.samples, left)
        calls = [self._begin(messages, request) for _ in range(samples)]
        self._waiting += len(calls)
        try:
            results = await asyncio.gather(
                *(self._sample(call, request) for call in calls), return_exceptions=True
            )
        finally:
            self._waiting -= len(calls)
        choices: list[Choice] = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            choices.append(result)
        context = calls[0].context()
        cached = 0 if calls[0].parent is None else len(context) - len(calls[0].turn.obs_ids)
        return _Given(_answer_of(request, choices, len(context), cached), calls)

    def _refuse(self, request: AgentRequest, messages: Sequence[Message]) -> None:
        if not messages:
            raise GatewayRefusal(
                "messages is empty: send at least one message", parameter="messages"
            )
        if not 1 <= request.samples <= MAX_SAMPLES:
            raise GatewayRefusal(
                f"n = {request.samples}: ask for 1 to {MAX_SAMPLES} answers", parameter="n"
            )
        if images_of(messages):
            raise GatewayRefusal(
                "messages show an image, and the gateway carries text alone: this policy is "
                "trained on what it is shown, so the image cannot be left out",
                code="image_parse_error",
                parameter="messages",
            )
        called = {call.id for message in messages for call in message.tool_calls}
        for message in messages:
            if message.role is Role.TOOL and message.tool_call_id not in called:
                raise GatewayRefusal(
                    f"a tool message answers the call {message.tool_call_id!r}, which no assistant "
                    f"message before it made (made: {', '.join(sorted(called)) or 'none'})",
                    parameter="messages",
                )

    def _as_sampled(self, message: Message) -> Message:
        """Give calls and results the ids and names that the policy has sampled."""
        if message.role is Role.ASSISTANT and message.tool_calls:
            calls = [
                msgspec.structs.replace(call, id=self._ids[call.id].id)
                if call.id in self._ids
                else call
                for call in message.tool_calls
            ]
            return msgspec.structs.replace(message, tool_calls=calls)
        if message.role is Role.TOOL and (call := self._ids.get(message.tool_call_id)) is not None:
            return msgspec.structs.replace(message, tool_call_id=call.id, name=call.name)
        return message

    def _extension(self, call: PolicyCall, new: Sequence[Message]) -> list[int] | None:
        return extension_behind(call.turn, new, self._writer.chat_format)

    def _begin(self, messages: list[Message], request: AgentRequest) -> PolicyCall:
        """Find the place of a request in the tree, and render what is new."""
        place = self.tree.place(messages, request.tools)
        prompt_ids: list[int] = []
        turn = Turn(observation=list(place.new))
        if place.parent is not None:
            added = self._extension(place.parent, place.new)
            if added is None:
                cause = place.cause or Cause.DRIFT
                place = TreePlace(None, messages, place.keys, place.parent, cause, place.beginnings)
            else:
                turn.obs_ids = added
        if place.parent is None:
            prompt_ids = self._writer.open(messages, request.tools)
            turn.observation = list(messages)
        return self.tree.add(place, prompt_ids, turn)

    async def _sample(self, call: PolicyCall, request: AgentRequest) -> Choice:
        ids = call.context()
        room = self._window - len(ids)
        if room < MIN_ANSWER_TOKENS:
            self.tree.discard(call)
            raise GatewayRefusal(
                f"This model's maximum context length is {self._window} tokens. However, your "
                f"messages resulted in {len(ids)} tokens. Please shorten the messages.",
                code="context_length_exceeded",
                parameter="messages",
            )
        asked = request.max_tokens or self._writer.sampling.max_tokens
        left = self.limits.max_tokens - self.tree.sampled
        budget = max(1, min(asked, self._writer.sampling.max_tokens, room, left))
        name = msgspec.msgpack.encode((self._seed, ids, self._equal(call)))
        seed = int.from_bytes(blake2b(name, digest_size=4).digest(), "big") & 0x7FFFFFFF
        tools = request.tools if request.calls else []
        try:
            await self._writer.sample(ids, call.turn, budget=budget, seed=seed, tools=tools)
        except BaseException:
            self.tree.discard(call)
            raise
        if call.turn.finish is Finish.ABORT:
            call.untrained = Untrained.ABORTED
            raise BrokenGeneration("the engine dropped the request")
        if self.stop is not None:
            call.untrained = Untrained.LATE
        cut = self._cut(call, request)
        message = self._shown(call, request, cut)
        self.tree.answer(call, self._as_sampled(message))
        self._count(call, request)
        tokens = self._tokens(call.turn) if request.logprobs else []
        return Choice(
            message=message, finish=call.turn.finish, tokens=tokens, sampled=len(call.turn.out_ids)
        )

    def _equal(self, call: PolicyCall) -> int:
        """Return how many earlier calls had the same conversation."""
        if call.cause is None:
            return 0
        same = [each for each in self.tree.calls if each.keys.tooled == call.keys.tooled]
        return sum(each.number < call.number for each in same)

    def _cut(self, call: PolicyCall, request: AgentRequest) -> Message | None:
        """End the answer behind the first stop string; returns what was said before the string.

        The ids stay as sampled up to the token that completes the string, and the later ones leave
        the row: an engine that stops on text would not have sampled them.
        """
        if not request.stop:
            return None
        turn = call.turn
        tokenizer = self._writer.chat_format.tokenizer

        def first(count: int) -> int:
            text = tokenizer.decode(turn.out_ids[:count], skip_special_tokens=True)
            places = [text.find(stop) for stop in request.stop]
            return min((place for place in places if place >= 0), default=-1)

        if first(len(turn.out_ids)) < 0:
            return None
        low, high = 1, len(turn.out_ids)
        while low < high:  # the shortest answer that holds a stop string
            middle = (low + high) // 2
            low, high = (low, middle) if first(middle) >= 0 else (middle + 1, high)
        call.dropped = len(turn.out_ids) - low
        turn.out_ids, turn.logprobs = turn.out_ids[:low], turn.logprobs[:low]
        turn.versions, turn.finish = turn.versions[:low], Finish.STOP
        message = self._writer.read(turn, [], call.context())
        ends = [message.text.find(stop) for stop in request.stop if stop in message.text]
        text = message.text[: min(ends)] if ends else message.text
        turn.message = msgspec.structs.replace(message, content=text)
        return turn.message

    def _shown(self, call: PolicyCall, request: AgentRequest, cut: Message | None) -> Message:
        """Return the answer as the agent is given it. A call that cannot be read, or that was cut,
        has no form on the wire: the text is shown instead, and nothing runs.
        """
        sampled = call.turn.message or assistant()
        if cut is not None:
            return cut
        if any(each.error for each in sampled.tool_calls):
            self.counts["unreadable_calls"] += sum(bool(each.error) for each in sampled.tool_calls)
            return self._writer.read(call.turn, [], call.context())
        own = sampled.tool_calls
        if len(own) > 1 and not request.parallel:
            self.counts["parallel_calls_hidden"] += len(own) - 1
            own = own[:1]
        given: list[ToolCall] = []
        for each in own:
            # Nine letters and digits, as the strictest servers demand; the id alone names the call.
            given.append(msgspec.structs.replace(each, id=f"c{secrets.token_hex(4)}"))
            self._ids[given[-1].id] = each
        return msgspec.structs.replace(sampled, tool_calls=given)

    def _count(self, call: PolicyCall, request: AgentRequest) -> None:
        self.counts["calls"] += 1
        if call.cause is not None:
            self.counts[f"rows_{call.cause}"] += 1
        if call.shown is not None and call.shown.tool_calls:
            self.counts["tool_calls"] += len(call.shown.tool_calls)
        elif request.unforced:
            self.counts["calls_not_forced"] += 1
        if request.overridden:
            self.counts["sampling_overridden"] += 1

    def _tokens(self, turn: Turn) -> list[tuple[str, float]]:
        decode = self._writer.chat_format.tokenizer.decode
        texts = [decode([token], skip_special_tokens=False) for token in turn.out_ids]
        return list(zip(texts, turn.logprobs, strict=True))

    def count_tokens(self, request: AgentRequest) -> int:
        """Return the length of the prompt that a request would have."""
        messages = [self._as_sampled(message) for message in request.messages]
        place = self.tree.place(messages, request.tools)
        if place.parent is not None:
            added = self._extension(place.parent, place.new)
            if added is not None:
                before = len(place.parent.context()) + len(place.parent.turn.out_ids)
                return before + len(added)
        return len(self._writer.open(messages, request.tools))

    @property
    def is_busy(self) -> bool:
        """Whether an answer is being sampled."""
        return self._waiting > 0

    def delivered(self, calls: Sequence[PolicyCall], *, arrived: bool) -> None:
        """Record whether the client took an answer. What nobody read is not trained."""
        for call in calls:
            if arrived and call.untrained is Untrained.UNDELIVERED:
                call.untrained = None
            elif not arrived and call.untrained is None:
                call.untrained = Untrained.UNDELIVERED
                self.counts["undelivered"] += 1

    def end(self, stop: Stop) -> None:
        """End the rollout; calls that are being sampled are recorded as late."""
        if self.stop is None:
            self.stop = stop
            if self.is_spent and stop is Stop.TERMINATED:
                self.stop = Stop.MAX_TURNS

    def trajectory(self, verdict: Verdict) -> Trajectory:
        """Return the rollout as rows with one verdict for all of them."""
        segments: list[Segment] = self.tree.segments()
        stop = self.stop or Stop.TERMINATED
        trained = sum(len(turn.out_ids) for row in segments for turn in row.turns if turn.trained)
        metrics = {name: float(count) for name, count in self.counts.items()}
        metrics |= {
            f"untrained_{reason}": float(count) for reason, count in self.tree.untrained().items()
        }
        if self.tree.sampled:
            metrics["trained_share"] = trained / self.tree.sampled
        excluded = stop in FAILURES or not verdict.ok
        if segments and verdict.reward is not None:
            segments[-1].turns[-1].reward = verdict.reward
        return Trajectory(
            verdict=verdict,
            terminated=stop is Stop.TERMINATED,
            stop=stop,
            segments=segments,
            exclude_from_loss=excluded,
            exclude_from_baseline=excluded,
            metrics=metrics,
        )


def _answer_of(
    request: AgentRequest, choices: list[Choice], prompt: int, cached: int
) -> AgentAnswer:
    return AgentAnswer(
        id=secrets.token_hex(12),
        created=int(time.time()),
        model=request.model,
        choices=choices,
        prompt_tokens=prompt,
        cached_tokens=cached,
    )


def _read(task: asyncio.Task[_Given]) -> None:
    """Read the exception of a task whose client has left."""
    if not task.cancelled():
        task.exception()
