r"""The verifier `coding`: runs the program of a response against tests that the program cannot see.

    ludus.score("coding", "```python\ndef f(n):\n    return n + 1\n```",
                gold={"tests": ["assert f(1) == 2"]})

The gold is a mapping (or its JSON): `tests`, and optionally `kind` (`assert`, `stdin`,
`function_call`), `entry_point`, `interface`, `prelude`, `compare`, `timeout_s`, `memory_bytes`,
`language`, `reference` (a right solution, which settles whether the tests can be judged). A bare
list is taken as `tests` of kind `assert`. Two more keys hold what the prompt gave: `context`
(imports and helpers, put before the program) and `stub` (an unfinished function; a response that
does not define `entry_point` is taken for the rest of the function).

Code runs in the strongest sandbox that this machine offers; the tests and their expected values
stay outside the process of the program. Where no sandbox works, the verdict is `unavailable`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.sandboxes import GradeOptions, grade_async
from ludus.sandboxes.grading.hidden_tests import KINDS
from ludus.sandboxes.grading.outputs import Comparison
from ludus.sandboxes.languages import ALIASES, UnknownLanguage, find_language
from ludus.verdict import Verdict

from .protocol import Sample

_PYTHON = ("python", "py", "python3", "")
_FUTURE = re.compile(r"^from __future__ import .*$", re.M)
_OPTIONS = (
    "entry_point", "interface", "prelude", "compare", "timeout_s", "memory_bytes", "language",
    "reference",
)  # fmt: skip

GOLD_OPTIONS = (*_OPTIONS, "context", "stub")
"""The options a gold may have besides `tests` and `kind`."""


class CodingVerifier:
    """Grades the last block of code in a response by hidden tests.

    Args:
        partial: reward the fraction of passed tests instead of all or nothing.
        timeout_s: the time limit of the whole grading, in seconds, unless the gold says otherwise.

    Raises:
        ConfigError: the time limit is not above 0 and finite.
    """

    def __init__(self, *, partial: bool = False, timeout_s: float = 10.0) -> None:
        if not 0 < timeout_s < math.inf:
            raise ConfigError(f"timeout_s must be seconds above 0, got {timeout_s}")
        self.partial = partial
        self.timeout_s = timeout_s

    async def score(self, sample: Sample) -> Verdict:
        """Grade `sample.text` by the tests of `sample.gold`."""
        gold = _gold(sample.gold)
        if isinstance(gold, str):
            return Verdict.invalid(gold)
        try:
            kind = str(gold.get("kind", "assert"))
            if kind not in KINDS:
                raise ConfigError(f"no kind of tests named {kind!r}; known: {', '.join(KINDS)}")
            # Tests have to be plain data without lone surrogates, or they could not be sent on.
            json.dumps(gold["tests"], ensure_ascii=False).encode()
            gold_options = {name: gold[name] for name in _OPTIONS if name in gold}
            settings: dict[str, Any] = {"timeout_s": self.timeout_s, **gold_options}
            options = msgspec.convert({"partial": self.partial, **settings}, GradeOptions)
            Comparison.parse(options.compare)
            find_language(options.language)
        except (ConfigError, UnknownLanguage, TypeError, ValueError, RecursionError) as error:
            return Verdict.invalid(f"the gold cannot be used: {error}")
        # A block may be marked with any name of the language, or with none.
        canonical, _ = find_language(options.language)
        code = extract_code(
            sample.text,
            {canonical, "", *(alias for alias, name in ALIASES.items() if name == canonical)},
        )
        if not code.strip():
            return Verdict.of(0.0, f"there is no code in the response{sample.silence}")
        try:
            return await grade_async(
                completed(code, gold), gold["tests"], kind=kind, options=options
            )
        except ConfigError as error:  # The gold was checked above, so no sandbox can be opened.
            return Verdict.unavailable(f"nothing can be graded here: {error}")


def completed(code: str, gold: Mapping[str, Any]) -> str:
    """Return the program that a response stands for, completed by what the prompt gave.

    >>> completed("    return n + 1", {"entry_point": "f", "stub": "def f(n):\\n"})
    'def f(n):\\n    return n + 1'
    """
    name, stub = str(gold.get("entry_point", "")), str(gold.get("stub", ""))
    has_function = re.search(
        rf"^(?:(?:(?:async )?def )?{re.escape(name)}|class Solution)\b", code, re.M
    )
    if stub and not has_function:
        return stub + code
    context = str(gold.get("context", ""))
    if not context:
        return code
    futures = _FUTURE.findall(code)  # Python accepts these only at the top of a program.
    return "\n".join([*futures, context, _FUTURE.sub("", code)])


def extract_code(response: str, languages: Collection[str] = _PYTHON) -> str:
    r"""Return the program of a response.

    The program is the last fenced block (a block of `languages` before others), the rest of a block
    that was never closed, or the whole text where there is no fence.

    >>> extract_code("First\n```python\nx = 1\n```\nthen\n```python\nx = 2\n```\nDone.")
    'x = 2\n'
    """
    blocks: list[tuple[str, str]] = []
    fence, language, body = "", "", list[str]()
    for line in response.splitlines(keepends=True):
        mark, word = _fence(line)
        if fence and mark.startswith(fence) and not word:
            blocks.append((language, "".join(body)))
            fence = ""
        elif not fence and mark:
            fence, language, body = mark, word, []
        else:
            body.append(line)
    own_blocks = [body for language, body in blocks if language in languages]
    if own_blocks or blocks:
        return own_blocks[-1] if own_blocks else blocks[-1][1]
    # No block was closed: this is the rest of one that was opened, or the whole text.
    return "".join(body)


def _fence(line: str) -> tuple[str, str]:
    """Return the backticks or tildes that begin a line, three or more, and the word after them."""
    text = line.strip()
    mark = text[: len(text) - len(text.lstrip(text[:1]))] if text[:1] in ("`", "~") else ""
    if len(mark) < 3:
        return "", ""
    words = text[len(mark) :].split(maxsplit=1)
    return mark, words[0].lower() if words else ""


def _gold(gold: object) -> Mapping[str, Any] | str:
    """Return the gold as a mapping with `tests`, or a description of its fault."""
    if isinstance(gold, str):
        try:
            gold = json.loads(gold)
        except (ValueError, RecursionError):
            return (
                "the gold of `coding` is a list of tests, a mapping with 'tests', or JSON of either"
            )
    if isinstance(gold, list):
        gold = {"tests": gold}
    if not isinstance(gold, Mapping) or not isinstance(gold.get("tests"), list):
        return f"the gold of `coding` needs a list 'tests', got {str(gold)[:80]!r}"
    return gold
