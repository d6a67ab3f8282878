"""The tests' end of the line to the solution.

It keeps what was asked and what came back, and which failures fail a test even if the test catches
exceptions. What crosses the line is plain data, or a handle of an object that stays with the
solution; which objects the tests may use, and for what, is decided here (`proxies`, `interface`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import failures, peer, proxies, rare_values, remote_iterators, value_wire
from .plain_attributes import READING_METHODS
from .proxies import ClassHandle, Handle, token_of

if TYPE_CHECKING:
    import ast

    from .interface import Interface
    from .surroundings import Surroundings

_KIND_LETTERS = 60

Job = Mapping[str, object]
"""The job of a test runner: `tests` (sources), `prelude` (source), `module`, `stop_early`,
`interface` (name -> attributes), `entry_point`.
"""


class BrokenTests(Exception):
    """The tests cannot be used; that is the tests' fault, whatever the solution does."""


class HarnessFault(Exception):
    """The harness itself failed while reading the tests: ours, whatever the solution does."""


@contextmanager
def without_solution() -> Generator[None]:
    """Mark a step that always runs and uses nothing of the solution, so a failure of the step is
    ours.

    Want of memory or of another resource stays unmarked, since a solution may be the cause.

    Raises:
        HarnessFault: the step failed.
    """
    try:
        yield
    except (BrokenTests, HarnessFault, MemoryError, OSError):
        raise
    except Exception as error:
        raise HarnessFault(f"{type(error).__name__}: {error}") from error


class ObjectRefused(BaseException):
    """The test has failed: the solution sent an object where a value was meant."""


