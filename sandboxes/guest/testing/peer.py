"""An end of the line between the solution's process and the tests'.

The line carries requests, answers, and callbacks in between. Both ends are alike in form and unlike
in trust: the tests' end hands out nothing but callables that the tests themselves passed as
arguments, and it never evaluates, compares or formats anything on the solution's side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ..run.message_line import MessageLine
from . import value_wire, values

_CORE_BYTES = 16
_DEEPEST = 64
"""The deepest nesting of calls back and forth."""
_MOST_COMPARED = 4096
"""The most items of arguments that are compared again with each use of what a call gave."""


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
        self._given: list[object] = []
        self._new: list[str] = []
        """What the present answer names for the first time."""
        self._lazy: dict[str, list[object]] = {}
        """What a call gave -> the arguments of that call, which it may keep."""
        self._seen: dict[str, list[object]] = {}
        """Likewise -> the contents of these arguments that both ends know."""

    def request(self, verb: str, *arguments: object) -> tuple[bool, Any]:
        """Send a request and wait for the answer; serve requests of the other end meanwhile.

        Returns (whether the other end raised it, the answer): what is raised is an exception,
        rebuilt with a class of this side.

        Raises:
            Gone: the other end closed.
            wire.Malformed: the other end does not keep to the protocol.
        """
        self._given = []
        target = arguments[0] if arguments and isinstance(arguments[0], value_wire.Ready) else ""
        known = self._lazy.get(target, [])
        encoder = value_wire.Encoder(self._name, known, ["?", verb])
        for argument in arguments:
            encoder.add(argument)
        for number, old in enumerate(self._seen.get(target, ()) if known else ()):
            if old is not None and values.changed(known[number], old):
                encoder.update(number)
        self.send(encoder.tokens)
        # The other end may call back before it answers, so requests are served in between.
        while (received := self._receive())[0] == "?":
            self._answer(received[1])
        # An answer may change the arguments of this request (`known_items`), and nothing else that
        # the tests hold.
        self._given = encoder.containers
        decoder = value_wire.Decoder(self._find, encoder.containers)
        answers = list(decoder.values(received[1]))
        if known:
            self._seen[target] = list(map(values.content, known))
        raised = received[0] == "~"
        if len(answers) != 1 or (raised and not isinstance(answers[0], BaseException)):
            raise value_wire.Malformed("an answer is one value or one exception")
        return raised, answers[0]

    def goes_on(self, token: str) -> None:
        """Note that what the present answer names by `token` may keep the arguments of the call.
        What either end changes in them crosses with each request about it, unless they are too
        large to be compared each time.
        """
        sizes = (len(item) for item in self._given if isinstance(item, (list, dict, set, deque)))
        given = self._given if token[0] == "w" or sum(sizes) <= _MOST_COMPARED else []
        name = value_wire.named(token)
        if token[0] != "t" and name not in self._lazy:
            self._new.append(name)
            self._lazy[name], self._seen[name] = given, list(map(values.content, given))

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
        verb, *rest = tokens
        self._given = []
        known = self._lazy.get(rest[0], []) if rest and type(rest[0]) is str else []
        decoder = value_wire.Decoder(self._find, known)
        arguments = list(decoder.values(rest))
        containers = decoder.containers
        # Contents from before the call show which arguments the call changed.
        before = list(map(values.content, containers))
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
        encoder = value_wire.Encoder(self._name, containers, [kind])
        try:
            for number, old in enumerate(before):
                if old is not None and values.changed(containers[number], old):
                    encoder.update(number)
            self._given, self._new = containers, []
            if kind == "~":
                # What is not plain data in an exception crosses as the name of its type.
                encoder.name = _type_name
            if isinstance(result, value_wire.Ready):
                self.goes_on(result)
            encoder.add(result)
            answer = encoder.tokens
        except Gone:
            raise
        except BaseException as error:
            for token in self._new:  # The other end does not get these.
                self._lazy.pop(token)
            answer = self._encode_error(error)
        self.send(answer)

    def _encode_error(self, error: BaseException) -> list[value_wire.Token]:
        encoder = value_wire.Encoder(_type_name, tokens=["~"])
        try:
            encoder.add(error)
        except BaseException:
            return self._encode_error(RuntimeError("an exception whose arguments cannot be sent"))
        return encoder.tokens

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
