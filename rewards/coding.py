"""Programs: does the code in a response pass tests it cannot see?

    ludus.score("coding", "```python\\ndef f(n):\\n    return n + 1\\n```",
                gold={"tests": ["assert f(1) == 2"]})

The gold is a mapping (or its JSON): `tests`, and optionally `kind` (`assert`, `stdin`,
`function_call`), `entry_point`, `prelude`, `compare`, `timeout_s`, `memory_bytes`. A bare list is
taken as `tests` of kind `assert`. Code runs in the strongest sandbox that holds here; the
tests and what they expect stay outside the process that runs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ludus.errors import ConfigError
from ludus.sandboxes import GradeOptions, grade_async
from ludus.verdict import Verdict

from .protocol import Sample

_FENCE = re.compile(
    r"^[ \t]*(```+|~~~+)[ \t]*([\w+#.-]*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.M | re.S
)
_OPEN_FENCE = re.compile(r"^[ \t]*```+[ \t]*[\w+#.-]*[^\n]*\n(.*)\Z", re.M | re.S)
_THINKING = re.compile(r"\A.*</think>", re.S)
_PYTHON = ("python", "py", "python3", "")
_OPTIONS = ("entry_point", "prelude", "compare", "timeout_s", "memory_bytes", "language")


class CodingVerifier:
    """Grades the last block of code in a response by hidden tests.

    Args:
        partial: reward the fraction of passed tests instead of all or nothing.
        timeout_s: of the whole grading, unless the gold says otherwise.
    """

    def __init__(self, *, partial: bool = False, timeout_s: float = 10.0) -> None:
        self.partial = partial
        self.timeout_s = timeout_s

    async def score(self, sample: Sample) -> Verdict:
        """Grade `sample.text` by `sample.gold`."""
        gold = _gold(sample.gold)
        if isinstance(gold, str):
            return Verdict.invalid(gold)
        code = extract_code(sample.text)
        if not code.strip():
            return Verdict.of(0.0, "there is no code in the response")
        chosen = {name: gold[name] for name in _OPTIONS if name in gold}
        settings: dict[str, Any] = {"timeout_s": self.timeout_s, **chosen}
        try:
            options = GradeOptions(partial=self.partial, **settings)
            kind = str(gold.get("kind", "assert"))
            return await grade_async(code, gold["tests"], kind=kind, options=options)
        except (ConfigError, TypeError, ValueError) as error:
            return Verdict.invalid(f"the gold cannot be used: {error}")


def extract_code(response: str) -> str:
    """The program of a response: its last fenced block (Python before others), the rest of a block
    that was never closed, or the whole text where there is no fence.

    >>> extract_code("First\\n```python\\nx = 1\\n```\\nthen\\n```python\\nx = 2\\n```\\nDone.")
    'x = 2\\n'
    """
    said = _THINKING.sub("", response)
    blocks = [(found[2].lower(), found[3]) for found in _FENCE.finditer(said)]
    ours = [body for language, body in blocks if language in _PYTHON]
    if ours or blocks:
        return ours[-1] if ours else blocks[-1][1]
    unclosed = _OPEN_FENCE.search(said)
    return unclosed[1] if unclosed else said


def _gold(gold: object) -> Mapping[str, Any] | str:
    """The gold as a mapping with `tests`, or what is wrong with it."""
    if isinstance(gold, str):
        try:
            gold = json.loads(gold)
        except ValueError:
            return (
                "the gold of `coding` is a list of tests, a mapping with 'tests', or JSON of either"
            )
    if isinstance(gold, list):
        gold = {"tests": gold}
    if not isinstance(gold, Mapping) or not isinstance(gold.get("tests"), list):
        return f"the gold of `coding` needs a list 'tests', got {str(gold)[:80]!r}"
    return gold
