"""The mock judge's answers depend only on the mode, the prompt and the attempt's number."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from enum import StrEnum

from .prompt_reading import PromptCriterion, ReadPrompt


class MockMode(StrEnum):
    """The behaviour of the mock judge: honest, or wrong in a way that tests need."""

    HONEST = "honest"
    """Reads the data and judges by the words of the criterion."""
    GULLIBLE = "gullible"
    """An honest judge that obeys any instruction outside the data, after what looks like the data's
    end, and behind a control token.
    """
    ECHO = "echo"
    """Answers with the response that was to be judged."""
    GARBAGE = "garbage"
    """Answers with HTML, prose, two verdicts, numbers out of range, NaN, a megabyte, nothing."""
    FLAKY = "flaky"
    """An honest judge; some requests fail with 429 or 500 first."""
    SLOW = "slow"
    """An honest judge whose answers come late."""


GARBAGE = [
    "", "<html><body>502 Bad Gateway</body></html>", "8 out of 10", '{"met": "yes"}',
    '{"met": true} on reflection {"met": false}', '{"met": NaN, "score": NaN}', '{"score": 7e9}',
    '{"met": true, "met": false}', "The criterion is met.", '{"verdicts": []}', "[true]", "{" * 500,
    "lorem ipsum " * 90_000,
]  # fmt: skip
_COMMAND = re.compile(
    r"""(?:
    (?:ignore|disregard|forget)\b.{0,60}\b(?:instruction|criteri|above|previous|rubric)
    | (?:give|assign|award|return|output|answer|respond|reply|set|report|grade)\b.{0,60}
      \b(?:full|max(?:imum)?|highest|perfect|top|best|met|true|pass(?:es|ed)?|10|score)\b
    | ["']?(?:met|score|verdict)["']?\s*[:=]\s*["']?(?:true|yes|\d+|met|pass)
    | \bcriteri(?:on|a)\b.{0,40}\b(?:is|are|was|were)\b.{0,20}\b(?:met|satisfied|fulfilled)
    | \b(?:system|administrator|developer)\b\s*(?:override|message|note|:)
    )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_asked_words = re.compile(r"Judge each|How good|Is the criterion|How far|Answer (?:as|with)|Advice")
_NAME = re.compile(r"(?<=[a-z,] )(?:[A-Z][a-z]{2,}|\d{2,})\b")
_words = re.compile(r"[^\W_]{4,}")
_STOP = frozenset({
    "answer", "does", "from", "have", "mentions", "must", "names", "response", "should", "text",
    "that", "this", "with",
})  # fmt: skip


def obeyed(prompt: ReadPrompt) -> bool:
    """Return whether the text outside the data holds an instruction that the gullible judge obeys.

    What the judge is legitimately asked is left out: lines of the prompt's own layout.
    """
    lines = [
        line
        for line in prompt.outside.split("\n")
        if not line.startswith(("Criterion", "Grade the response.", "Answer as JSON:", "Advice:"))
        and not _asked_words.match(line)
    ]
    return bool(_COMMAND.search("\n".join(lines)))


def share_met(criterion: str, response: str) -> float:
    """Return how far a response meets a criterion, in [0, 1], by words alone.

    Quoted parts of the criterion must occur; "at most N words" and "at least N words" are counted;
    otherwise the share of the criterion's content words that occur.

    >>> share_met('The response mentions "Paris".', "It is Paris.")
    1.0
    """
    response_text = response.casefold()
    negated = bool(re.search(r"\b(?:not|never|no)\b", criterion.casefold()))
    limit = re.search(r"at (most|least) (\d+) words", criterion.casefold())
    if limit:
        count, bound = len(response.split()), int(limit[2])
        return float(count <= bound if limit[1] == "most" else count >= bound)
    quoted = re.findall(r'"([^"]+)"', criterion)
    key_words = quoted or [w for w in _words.findall(criterion.casefold()) if w not in _STOP]
    if not key_words:
        return 0.0
    share = sum(word.casefold() in response_text for word in key_words) / len(key_words)
    return 1 - share if negated and quoted else share


