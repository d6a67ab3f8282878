"""One end of the line between the solution's process and the tests': requests, answers, and
callbacks in between.

Both ends are alike in form and unlike in trust. The tests' end hands out nothing but callables the
tests themselves passed as arguments; it never evaluates, compares or formats anything on the
solution's side.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Sequence

from . import wire

_LENGTH = struct.Struct("<I")
_DEEPEST = 64
"""Calls back and forth within one call."""


class Gone(BaseException):
    """The other end has closed: nothing that runs in between may swallow this."""


class Answer(Exception):
    """What the other end raised: the name of a built-in exception type, the own type's name, its
    plain arguments.
    """

    def __init__(self, base: str, name: str, arguments: tuple[object, ...]) -> None:
        super().__init__(base, name, arguments)
        self.base, self.name, self.arguments = base, name, arguments


Serve = Callable[[str, list[object]], object]
"""Does one request of the other end: (verb, arguments) -> value."""


class Peer:
    """Sends requests and serves those that arrive while it waits."""

    def __init__(
        self,
        descriptor: int,
        serve: Serve,
        name: wire.Name,
        find: wire.Find,
        *,
        returns_changes: bool,
    ) -> None:
        self._line = socket.socket(fileno=descriptor)
        self._serve, self._name, self._find = serve, name, find
        self._returns_changes = returns_changes
        self._depth = 0

    def request(self, verb: str, *arguments: object) -> object:
        """Ask the other end, and wait for its answer; serves what it asks meanwhile.

        Raises:
            Answer: it raised. Gone: it closed. wire.Malformed: it does not speak the protocol.
        """
        encoder = wire.Encoder(self._name)
        for argument in arguments:
            encoder.add(argument)
        self.send(["?", verb, *encoder.tokens])
        while True:
            kind, tokens = self._receive()
            if kind == "?":
                self._answer(tokens)
            elif kind == "!":
                return self._value(tokens, encoder.containers)
            else:
                self._raise(tokens)

    def serve_forever(self) -> None:
        """Answer requests until the other end closes."""
        while True:
            self.answer_one()

    def answer_one(self) -> None:
        """Answer the next request."""
        kind, tokens = self._receive()
        if kind == "?":
            self._answer(tokens)

    def close(self) -> None:
        """Close this end."""
        self._line.close()

    def _value(self, tokens: list[wire.Token], known: list[object]) -> object:
        # only the tests' arguments may be changed by an answer, never what the tests' end holds
        # otherwise
        values = list(wire.Decoder(self._find, known).values(tokens))
        if len(values) != 1:
            raise wire.Malformed("an answer is one value")
        return values[0]

    def _raise(self, tokens: list[wire.Token]) -> None:
        values = list(wire.Decoder(self._find).values(tokens))
        if len(values) != 3 or type(values[0]) is not str or type(values[1]) is not str:
            raise wire.Malformed("an exception is two names and its arguments")
        arguments = values[2] if type(values[2]) is tuple else ()
        raise Answer(values[0], values[1], arguments)

    def _answer(self, tokens: list[wire.Token]) -> None:
        verb, *rest = tokens
        decoder = wire.Decoder(self._find)
        arguments = list(decoder.values(rest))
        before = _snapshots(decoder.containers) if self._returns_changes else []
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise RecursionError("calls back and forth are nested too deeply")
            result = self._serve(str(verb), arguments)
            answer = self._encode_answer(result, decoder.containers, before)
        except Gone:
            raise
        except BaseException as error:
            answer = self._encode_error(error)
        finally:
            self._depth -= 1
        self.send(answer)

    def _encode_answer(
        self, result: object, known: list[object], before: list[object]
    ) -> list[wire.Token]:
        encoder = wire.Encoder(self._name, known)
        for number, old in enumerate(before):
            if old is not None and _changed(known[number], old):
                encoder.update(number)
        encoder.add(result)
        return ["!", *encoder.tokens]

    def _encode_error(self, error: BaseException) -> list[wire.Token]:
        kinds = type(error).__mro__
        base = next(kind.__name__ for kind in kinds if kind.__module__ == "builtins")
        encoder = wire.Encoder(_describe)
        encoder.add(base)
        encoder.add(kinds[0].__name__)
        try:
            encoder.add(tuple(error.args))
        except BaseException:
            return self._encode_error(RuntimeError("an exception whose arguments cannot be sent"))
        return ["~", *encoder.tokens]

    def send(self, tokens: list[wire.Token]) -> None:
        """Send one message: its kind, then tokens."""
        data = wire.dumps(tokens)
        try:
            self._line.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise Gone(str(error)) from error

    def _receive(self) -> tuple[str, list[wire.Token]]:
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > wire.MAX_BYTES:
            raise wire.Malformed(f"a message of {length} bytes")
        tokens = wire.loads(self._exactly(length))
        if not tokens or type(tokens[0]) is not str or tokens[0] not in ("?", "!", "~"):
            raise wire.Malformed("a message of no known kind")
        if tokens[0] == "?" and (len(tokens) < 2 or type(tokens[1]) is not str):
            raise wire.Malformed("a request without a verb")
        return tokens[0], tokens[1:]

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            try:
                part = self._line.recv(min(size, 1 << 16))
            except OSError as error:
                raise Gone(str(error)) from error
            if not part:
                raise Gone("closed")
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _snapshots(containers: Sequence[object]) -> list[object]:
    """The content of each container that can change, to see later whether it has."""
    return [
        _content(container) if isinstance(container, wire.MUTABLE) else None
        for container in containers
    ]


def _content(container: object) -> list[object]:
    if isinstance(container, dict):
        return [*container.keys(), *container.values()]
    items: list[object] = list(container)  # type: ignore[call-overload]
    return items


def _changed(container: object, before: object) -> bool:
    now = _content(container)
    old: list[object] = before  # type: ignore[assignment]
    return len(now) != len(old) or any(new is not same for new, same in zip(now, old, strict=True))


def _describe(item: object) -> str:
    return f"s<{type(item).__name__}>"


def close_standard_streams(*, keep_errors: bool = False) -> None:
    """Discard what is printed; `keep_errors` leaves standard error, so that faults of ours show."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(2 if keep_errors else 3):
        os.dup2(null, number)
    os.close(null)
