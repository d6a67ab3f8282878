"""Verifiers that compare texts without a model: overlap with a reference, and a target length.

Overlap pays likeness and not truth: a policy is paid for words that the reference has, in whatever
sentence they stand. Use it beside a verifier that checks what is said.
"""

from __future__ import annotations

import importlib
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ludus.errors import ConfigError, MissingExtra
from ludus.verdict import Verdict

from .protocol import Sample

Metric = Literal["rouge-l", "bleu", "chrf", "keywords"]
MAX_CHARACTERS = 20_000
"""Characters of a response that is compared; a longer one earns 0, since its cost is the server's.
"""
MAX_WORD_CHARACTERS = 256
"""Characters that a word of a target length may take, with what stands around it."""
_UNSPACED = (
    r"\u0e01-\u0e7f\u0e81-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Chinese characters."""
_MARKS = (
    r"\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    r"\u0900-\u0963\u0971-\u0df3\u200c\u200d"
)
"""Accents, points and vowel signs (Latin, Hebrew, Arabic, Indic) and joiners: `\\w` lacks them."""
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])[\w{_MARKS}])+")
_WORD_OR_SIGN = re.compile(rf"{_WORD.pattern}|[^\w\s.,;:!?'\"()\u2019\u2026-]")


class OverlapVerifier:
    """How much of a reference a response has, from 0 to 1; of several references the best counts.

    | metric | what is compared |
    |---|---|
    | rouge-l | the longest common subsequence of words, as F of precision and recall |
    | bleu | n-grams of words up to 4, by sacrebleu's sentence BLEU |
    | chrf | n-grams of characters up to 6, by sacrebleu |
    | keywords | the share of the gold's entries that the response holds as whole words |

    Args:
        metric: what is compared; bleu and chrf need the extra `overlap`.
        beta: for rouge-l, by how much recall weighs more than precision; 1 weighs both alike.

    Raises:
        ConfigError: an unknown metric, or a beta that is not positive.
        MissingExtra: sacrebleu is not installed.
    """

    cheap_to_repeat = True

    def __init__(self, *, metric: Metric = "rouge-l", beta: float = 1.0) -> None:
        if not (math.isfinite(beta) and beta > 0):
            raise ConfigError(f"overlap: beta must be positive, got {beta}")
        measures: Mapping[str, Callable[[str, str], float]] = {
            "rouge-l": lambda text, gold: rouge_l(text, gold, beta=beta),
            "bleu": lambda text, gold: _sacrebleu("sentence_bleu", text, gold),
            "chrf": lambda text, gold: _sacrebleu("sentence_chrf", text, gold),
            "keywords": lambda text, gold: float(holds(text, gold)),
        }
        if metric not in measures:
            raise ConfigError(f"overlap: metric must be {', '.join(measures)}, got {metric!r}")
        if metric in ("bleu", "chrf"):
            _load()
        self.metric: Metric = metric
        self._measure = measures[metric]

    def score(self, sample: Sample) -> Verdict:
        """Score a response against its gold: a text, or a list of texts."""
        golds = sample.gold if isinstance(sample.gold, list) else [sample.gold]
        if not golds or not all(isinstance(gold, str) and gold.strip() for gold in golds):
            return Verdict.invalid(
                "overlap needs a gold: a text, or a list of texts of which the best counts (of "
                "keywords every one)"
            )
        if len(sample.text) > MAX_CHARACTERS:
            return Verdict.of(0.0, f"longer than {MAX_CHARACTERS} characters")
        if not _WORD.search(sample.text):
            return Verdict.of(0.0, "the response has no word")
        values = [self._measure(sample.text, gold) for gold in golds]
        reward = sum(values) / len(values) if self.metric == "keywords" else max(values)
        return Verdict.of(reward, f"{self.metric} {reward:.3f}")


