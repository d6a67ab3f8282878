"""Checks of the arguments and results of an environment's methods.

The errors name what does not fit the contract.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from ludus.errors import CheckFailed
from ludus.messages import Message, Observation

from .protocol import Info, TextEnv
from .tasks import TaskSet

_Slot = tuple[str, str, type]
"""Name of a value, its type in words, and the type that `isinstance` checks. `object` stands for
values that are checked elsewhere: an observation by `_is_observation`, a reward by the session.
"""
_OBSERVATION: _Slot = ("observation", "str or list of Message", object)
_TERMINATED: _Slot = ("terminated", "bool", bool)
_TRUNCATED: _Slot = ("truncated", "bool", bool)
_INFO: _Slot = ("info", "dict", dict)


@lru_cache(maxsize=256)  # every session of a class asks; a refusal is raised and so never cached
def refuse_other_signatures(env: type[TextEnv]) -> None:
    """Refuse a class whose `reset` or `step` cannot be called as the contract says.

    Raises:
        CheckFailed: naming what does not fit.
    """
    name = env.__name__
    # `bind` tries the arguments of a call without making the call.
    try:
        inspect.signature(env.reset).bind("self", seed=None, options=None)
    except TypeError as error:
        raise CheckFailed(
            f"{name}.reset must take what it is called with, "
            f"reset(self, *, seed=None, options=None): {error}"
        ) from None
    try:
        inspect.signature(env.step).bind("self", "")
    except TypeError as error:
        raise CheckFailed(
            f"{name}.step must take one action, step(self, action): {error}"
        ) from None


def as_task_set(split: str, value: object) -> TaskSet:
    """Return the result of `tasks`, checked to be a set of tasks.

    Raises:
        CheckFailed: names what does not fit.
    """
    if all(hasattr(value, name) for name in ("split", "size", "at", "find")):
        return cast("TaskSet", value)
    raise CheckFailed(
        f"tasks({split!r}) must return a TaskSet, such as GeneratedTasks(split) or "
        f"ListedTasks(split, [Task(...)]), got {value!r:.80}"
    )


def as_reset(value: object) -> tuple[Observation, Info]:
    """Return the result of `reset`, checked. `info` is a copy, since the session adds to it.

    Raises:
        CheckFailed: names what does not fit.
    """
    slots = (_OBSERVATION, _INFO)
    observation, info = _fitting("reset", value, slots)
    return observation, dict(info)


def as_step(value: object) -> tuple[Observation, object, bool, bool, Info]:
    """Return the result of `step`, checked except for the reward. `info` is a copy, since the
    session adds to it.

    Raises:
        CheckFailed: names what does not fit.
    """
    slots = (_OBSERVATION, ("reward", "", object), _TERMINATED, _TRUNCATED, _INFO)
    observation, reward, terminated, truncated, info = _fitting("step", value, slots)
    return observation, reward, terminated, truncated, dict(info)


def _fitting(method: str, method_value: Any, slots: Sequence[_Slot]) -> tuple[Any, ...]:
    """Return the result of `method`, checked to be a tuple of the wanted values."""
    if not isinstance(method_value, tuple) or len(method_value) != len(slots):
        value_type = (
            f"a tuple of {len(method_value)}"
            if isinstance(method_value, tuple)
            else type(method_value).__name__
        )
        raise CheckFailed(f"{_must_return(method, slots)}; got {value_type}: {method_value!r:.120}")
    for value, (name, _, accepted) in zip(method_value, slots, strict=True):
        fits = _is_observation(value) if name == "observation" else isinstance(value, accepted)
        if not fits:
            raise CheckFailed(
                f"{_must_return(method, slots)}; got {name} of type {type(value).__name__}: "
                f"{value!r:.120}"
            )
    return method_value


def _must_return(method: str, slots_wanted: Sequence[_Slot]) -> str:
    slots = ", ".join(f"{name}: {kind}" if kind else name for name, kind, _ in slots_wanted)
    return f"{method}() must return ({slots})"


def _is_observation(value: Any) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, list) and all(isinstance(message, Message) for message in value)
