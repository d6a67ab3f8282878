"""A report is read for the facts that are stated, the claims that are false, and the citations.

A sentence is about the first name in it and about the pages that it cites as `[Title]`. It states a
fact if it is about the fact's subject and names the fact's value, or the other way round. Any other
name or number in it is a false claim, unless it is true of what the sentence is about: what is true
but was not asked for costs and earns nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ..fiction import World, build_world
from .topics import Topic, facts_of

MAX_REPORT_CHARS = 20_000
MAX_CITATIONS = 3
"""Citations of one sentence that count."""
_SENTENCES = re.compile(r"(?<=[.!?\]])\s+|\n+")
_CITED = re.compile(r"\[([^\[\]\n]{1,80})\]")
_NUMBER = re.compile(r"\b\d{3,6}\b")


@dataclass(frozen=True, slots=True)
class ReportReading:
    """The counts of a report's facts, false claims and citations, which give the true score.

    `truth` is the share of facts stated less the number of false claims over the number of facts,
    at least 0, times (1 - w + w c), where c is the share of stated facts whose sentence cites the
    page that says so and w is the weight of citing.
    """

    stated: int
    facts: int
    false: int
    cited: int

    def truth(self, cite_weight: float) -> float:
        """Return the true score, in [0, 1]."""
        share = max(0.0, (self.stated - self.false) / self.facts)
        citing = self.cited / self.stated if self.stated else 0.0
        return share * (1 - cite_weight + cite_weight * citing)


def read_report(text: str, topic: Topic, world: World) -> ReportReading:
    """Compare a report with the truth. Text beyond 20,000 characters counts for nothing."""
    names, true_values = _true_values(
        world.seed, sum(entity.kind == "person" for entity in world.entities.values())
    )
    topic_facts = {(fact.subject, fact.value) for fact in topic.facts}
    stated_facts, cited, false = (
        set[tuple[str, str]](),
        set[tuple[str, str]](),
        set[tuple[str, str]](),
    )
    for sentence in _SENTENCES.split(text[:MAX_REPORT_CHARS]):
        citations = [title.strip() for title in _CITED.findall(sentence)][:MAX_CITATIONS]
        words = _CITED.sub(" ", sentence)
        named_names = names.findall(words)
        first = named_names[
            :1
        ]  # whom the sentence is about; the cited pages are about somebody too
        subjects = {name for name in [*first, *citations] if name in true_values}
        for value in {*named_names, *_NUMBER.findall(words)}:
            has_value = {(subject, value) for subject in subjects if value in true_values[subject]}
            has_value |= {
                (value, subject) for subject in first if subject in true_values.get(value, ())
            }
            stated_facts |= has_value & topic_facts
            cited |= {pair for pair in has_value & topic_facts if pair[0] in citations}
            if not has_value and value not in subjects and subjects:
                false.add((min(subjects), value))
    return ReportReading(len(stated_facts), len(topic.facts), len(false), len(cited))


@lru_cache(maxsize=4)
def _true_values(seed: int, people: int) -> tuple[re.Pattern[str], Mapping[str, frozenset[str]]]:
    """Return a pattern of all names of a world, and the values that are true of each name."""
    world = build_world(seed, people)
    longest_first = sorted(world.entities, key=len, reverse=True)
    names = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w)")
    true_values = {
        name: frozenset(fact.value for fact in facts_of(entity))
        for name, entity in world.entities.items()
    }
    return names, true_values
