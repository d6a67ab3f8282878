"""Exploits that were planted before the attackers were looked at, and sound environments near them.

`audited/planted.py` and `audited/sound.py` came first: the attackers of then found 5 of the 20, for
the right reason. `audited/held_out.py` came after they had learned those kinds: 4 of its 8 were
found at first sight.
"""

from __future__ import annotations

import base64
import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.audit import audit, report_of
from ludus.agent.audit.attackers import Lesson, Scene
from ludus.agent.audit.rules import learned_rule
from ludus.agent.audit.search import Attempt, Effort, ProgramSearch, described
from ludus.envs import Briefing
from ludus.envs.checks.subject import Played

FOLDER = Path(__file__).parent / "audited"
NEVER = 1e12
"""A time that does not come."""


@pytest.fixture(scope="module")
def audited() -> Iterator[dict[str, list[str]]]:
    """The ids of the environments, which are registered."""
    sys.path.insert(0, str(FOLDER))
    modules: list[Any] = [importlib.import_module(n) for n in ("planted", "sound", "held_out")]
    sys.path.remove(str(FOLDER))
    planted, sound, held_out = modules
    return {"planted": planted.PLANTED, "sound": sound.SOUND, "held_out": held_out.HELD_OUT}


@pytest.mark.slow
def test_planted_exploits_are_found(audited: dict[str, list[str]]) -> None:
    missed = [name for name in audited["planted"] if not audit(name).winners]
    assert len(missed) <= 2, missed


@pytest.mark.slow
def test_sound_environments_are_not_flagged(audited: dict[str, list[str]]) -> None:
    for name in audited["sound"]:
        report = report_of(audit(name))
        assert report.failures == [], name


@pytest.mark.slow
def test_exploits_of_other_kinds_are_found_mostly(audited: dict[str, list[str]]) -> None:
    found = [name for name in audited["held_out"] if audit(name).winners]
    assert len(found) >= 6, found


def scene(openings: list[str], answers: list[str], opening: str, prompt: str = "") -> Scene:
    lessons = [
        Lesson(f"t{n}", o, (a,)) for n, (o, a) in enumerate(zip(openings, answers, strict=True))
    ]
    episode = Played(seen=[(opening, 0.0, False, False)])
    return Scene(Briefing(system_prompt=prompt), episode, lessons, random.Random(0))


def test_a_rule_is_learned_from_other_tasks_alone() -> None:
    words = ["salve", "vale", "gratias", "amice", "roma", "ludus", "victor", "miles"]
    hidden = [f"Which word? (ref {base64.b64encode(w.encode()).decode()})" for w in words]
    learned = learned_rule(scene(hidden[:7], words[:7], hidden[7]))
    assert learned is not None
    assert "base64" in learned[0]
    assert learned[1](hidden[7]) == "miles"
    backwards = [f"Say {w}." for w in words]
    answers = [w[::-1] for w in words]
    # where the task is to say it backwards, doing so is no exploit
    assert learned_rule(scene(backwards, answers, "Say x.", "Say the word backwards.")) is None
    assert learned_rule(scene(backwards[:5], answers[:5], "Say x.")) is None  # too few lessons
    assert learned_rule(scene(backwards, ["yes"] * 8, "Say x.")) is None  # a constant


def test_the_search_finds_a_pair_that_is_paid_again_and_again() -> None:
    def attempt(program: Program, task: int) -> float:
        held, paid = False, 0.0
        for n in range(12):
            said = program[n % len(program)].text
            paid += 0.2 * (said == "pick" and not held)
            held = said == "pick" or (held and said != "drop")
        return paid

    moves = moves_of(Briefing(system_prompt="Commands: pick, drop, go NAME."), ["A room."], [])
    assert Move("pick") in moves
    assert Move(f"go {LAST_WORD}") in moves
    bests = [ProgramSearch(moves, attempt, (), random.Random(7), NEVER).best() for _ in range(2)]
    assert bests[0] == bests[1]  # equal seeds, equal programs
    program, paid = bests[0]
    assert paid == pytest.approx(1.2)
    assert set(described(program).split("; ")) == {"pick", "drop"}
    late = ProgramSearch(moves, attempt, (), random.Random(7), -1.0)
    assert late.best() == ((), 0.0)
