"""The operations of the connection to the solution that proxies of objects use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    pass


class Line(Protocol):
    """The connection to the solution, with the operations that proxies use."""

    effects: int

    def ask(self, verb: str, *arguments: object, source: str | bool = False) -> object:
        """Send a request to the solution; re-raise what the solution raised."""
        ...

    def check_attribute(self, token: object, name: str, *, is_known: bool) -> None:
        """Raise an error unless the task names this attribute of objects."""
        ...

    def refuse(self, token: object, use: str) -> BaseException:
        """Return the error of a failed test: an object crossed where a value was meant."""
        ...

    def reads_plain_data(self, name: str) -> bool:
        """Return whether an attribute is a method of plain data that only reads."""
        ...

    def compares_objects(self) -> bool:
        """Return whether the tests' syntax shows a comparison of objects under test."""
        ...

    def cannot_judge(self, idiom: str) -> BaseException:
        """Return the error of unusable tests, which ask the solution itself whether the solution is
        right.
        """
        ...
