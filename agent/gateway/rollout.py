"""A rollout of an agent behind the gateway: calls, budgets, retries and end."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b

import msgspec

from ludus.envs import ToolSpec
from ludus.errors import BrokenGeneration
from ludus.messages import Message, Role, ToolCall, assistant
from ludus.verdict import Verdict

from ..images import ImageRefused, images_of
from ..rows import MIN_ANSWER_TOKENS, PolicyWriter, Prompt
from ..templates.text import TemplateRefused
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
    """An answer, and the calls of the policy that the answer shows."""

    answer: AgentAnswer
    calls: list[PolicyCall]


class Rollout:
    """Answers an agent's calls, and keeps every sampled token.

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
        failed: requests that the policy could not answer, and that no later attempt has mended.
    """

    def __init__(
        self, writer: PolicyWriter, limits: RolloutLimits | None = None, *, seed: int = 0
    ) -> None:
        self.id = f"ro_{secrets.token_hex(6)}"
        self.key = f"sk-ludus-{secrets.token_hex(20)}"
        self.limits = limits or RolloutLimits()
        self.tree = Tree()
        self.stop: Stop | None = None
        self.counts: Counter[str] = Counter()
        self.failed: set[bytes] = set()
        self.reward: float | None = None
        self.touched = time.monotonic()
        self._writer = writer
        self._seed = seed
        self._window = min(self.limits.window or writer.window, writer.window)
        self._ids: dict[str, ToolCall] = {}
        """The calls as sampled, by the ids that the agent was given."""
        self._answered: dict[bytes, asyncio.Task[_Given]] = {}
        self._sampling: set[asyncio.Task[_Given]] = set()
        """What is being sampled; equal requests that are no repeated attempts are several."""
        self._spent = 0
        self._waiting = 0
        self._reserved = 0
        """Tokens that the answers which are being sampled may take."""

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
            raise self._ended()
        self.touched = time.monotonic()
        digest = blake2b(body, digest_size=16).digest()
        task = self._answered.get(digest) if request.attempt else None
        if task is not None:
            self.counts["retries"] += 1
        elif self.is_spent:
            # The agent is told to stop by an answer that is no part of any row.
            self._spent += 1
            self.counts["calls_over_budget"] += 1
            if self._spent > MAX_SPENT:
                raise GatewayRefusal(
                    f"the budget of rollout {self.id} is spent: {len(self.tree.calls)} calls, "
                    f"{self.tree.sampled} sampled tokens",
                    code="budget_spent",
                )
            stop = Choice(message=assistant(STOPPED), finish=Finish.STOP)
            return _answer_of(request, [stop], 0, 0), []
        else:
            calls = self._begin(request)
            task = asyncio.create_task(self._answer(request, calls), name=f"{self.id} call")
            self._answered[digest] = task
            self._sampling.add(task)
            task.add_done_callback(partial(self._note, digest))
        try:
            given = await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self.stop is not None:
                raise self._ended() from None
            raise
        return given.answer, given.calls

    def _ended(self) -> GatewayRefusal:
        return GatewayRefusal(
            f"rollout {self.id} has ended ({self.stop}): it answers no further call",
            status=410,
            code="rollout_ended",
        )

    def _note(self, digest: bytes, task: asyncio.Task[_Given]) -> None:
        """Note whether a request failed through no fault of the agent; a later attempt may mend
        it.
        """
        self._sampling.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None or isinstance(error, GatewayRefusal):
            self.failed.discard(digest)
            return
        self.failed.add(digest)
        if self._answered.get(digest) is task:
            del self._answered[digest]  # an attempt that follows is sampled anew

    @property
    def is_spent(self) -> bool:
        """Whether no call is left."""
        has_calls = len(self.tree.calls) < self.limits.max_calls
        return not has_calls or self.tree.sampled >= self.limits.max_tokens

    async def _answer(self, request: AgentRequest, calls: list[PolicyCall]) -> _Given:
        cached = calls[0].inherited
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
        return _Given(_answer_of(request, choices, choices[0].prompt, cached), calls)

    def _refuse(self, request: AgentRequest, messages: Sequence[Message]) -> None:
        if not messages:
            raise GatewayRefusal(
                "messages is empty: send at least one message", parameter="messages"
            )
        if not 1 <= request.samples <= MAX_SAMPLES:
            raise GatewayRefusal(
                f"n = {request.samples}: ask for 1 to {MAX_SAMPLES} answers", parameter="n"
            )
        if request.schema and not self._writer.constrains:
            raise GatewayRefusal(
                f"response_format {request.schema[:80]}: this engine cannot hold an answer to a "
                "schema; ask for text, or serve the policy by vLLM",
                parameter="response_format",
            )
        if images_of(messages) and not self._writer.sees_images:
            raise GatewayRefusal(
                "messages show an image, and this model reads text alone: the policy is trained "
                "on what it is shown, so the image cannot be left out",
                code="image_parse_error",
                parameter="messages",
            )
        called: set[str] = set()
        for message in messages:
            if message.role is Role.TOOL and message.tool_call_id not in called:
                raise GatewayRefusal(
                    f"a tool message answers the call {message.tool_call_id!r}, which no assistant "
                    f"message before it made (made: {', '.join(sorted(called)) or 'none'})",
                    parameter="messages",
                )
            called |= {call.id for call in message.tool_calls}

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

    def _begin(self, request: AgentRequest) -> list[PolicyCall]:
        """Find the place of a request in the tree, render the new part, and check the length.

        The calls are counted before anything is awaited, so that requests which arrive together
        keep to the budget.
        """
        self._refuse(request, request.messages)
        messages = [self._as_sampled(message) for message in request.messages]
        calls: list[PolicyCall] = []
        for _ in range(min(request.samples, self.limits.max_calls - len(self.tree.calls))):
            place, ids = self._rendered(messages, request.tools)
            images = self._writer.placed(ids, place.new)
            turn = Turn(observation=list(place.new))
            if place.parent is not None:
                turn.obs_ids, turn.obs_images, ids, images = ids, images, [], []
            calls.append(self.tree.add(place, ids, turn, images))
        length = len(calls[0].context())
        if self._window - length < MIN_ANSWER_TOKENS:
            for call in calls:
                self.tree.discard(call)
            raise GatewayRefusal(
                f"This model's maximum context length is {self._window} tokens. However, your "
                f"messages resulted in {length} tokens. Please shorten the messages.",
                code="context_length_exceeded",
                parameter="messages",
            )
        return calls

    def _rendered(
        self, messages: list[Message], tools: Sequence[ToolSpec]
    ) -> tuple[TreePlace, list[int]]:
        """Return the place of a conversation in the tree, and the ids of the new part: what follows
        the parent, or everything.

        Raises:
            GatewayRefusal: the chat template cannot show the conversation.
        """
        place = self.tree.place(messages, tools)
        try:
            if place.parent is not None:
                new = [self._quoted(message) for message in place.new]
                if (added := self._writer.extend(place.parent.turn, new)) is not None:
                    return place, added
            ids = self._writer.open([self._quoted(message) for message in messages], tools)
        except (TemplateRefused, ImageRefused) as error:
            raise GatewayRefusal(
                f"the model cannot be shown this conversation: {error}", parameter="messages"
            ) from None
        if place.parent is not None:
            place = replace(
                place,
                parent=None,
                new=messages,
                after=place.parent,
                cause=place.cause or Cause.DRIFT,
            )
        return place, ids

    def _quoted(self, message: Message) -> Message:
        """Return a message in which no mark of the template can be spelled out, unless the policy
        has said it: whoever writes an answer for the policy must not end its turn.
        """
        if message.role is not Role.ASSISTANT or self.tree.has_said(message):
            return message
        return self._writer.quoted(message)

    async def _sample(self, call: PolicyCall, request: AgentRequest) -> Choice:
        ids = call.context()
        asked = request.max_tokens or self._writer.max_tokens
        left = self.limits.max_tokens - self.tree.sampled - self._reserved
        room = self._window - len(ids)
        budget = max(1, min(asked, self._writer.max_tokens, room, left))
        name = msgspec.msgpack.encode((self._seed, ids or call.keys.tooled, self._equal(call)))
        seed = int.from_bytes(blake2b(name, digest_size=4).digest(), "big") & 0x7FFFFFFF
        tools = request.tools if request.calls else []
        self._reserved += budget
        messages = [self._as_sampled(message) for message in request.messages]
        prompt = Prompt(ids, call.images(), messages, request.schema)
        try:
            spent = await self._writer.sample(
                prompt, call.turn, budget=budget, seed=seed, tools=tools
            )
        except BaseException:
            self.tree.discard(call)
            raise
        finally:
            self._reserved -= budget
        if call.turn.finish is Finish.ABORT:
            call.untrained, call.shown = Untrained.ABORTED, assistant()
            raise BrokenGeneration("the engine dropped the request")
        if request.schema:
            call.untrained = Untrained.CONSTRAINED
        if not self._writer.keeps_ids:
            call.untrained, call.unseen = Untrained.NO_IDS, spent.sampled
        cut, stop = self._cut(call, request)
        message = self._shown(call, request, cut)
        self.tree.answer(call, self._as_sampled(message))
        self._count(call, request)
        tokens = self._tokens(call.turn) if request.logprobs else []
        return Choice(
            message=message,
            finish=call.turn.finish,
            stop=stop,
            tokens=tokens,
            prompt=spent.prompt,
            sampled=len(call.turn.out_ids) or spent.sampled,
        )

    def _equal(self, call: PolicyCall) -> int:
        """Return how many earlier calls had the same conversation."""
        if call.cause is None:
            return 0
        same = [each for each in self.tree.calls if each.keys.tooled == call.keys.tooled]
        return sum(each.number < call.number for each in same)

    def _cut(self, call: PolicyCall, request: AgentRequest) -> tuple[Message | None, str]:
        """End the answer behind the first stop string; returns what was said before the string, and
        the string.

        The ids stay as sampled up to the token that completes the string, and the later ones leave
        the row: an engine that stops on text would not have sampled them.
        """
        turn = call.turn
        if not request.stop or turn.message is None:
            return None, ""
        if turn.out_ids and not self._cut_ids(call, request.stop):
            return None, ""
        message = self._writer.read(turn, [], call.context())
        sampled = self._writer.decode(turn.out_ids) if turn.out_ids else message.text
        stops = [stop for stop in request.stop if stop in sampled]
        if not stops:
            return None, ""
        ends = [message.text.find(stop) for stop in stops if stop in message.text]
        text = message.text[: min(ends)] if ends else message.text
        turn.message = msgspec.structs.replace(message, content=text)
        return turn.message, min(stops, key=sampled.find)

    def _cut_ids(self, call: PolicyCall, stops: Sequence[str]) -> bool:
        """Cut a turn's ids behind the first stop string; return whether a stop string was found."""
        turn = call.turn

        def first(count: int) -> int:
            text = self._writer.decode(turn.out_ids[:count])
            places = [text.find(stop) for stop in stops]
            return min((place for place in places if place >= 0), default=-1)

        if first(len(turn.out_ids)) < 0:
            return False
        low, high = 1, len(turn.out_ids)
        while low < high:  # the shortest answer that holds a stop string
            middle = (low + high) // 2
            low, high = (low, middle) if first(middle) >= 0 else (middle + 1, high)
        call.dropped = len(turn.out_ids) - low
        turn.out_ids, turn.logprobs = turn.out_ids[:low], turn.logprobs[:low]
        turn.versions, turn.finish = turn.versions[:low], Finish.STOP
        return True

    def _shown(self, call: PolicyCall, request: AgentRequest, cut: Message | None) -> Message:
        """Return the answer for the agent. A call that cannot be read, or that was cut, has no form
        on the wire: the text is shown instead, and nothing runs.
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
        if request.hidden:
            self.counts["hosted_tools_hidden"] += request.hidden
        if request.overridden:
            self.counts["sampling_overridden"] += 1

    def _tokens(self, turn: Turn) -> list[tuple[str, float]]:
        texts = [self._writer.decode([token], marks=True) for token in turn.out_ids]
        return list(zip(texts, turn.logprobs, strict=True))

    def count_tokens(self, request: AgentRequest) -> int:
        """Return the length of the prompt that a request would have."""
        messages = [self._as_sampled(message) for message in request.messages]
        place, ids = self._rendered(messages, request.tools)
        if place.parent is None:
            return len(ids)
        return len(place.parent.context()) + len(place.parent.turn.out_ids) + len(ids)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is being sampled."""
        return self._waiting > 0

    def delivered(self, calls: Sequence[PolicyCall], *, arrived: bool) -> None:
        """Record whether the client took an answer. What nobody read is not trained."""
        for call in calls:
            if call.untrained is not Untrained.UNDELIVERED:
                continue
            if not arrived:
                self.counts["undelivered"] += 1
            elif self.stop is None:
                call.untrained = None
            else:
                call.untrained = Untrained.LATE

    def end(self, stop: Stop) -> None:
        """End the rollout. What is being sampled is dropped, and what is delivered later is not
        trained: the verdict does not know of it.
        """
        if self.stop is not None:
            return
        self.stop = Stop.MAX_TURNS if self.is_spent and stop is Stop.TERMINATED else stop
        for task in self._sampling:
            task.cancel()

    def trajectory(self, verdict: Verdict) -> Trajectory:
        """Return the rollout as rows that share a verdict."""
        segments: list[Segment] = self.tree.segments()
        stop = self.stop or Stop.TERMINATED
        trained = sum(len(turn.out_ids) for row in segments for turn in row.turns if turn.trained)
        metrics = {name: float(count) for name, count in self.counts.items()}
        if self.tree.stripped:
            metrics["answers_stripped"] = float(self.tree.stripped)
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
        forms=request.forms,
        choices=choices,
        prompt_tokens=prompt,
        cached_tokens=cached,
    )
