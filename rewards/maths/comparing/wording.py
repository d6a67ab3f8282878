"""Answers in words."""

from __future__ import annotations

import re

from ..proving.judge import Judge
from ..reading.nodes import Node
from ..reading.notation import as_words

_WORD_LIST = re.compile(r",\s*(?:and\s+)?|\s+and\s+")
_SYNONYMS = {
    "empty set": "no solution", "no solutions": "no solution", "no real solution": "no solution",
    "no real solutions": "no solution", "the empty set": "no solution", "dne": "does not exist",
    "infinite": "infinity", "positive infinity": "infinity",
}  # fmt: skip


def same_text(gold: Node, answer: Node, judge: Judge) -> bool:
    first, second = _spoken(gold), _spoken(answer)
    if first is not None and second is not None and not judge.conventions.text_case:
        first, second = _folded(first), _folded(second)
    same = (
        first is not None
        and second is not None
        and (first == second or _several(first) == _several(second) != set())
    )
    return judge.decided(
        "text", same, f"the words {answer.note or answer.op!r} are not {gold.note or gold.op!r}"
    )


_OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}


def same_words(gold: Node, said: str, judge: Judge) -> bool:
    """Words against an answer as it was written: `It is Tuesday`, `Yes, because ...`."""
    if judge.conventions.text_case:
        return False
    wanted = _folded(gold.note)
    words = as_words(said).casefold().removeprefix("it is ")
    first, _, rest = words.partition(",")
    same = wanted == _folded(words)
    if wanted in _OPPOSITES and first.strip() == wanted:
        same = _OPPOSITES[wanted] not in re.findall(r"[a-z]+", rest)
    return judge.decided("text", same, f"the words {said[:80]!r} are not {gold.note!r}")


def _several(spoken: str) -> set[str]:
    """The items of a list in words; empty if it is not one."""
    items = {item.strip() for item in _WORD_LIST.split(spoken) if item.strip()}
    return items if len(items) > 1 else set()


def _spoken(node: Node) -> str | None:
    if node.op == "set" and not node.args:
        return "no solution"
    if node.op == "mul" and all(part.op == "sym" for part in node.args):
        return "".join(part.note for part in node.args)
    if node.op not in {"text", "sym"}:
        return None
    return " ".join(node.note.replace("-", " ").split())


def _folded(spoken: str) -> str:
    words = spoken.casefold().removeprefix("the ")
    return _SYNONYMS.get(words, words)
