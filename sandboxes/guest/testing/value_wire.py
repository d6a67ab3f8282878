"""Encodes plain values between the solution's process and the tests': tagged, exact, bounded.

No value is ever pickled. A value is a flat JSON list of tokens, worked off on a stack, so that
neither side recurses and nesting costs nothing:

    ([2.5, "a"], {"k": ()}, 7)   ->   ["[", 2.5, "a"], [":"], 7, "(3", "sk", ["("], "=1 2"

`(3` takes three tokens' values off the stack and makes a tuple of them. A container of bare scalars
is a single token, an array that begins with its tag; bytes and arrays are containers of texts. What
is not plain stays where it is and is named by a handle. Containers are numbered in the order in
which they are made; `@3` is the fourth again, which keeps aliases, and `=3 5` puts five parts into
it. Any other list, dict or deque is made empty, and gets its parts afterwards, since it may contain
itself.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from . import derived, values
from .values import BARE, EXACT, NOT_SCALAR, Bare, Malformed, is_member, is_small, parts_of, scalar

__all__ = ["MAX_BYTES", "Decoder", "Encoder", "Malformed", "Ready", "Token", "dumps", "loads"]

MAX_BYTES = 16 << 20
"""The most bytes of a message; a longer message is refused."""
MAX_TOKENS = 4_000_000

BUILD = values.BUILD
Token = Bare | list[Bare]
Name = Callable[[object], str]
"""Returns the handle token of an object that stays on this side."""
Find = Callable[[str], object]
"""Returns the object (or proxy) of a handle token."""

HANDLES = "hfjgwyot"
"""The tags of objects that stay where they are: an object, a class, an iterator, a generator, an
awaitable, an asynchronous iterator. (From the tests, `f` is a function and `o` any other object;
`t` is either on the way back.) A number follows, and for an object or class of the solution a point
and its special methods (`operations.abilities_of`).
"""

_Work = tuple[bool, object, str]
"""(whether the parts are done, the value, the token that closes the value, or `_BARE`)."""
_FILLED_LATER = (list, dict, deque)
_BARE = "bare"
"""Marks a value to be sent as the plain value that its class derives from."""


class Ready(str):
    """A token that is already encoded, and sent unchanged."""

    __slots__ = ()


def named(token: str) -> Ready:
    """Return the token by which one side names an object of the other, whatever its kind."""
    return Ready("h" + token[1:].partition(".")[0])


class Encoder:
    """Turns values into tokens, and remembers the containers met so far.

    Args:
        name: returns the token of an object that is not plain data.
        known_items: containers that both sides already have, by number.
        tokens: the beginning of the message.
    """

    def __init__(
        self, name: Name, known_items: Iterable[object] = (), tokens: list[Token] | None = None
    ) -> None:
        self.tokens: list[Token] = tokens or []
        self._known = list(known_items)
        self.containers: list[object] = [*self._known]
        self._numbers = {id(container): number for number, container in enumerate(self.containers)}
        self._open: set[int] = set()
        """The containers that are made once their parts have been sent."""
        self._plain: dict[int, object] = {}
        """What is known to be plain at every depth, by `id`."""
        self._empty: list[int] = []
        """The numbers of the containers that are to be filled."""
        self.name = name

    def add(self, value: object) -> None:
        """Append the tokens of `value`.

        Raises:
            Malformed: the value has too many parts.
        """
        self._add(value)
        self._fill()

    def _add(self, value: object) -> None:
        if type(value) in BARE:
            self.tokens.append(scalar(value))  # type: ignore[arg-type]
            return
        work: list[_Work] = [(False, value, "")]
        while work:
            complete, item, closing = work.pop()
            if complete:
                self._open.discard(id(item))
                self._append(closing, item)
            elif len(self.tokens) > MAX_TOKENS:
                raise Malformed(f"the value has more than {MAX_TOKENS} parts")
            elif isinstance(item, Ready):
                self.tokens.append(item)
            elif (number := self._numbers.get(id(item))) is not None:
                self.tokens.append(f"@{number}")
            elif not closing and derived.is_derived(item) and self._add_derived(item, work):
                continue
            elif type(item) in EXACT or is_member(item) or (token := scalar(item)) is NOT_SCALAR:
                self._open_container(item, work)
            else:
                self.tokens.append(token)  # type: ignore[arg-type]

    def _add_derived(self, item: object, work: list[_Work]) -> bool:
        """Append a value whose class derives from plain data, or the value's name; False for
        others.
        """
        if (handle := derived.handle_of(item)) is not None:
            self.tokens.append(self.name(handle))
            return True
        if id(item) in self._open:
            self.tokens.append(self.name(item))  # The value contains itself.
            return True
        names = derived.names_of(item)
        if names is None:
            return False
        # On a stack, what is pushed last comes first: handle, names, value, and then the tag.
        work.append((True, item, f"{derived.TAG}3"))
        work += [(False, item, _BARE), (False, names, ""), (False, Ready(self.name(item)), "")]
        return True

    def _open_container(self, item: object, work: list[_Work]) -> None:
        new_parts = parts_of(item, self._plain) if id(item) not in self._open else None
        if new_parts is None:
            self.tokens.append(self.name(item))
            return
        tag, parts = new_parts
        kinds = set(map(type, parts))
        if kinds <= BARE:
            numbers = [part for part in parts if type(part) is int] if int in kinds else [0]
            if is_small(min(numbers)) and is_small(max(numbers)):
                self._append([tag, *parts], item)  # type: ignore[list-item]
                return
        if type(item) in _FILLED_LATER:
            self._empty.append(len(self.containers))
            self._append([tag, item.maxlen] if isinstance(item, deque) else [tag], item)
            return
        self._open.add(id(item))
        work.append((True, item, f"{tag}{len(parts)}"))
        work.extend((False, part, "") for part in reversed(parts))

    def _append(self, token: Token, item: object) -> None:
        """Append the token that makes a container, and number the container."""
        self.tokens.append(token)
        self._numbers[id(item)] = len(self.containers)
        # This also keeps the item alive, so that no other object gets its id.
        self.containers.append(item)

    def update(self, contents: dict[int, object]) -> None:
        """Append the present content of each container that both sides have and that has changed
        since it had its content of `contents` (by `id`), which is brought up to date.
        """
        for number, item in enumerate(self._known):
            old = contents.get(id(item))
            if old is not None and values.changed(item, old):
                contents[id(item)] = values.content(item)
                self._empty.append(number)
                self._fill()

    def _fill(self) -> None:
        while self._empty:
            number = self._empty.pop()
            _, parts = parts_of(self.containers[number]) or ("", [])
            for part in parts:
                self._add(part)
            self.tokens.append(f"={number} {len(parts)}")


# Escaped, two surrogates in a row would be read as the one character that they stand for.
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, ensure_ascii=False).encode
_decode = json.JSONDecoder().raw_decode


def dumps(tokens: list[Token]) -> bytes:
    """Encode the tokens of a message.

    Raises:
        Malformed: the message is too long.
    """
    data = _encode(tokens).encode("utf-8", "surrogatepass")
    if len(data) > MAX_BYTES:
        raise Malformed(f"the value takes {len(data)} bytes; at most {MAX_BYTES}")
    return data


def loads(data: bytes) -> list[Token]:
    """Decode the tokens of a message; the decoder checks what the tokens are.

    Raises:
        Malformed: the message is not a JSON list, or has too many tokens.
    """
    try:
        text = data.decode("utf-8", "surrogatepass")
        tokens, end = _decode(text)
    except (ValueError, RecursionError) as error:
        raise Malformed("the message is not JSON") from error
    if type(tokens) is not list or len(tokens) > MAX_TOKENS or end != len(text):
        raise Malformed("the message is not a list of tokens")
    return tokens


class Decoder:
    """Builds values from tokens; `containers` are numbered as in the encoder."""

    def __init__(self, find: Find, known_items: Iterable[object] = ()) -> None:
        self.containers: list[object] = list(known_items)
        self.changed: list[object] = []
        """The containers that a message has filled or has given new content."""
        self._find = find

    def values(self, tokens: Iterable[Token]) -> Iterator[object]:
        """Return an iterator over the values of a message, in order.

        Raises:
            Malformed: the tokens are not values.
        """
        stack: list[object] = []
        for token in tokens:
            kind = type(token)
            try:
                if kind is str:
                    self._word(token, stack)  # type: ignore[arg-type]
                elif kind is list:
                    self._container(token, stack)  # type: ignore[arg-type]
                elif kind in BARE:
                    stack.append(token)
                else:
                    raise Malformed(f"a token of type {kind.__name__}")
            except Malformed:
                raise
            except Exception as error:
                raise Malformed(f"bad token {str(token)[:40]!r}: {type(error).__name__}") from error
        return iter(stack)

    def _container(self, token: list[Bare], stack: list[object]) -> None:
        """Build a container of bare scalars."""
        tag, *parts = token
        if type(tag) is not str or tag not in BUILD or not BARE.issuperset(map(type, parts)):
            raise Malformed("an array that is not a container")
        self._complete(BUILD[tag](parts), stack)  # type: ignore[arg-type]

    def _word(self, token: str, stack: list[object]) -> None:
        tag, content = token[:1], token[1:]
        if tag == "s":
            stack.append(content)
        elif tag in BUILD:
            parts = _pop(stack, _number(content))
            built = BUILD[tag](parts)
            # Both of its numbers are those of one object, as they are in the encoder.
            if tag == derived.TAG and self.containers and self.containers[-1] is parts[-1]:
                self.containers[-1] = built
            self._complete(built, stack)
        elif tag in HANDLES:
            stack.append(self._find(token))
        elif tag in values.READ:
            stack.append(values.READ[tag](content))
        elif tag == "@":
            stack.append(self.containers[_number(content)])
        elif tag == "=":
            number, count = content.split(" ")
            container = self.containers[_number(number)]
            values.replace(container, _pop(stack, _number(count)))
            self.changed.append(container)
        else:
            raise Malformed(f"unknown tag {tag!r}")

    def _complete(self, built: object, stack: list[object]) -> None:
        self.containers.append(built)
        stack.append(built)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise Malformed(f"not a count: {text[:20]!r}")
    return int(text)


def _pop(stack: list[object], count: int) -> list[object]:
    if count > len(stack):
        raise Malformed("a container with more parts than there are")
    start = len(stack) - count
    parts = stack[start:]
    del stack[start:]
    return parts