class TargetLengthVerifier:
    """Whether a response has a target number of words, from 0 to 1. A run of letters and digits is
    a word, so that "don't" is two.

    Args:
        match: `precise` pays the target alone; `flexible` pays all within the tolerance, and less
            beyond it, down to 0 at twice the target and at no word.
        tolerance: for flexible, the share of the target that a length may be off.

    Raises:
        ConfigError: an unknown match, or a tolerance outside of [0, 1).
    """

    never_blocks = True

    def __init__(
        self, *, match: Literal["precise", "flexible"] = "flexible", tolerance: float = 0.1
    ) -> None:
        if match not in ("precise", "flexible"):
            raise ConfigError(f"target-length: match must be precise or flexible, got {match!r}")
        if not 0 <= tolerance < 1:
            raise ConfigError(f"target-length: tolerance must be in [0, 1), got {tolerance}")
        self.match, self.tolerance = match, tolerance

    def score(self, sample: Sample) -> Verdict:
        """Score the number of words of a response against the gold, a positive whole number."""
        try:
            target = int(str(sample.gold))
        except ValueError:
            target = 0
        if target < 1:
            return Verdict.invalid(
                f"target-length needs a gold: a number of words, got {str(sample.gold)[:40]!r}"
            )
        if len(sample.text) > MAX_WORD_CHARACTERS * (target + 1):
            return Verdict.of(0.0, f"longer than {target} words can be")
        count = len(_WORD.findall(sample.text))
        off = abs(count - target) / target
        if self.match == "precise":
            reward = float(count == target)
        else:
            reward = max(0.0, min(1.0, (1 - off) / (1 - self.tolerance)))
        return Verdict.of(reward, f"{count} words of {target}")


def rouge_l(text: str, gold: str, *, beta: float = 1.0) -> float:
    """ROUGE-L of two texts in words, whatever their case; a character of a script that is written
    without spaces is a word.

    `(1 + b^2) P R / (R + b^2 P)`, P and R the shares of the longest common subsequence in the text
    and in the gold.

    Source: Lin (2004), equations 2 to 4.

    >>> rouge_l("police kill the gunman", "police killed the gunman")
    0.75
    >>> rouge_l("the gunman kill police", "police killed the gunman")
    0.5
    """
    mine, theirs = _WORD.findall(_plain(text)), _WORD.findall(_plain(gold))
    common = longest_common(mine, theirs)
    if not common:
        return 0.0
    precision, recall = common / len(mine), common / len(theirs)
    return (1 + beta**2) * precision * recall / (recall + beta**2 * precision)


def longest_common(words: Sequence[str], other_words: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    A whole row of the table is one integer, so that 4,000 words each take milliseconds.

    Source: Hyyro (2004), "Bit-parallel LCS-length computation revisited".

    >>> longest_common("a b c d".split(), "b d a".split())
    2
    """
    places: dict[str, int] = {}
    for place, word in enumerate(words):
        places[word] = places.get(word, 0) | 1 << place
    whole = (1 << len(words)) - 1
    row = whole
    for word in other_words:
        shared = row & places.get(word, 0)
        row = ((row + shared) | (row - shared)) & whole
    return len(words) - row.bit_count()


def holds(text: str, keyword: str) -> bool:
    """Whether a text holds a keyword as whole words, whatever the case. Signs other than those of
    punctuation count, too.

    >>> holds("The Eiffel  Tower.", "eiffel tower"), holds("towering", "tower")
    (True, False)
    >>> holds("in C++.", "c++"), holds("in C.", "c++")
    (True, False)
    """
    words = " ".join(_WORD_OR_SIGN.findall(_plain(text)))
    wanted = " ".join(_WORD_OR_SIGN.findall(_plain(keyword)))
    return f" {wanted} " in f" {words} " if wanted else keyword in text


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _load() -> Any:
    try:
        return importlib.import_module("sacrebleu")
    except ImportError:
        raise MissingExtra.of("overlap", needed_for="overlap with bleu or chrf") from None


def _sacrebleu(name: str, text: str, gold: str) -> float:
    return float(getattr(_load(), name)(text, [gold]).score) / 100
