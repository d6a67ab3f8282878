"""Lookup of library functions by name: options are checked, tensors are passed by parameter name,
and what comes back is checked, since functions may come from any module.

A function declares by its signature what it needs. Parameters before the `*` are tensors, and so
are keyword-only parameters annotated with `Tensor`; the trainer passes the field of `Inputs` that
has the parameter's name. Every other keyword-only parameter is an option, which a recipe may set,
except those in `NOT_OPTIONS`.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from torch import Tensor

from ludus.errors import ConfigError
from ludus.registry import check_plain

from .. import algorithms
from ..algorithms.aggregation import Sum
from .inputs import Inputs
from .recipe import Option

NOT_OPTIONS = frozenset({"agg", "generator", "owners"})
"""Keywords that the trainer passes, not the recipe: the aggregator, the random generator, and the
rollouts that rows belong to.
"""
_SHARE = re.compile(r"(?:(?P<share>\d*\.?\d+)\s*\*\s*)?max_tokens")


@dataclass(frozen=True, slots=True)
class Bound:
    """A library function whose options are checked and fixed; a call takes the tensors."""

    name: str
    """The name in the recipe, for messages."""
    function: Callable[..., object]
    options: Mapping[str, Option]
    required: tuple[str, ...]
    """The names of the tensors that the function requires."""
    optional: tuple[str, ...]
    """The names of the tensors that the function uses if given."""
    aggregates: bool
    """Whether the function takes `agg`."""
    draws: bool
    """Whether the function takes a `generator`, since it draws random numbers."""
    owned: bool = False
    """Whether the function takes `owners`: it is given rows, and told the rollout of each."""

    def __call__(self, inputs: Inputs, **more: object) -> object:
        """Call the function with the inputs that match the parameters.

        Args:
            inputs: the tensors that the trainer has; fields that the function does not name are
                not passed.
            more: the keywords in `NOT_OPTIONS` that the function takes.

        Raises:
            ConfigError: a required tensor is missing.
        """
        return self.function(**self.chosen(inputs), **self.options, **more)

    def chosen(self, inputs: Inputs, *, without: frozenset[str] = frozenset()) -> dict[str, Tensor]:
        """Return the inputs that match the parameters, by name.

        Args:
            inputs: the tensors that the trainer has.
            without: names that the caller passes.

        Raises:
            ConfigError: a required tensor is missing.
        """
        tensors = inputs.given()
        missing = [name for name in self.required if name not in {*tensors, *without}]
        if missing:
            raise ConfigError(
                f"{self.name} needs {', '.join(missing)}; given are {', '.join(sorted(tensors))}"
            )
        names = (*self.required, *self.optional)
        return {name: tensors[name] for name in names if name in tensors and name not in without}


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
        name: a function of `ludus.trainer.algorithms` that ends in `suffix`; or "module:function",
            which may have any name.
        suffix: the wanted kind of function: "_advantages", "_loss", "_weights", "_mask",
            "_rewards" or "" for any.
        options: keywords of the function, by name.
        where: the place in the recipe, for messages.
        max_tokens: the longest response of the trainer, in tokens. An option "0.2 * max_tokens"
            becomes that share of it, as a float.

    >>> bind("grpo_advantages", "_advantages", {"ddof": 0}, where="algorithm.advantage").required
    ('rewards', 'groups')

    Raises:
        ConfigError: there is no such function or it is no plain def, it does not take an option,
            an option is NaN, one without a default is missing, or one is a share of `max_tokens`,
            which was not given.
    """
    function = _find(name, suffix, where)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigError(f"{where}: {name} must be a plain def that returns its result")
    parameters = inspect.signature(function).parameters.values()
    tensors = [p for p in parameters if _is_tensor(p)]
    known = {p.name for p in parameters} - {p.name for p in tensors} - NOT_OPTIONS
    _check_options(f"{where}: {name}", function, options, known)
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
        owned=any(p.name == "owners" for p in parameters),
    )


