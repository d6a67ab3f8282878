"""What proxies of the solution's objects need of the connection to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .proxies import Handle


class Line(Protocol):
    """What a proxy needs of the connection."""

    def ask(self, verb: str, *arguments: object) -> object:
        """Ask the solution; raises here what it raised there."""
        ...

    def check_attribute(self, token: object, name: str, *, known: bool) -> None:
        """Raises unless the task names this attribute of objects."""
        ...

    def adopt(self, maker: str, made: Handle) -> None:
        """A function of the solution has returned an object."""
        ...

    def refuse(self, token: object, use: str) -> BaseException:
        """The test has failed: an object crossed where a value was meant."""
        ...

    def reads_plain_data(self, name: str) -> bool:
        """Whether an attribute is a method of plain data that only looks."""
        ...

    def note_own(self, token: object, name: str) -> None:
        """The tests used what the class of a value defines anew, of which the plain value
        answered.
        """
        ...

    def compares_objects(self) -> bool:
        """Whether the tests' syntax shows that they compare objects under test."""
        ...

    def cannot_judge(self, idiom: str) -> BaseException:
        """The tests cannot be used: they ask the solution itself whether it is right."""
        ...
