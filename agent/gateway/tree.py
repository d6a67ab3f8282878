"""The calls of a rollout as a tree: which call continues which, and which rows result.

A request holds a whole conversation. Each of its assistant messages is looked up by a chain of
digests: is there a call whose whole context is what stands before, and whose shown answer is this
message? The deepest such call is the parent, and the request is its ids plus what is new. Content
alone would not do: "ls" is said many times, by several branches.

Equal are: a content of None, "" and no content; text and a list of text parts; arguments of calls
as JSON values, whatever the order of keys (1 is not 1.0). Not equal are white space inside a text,
and order or number of calls. Agents that strip an answer's end are matched at a second look-up,
and counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from itertools import pairwise

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import Message, Role

from ..images import PlacedImage
from ..trajectory import Finish, Segment, Turn

MIN_SUMMARY = 16
"""Characters of a sampled text that must stand in a new conversation for it to be a compaction."""


class Cause(StrEnum):
    """The reason why a row begins."""

    START = "start"
    """The first call of the rollout."""
    ROOT = "root"
    """A conversation of its own: a sub-agent, a title, a new question."""
    FORK = "fork"
    """A second continuation of a call that was continued before."""
    RETRY = "retry"
    """The same request again: a repeated attempt, or several samples of one prompt."""
    EDITED = "edited"
    """An answer of the policy stands otherwise in the history than it was given, or not at all."""
    REWRITTEN = "rewritten"
    """A message of the system, user or a tool was changed or left out."""
    COMPACTED = "compacted"
    """A shorter history that quotes an earlier answer: a summary."""
    TOOLS = "tools"
    """The list of tools changed, which stands at the head of the prompt."""
    DRIFT = "drift"
    """The template cannot extend the ids: it would rewrite earlier text."""


class Untrained(StrEnum):
    """The reason why sampled tokens are not trained."""

    UNDELIVERED = "undelivered"
    """The client had left when the answer was ready, or another answer of its request failed."""
    ABORTED = "aborted"
    """The engine dropped the request."""
    BEHIND_STOP = "behind_stop"
    """Sampled behind a stop string of the client, which nobody saw."""
    LATE = "late"
    """The rollout had ended before the answer was ready."""
    CONSTRAINED = "constrained"
    """Drawn from the tokens that the client's schema allows, which the learner does not know."""
    NO_IDS = "no_ids"
    """The model is behind a server that returns text: such a rollout is evaluated alone."""


@dataclass(slots=True, eq=False)
class PolicyCall:
    """A call of the policy: what came before, and the sampled answer."""

    number: int
    """In order of arrival, from 0."""
    parent: PolicyCall | None
    """The call whose ids this one extends; None where the conversation was rendered whole."""
    after: PolicyCall | None
    """The call whose answer is the last in the history that is known, parent or not."""
    cause: Cause | None
    """The reason why this call opens a row; None where it continues its parent's."""
    prompt_ids: list[int]
    """The ids before the answer where there is no parent."""
    prompt_images: list[PlacedImage]
    """The images that stand in `prompt_ids`."""
    turn: Turn
    """`obs_ids` are the ids between the parent's answer and this one."""
    keys: Chain
    """The digests of the conversation before the answer."""
    shown: Message | None = None
    """The answer as the client was given it; None while it is sampled."""
    shown_keys: Chain | None = None
    """The digests of the conversation with the answer."""
    children: list[PolicyCall] = field(default_factory=list)
    untrained: Untrained | None = Untrained.UNDELIVERED
    """None once the client has the answer: what nobody read is not trained."""
    dropped: int = 0
    """Tokens that were sampled behind a stop string; they are not in the turn."""
    unseen: int = 0
    """Tokens that a server sampled without telling their ids."""

    def echoes(self, message: Message) -> bool:
        """Return whether `message`, which says the same, thinks the same or leaves thoughts out."""
        own = self.shown.reasoning if self.shown is not None else ""
        return not message.reasoning or message.reasoning.strip() == own.strip()

    @property
    def is_dead(self) -> bool:
        """Whether this answer is left out of all rows: untrained, and continued by no call."""
        is_kept = self.untrained in (None, Untrained.NO_IDS, Untrained.CONSTRAINED)
        return self.shown is not None and not is_kept and not self.children

    @property
    def sampled(self) -> int:
        """The tokens that were sampled."""
        return len(self.turn.out_ids) + self.dropped + self.unseen

    @property
    def inherited(self) -> int:
        """The ids before the answer that the parent's row holds."""
        if self.parent is None:
            return 0
        return len(self.context()) - len(self.turn.obs_ids)

    def context(self) -> list[int]:
        """Return the ids before the answer."""
        line = self._line()
        ids = list(line[0].prompt_ids)
        for before, call in pairwise(line):
            ids += before.turn.out_ids
            ids += call.turn.obs_ids
        return ids

    def images(self) -> list[PlacedImage]:
        """Return the images before the answer, each with a place in `context()`."""
        line = self._line()
        images, length = list(line[0].prompt_images), len(line[0].prompt_ids)
        for before, call in pairwise(line):
            length += len(before.turn.out_ids)
            images += [image.moved(length) for image in call.turn.obs_images]
            length += len(call.turn.obs_ids)
        return images

    def _line(self) -> list[PolicyCall]:
        """Return the calls of this row, from the first up to this call."""
        line = [self]
        while line[-1].parent is not None:
            line.append(line[-1].parent)
        return line[::-1]