def _check_options(
    where: str, function: Callable[..., object], options: Mapping[str, Option], known: set[str]
) -> None:
    """Check options against the signature of their function.

    Args:
        where: the place in the recipe and the function's name, for messages.
        function: the function.
        options: what the recipe sets.
        known: the options that the function takes.

    Raises:
        ConfigError: an option is unknown, NaN or of another type, or one that is needed is missing.
    """
    parameters = inspect.signature(function).parameters.values()
    for option, value in options.items():
        if option not in known:
            is_tensor = any(p.name == option and _is_tensor(p) for p in parameters)
            hint = "; it is a tensor there, and options are keywords after the *"
            hint = hint if is_tensor else _near(option, known)
            raise ConfigError(f"{where} takes no option {option!r}{hint}")
        if isinstance(value, float) and math.isnan(value):
            raise ConfigError(f"{where}: {option} must be a number, got nan")
    written = {
        key: value
        for key, value in options.items()
        if not isinstance(value, str) or _SHARE.fullmatch(value) is None
    }
    check_plain(where, function, written)
    free = [p.name for p in parameters if p.default is p.empty and p.kind is p.KEYWORD_ONLY]
    unset = [option for option in free if option in known and option not in options]
    if unset:
        raise ConfigError(f"{where} needs the option {', '.join(unset)}; it has no default")


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
    """Return those options of a library function that have a default, with it, for display.

    >>> defaults("grpo_advantages")
    {'ddof': 1, 'eps': 1e-06, 'singleton': 'zero'}
    """
    parameters = inspect.signature(_find(name, "", "defaults")).parameters.values()
    options = (p for p in parameters if p.kind is p.KEYWORD_ONLY and not _is_tensor(p))
    return {
        p.name: p.default for p in options if p.default is not p.empty and p.name not in NOT_OPTIONS
    }


def default_agg(function: Callable[..., object]) -> str:
    """Return the aggregation that a loss uses when the recipe names none; "" for a loss without
    aggregation.

    >>> default_agg(algorithms.gspo_loss)
    'sequence_mean'
    """
    parameter = inspect.signature(function).parameters.get("agg")
    return str(parameter.default) if parameter is not None else ""


def one_tensor(result: object, name: str, *, shape: Sequence[int] = ()) -> Tensor:
    """Return `result`, the return value of the function `name`, checked to be a tensor.

    Args:
        result: the value.
        name: the function's name, for the error.
        shape: the shape that the tensor must have, [N] or [B, T]; empty for any. A scalar would
            otherwise be spread over all rollouts without a word.

    Raises:
        ConfigError: the result is not a tensor, or of another shape.
    """
    if not isinstance(result, Tensor):
        raise ConfigError(f"{name} returned {_description(result)}, not a tensor")
    if shape and result.shape != tuple(shape):
        each = "token, as `mask` has it," if len(shape) == 2 else "rollout or row"
        raise ConfigError(
            f"{name} returned a tensor of shape {list(result.shape)}; it must be {list(shape)}, a "
            f"number for each {each} that it was given"
        )
    return result


def _description(result: object) -> str:
    """Say what a function returned in place of tensors, and which mistake that is a sign of."""
    if inspect.iscoroutine(result):
        result.close()  # or Python warns that nobody awaited it
        return "a coroutine (the function must be a plain def)"
    kind = f"a {type(result).__name__}"
    return f"{kind} (is a return missing?)" if result is None else kind


def two_tensors(result: object, name: str) -> Sum:
    """Return `result`, the return value of the function `name`, checked to be a pair of tensors.

    Raises:
        ConfigError: the result is not a pair of tensors.
    """
    match result:
        case (Tensor() as first, Tensor() as second):
            return first, second
        case _:
            raise ConfigError(
                f"{name} returned {_description(result)}, not two tensors, (sum, weight)"
            )


def two_numbers(result: object, name: str) -> Sum:
    """Return `result`, the return value of the loss `name`, checked to be a sum and a weight.

    Raises:
        ConfigError: the result is not a pair of tensors, or one of these is more than a number.
    """
    total, weight = two_tensors(result, name)
    if total.numel() != 1 or weight.numel() != 1:
        raise ConfigError(
            f"{name} returned (sum, weight) of the shapes {list(total.shape)} and "
            f"{list(weight.shape)}; each must be one number, as aggregate(values, mask, agg) gives"
        )
    return total, weight


def _find(name: str, suffix: str, where: str) -> Callable[..., object]:
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            imported: object = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{where} = {name!r}: cannot be imported: {error}; name a function of an installed "
                f"module, or of a file by --import {module.removesuffix('.py')}.py"
            ) from error
        if not callable(imported):
            raise ConfigError(f"{where} = {name!r}: not a function but a {type(imported).__name__}")
        return imported
    fitting = [each for each in algorithms.__all__ if each.endswith(suffix)]
    function: object = getattr(algorithms, name, None) if name in fitting else None
    if not callable(function):
        kind = suffix.removeprefix("_") or "function"
        raise ConfigError(f"{where} = {name!r}: no such {kind}{_near(name, fitting)}")
    return function


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
