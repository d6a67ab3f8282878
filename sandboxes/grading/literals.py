"""Writes plain values as Python source that means the same wherever it is compiled.

Tests take every name that they do not define from the solution. `repr` of infinity is the name
`inf`, so a solution could say what that is, and with it which answer is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

_INFINITY = "1e999"  # A literal too large for a float is read as infinity.
_NAN = f"({_INFINITY} - {_INFINITY})"


def literal(value: object, *, allow_nan: bool = True) -> str:
    """Return `value` as source that uses no name. Subclasses are written as the plain class.

    Args:
        value: None, a bool, number, text or bytes, or a list, tuple, dict or set of such values.
        allow_nan: whether NaN may occur; an expected value with NaN is equal to no answer.

    Raises:
        ValueError: the value is not plain, too large, nested too deeply, or has a NaN that is not
            allowed.

    >>> literal([float("inf"), {"k": (None, -1.5)}])
    "[1e999, {'k': (None, -1.5)}]"
    """
    try:
        return _written(value, allow_nan)
    except RecursionError as error:
        raise ValueError("a value is nested too deeply") from error


def _written(value: object, allow_nan: bool) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        if math.isinf(value):
            return _INFINITY if value > 0 else f"-{_INFINITY}"
        if not allow_nan:
            raise ValueError("an expected NaN, which no answer equals")
        return _NAN
    if value is None or isinstance(value, bool):
        return repr(value)
    # The `repr` of a subclass may be anything, so that of the plain class is used.
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, bytes):
        return bytes.__repr__(value)

    def parts(values: Iterable[object]) -> list[str]:
        return [_written(part, allow_nan) for part in values]

    if isinstance(value, list):
        return f"[{', '.join(parts(value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(parts(value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        pairs = zip(parts(value.keys()), parts(value.values()), strict=True)
        return f"{{{', '.join(f'{key}: {content}' for key, content in pairs)}}}"
    if isinstance(value, set):
        return f"{{{', '.join(parts(value)) or '*()'}}}"
    raise ValueError(
        f"a {type(value).__name__}, which has no literal; write the test as assertions"
    )
