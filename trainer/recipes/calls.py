"""Lookup of library functions by name: options are checked, and tensors are passed by parameter
name.

The names of a function's parameters are the contract: those before the `*` are tensors, and so
are keywords annotated with `Tensor`; every other keyword is an option.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from ludus.errors import ConfigError

from .. import algorithms
from .inputs import Inputs
from .recipe import Option

NOT_OPTIONS = frozenset({"agg", "generator"})
"""Keywords that the resolver sets."""
_SHARE = re.compile(r"(?:(?P<share>\d*\.?\d+)\s*\*\s*)?max_tokens")


@dataclass(frozen=True, slots=True)
class Bound:
    """A function with options, to be called with tensors."""

    name: str
    function: Callable[..., object]
    options: Mapping[str, Option]
    required: tuple[str, ...]
    """Tensors that the function requires."""
    optional: tuple[str, ...]
    """Tensors that the function uses if given."""
    aggregates: bool
    """Whether the function takes `agg`."""
    draws: bool
    """Whether the function takes a `generator`."""

    def __call__(self, inputs: Inputs, **more: object) -> object:
        """Call the function with the inputs that match the parameters.

        Args:
            inputs: what there is to read.
            more: further keywords of the function, such as an aggregator or a generator.

        Raises:
            ConfigError: a required tensor is missing.
        """
        given = inputs.given()
        missing = [name for name in self.required if name not in given]
        if missing:
            raise ConfigError(
                f"{self.name} needs {', '.join(missing)}; given are {', '.join(sorted(given))}"
            )
        wanted = (*self.required, *self.optional)
        chosen = {name: given[name] for name in wanted if name in given}
        return self.function(**chosen, **self.options, **more)


def bind(
    name: str,
    suffix: str,
    options: Mapping[str, Option],
    *,
    where: str,
    max_tokens: int | None = None,
) -> Bound:
    """Find the function `name` and check `options` against the function's signature.

    Args:
        name: of `ludus.trainer.algorithms`, ending in `suffix` (or `suffix` and `_as_read`); or
            "module:function".
        suffix: the wanted kind of function: "_advantages", "_loss", "_weights", "_mask",
            "_rewards" or "".
        options: keywords of the function.
        where: the place in the recipe, for messages.
        max_tokens: the trainer's longest response, for options such as "0.2 * max_tokens".

    >>> bind("grpo_advantages", "_advantages", {"ddof": 0}, where="algorithm.advantage").required
    ('rewards', 'groups')

    Raises:
        ConfigError: no such function, or an option that the function does not take.
    """
    function = _find(name, suffix, where)
    parameters = inspect.signature(function).parameters.values()
    tensors = [p for p in parameters if _is_tensor(p)]
    known = {p.name for p in parameters} - {p.name for p in tensors} - NOT_OPTIONS
    for option in options:
        if option not in known:
            raise ConfigError(f"{where}: {name} takes no option {option!r}{_near(option, known)}")
    free = [p.name for p in parameters if p.default is p.empty and p.kind is p.KEYWORD_ONLY]
    unset = [option for option in free if option in known and option not in options]
    if unset:
        raise ConfigError(f"{where}: {name} needs the option {', '.join(unset)}; it has no default")
    return Bound(
        name=name,
        function=function,
        options={
            key: _amount(value, max_tokens, f"{where}.{key}") for key, value in options.items()
        },
        required=tuple(p.name for p in tensors if p.default is p.empty),
        optional=tuple(p.name for p in tensors if p.default is not p.empty),
        aggregates=any(p.name == "agg" for p in parameters),
        draws=any(p.name == "generator" for p in parameters),
    )


def options_for(function: Callable[..., object], bound: Bound) -> dict[str, Option]:
    """Return the options of `bound` that `function` takes too.

    A loss may compute a quantity from the rows of one call that the trainer instead computes for
    the whole batch. Both then use the same options.


    >>> loss = bind("hapo_loss", "_loss", {"quantile": 0.5, "alpha": 2.0}, where="loss")
    >>> options_for(algorithms.hapo_entropy_scale, loss)
    {'quantile': 0.5}
    """
    known = inspect.signature(function).parameters
    return {name: value for name, value in bound.options.items() if name in known}


def defaults(name: str) -> dict[str, object]:
    """Return the options of a library function with default values, for display.


    >>> defaults("grpo_advantages")
    {'ddof': 1, 'eps': 1e-06, 'singleton': 'zero'}
    """
    parameters = inspect.signature(_find(name, "", "defaults")).parameters.values()
    given = (p for p in parameters if p.kind is p.KEYWORD_ONLY and not _is_tensor(p))
    return {
        p.name: p.default for p in given if p.default is not p.empty and p.name not in NOT_OPTIONS
    }


def default_agg(function: Callable[..., object]) -> str:
    """Return the aggregation that a loss uses when none is named; "" for a loss without
    aggregation.


    >>> default_agg(algorithms.gspo_loss)
    'sequence_mean'
    """
    parameter = inspect.signature(function).parameters.get("agg")
    return str(parameter.default) if parameter is not None else ""


def _find(name: str, suffix: str, where: str) -> Callable[..., object]:
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            imported: object = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"{where} = {name!r}: cannot be imported: {error}") from error
        if not callable(imported):
            raise ConfigError(f"{where} = {name!r}: not a function but a {type(imported).__name__}")
        return imported
    fitting = [
        each for each in algorithms.__all__ if each.removesuffix("_as_read").endswith(suffix)
    ]
    found: object = getattr(algorithms, name, None) if name in fitting else None
    if not callable(found):
        kind = suffix.removeprefix("_") or "function"
        raise ConfigError(f"{where} = {name!r}: no such {kind}{_near(name, fitting)}")
    return found


def _is_tensor(parameter: inspect.Parameter) -> bool:
    return parameter.kind is not parameter.KEYWORD_ONLY or "Tensor" in str(parameter.annotation)


def _near(name: str, known: set[str] | list[str]) -> str:
    matches = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return (
        f"; did you mean {matches[0]!r}?"
        if matches
        else f"; known: {', '.join(sorted(known)) or 'none'}"
    )


def _amount(value: Option, max_tokens: int | None, where: str) -> Option:
    match = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    if max_tokens is None:
        raise ConfigError(
            f"{where} = {value!r}, but the trainer has not said how long a response may be"
        )
    return float(match["share"] or 1) * max_tokens