class TestsLine:
    """The tests' handles of the solution, and the line to the solution's process."""

    def __init__(self, descriptor: int) -> None:
        self._callbacks: list[object] = []
        self._handles: dict[str, object] = {}
        self._exceptions: dict[type, value_wire.Ready] = {}
        self.line = peer.Peer(
            descriptor, self._serve, self._name, self._find, returns_changes=False
        )
        self._broken = ""
        self._wrong = ""
        self._unusable = ""
        self._own_use = ""
        self._job: Job = {"tests": []}
        self._interface: Interface | None = None
        self._surroundings: Surroundings | None = None
        self._values: dict[str, object] = {}
        """Globals of the solution that are plain data, with the values that the tests know."""
        self.names: dict[str, object] = {"__name__": "tests"}
        failures.own_names = self.names

    def close(self) -> None:
        """Drop the solution's objects and close the line."""
        self.line.close()
        rare_values.forget()
        failures.own_names = {}
        for table in (self.names, self._handles, self._exceptions, self._values):
            table.clear()

    # --- asking -----------------------------------------------------------------

    def ask(self, verb: str, *arguments: object) -> object:
        """Send a request to the solution, and return or raise what the solution did.

        Once the solution has broken the line, every later test fails too, whatever the tests catch.
        """
        if self._broken:
            raise peer.Gone(self._broken)
        try:
            return self.line.request(verb, *arguments)
        except peer.Answer as answer:
            raise proxies.here(answer.error, verb, arguments) from None
        except peer.Gone as error:
            self._broken = "the solution ended its process"
            raise peer.Gone(self._broken) from error
        except value_wire.Malformed as error:
            self._broken = f"the solution's answer cannot be read: {error}"
            raise peer.Gone(self._broken) from error
        finally:
            # A call that raised may have printed, or changed globals, before it did.
            if self._surroundings or self._values:
                self._follow(verb)

    def _follow(self, verb: str) -> None:
        """Fetch what the solution has printed, and which globals have changed."""
        if self._broken or verb in ("printed", "resolve"):
            return
        if self._surroundings and self._surroundings.output and verb != "capture":
            self._surroundings.show_output()
        if self._values:
            fresh = self.ask("resolve", sorted(self._values))
            for name, kind in fresh.items() if isinstance(fresh, dict) else ():
                if type(kind) is tuple and kind[:1] == ("value",):
                    value = kind[1]
                    old = self._values.get(name)
                    # Types are compared first, since 1 == True == 1.0. A handle counts as changed:
                    # `==` of it would ask the solution. A global that the tests have bound anew
                    # themselves stays as they set it.
                    same = (
                        type(old) is type(value) and not isinstance(value, Handle) and old == value
                    )
                    if name in self._values and self.names.get(name) is old and not same:
                        self.names[name] = self._values[name] = value

    def check_attribute(self, token: object, name: str, *, is_known: bool) -> None:
        """Check whether the task names this attribute of objects.

        Args:
            token: the object.
            is_known: it is sure to be of a class or maker under test.

        Raises:
            ObjectRefused: the tests use the attribute of plain data.
            AttributeError: the tests do not use the name at all: a library looks for something.
        """
        interface = self.interface
        if name in interface.attributes or (is_known and name in interface.data_methods):
            return
        raise (
            self.refuse(token, f".{name}") if name in self.interface.said else AttributeError(name)
        )

    def refuse(self, token: object, use: str) -> BaseException:
        """Note that the test has failed: an object crossed where a value was meant."""
        if not self._wrong:
            kind = self.ask("kind", token)
            kind_name = "".join(filter(str.isprintable, str(kind)[:_KIND_LETTERS]))
            self._wrong = (
                f"an object of the solution's type {kind_name} came where plain data are expected: "
                f"`{use}` of it would be the solution's to decide"
            )
        return ObjectRefused(self._wrong)

    def note_own(self, token: object, name: str) -> None:
        """Note that the tests used what the class of a value defines anew, of which the plain
        value answered.
        """
        if not self._own_use:
            kind = "".join(filter(str.isprintable, str(self.ask("kind", token))[:_KIND_LETTERS]))
            self._own_use = (
                f"the tests cannot be judged: they use {name} of the solution's {kind}, which "
                "derives from plain data and defines it anew"
            )

    def reads_plain_data(self, name: str) -> bool:
        """Return whether an attribute is a method of plain data that only reads."""
        return name in READING_METHODS

    def compares_objects(self) -> bool:
        """Return whether the tests' syntax shows a comparison of objects under test."""
        return self.interface.compares_objects

    def cannot_judge(self, idiom: str) -> BaseException:
        """Note that the tests ask the solution itself whether the solution is right."""
        self._unusable = self._unusable or f"the tests cannot be judged: they {idiom}"
        return ObjectRefused(self._unusable)

    def problem(self) -> str:
        """Return what has failed the test for good, whatever the test caught; call once per test.

        Raises:
            BrokenTests: the test itself cannot be used.
        """
        if self._unusable:
            raise BrokenTests(self._unusable)
        wrong, self._wrong = self._wrong, ""
        return self._broken or wrong

    @property
    def interface(self) -> Interface:
        """The interface of the solution, as used by the tests; read on first use."""
        if self._interface is None:
            from .interface import Interface

            self._interface = Interface(
                self.trees(),
                self._job.get("interface") or {},  # type: ignore[arg-type]
                str(self._job.get("module", "solution")),
                str(self._job.get("entry_point", "")),
            )
        return self._interface

    def trees(self) -> list[ast.Module]:
        """Return the syntax trees of the tests."""
        import ast  # a large module that is rarely needed

        sources: list[str] = self._job["tests"]  # type: ignore[assignment]
        return list(map(ast.parse, sources))

    def adopt(self, maker: str, handle: Handle) -> None:
        """Register an object that a function returned as under test, where the tests say so."""
        if maker in self.interface.makers:
            proxies.adopt(handle)

    def own_values(self) -> set[str]:
        """Return the names of the solution's globals that are data, and may change."""
        return set(self._values)

    # --- the line ---------------------------------------------------------------

    def _serve(self, verb: str, arguments: list[object]) -> object:
        """Serve the solution: call what the tests passed, or draw from an iterator that the tests
        passed.
        """
        if self._surroundings and self._surroundings.output:
            self._surroundings.show_output()
        number = arguments[0]
        if type(number) is not int or not 0 <= number < len(self._callbacks):
            raise value_wire.Malformed("no such callback")
        target = self._callbacks[number]
        if verb == "next" and isinstance(target, Iterator):
            return (next(target),)
        if verb == "about":
            return str(getattr(target, "__name__", "")), getattr(target, "__doc__", None)
        if verb == "callback" and callable(target) and not isinstance(target, Iterator):
            positional, keywords = arguments[1:]
            return target(*positional, **keywords)  # type: ignore[misc,arg-type]
        raise value_wire.Malformed(f"no such request: {verb[:20]!r}")

    def _name(self, item: object) -> str:
        """Return the token of an argument that is not plain data."""
        if isinstance(item, Handle):
            return token_of(item)
        if isinstance(item, remote_iterators.RemoteIterator):
            return f"h{item.number}"
        if isinstance(item, type) and item in self._exceptions:
            return self._exceptions[item]
        # An open file is an iterator as well, but the solution would want to read from it.
        readable = hasattr(item, "read") or hasattr(item, "fileno")
        crosses = callable(item) or (isinstance(item, Iterator) and not readable)
        if not crosses or isinstance(item, type):
            raise self.cannot_judge(f"pass a {type(item).__name__} of their own to the solution")
        number = next((n for n, callback in enumerate(self._callbacks) if callback is item), None)
        if number is None:
            number = len(self._callbacks)
            self._callbacks.append(item)
        return f"{'j' if isinstance(item, Iterator) else 'f'}{number}"

    @staticmethod
    def _check(token: str) -> None:
        if not token[1:].isdecimal() or len(token) > 9:
            raise value_wire.Malformed("a handle without a number")

    def _find(self, token: str) -> object:
        self._check(token)
        if token[0] == "w":
            return remote_iterators.awaited(self, token)
        # An object has one proxy, whichever of the two tokens for objects comes first.
        key = f"h{token[1:]}" if token[0] == "o" else token
        existing = self._handles.get(key)
        if existing is None and token[0] == "g":
            # Items are drawn ahead only if the tests do nothing that depends on how far the
            # generator has come.
            prefetch = self.interface.attributes.isdisjoint(("send", "throw", "close"))
            existing = remote_iterators.generate(self, token, prefetch=prefetch)
            self._handles[key] = existing
        elif existing is None:
            kinds: dict[str, Any] = {
                "h": Handle, "o": Handle, "f": ClassHandle, "j": remote_iterators.RemoteIterator,
                "y": remote_iterators.RemoteAsyncIterator,
            }  # fmt: skip
            existing = self._handles[key] = kinds[token[0]](self, token)
        elif token[0] == "o":
            object.__setattr__(existing, "_known", True)
        return existing
