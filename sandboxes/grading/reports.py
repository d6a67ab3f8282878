"""Reads the report of a tests' side: a JSON line for each result, and a line for the end."""

from __future__ import annotations

import json
import os
from typing import Any


def read_rows(report: int, limit_bytes: int) -> list[dict[str, Any]]:
    """Return the lines of the report that were written to their end, of its first `limit_bytes`.

    The last line may be cut off, by the end of its writer or by the limit. What shows that is the
    line break that it lacks, since a cut line may end with any character that the solution likes.
    """
    data = os.pread(report, min(os.fstat(report).st_size, limit_bytes), 0)
    complete = data[: data.rfind(b"\n") + 1]
    return [
        {key: _sendable(value) for key, value in json.loads(line).items()}
        for line in complete.splitlines()
    ]


def _sendable(value: object) -> object:
    """Return a text without lone surrogates. A solution can put them into the text of an error, and
    a verdict with them could not be encoded to be sent.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value
