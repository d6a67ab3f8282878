"""This module reads JSON as models write JSON, and refuses values that cannot be sent on.

Raw newlines inside strings are accepted, since models write them. Numbers must fit JSON and
msgpack, strings must be encodable, and the nesting is bounded, so that no later reader runs out of
stack.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

CUT = "the call was cut by the token limit"
"""The error of the last call of a turn that was cut; this call is never executed."""
MAX_NESTED = 100
"""Largest number of lists and objects inside each other."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 64:
        raise ValueError(f"the number {digits[:24]} does not fit 64 bits")
    return int(digits)


def _number(digits: str) -> float:
    if not math.isfinite(float(digits)):
        raise ValueError(f"the number {digits[:24]} is too large")
    return float(digits)


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


decoder = json.JSONDecoder(
    strict=False, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


def fault_of(decoded: object) -> str:
    """Return why a decoded value cannot be sent on; "" for a value without fault."""
    level: list[object] = [decoded]
    for _ in range(MAX_NESTED + 1):
        if any(isinstance(value, str) and _SURROGATE.search(value) for value in level):
            return "half of a surrogate pair is not text"
        deeper: list[object] = []
        for value in level:
            if isinstance(value, dict):
                deeper += [*value.keys(), *value.values()]
            elif isinstance(value, list):
                deeper += value
        if not deeper:
            return ""
        level = deeper
    return f"values are nested more than {MAX_NESTED} deep"


_NO_OBJECT = "arguments must be an object"


def read_arguments(arguments: object) -> tuple[dict[str, Any], str]:
    """Return the arguments of a call, and the fault that makes the arguments useless, or "".

    Some models encode arguments twice, and some write nothing or null for no arguments.
    """
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}, ""
    for _ in range(2):
        if not isinstance(arguments, str):
            break
        try:
            arguments = decoder.decode(arguments.strip())
        except (ValueError, RecursionError) as error:
            return {}, f"arguments are not JSON: {error}"
    if not isinstance(arguments, dict):
        return {}, _NO_OBJECT
    fault = fault_of(arguments)
    return ({}, fault) if fault else (arguments, "")
