"""The attributes of plain values: in tests, such an attribute means a value, not an object."""

from __future__ import annotations

import datetime
from collections import Counter, deque
from decimal import Decimal
from fractions import Fraction

_PLAIN = (
    str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset, range, deque,
    Counter, Decimal, Fraction, datetime.datetime, datetime.date, datetime.time, datetime.timedelta,
)  # fmt: skip
_MEMBERS = [(kind, name) for kind in _PLAIN for name in dir(kind) if name[0] != "_"]
PLAIN_ATTRIBUTES = frozenset(name for _, name in _MEMBERS)
PLAIN_METHODS = frozenset(name for kind, name in _MEMBERS if callable(getattr(kind, name)))
PREDICATES = frozenset(name for name in PLAIN_METHODS if name.startswith(("is", "starts", "ends")))
"""The methods of plain data that answer yes or no."""
CHANGING_METHODS = frozenset(
    """
    append appendleft extend add update insert pop popleft popitem remove discard clear sort reverse
    setdefault
    """.split()  # noqa: SIM905 - a list literal would take a line a name
)
"""The methods of plain data that change it."""
READING_METHODS = PLAIN_METHODS - CHANGING_METHODS
ARRAY_ATTRIBUTES = frozenset(
    """
    T all any argmax argmin astype copy cumsum dot dtype fill flat flatten item max mean min nbytes
    ndim prod ravel repeat reshape resize round shape size sort squeeze std sum swapaxes tobytes
    tolist transpose var
    """.split()  # noqa: SIM905 - a list literal would take a line a name
)
OF_VALUES = ARRAY_ATTRIBUTES.union(
    (name for kind in _PLAIN for name in dir(kind)),
    """
    argpartition argsort byteswap choose clip compress conj cumprod diagonal itemsize mT nonzero
    partition ptp searchsorted strides tofile trace
    _asdict _fields _replace default_factory move_to_end
    """.split(),  # noqa: SIM905
)
"""The attributes that plain data, arrays and records have, of which a difference from the expected
value is asked: `(f(x) - y).trace()` does not show an object.
"""
