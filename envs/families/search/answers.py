"""Compares short answers as SQuAD does (Rajpurkar et al., arXiv 1606.05250)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_OPENING, _CLOSING = "<answer>", "</answer>"
END_OF_THOUGHTS = "</think>"
MAX_ANSWER_CHARS = 1_000
"""The most characters of an answer; a longer answer counts as wrong, without a comparison."""


def normalize(text: str) -> str:
    """Normalise an answer: lower case, no ASCII punctuation, no articles, single spaces.

    >>> normalize("The  Cat's hat.")
    'cats hat'
    """
    bare = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if `answer` equals an element of `golds` after normalisation, else 0."""
    return float(normalize(answer) in {normalize(gold) for gold in golds})


def f1(answer: str, golds: Sequence[str]) -> float:
    """Return the best F1 score over `golds`: the harmonic mean of word precision and recall.

    >>> round(f1("the cat sat", ["cat sat down"]), 3)  # 2 of 2 words, 2 of 3: 2 * 1 * 2/3 / (5/3)
    0.8
    """
    return max(
        (_f1(normalize(answer).split(), normalize(gold).split()) for gold in golds), default=0
    )


def _f1(answer_words: list[str], gold: list[str]) -> float:
    if not answer_words or not gold:
        return float(answer_words == gold)
    common = (Counter(answer_words) & Counter(gold)).total()
    return 2 * common / (len(answer_words) + len(gold))


def read_answer(text: str) -> str | None:
    """Return the content of the last closed `<answer>` after the thoughts, or None.

    An opening tag is paired with the first closing tag after it, as in Search-R1.

    >>> read_answer("<answer>no</answer> or <answer>yes</answer></answer>")
    'yes'
    """
    answer_text = text.rpartition(END_OF_THOUGHTS)[2]
    answer: str | None = None
    begin = answer_text.find(_OPENING)
    while begin >= 0 and (end := answer_text.find(_CLOSING, begin)) >= 0:
        answer = answer_text[begin + len(_OPENING) : end].strip()
        begin = answer_text.find(_OPENING, end)
    return answer
