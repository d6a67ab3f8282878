"""The extraction rules of other pipelines, for comparing runs with published figures.

Only the extraction is reproduced; the comparison stays that of this verifier. No pipeline strips
reasoning.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .candidate import Candidate, Extraction
from .expressions import last_expression
from .marks import boxes

_HOPE_SENTENCE = re.compile(r"(?i)final answer is:?\s*\$?(.+?)\$?\.?\s*I hope")
_ANSWER_LINE = re.compile(r"(?i)answer\s*:\s*([^\n]+)")
_HASHES = re.compile(r"#### (-?[0-9.,]+)")
DAPO_TAIL = 300


def math_verify(response: str) -> Extraction:
    """Extract as Math-Verify does: the "final answer is ... I hope" sentence, the last box, the
    last formula, the last number.
    """
    sentences = list(_HOPE_SENTENCE.finditer(response[-4000:]))
    if sentences:
        base, said = max(0, len(response) - 4000), sentences[-1]
        start, end = said.span(1)
        return Extraction(said[1], "math_verify sentence", base + start, base + end)
    return _last_box(response) or _extraction_of(last_expression(response))


def _last_box(response: str) -> Extraction | None:
    box = next(boxes(response), None)
    return None if box is None else _extraction_of(box)


def _extraction_of(candidate: Candidate | None) -> Extraction:
    if candidate is None:
        return Extraction(None, "none", reason="no expression")
    if candidate.void:
        return Extraction(None, str(candidate.kind), candidate.start, candidate.end, candidate.void)
    return Extraction(candidate.text, str(candidate.kind), candidate.start, candidate.end)


def prm800k(response: str) -> Extraction:
    """Extract as PRM800K does: the last box and nothing else."""
    return _last_box(response) or Extraction(None, "prm800k", reason="there is no box")


def dapo(response: str) -> Extraction:
    """Extract as DAPO does: the last line `Answer: ...` within the last 300 characters."""
    base = max(0, len(response) - DAPO_TAIL)
    answer_lines = list(_ANSWER_LINE.finditer(response[base:]))
    if not answer_lines:
        return Extraction(None, "dapo", reason=f"no 'Answer:' in the last {DAPO_TAIL} characters")
    start, end = answer_lines[-1].span(1)
    return Extraction(answer_lines[-1][1], "dapo", base + start, base + end)


def gsm8k(response: str) -> Extraction:
    """Extract as GSM8K does, strictly: the last `#### number`."""
    place = response.rfind("#### ")
    match = _HASHES.match(response, place) if place >= 0 else None
    if match is None:
        return Extraction(None, "gsm8k", reason="no '#### number'")
    return Extraction(match[1], "gsm8k", *match.span(1))


PIPELINES: dict[str, Callable[[str], Extraction]] = {
    "math_verify": math_verify, "prm800k": prm800k, "dapo": dapo, "gsm8k": gsm8k,
}  # fmt: skip
