"""The mock judge splits a prompt into the data, the criteria, and the text outside the data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_DATA = re.compile(r"^DATA ([0-9a-f]{32})\n(.*?)\nEND \1$", re.MULTILINE | re.DOTALL)
_CRITERION = re.compile(
    r"^Criterion(?: \((?P<sign>flaw|merit), weight (?P<weight>[\d.e+-]+)\))?: (?P<strings>.*)$",
    re.MULTILINE,
)
_CONTROL = re.compile(
    r"[<\uff1c\u27e8]{1,2}[^<>\uff1c\uff1e\s]{1,60}[>\uff1e\u27e9]{1,2}|\[/?[A-Za-z]{1,30}\]|\[\|\w{1,30}\|\]"
    r"|[\[\]][!~a-z]{2,4}[\[\]]|\u25c1[^\s\u25b7]{1,20}\u25b7|\u27e6[^\s\u27e7]{1,20}\u27e7"
    r"|>>[A-Z]{1,30}<<|\|{3}[A-Z_]{1,30}\|{3}"
)
"""The shapes of special tokens in families of models, and what looks like them."""
_FENCE_END = re.compile(r"^\W{0,6}(?:END|</?(?:data|response|question)>|-{3,}|`{3,})", re.MULTILINE)
_pasted = re.compile(r"<response>(.*)</response>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PromptCriterion:
    """A criterion that a prompt asks about, with the highest score of the scale."""

    id: str
    text: str
    highest: int
    sign: int = 1
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """A prompt split into data, criteria, and the text outside the data."""

    data: Mapping[str, str] = field(default_factory=dict[str, str])
    criteria: Sequence[PromptCriterion] = ()
    outside: str = ""
    """The text that a naive reader takes for instructions."""
    text: str = ""


def read_prompt(messages: Sequence[Mapping[str, object]]) -> ReadPrompt:
    """Split the user's first message. A prompt of another layout has the response alone as data."""
    users = [str(m.get("content", "")) for m in messages if m.get("role") == "user"]
    text = users[0] if users else ""
    match = _DATA.search(text)
    if match is None:
        pasted = _pasted.search(text)
        criterion = re.search(r"^Criterion: (.*)$", text, re.MULTILINE)
        criteria = [PromptCriterion("item-1", criterion[1], 1)] if criterion else []
        return ReadPrompt({"response": pasted[1] if pasted else text}, criteria, text, text)
    lines = (line.partition(": ") for line in match[2].split("\n"))
    data = {name: str(json.loads(value)) for name, colon, value in lines if colon}
    behind = text[match.end() :]
    criteria = []
    for criterion_match in _CRITERION.finditer(behind):
        strings = criterion_match["strings"]
        first, end = json.JSONDecoder().raw_decode(strings)
        tail = strings[end:].lstrip()
        second, length = json.JSONDecoder().raw_decode(tail) if tail.startswith('"') else (first, 0)
        place = criterion_match.end()
        scale = tail[length:] or behind[place : place + 120]
        highest = re.search(r"from 0 \(not at all\) to (\d+)", scale)
        criteria.append(
            PromptCriterion(
                str(first), str(second), int(highest[1]) if highest else 1,
                -1 if criterion_match["sign"] == "flaw" else 1,
                float(criterion_match["weight"] or 1),
            )
        )  # fmt: skip
    return ReadPrompt(data, criteria, _outside(text), behind)


def _outside(text: str) -> str:
    """Return the text outside the data for a reader who believes every fence and control token."""
    head, *turns = _CONTROL.split(text)
    begin = re.search(r"^DATA [0-9a-f]{32}$", head, re.MULTILINE)
    if begin is None:
        return text
    end = _FENCE_END.search(head, begin.end())
    tail = head[end.start() :] if end else ""
    return "\n".join([head[: begin.start()], tail, *turns])