@dataclass(frozen=True, slots=True)
class Chain:
    """Digests of a conversation so far, with the list of tools and without."""

    tooled: bytes
    plain: bytes

    def then(self, key: bytes) -> Chain:
        """Return the chain of digests, extended by a message."""
        return Chain(_digest(self.tooled, key), _digest(self.plain, key))


@dataclass(frozen=True, slots=True)
class TreePlace:
    """Where a request belongs in the tree."""

    parent: PolicyCall | None
    """The call to extend; None to render the whole conversation."""
    new: list[Message]
    """The messages behind the parent's answer, or all of them."""
    keys: Chain
    """The digests of the conversation."""
    after: PolicyCall | None
    cause: Cause | None
    beginnings: list[bytes]
    """The digests without tools of all beginnings of the conversation."""
    stripped: int = 0
    """How many answers were found only without the white space at their ends."""


class Tree:
    """The calls of a rollout.

    Attributes:
        calls: in order of arrival.
        stripped: how often an answer was found only without the white space at its end.
    """

    def __init__(self) -> None:
        self.calls: list[PolicyCall] = []
        self.stripped = 0
        self._number = -1
        self._answers: dict[bytes, PolicyCall] = {}
        """Digest with tools, of a conversation that ends with an answer."""
        self._bare: dict[bytes, PolicyCall] = {}
        """The same for answers without the white space at their ends."""
        self._plain: dict[bytes, PolicyCall] = {}
        """Digest without tools, of a conversation that ends with an answer."""
        self._asked: set[bytes] = set()
        """Digests of conversations that were answered, with tools and without."""
        self._beginnings: set[bytes] = set()
        """Digests without tools, of all beginnings of all conversations."""
        self._said: set[bytes] = set()
        """The canonical forms of all answers."""

    def place(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> TreePlace:
        """Find where a request belongs."""
        keys = Chain(_digest(b"", msgspec.json.encode(tools)), b"")
        parent, deepest, end, stripped = None, None, 0, 0
        beginnings: list[bytes] = []
        for index, message in enumerate(messages):
            before, keys = keys, keys.then(key_of(message))
            if message.role is Role.ASSISTANT:
                call = self._answers.get(keys.tooled)
                is_bare = call is None
                call = call or self._bare.get(_bare_key(before, message))
                if call is not None and not call.echoes(message):
                    call = None
                if call is not None and call.shown_keys is not None:
                    parent, end, keys = call, index + 1, call.shown_keys
                    stripped += is_bare
                deepest = call or self._plain.get(keys.plain, deepest)
            beginnings.append(keys.plain)
        cause: Cause | None
        if keys.tooled in self._asked:
            cause = Cause.RETRY
        elif deepest is not None and deepest is not parent:
            cause = Cause.TOOLS
        elif parent is not None and all(child.is_dead for child in parent.children):
            cause = None
        else:
            cause = self._cause(messages, beginnings, end)
        new = list(messages[end:])
        return TreePlace(parent, new, keys, deepest, cause, beginnings, stripped)

    def _cause(self, messages: Sequence[Message], beginnings: Sequence[bytes], end: int) -> Cause:
        """Return why a request opens a row whose history is known up to message `end`."""
        if not self.calls:
            return Cause.START
        # The first message that no earlier conversation had at this place.
        strange = next((n for n, key in enumerate(beginnings) if key not in self._beginnings), None)
        before = beginnings[strange - 1] if strange else b""
        was_answered = strange is not None and before in self._asked
        if was_answered and messages[strange or 0].role is Role.ASSISTANT:
            return Cause.EDITED
        answers = [message for message in messages[end:] if message.role is Role.ASSISTANT]
        if any(map(self.has_said, answers)):
            return Cause.REWRITTEN
        if end:
            return Cause.FORK
        if was_answered:
            return Cause.EDITED
        # Somebody else's message may hold an answer of this rollout.
        shown = [call.shown.text.strip() for call in self.calls if call.shown is not None]
        summaries = [text for text in shown if len(text) >= MIN_SUMMARY]
        others = [message.text for message in messages if message.role is not Role.ASSISTANT]
        is_quoted = any(summary in text for text in others for summary in summaries)
        return Cause.COMPACTED if is_quoted else Cause.ROOT

    def add(
        self,
        place: TreePlace,
        prompt_ids: list[int],
        turn: Turn,
        prompt_images: Sequence[PlacedImage] = (),
    ) -> PolicyCall:
        """Add a call whose answer is not sampled yet."""
        self._number += 1
        self.stripped += place.stripped
        call = PolicyCall(
            number=self._number,
            parent=place.parent,
            after=place.after,
            cause=place.cause,
            prompt_ids=prompt_ids,
            prompt_images=list(prompt_images),
            turn=turn,
            keys=place.keys,
        )
        self.calls.append(call)
        if place.parent is not None:
            place.parent.children.append(call)
        self._asked |= {place.keys.tooled, place.keys.plain}
        self._beginnings.update(place.beginnings)
        return call

    def has_said(self, message: Message) -> bool:
        """Return whether the policy has given an answer that says what `message` says."""
        return key_of(message) in self._said

    def discard(self, call: PolicyCall) -> None:
        """Take out a call that has no answer."""
        self.calls.remove(call)
        if call.parent is not None:
            call.parent.children.remove(call)
        # A later attempt is no second answer to its request, unless another call is one.
        others = {key for each in self.calls for key in (each.keys.tooled, each.keys.plain)}
        self._asked -= {call.keys.tooled, call.keys.plain} - others

    def answer(self, call: PolicyCall, shown: Message) -> None:
        """Index the answer of a call, so that a later request that repeats the answer is found."""
        form = key_of(shown)
        call.shown, call.shown_keys = shown, call.keys.then(form)
        self._said.add(form)
        self._beginnings.add(call.shown_keys.plain)
        # Of equal answers the one that has been continued is kept, else the newest.
        older = self._answers.get(call.shown_keys.tooled)
        if older is None or not older.children:
            self._answers[call.shown_keys.tooled] = call
            self._bare[_bare_key(call.keys, shown)] = call
            self._plain[call.shown_keys.plain] = call

    def segments(self) -> list[Segment]:
        """Return the rows of the tree. Each trained token is part of an answer in a single row;
        other rows that share the token hold it in the prompt. A call that is being sampled is in no
        row.
        """
        sizes: dict[int, int] = defaultdict(lambda: 1)
        for call in reversed(self.calls):
            if call.parent is not None:
                sizes[call.parent.number] += sizes[call.number]
        rows: list[Segment] = []
        row_of: dict[int, int] = {}
        waiting = [
            call
            for call in reversed(self.calls)
            if call.parent is None and call.shown is not None and not call.is_dead
        ]
        while waiting:
            first = waiting.pop()
            row = Segment(
                prompt_ids=first.context(),
                prompt_images=first.images(),
                cause=str(first.cause or Cause.FORK),
            )
            source = first.parent or first.after
            row.parent = -1 if source is None else row_of.get(source.number, -1)
            line, forks = self._line(first, sizes)
            for call in line:
                call.turn.trained = call.untrained is None
                row_of[call.number] = len(rows)
                # The context of the first turn stands in the row's prompt.
                row.turns.append(
                    call.turn
                    if call is not first
                    else msgspec.structs.replace(call.turn, obs_ids=[], obs_images=[])
                )
            rows.append(row)
            waiting += sorted(forks, key=lambda call: -call.number)
        return rows

    @staticmethod
    def _line(
        first: PolicyCall, sizes: dict[int, int]
    ) -> tuple[list[PolicyCall], list[PolicyCall]]:
        """Return the calls of the row that begins with `first`, and the calls that fork off.
        The largest branch goes on in the row, so that fewest tokens are computed twice.
        """
        line, forks = [first], list[PolicyCall]()
        while True:
            children = [
                child
                for child in line[-1].children
                if child.shown is not None and not child.is_dead
            ]
            if not children:
                return line, forks
            children.sort(key=lambda child: (-sizes[child.number], child.number))
            line.append(children[0])
            forks += children[1:]

    def untrained(self) -> dict[str, int]:
        """Return the sampled tokens that no row trains, by reason."""
        tokens: dict[str, int] = defaultdict(int)
        for call in self.calls:
            if call.untrained is not None and call.sampled:
                tokens[call.untrained] += call.sampled
            elif call.dropped:
                tokens[Untrained.BEHIND_STOP] += call.dropped
        return dict(tokens)

    @property
    def sampled(self) -> int:
        """All tokens that were sampled."""
        return sum(call.sampled for call in self.calls)

    def lines(self) -> Iterator[str]:
        """Yield the tree as text: a line for each call, with the span of sampled tokens."""
        waiting = [(call, 0) for call in reversed(self.calls) if call.parent is None]
        while waiting:
            call, depth = waiting.pop()
            yield "  " * depth + _line_of(call)
            deeper = depth + (len(call.children) > 1)
            waiting += [(child, deeper) for child in reversed(call.children)]


def key_of(message: Message) -> bytes:
    """Return the canonical form of a message, without thoughts and without ids of own calls."""
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    images = [_digest(b"", image.data or image.url.encode()) for image in message.images]
    form = (str(message.role), message.text, calls, message.tool_call_id, images)
    return msgspec.json.encode(form, order="deterministic")


def _bare_key(before: Chain, message: Message) -> bytes:
    bare = msgspec.structs.replace(message, content=message.text.rstrip())
    return before.then(key_of(bare)).tooled


def _digest(before: bytes, key: bytes) -> bytes:
    return blake2b(key, key=before, digest_size=16).digest()


def _line_of(call: PolicyCall) -> str:
    turn, start = call.turn, len(call.context())
    notes = [f"{call.number}"]
    if call.cause is not None:
        notes.append(call.cause)
    notes.append(f"[{start}:{start + len(turn.out_ids)}]")
    if call.untrained is not None:
        notes.append(f"untrained: {call.untrained}")
    if turn.finish is Finish.LENGTH:
        notes.append("cut by the token limit")
    if call.shown is not None:
        names = ", ".join(f"{each.name}()" for each in call.shown.tool_calls)
        notes.append(repr(" ".join((call.shown.text or names).split())[:60]))
    return " ".join(notes)
