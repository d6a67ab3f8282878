"""The tests' end of the line to the solution.

It keeps what was asked and what came back, and which failures fail a test even if the test catches
exceptions. What crosses the line is plain data, or a handle of an object that stays with the
solution; which objects the tests may use, and for what, is decided here (`proxies`, `interface`).
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from . import derived, failures, peer, proxies, remote_iterators, value_wire, values
from .grading_job import GradingJob
from .operations import LOOKS
from .proxies import Handle, state_of

if TYPE_CHECKING:
    from .interface import Interface
    from .surroundings import Surroundings

_KIND_LETTERS = 60
_LONGEST_TOKEN = 40
"""The most characters of the name of an object: a letter, a number and its special methods."""


def _like(function: object) -> tuple[str, dict[str, object]]:
    """Return the source of a function with the parameters of a function of the tests, and the
    defaults it uses. It calls `ludus_call` with the arguments and keywords that it gets.
    """
    any_arguments = "lambda *arguments, **keywords: ludus_call(*arguments, **keywords)"
    if not isinstance(function, FunctionType):
        return any_arguments, {}
    code = function.__code__  # `inspect` is slow to load.
    end = code.co_argcount + code.co_kwonlyargcount
    positional = code.co_varnames[: code.co_argcount]
    keywords = code.co_varnames[code.co_argcount : end]
    others = iter(code.co_varnames[end:])
    star = f"*{next(others)}" if code.co_flags & 0x04 else ""
    stars = f"**{next(others)}" if code.co_flags & 0x08 else ""
    given = function.__defaults__ or ()
    defaults = dict(zip(positional[::-1], given[::-1], strict=False))
    defaults.update(function.__kwdefaults__ or {})
    if not values.BARE.issuperset(map(type, defaults.values())):
        return any_arguments, {}  # a default that is sent back would be a copy

    def listed(*parts: str) -> str:
        return ", ".join(filter(None, parts))

    shown = {name: f"{name}=ludus_defaults[{name!r}]" for name in defaults}
    bare = star or "*" * bool(keywords)
    parameters = [shown.get(name, name) for name in (*positional, bare, *keywords, stars)]
    arguments = listed(*positional, star, *map("{0}={0}".format, keywords), stars)
    return f"lambda {listed(*parameters)}: ludus_call({arguments})", defaults


def _derived(parts: list[object]) -> object:
    from . import derived_values  # imported late: it is seldom needed

    return derived_values.build(parts)


values.BUILD[derived.TAG] = _derived

_WITHOUT_EFFECT = frozenset(
    ("resolve", "as_plain", "kind", "owns", "class", "isinstance", "issubclass", "reflect",
     "signature", "what", "printed", "capture", "attribute", "str", "repr", "format")
)  # fmt: skip
"""Requests that only look. All others may change what the solution answers later."""
_STILL = {*_WITHOUT_EFFECT, *LOOKS, "iter", "advance", "contains", "truth"}
"""Requests after which an object that stands in the place of a value has to say the same again."""


class ObjectRefused(BaseException):
    """The test has failed: the solution sent an object where a value was meant."""


class TestsLine:
    """The tests' handles of the solution, and the line to the solution's process."""

    def __init__(self, descriptor: int) -> None:
        self._lent: list[object] = []
        """What the tests have passed to the solution and what stays here, by number."""
        self.handles: dict[str, object] = {}
        """What the tests have met of the solution, by name."""
        self._meant: dict[str, Handle] = {}
        self._exceptions: dict[type, value_wire.Ready] = {}
        self.line = peer.Peer(descriptor, self._serve, self._name, self._find)
        self._broken = ""
        self._wrong = ""
        self.effects = 0
        """The number of requests so far that may have changed something in the solution."""
        self.acts = 0
        """The number of requests so far that made the solution do more than answer a look."""
        self._acts = False
        """Whether the present request is an act."""
        self._calls: dict[str, int] = {}
        """Function -> the number of its calls so far."""
        self._giver = ""
        """The function that has given what the present answer holds."""
        self._ways = set[str]()
        """How that comes (`HandleState.ways`)."""
        self._source: str | bool = False
        """Whether objects that arrive now come from an object under test, or the name of the
        function that returns them."""
        self._job = GradingJob(())
        self.interface: Interface
        """What the tests use of the solution."""
        self._surroundings: Surroundings | None = None
        self.names: dict[str, object] = {}

    def close(self) -> None:
        """Drop the solution's objects and close the line."""
        self.line.close()
        values.forget()
        for table in (self.names, self.handles, self._meant, self._exceptions):
            table.clear()

    # --- asking -----------------------------------------------------------------

    def ask(self, verb: str, *arguments: object, source: str | bool = False) -> object:
        """Send a request to the solution, and return or raise what the solution did.

        Once the solution has broken the line, every later test fails too, whatever the tests catch.

        Args:
            verb: what to do.
            arguments: the values that the solution gets.
            source: whether objects in the answer are under test, or the name of the function that
                returns them: the tests' side alone decides that.
        """
        if self._broken:
            raise peer.Gone(self._broken)
        self.effects += verb not in _WITHOUT_EFFECT
        outer = self._source, self._acts, self._giver, self._ways
        self._source, self._acts = source, verb not in _STILL
        self.acts += self._acts
        target = arguments[0] if arguments else None
        if isinstance(target, Handle):
            arguments = state_of(target).token, *arguments[1:]
        asked = self.handles.get(target) if isinstance(target, value_wire.Ready) else None
        self._ways = {f"__{verb}__"}
        if isinstance(asked, Handle):
            self._giver, ways = state_of(asked).giver, state_of(asked).ways
            self._ways = {str(arguments[1])} if verb == "attribute" else ways
        if isinstance(source, str):
            self._ways = {f"{source}()"}
        if verb == "call" and isinstance(source, str):
            self._calls[source] = self._calls.get(source, 0) + 1
            self._giver = source
        try:
            raised, answer = self.line.request(verb, *arguments)
        except peer.Gone as error:
            self._broken = "the solution ended its process"
            raise peer.Gone(self._broken) from error
        except value_wire.Malformed as error:
            self._broken = f"the solution's answer cannot be read: {error}"
            raise peer.Gone(self._broken) from error
        finally:
            self._source, self._acts, self._giver, self._ways = outer
            # A call that raised may have printed before it did.
            shows_output = self._surroundings and self._surroundings.output
            if shows_output and not self._broken and verb not in ("printed", "resolve", "capture"):
                self._surroundings.show_output()  # type: ignore[union-attr]
        if not raised:
            return answer
        # The exception is not kept by its own frame.
        errors, answer = [proxies.here(answer, verb, self._job.tests)], None
        raise errors.pop()

    def changes(self, giver: str) -> int:
        """Return the number of requests so far that may have changed a value that the function
        `giver` gave: all acts but its own calls with plain data, after which a value is what it
        was.
        """
        return self.acts - self._calls.get(giver, 0)

    def refuse(self, token: object, use: str) -> BaseException:
        """Note that the test has failed: an object crossed where a value was meant."""
        kind = "" if self._wrong else self.ask("kind", token)
        kind_name = "".join(filter(str.isprintable, str(kind)[:_KIND_LETTERS]))
        return self.fail(
            f"an object of the solution's type {kind_name} came where plain data are expected: "
            f"`{use}` of it would be the solution's to decide"
        )

    def meant(self, result: object, name: str) -> object:
        """Return the proxy of what a call by name has made, if the tests use that as an object."""
        if not isinstance(result, Handle) or name not in self.interface.makers:
            return result
        token = state_of(result).token
        if token not in self._meant:
            self._meant[token] = Handle(self, f"{token}.{state_of(result).abilities}")
            state = state_of(self._meant[token])
            state.known = state.meant = True
            state.ways = {f"{name}()"}
            state.of_class = name[:1].isupper() or name in self.interface.declared
        return self._meant[token]

    def error_class(self, name: str, detail: list[Any]) -> type[BaseException]:
        """Return what stands for an exception class of the solution: (base, chain, token)."""
        stand_in = failures.class_of(*detail[:2])
        if any(issubclass(kind, stand_in) for kind in self.interface.raised):
            # `except name` must not catch what the tests themselves raise.
            stand_in = failures.class_of(detail[0], [("solution", name)])
        self._exceptions[stand_in] = value_wire.named(str(detail[2]))
        return stand_in

    def fail(self, reason: str) -> BaseException:
        """Return an exception for a test that cannot be judged, and note the test as failed.

        What cannot be judged is a property of the task. It is settled by the tests' syntax
        (`idioms`) or by the reference solution; here it is too late for an excuse.
        """
        self._wrong = self._wrong or reason
        return ObjectRefused(self._wrong)

    def problem(self) -> str:
        """Return why the test has failed, even if it caught the exception; call once per test."""
        wrong, self._wrong = self._wrong, ""
        return self._broken or wrong

    # --- the line ---------------------------------------------------------------

    def _serve(self, verb: str, arguments: list[object]) -> object:
        """Serve the solution: call what the tests passed, or draw from an iterator that the tests
        passed.
        """
        if self._surroundings and self._surroundings.output:
            self._surroundings.show_output()
        number = arguments[0]
        if type(number) is not int or not 0 <= number < len(self._lent):
            raise value_wire.Malformed("no such callback")
        target = self._lent[number]
        if verb == "next" and isinstance(target, Iterator):
            return (next(target),)
        library = values.library_path(target)
        if verb == "about":
            if library:
                return library
            name, text = str(getattr(target, "__name__", "")), getattr(target, "__doc__", None)
            return name, text, *_like(target)
        # By a library's function, such as `getattr`, the solution would reach the tests themselves.
        if verb == "callback" and callable(target) and not isinstance(target, type) and not library:
            positional, keywords = arguments[1:]
            try:
                return target(*positional, **keywords)  # type: ignore[misc,arg-type]
            except BaseException as error:
                is_failure = isinstance(error, AssertionError) or type(error).__name__ == "Failed"
                if is_failure and (positional or keywords):
                    # It could try values until one is right.
                    raise self.fail(f"an assertion about what it was given: {error}") from None
                raise
        raise value_wire.Malformed(f"no such request: {verb[:20]!r}")

    def _name(self, item: object) -> str:
        """Return the token of an argument that is not plain data."""
        if isinstance(item, Handle):
            self.acts += self._acts
            return state_of(item).token
        if isinstance(item, remote_iterators.RemoteIterator):
            return item.ludus_token
        if isinstance(item, type) and item in self._exceptions:
            return self._exceptions[item]
        if type(item).__name__ == "_ANY" or type(item).__name__.startswith("Approx"):
            raise self.fail("the tests hand the solution what is equal to other values")
        number = next((n for n, lent in enumerate(self._lent) if lent is item), len(self._lent))
        self._lent[number : number + 1] = [item]  # the same, or one more
        if callable(item) and not isinstance(item, type):
            return f"f{number}"
        # An open file is an iterator as well, but the solution would want to read from it.
        readable = hasattr(item, "read") or hasattr(item, "fileno")
        return f"{'j' if isinstance(item, Iterator) and not readable else 'o'}{number}"

    @staticmethod
    def _check(token: str) -> str:
        """Return the letter and the number of a token."""
        name = token.partition(".")[0]
        if not name[1:].isdecimal() or len(name) > 9 or len(token) > _LONGEST_TOKEN:
            raise value_wire.Malformed("a handle without a number")
        return name

    def _find(self, token: str) -> object:
        name = self._check(token)
        if token[0] == "t":
            return self._lent[int(name[1:])]
        if token[0] == "w":
            return remote_iterators.awaited(self, token)
        existing = self.handles.get(name)
        if existing is None:
            existing = self.handles[name] = self._standing_for(token)
        elif self._acts and isinstance(existing, Handle):
            # Given again, it may have changed, as another list of the same name may have.
            state_of(existing).shown = {}
        source = self._source
        if token[0] in "hy" and source and (source is True or source in self.interface.classes):
            state = state_of(existing)  # type: ignore[arg-type]
            state.known, state.is_value = True, False
        if isinstance(existing, Handle):
            state_of(existing).ways |= self._ways
        return existing

    def _standing_for(self, token: str) -> object:
        if token[0] == "g":
            prefetch = self._draws_ahead and not self.interface.drives_generators
            return remote_iterators.generate(self, token, prefetch=prefetch)
        if token[0] == "j":
            return remote_iterators.RemoteIterator(self, token, prefetch=self._draws_ahead)
        handle = Handle(self, token)
        state_of(handle).giver = self._giver
        state_of(handle).kind = "iterator" if token[0] == "y" else ""
        return handle

    @property
    def _draws_ahead(self) -> bool:
        """Whether items may be drawn before they are wanted: the tests use nothing else of the
        solution that shows how far an iterator has come, and have given it nothing to call or draw.
        """
        return not (self.interface.attributes or self._lent) and len(self.interface.names) == 1