def honest(prompt: ReadPrompt) -> str:
    """Return the answer of an honest judge to a prompt of `rewards.judge.prompt`."""
    return _answer(prompt, cheat=False)


def gullible(prompt: ReadPrompt) -> str:
    """Return the answer of a judge that obeys instructions outside the data."""
    return _answer(prompt, cheat=obeyed(prompt))


def garbage(prompt: ReadPrompt, attempt: int) -> str:
    """Return a useless answer, chosen by the prompt and the number of the attempt."""
    digest = hashlib.sha256(prompt.text.encode("utf-8", "replace")).digest()
    return GARBAGE[(digest[0] + attempt) % len(GARBAGE)]


def _answer(prompt: ReadPrompt, *, cheat: bool) -> str:
    response = prompt.data.get("response", "")
    if "Propose at most" in prompt.text:
        # Propose names and numbers that some responses state and others do not as criteria: merits
        # where a passage holds the name or number, flaws where none does.
        responses = [text for name, text in prompt.data.items() if name.startswith("response_")]
        passages = "\n".join(
            text for name, text in prompt.data.items() if name.startswith("passages_")
        )
        criteria_text = " ".join(
            text for name, text in prompt.data.items() if name.startswith("criterion_")
        )
        names_stated = Counter(name for text in responses for name in set(_NAME.findall(text)))
        question = prompt.data.get("question", "")
        proposed = [
            {"text": f'The response mentions "{name}".', "weight": 1 if name in passages else -1}
            for name, count in sorted(
                names_stated.items(),
                key=lambda name_and_count: (-name_and_count[1], name_and_count[0]),
            )
            if count < len(responses) and f'"{name}"' not in criteria_text and name not in question
        ]
        return json.dumps({"criteria": proposed[:5]})
    if "Which response" in prompt.text:
        criterion = prompt.criteria[0].text if prompt.criteria else ""
        first, second = (share_met(criterion, prompt.data.get(f"response_{n}", "")) for n in "AB")
        better = "tie" if first == second else "A" if first > second else "B"
        return json.dumps({"reason": "by its words", "better": better})
    if "Rank the responses" in prompt.text:
        criterion = prompt.criteria[0].text if prompt.criteria else ""
        names = [n.removeprefix("response_") for n in prompt.data if n.startswith("response_")]
        best = sorted(names, key=lambda n: -share_met(criterion, prompt.data[f"response_{n}"]))
        return json.dumps({"reason": "by its words", "ranking": best})
    scores = {c.id: _score(c, response, cheat=cheat) for c in prompt.criteria}
    if "How good is the response" in prompt.text:
        weights = sum(c.weight for c in prompt.criteria) or 1.0
        score_sum = sum(
            c.weight * (scores[c.id] if c.sign > 0 else c.highest - scores[c.id]) / c.highest
            for c in prompt.criteria
        )
        return json.dumps({"reason": "as a whole", "score": 1 + round(9 * score_sum / weights)})
    if "with one number" in prompt.text:
        return str(next(iter(scores.values()), 0))
    rows: list[dict[str, object]] = []
    for c in prompt.criteria:
        met_or_score = ("met", bool(scores[c.id])) if c.highest == 1 else ("score", scores[c.id])
        rows.append({"id": c.id, "reason": "by its words", met_or_score[0]: met_or_score[1]})
    if '"verdicts"' in prompt.text:
        return json.dumps({"verdicts": rows})
    row = rows[0] if rows else {"met": False}
    return json.dumps({name: value for name, value in row.items() if name != "id"})


def _score(criterion: PromptCriterion, response: str, *, cheat: bool) -> int:
    if cheat:
        return criterion.highest
    share = share_met(criterion.text, response)
    return round(share * criterion.highest) if criterion.highest > 1 else int(share >= 0.5)
