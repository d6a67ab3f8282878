"""An end of the line between the solution's process and the tests'.

The line carries requests, answers, and callbacks in between. Both ends are alike in form and unlike
in trust: the tests' end hands out nothing but callables that the tests themselves passed as
arguments, and it never evaluates, compares or formats anything on the solution's side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..run.message_line import MessageLine
from . import value_wire, values

_CORE_BYTES = 16
_DEEPEST = 64
"""The deepest nesting of calls back and forth."""
_SHARING = (
    "resolve", "call", "attribute", "assign", "method", "make", "getitem", "setitem", "send",
    "enter",
)  # fmt: skip
"""Requests by which the solution may get something to keep, or shows something that it keeps."""
_MOST_KEPT = 32
_MOST_COMPARED = 4096
"""The most containers, and the most items of these, that are kept. The newest, and those that are
new with the present request, are kept in any case."""


class Gone(BaseException):
    """The other end has closed. Not an Exception, so that no handler swallows the end."""


Serve = Callable[[str, list[object]], object]
"""Carries out a request of the other end: (verb, arguments) -> value."""


def _type_name(item: object) -> str:
    return f"s<{type(item).__name__}>"


class Peer:
    """Sends requests, and serves the requests that arrive while waiting.

    Args:
        descriptor: the socket to the other end.
        serve: carries out a request of the other end.
        name: gives the handle token of an object that is not plain data.
        find: gives the object or proxy of a handle token.
    """

    def __init__(
        self, descriptor: int, serve: Serve, name: value_wire.Name, find: value_wire.Find
    ) -> None:
        self._line = MessageLine(descriptor)
        self._serve, self._name, self._find = serve, name, find
        self._depth = 0
        self._kept: dict[int, object] = {}
        """What has crossed and can change, the newest last: as both ends may hold it, what either
        changes crosses with the next request or answer. By `id`."""
        self._contents: dict[int, Any] = {}
        """The contents of `_kept` that both ends know."""

    def request(self, verb: str, *arguments: object) -> tuple[bool, Any]:
        """Send a request and wait for the answer; serve requests of the other end meanwhile.

        Returns (whether the other end raised it, the answer): what is raised is an exception,
        rebuilt with a class of this side.

        Raises:
            Gone: the other end closed.
            wire.Malformed: the other end does not keep to the protocol.
        """
        encoder = value_wire.Encoder(self._name, self._kept.values(), ["?", verb])
        for argument in arguments:
            encoder.add(argument)
        encoder.update(self._contents)
        self.send(encoder.tokens)
        # The other end may call back before it answers, so requests are served in between.
        while (received := self._receive())[0] == "?":
            self._answer(received[1])
        # An answer may change the arguments of this request (`known_items`) and what is kept, and
        # nothing else that the tests hold.
        decoder = value_wire.Decoder(self._find, encoder.containers)
        answers = list(decoder.values(received[1]))
        self._note(decoder.changed)
        self._keep(verb, decoder.containers)
        raised = received[0] == "~"
        if len(answers) != 1 or (raised and not isinstance(answers[0], BaseException)):
            raise value_wire.Malformed("an answer is one value or one exception")
        return raised, answers[0]

    def _note(self, items: list[object]) -> None:
        """Note the contents of what has just crossed."""
        self._contents |= {id(item): values.content(item) for item in items}

    def _keep(self, verb: str, containers: list[object]) -> None:
        """Keep what a request and its answer have carried; both ends do so alike."""
        old = len(self._kept)
        if verb in _SHARING:
            self._note([item for item in containers if id(item) not in self._contents])
            self._kept |= {id(i): i for i in containers if self._contents[id(i)] is not None}
        self._contents = {key: self._contents[key] for key in self._kept}
        total, spare = sum(map(len, self._contents.values())), min(old, len(self._kept) - 1)
        for key in list(self._kept)[: max(spare, 0)]:
            if len(self._kept) <= _MOST_KEPT and total <= _MOST_COMPARED:
                break
            del self._kept[key]
            total -= len(self._contents.pop(key))

    def tell_core(self, core: int) -> None:
        """Send the core of this process, before anything else."""
        self._line.send(b"%d" % core)

    def hear_core(self) -> int:
        """Receive the core of the other end's process."""
        return int(self._received(_CORE_BYTES))

    def serve_forever(self) -> None:
        """Answer requests until the other end closes."""
        while True:
            self.answer_one()

    def answer_one(self) -> None:
        """Wait for the next request and answer."""
        kind, tokens = self._receive()
        if kind == "?":
            self._answer(tokens)

    def close(self) -> None:
        """Close this end of the line."""
        self._line.close()

    def _answer(self, tokens: list[value_wire.Token]) -> None:
        verb, *packed = tokens
        decoder = value_wire.Decoder(self._find, self._kept.values())
        arguments = list(decoder.values(packed))
        containers = decoder.containers
        # Contents from before the call show which arguments the call changed.
        given = {id(item): values.content(item) for item in containers[len(self._kept) :]}
        self._note(decoder.changed)
        before = dict(self._contents)
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise RecursionError("calls back and forth are nested too deeply")
            kind, result = "!", self._serve(str(verb), arguments)
        except Gone:
            raise
        except BaseException as error:
            kind, result = "~", error
        finally:
            self._depth -= 1
        # What a request in between has given back of the arguments was a copy of these.
        known = before | self._contents | given
        encoder = value_wire.Encoder(self._name, containers, [kind])
        try:
            self._contents = dict(known)
            encoder.update(self._contents)
            if kind == "~":
                # What is not plain data in an exception crosses as the name of its type.
                encoder.name = _type_name
            encoder.add(result)
        except Gone:
            raise
        except BaseException as error:
            encoder, self._contents = self._encode_error(error, containers), known
        self.send(encoder.tokens)
        self._keep(str(verb), encoder.containers)

    def _encode_error(self, error: BaseException, containers: list[object]) -> value_wire.Encoder:
        encoder = value_wire.Encoder(_type_name, containers, ["~"])
        try:
            encoder.add(error)
        except BaseException:
            unsent = RuntimeError("an exception whose arguments cannot be sent")
            return self._encode_error(unsent, containers)
        return encoder

    def send(self, tokens: list[value_wire.Token]) -> None:
        """Send a message: the kind, then the tokens."""
        data = value_wire.dumps(tokens)
        try:
            self._line.send(data)
        except OSError as error:
            raise Gone(str(error)) from error

    def _receive(self) -> tuple[str, list[value_wire.Token]]:
        tokens = value_wire.loads(self._received(value_wire.MAX_BYTES))
        kind = tokens[0] if tokens else None
        if type(kind) is not str or kind not in ("?", "!", "~"):
            raise value_wire.Malformed("a message of no known kind")
        if kind == "?" and (len(tokens) < 2 or type(tokens[1]) is not str):
            raise value_wire.Malformed("a request without a verb")
        return kind, tokens[1:]

    def _received(self, max_bytes: int) -> bytes:
        try:
            return self._line.receive(max_bytes)
        except (EOFError, OSError) as error:
            raise Gone(str(error)) from error
        except ValueError as error:
            raise value_wire.Malformed(str(error)) from error
