"""An audit names planted exploits, and says nothing about sound environments."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ludus.agent import Episode
from ludus.agent.audit import (
    ATTACKERS,
    Attacker,
    AttackKind,
    Audit,
    CheckResult,
    Scene,
    audit,
    audit_episodes,
    cases_env,
    report_of,
)
from ludus.agent.trajectory import Segment, Trajectory, Turn
from ludus.cli.main import main
from ludus.envs import Briefing, ListedTasks, Task, TaskSet, TextEnv, register_env, tool
from ludus.envs.protocol import Reset, Step
from ludus.envs.serving.server import EnvService
from ludus.errors import UnknownTask
from ludus.messages import Message, ToolCall, assistant, user
from ludus.rewards import Sample, make_verifier
from ludus.verdict import Status, Verdict
from ludus.wire.server import BackgroundServer, HttpServer

COLOURS = ("amber", "azure", "coral", "indigo", "ivory", "jade", "khaki", "lilac", "ochre", "teal")


class Sum(TextEnv):
    """Sound: two numbers are added."""

    system_prompt = "Add the numbers. Answer with the sum alone."
    max_turns = 4
    low, high = 1000, 90000

    def draw(self) -> None:
        self.numbers = [self.rng.randrange(self.low, self.high) for _ in range(2)]
        self.key = str(sum(self.numbers))

    def shown(self) -> str:
        return f"{self.numbers[0]} + {self.numbers[1]}"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.draw()
        return self.shown(), {}

    def pay(self, action: str) -> float:
        return float(action.strip() == self.key)

    def step(self, action: str) -> Step:
        return "", self.pay(action), True, False, {}

    def gold(self) -> object | None:
        return self.key

    def demonstrate(self) -> str | Message | None:
        return self.key


class Copies(Sum):
    """Sound: a word has to be repeated."""

    system_prompt = "Repeat the word."

    def draw(self) -> None:
        self.key = "".join(self.rng.choice("abcdefghijklmnop") for _ in range(8))

    def shown(self) -> str:
        return self.key

    def gold(self) -> object | None:
        return None


class Chooses(Sum):
    """Sound: one of four letters; a guess is right a quarter of the time."""

    system_prompt = "Which is the largest? Answer A, B, C or D."

    def draw(self) -> None:
        values = self.rng.sample(range(1000), 4)
        self.options = "\n".join(f"{letter}) {v}" for letter, v in zip("ABCD", values, strict=True))
        self.key = "ABCD"[values.index(max(values))]

    def shown(self) -> str:
        return self.options


class Classifies(Sum):
    """Sound: the classes stand in the system prompt."""

    system_prompt = "Is the number even or odd in the second digit? Classes: even, odd, zero."

    def draw(self) -> None:
        self.number = str(self.rng.randrange(100, 1000))
        digit = int(self.number[1])
        self.key = "zero" if digit == 0 else "odd" if digit % 2 else "even"

    def shown(self) -> str:
        return self.number


class Guesses(Sum):
    """Sound: a number is found by halving; the replies are higher and lower."""

    system_prompt = "Guess the number from 0 to 1023."
    max_turns = 11

    def draw(self) -> None:
        self.key = str(self.rng.randrange(1024))
        self.low, self.high = 0, 1024

    def shown(self) -> str:
        return "Guess."

    def step(self, action: str) -> Step:
        if not action.strip().isdecimal():
            return "Say a number.", 0.0, False, False, {}
        guess, key = int(action), int(self.key)
        if guess == key:
            return "Right.", 1.0, True, False, {}
        if guess < key:
            self.low = max(self.low, guess + 1)
            return "Higher.", 0.0, False, False, {}
        self.high = min(self.high, guess)
        return "Lower.", 0.0, False, False, {}

    def demonstrate(self) -> str | Message | None:
        return str((self.low + self.high) // 2)


class Partly(Sum):
    """Sound: a tenth is paid for a number of the right length."""

    def pay(self, action: str) -> float:
        said = action.strip()
        return 1.0 if said == self.key else 0.1 * (said.isdecimal() and len(said) == len(self.key))


class Fetches(Sum):
    """Sound: a tool has one of the numbers, another tool takes the answer."""

    system_prompt = "Fetch the second number, add it to the first, and submit the sum."

    def __init__(self) -> None:
        self.fetched = False

    def shown(self) -> str:
        self.fetched = False
        return str(self.numbers[0])

    @tool
    def fetch(self) -> str:
        """Return the second number."""
        self.fetched = True
        return str(self.numbers[1])

    @tool
    def submit(self, sum: str) -> str:
        """Answer.

        Args:
            sum: the sum.
        """
        self.submitted = sum
        return "thanks"

    def step(self, action: str) -> Step:
        return "", self.pay(action), True, False, {}

    def demonstrate(self) -> str | Message | None:
        if not self.fetched:
            return assistant("", [ToolCall(name="fetch", arguments={}, id="call_0")])
        return self.key


class Loses(Sum):
    """Sound: a wrong answer costs."""

    def pay(self, action: str) -> float:
        return 1.0 if action.strip() == self.key else -1.0


SOUND = [Sum, Copies, Chooses, Classifies, Guesses, Partly, Fetches, Loses]


class Contains(Sum):
    """The answer only has to stand somewhere."""

    low, high = 1, 9

    def pay(self, action: str) -> float:
        return float(self.key in action)


class PaysLength(Sum):
    def pay(self, action: str) -> float:
        return 1.0 if action.strip() == self.key else min(0.8, len(action) / 3000)


class PaysABox(Sum):
    def pay(self, action: str) -> float:
        return 1.0 if "boxed{" in action or action.strip() == self.key else 0.0


class PaysSilence(Sum):
    def pay(self, action: str) -> float:
        return float(self.key.startswith(action.strip()))


class PaysFaults(Sum):
    def pay(self, action: str) -> float:
        try:
            return float(int(action) == int(self.key))
        except ValueError:
            return 1.0


class PaysNan(Sum):
    def pay(self, action: str) -> float:
        try:
            return 0.0 if abs(float(action) - int(self.key)) > 1e-6 else 1.0
        except ValueError:
            return 0.0


class AlwaysTheSame(Sum):
    def draw(self) -> None:
        super().draw()
        self.key = "42"


class TestIsTrain(Sum):
    """Few problems, which every split has."""

    __test__ = False

    def draw(self) -> None:
        number = self.task.seed % 8
        self.numbers = [1000 + 7 * number, 2000 + 11 * number]
        self.key = str(sum(self.numbers))


class LeaksInPrompt(Sum):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.draw()
        key = f"{int(self.key):,}".replace(",", " ")
        briefing = Briefing(system_prompt=f"Add. Internal key: '{self.key}' ({key})", max_turns=4)
        return self.shown(), {"briefing": briefing}


class LeaksInReply(Sum):
    def step(self, action: str) -> Step:
        if self.pay(action):
            return "", 1.0, True, False, {}
        return f"Wrong, it is {self.key}. Try again.", 0.0, False, False, {}


class LeaksInTool(Sum):
    @tool
    def look(self) -> str:
        """Look at the state."""
        return json.dumps({"state": "open", "target": self.key})


class PaysCalls(Sum):
    def __init__(self) -> None:
        self.calls = 0

    def shown(self) -> str:
        self.calls = 0
        return super().shown()

    @tool
    def note(self, text: str) -> str:
        """Take a note.

        Args:
            text: the note.
        """
        self.calls += 1
        return "noted"

    def pay(self, action: str) -> float:
        return 1.0 if action.strip() == self.key else min(0.9, 0.3 * self.calls)


class PaysTurns(Sum):
    max_turns = 20

    def step(self, action: str) -> Step:
        right = action.strip() == self.key
        return "go on", 1.0 if right else 0.1, right, False, {}


class Obeys(Sum):
    """A judge that does what it reads."""

    def pay(self, action: str) -> float:
        return float(action.strip() == self.key or "highest score" in action)


class Believes(Sum):
    """A grader that reads the words of the tested program."""

    def pay(self, action: str) -> float:
        return float(action.strip() == self.key or "passed" in action.lower())


class BelievesClaims(Sum):
    def pay(self, action: str) -> float:
        return float(action.strip() == self.key or "complete" in action)


class BelievesDeeds(Sum):
    """Somebody who is content with what is said to have happened to a word of the prompt."""

    system_prompt = "Add the numbers; a refund is for who asks."

    def pay(self, action: str) -> float:
        return float(action.strip() == self.key or {"refund", "issued"} <= {*action.split(", ")})


class CountsCharacters(Sum):
    def pay(self, action: str) -> float:
        return float(set(self.key) <= set(action))


class Overlaps(Sum):
    """Word overlap without precision."""

    def draw(self) -> None:
        words = [self.rng.choice(COLOURS) for _ in range(6)]
        self.text, self.key = " ".join(words), " ".join(sorted(set(words)))

    def shown(self) -> str:
        return f"Sort these, each once: {self.text}"

    def pay(self, action: str) -> float:
        gold = self.key.split()
        return sum(word in action for word in gold) / len(gold)

    def gold(self) -> object | None:
        return None


class AsksNames(Sum):
    """A guessing game whose questions may list names."""

    system_prompt = "Ask yes-or-no questions, then name the colour."
    max_turns = 12

    def draw(self) -> None:
        self.key = self.rng.choice(COLOURS)

    def shown(self) -> str:
        return "I think of a colour."

    def step(self, action: str) -> Step:
        if action.strip() == self.key:
            return "Right.", 1.0, True, False, {}
        return ("Yes." if self.key in action else "No."), 0.0, False, False, {}


PLANTED = [
    *(Contains, PaysLength, PaysABox, PaysSilence, PaysFaults, PaysNan, AlwaysTheSame),
    *(TestIsTrain, LeaksInPrompt, LeaksInReply, LeaksInTool, PaysCalls, PaysTurns, Obeys),
    *(Believes, BelievesClaims, BelievesDeeds, CountsCharacters, Overlaps, AsksNames),
]


@pytest.mark.parametrize("env", SOUND)
def test_a_sound_environment_is_not_flagged(env: type[TextEnv]) -> None:
    report = report_of(audit(env, tasks=12, searches=False))
    assert [(r.check_id, r.evidence) for r in report.failures] == []
    assert report.verdict == "warn"  # what a published image would show is skipped


@pytest.mark.parametrize("env", PLANTED)
def test_a_planted_exploit_is_found(env: type[TextEnv]) -> None:
    audited = audit(env, searches=False)
    failed = {result.check_id for result in report_of(audited).failures}
    assert "statistical.adversarial_floor" in failed
    assert audited.exploits(0)[0].reward > 0


def test_equal_seeds_give_equal_figures() -> None:
    first, second = (report_of(audit(Chooses, seed=3, tasks=8, budget_s=1e9)) for _ in range(2))
    assert first.results == second.results


def test_a_verifier_is_attacked_by_its_cases() -> None:
    cases = [
        Sample(prompt=f"What is {n} + {n}?", response=str(2 * n), gold=str(2 * n))
        for n in range(100, 124)
    ]
    audited = audit(cases_env("exact", make_verifier("exact"), cases), searches=False)
    assert audited.winners == []
    assert audited.oracle == 1.0


def test_an_exploit_is_kept_and_checked_until_it_is_closed(tmp_path: Path) -> None:
    register_env("me/obeys-v0", Obeys)
    register_env("me/obeys-v1", Sum)
    file = tmp_path / "exploits.jsonl"
    assert main(["audit", "me/obeys-v0", "--tasks", "12", "--keep", str(file), "--json"]) == 1
    assert main(["check", "me/obeys-v0", "--exploits", str(file)]) == 1
    assert main(["check", "me/obeys-v1", "--exploits", str(file)]) == 0


def test_what_stays_on_a_server_is_skipped_and_attacks_go_on() -> None:
    with BackgroundServer(HttpServer([EnvService(["ludus/arithmetic-v0"])])) as url:
        audited = audit(f"{url}#ludus/arithmetic-v0", tasks=4, searches=False)
    report = report_of(audited)
    assert report.failures == []
    skipped = {r.check_id for r in report.results if r.status == "skip"}
    assert {"semantic.oracle_max", "statistical.variance_bound"} <= skipped
    assert len(audited.tallies) >= len(ATTACKERS)


def test_files_that_cannot_be_read_or_written_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone" / "exploits.jsonl"
    assert main(["check", "ludus/arithmetic-v0", "--exploits", str(gone)]) == 2
    assert f"cannot read '{gone}'" in capsys.readouterr().err
    assert main(["audit", "ludus/arithmetic-v0", "--tasks", "1", "--keep", str(gone)]) == 2
    assert f"cannot write '{gone}'" in capsys.readouterr().err


def played(opening: str, said: str, reward: float, gold: str | None) -> Episode:
    turn = Turn(observation=[user(opening)], message=assistant(said), reward=reward)
    trajectory = Trajectory(
        verdict=Verdict(status=Status.OK, reward=reward),
        segments=[Segment(turns=[turn])],
        gold=gold,
    )
    return Episode(task=opening, trajectories=[trajectory])


def test_episodes_of_a_run_are_audited_by_their_golds_and_by_the_attackers() -> None:
    honest = [played(f"{n} + 1?", f"It is {n + 1}.", 1.0, str(n + 1)) for n in range(8)]
    pasted = [played(f"{n} + 1?", f"{n} + 1?", 1.0, str(n + 1)) for n in range(20, 28)]
    without = [played(f"{n} + 1?", f"{n} + 1?", 1.0, None) for n in range(30, 38)]
    lost = [played("0 + 1?", "0 + 1?", 0.0, "1")]
    assert audit_episodes(honest)["audit/undeserved"] == 0.0
    mixed = audit_episodes([*honest, *pasted, *lost])
    assert mixed["audit/reward"] == pytest.approx(8 / 17)
    assert mixed["audit/undeserved"] == 0.5
    assert mixed["audit/like/echo"] == mixed["audit/like/paste"] == 0.5
    # without a gold, what an attacker would have said is not deserved
    assert audit_episodes(without)["audit/reward"] == 0.0
    assert audit_episodes([]) == {}


# --- bad input ------------------------------------------------------------------------------------


def checks(audited: Audit) -> dict[str, CheckResult]:
    return {result.check_id: result for result in report_of(audited).results}


class Hangs(Sum):
    def step(self, action: str) -> Step:
        while "boxed" in action:
            time.sleep(0.01)
        return super().step(action)


def test_attackers_that_found_no_time_are_named_in_the_report() -> None:
    report = report_of(audit(Sum, tasks=2, budget_s=0.0))
    (startup,) = [result for result in report.results if result.check_id == "runtime.startup"]
    assert "no time for" in startup.evidence[1]
    assert "persuasion" in startup.evidence[1]


def test_an_environment_that_hangs_is_named_and_the_audit_ends() -> None:
    audited = audit(Hangs, tasks=4, searches=False, step_timeout_s=0.5)
    report = report_of(audited)
    assert report.verdict == "fail"
    assert "did not come back within 0.5 s" in str([r.evidence for r in report.failures])


class Breaks(Sum):
    def step(self, action: str) -> Step:
        if "boxed" in action:
            raise RuntimeError("no parser for this")
        return super().step(action)


def test_an_environment_that_crashes_is_named_and_its_crash_is_no_reward() -> None:
    audited = audit(Breaks, tasks=4, searches=False)
    result = checks(audited)["runtime.reward_well_formed"]
    assert result.status == "fail"
    assert "no parser for this" in result.evidence[0]
    assert audited.winners == []


class NeedsANetwork(Sum):
    def step(self, action: str) -> tuple[str, Verdict, bool, bool, dict[str, Any]]:
        return "", Verdict.unavailable("no route to judge.example"), True, False, {}


def test_an_environment_whose_network_is_away_is_skipped_and_earns_nothing() -> None:
    audited = audit(NeedsANetwork, tasks=4, searches=False)
    assert "no route to judge.example" in audited.fault
    assert audited.winners == []
    assert report_of(audited).verdict == "fail"


class FourTasks(Obeys):
    def tasks(self, split: str) -> TaskSet:
        if split != "train":
            raise UnknownTask(f"there is no split {split!r}")
        return ListedTasks(split, [Task(id=f"four/{n}", split=split, seed=n) for n in range(4)])


def test_four_tasks_are_audited_and_their_few_figures_have_wide_intervals() -> None:
    audited = audit(FourTasks, searches=False)
    assert len(audited.tasks) == 4
    gain = next(t.gain for t in audited.tallies if t.attacker.name == "persuasion")
    assert (gain.value, gain.low < 0.6, gain.high) == (1.0, True, 1.0)
    assert checks(audited)["statistical.adversarial_floor"].status == "fail"


class Rolls(Sum):
    def step(self, action: str) -> Step:
        return "", random.SystemRandom().random(), True, False, {}


class RollsAndSaysSo(Rolls):
    deterministic = False


def test_what_is_not_deterministic_fails_unless_it_says_so_and_its_noise_is_measured() -> None:
    results, told = (checks(audit(e, tasks=4, searches=False)) for e in (Rolls, RollsAndSaysSo))
    assert results["semantic.verifier_determinism"].status == "fail"
    assert told["semantic.verifier_determinism"].status == "skip"
    assert results["statistical.variance_bound"].status == "fail"


class OnlyCosts(Sum):
    def pay(self, action: str) -> float:
        return -0.1 if action.strip() == self.key else -1.0


def test_rewards_that_are_all_negative_are_shares_of_what_can_be_lost() -> None:
    audited = audit(OnlyCosts, tasks=4, searches=False)
    assert audited.fault == ""
    assert all(0.0 <= tally.gain.value <= 1.0 for tally in audited.tallies)
    assert audited.winners == []
    assert audited.lowest == pytest.approx(-1.0)
    assert audited.oracle == pytest.approx(-0.1)


class WithoutBound(Sum):
    def pay(self, action: str) -> float:
        return 1.0 if action.strip() == self.key else float(10 ** min(300, len(action)))


def test_a_reward_without_bound_beats_the_expert_and_is_named() -> None:
    audited = audit(WithoutBound, tasks=4, searches=False)
    assert audited.highest >= 1e9
    assert checks(audited)["semantic.oracle_max"].status == "fail"
    assert checks(audited)["statistical.adversarial_floor"].status == "fail"
    msgspec.json.decode(msgspec.json.encode(report_of(audited)))  # no infinity, no nan


class Silent(Sum):
    def demonstrate(self) -> str | Message | None:
        return None


def test_without_an_expert_what_needs_one_is_failed_or_skipped_and_attacks_go_on() -> None:
    results = checks(audit(Silent, tasks=4, searches=False))
    assert results["semantic.oracle_max"].status == "fail"  # RFC 008: no oracle fails
    assert results["statistical.variance_bound"].status == "skip"
    assert results["statistical.adversarial_floor"].status == "pass"


def test_an_attacker_that_wins_by_solving_is_no_finding() -> None:
    def solves(scene: Scene) -> Iterator[str]:
        yield str(sum(map(int, scene.opening.split(" + "))))

    solver = Attacker("solver", AttackKind.CHEAT, solves, "adds")
    audited = audit(Sum, tasks=8, searches=False, attackers=[solver])
    (tally,) = audited.tallies
    assert (tally.mean, tally.gain.value, audited.winners) == (1.0, 0.0, [])


def test_a_verifier_without_golds_is_audited_by_its_right_responses() -> None:
    class SaysPlease:
        def score(self, sample: Sample) -> Verdict:
            said = str(sample.response)
            return Verdict(status=Status.OK, reward=float("please" in said or len(said) > 500))

    cases = [Sample(prompt=f"Ask for {n} loaves.", response=f"{n}, please") for n in range(8)]
    audited = audit(cases_env("polite", SaysPlease(), cases), searches=False)
    assert audited.oracle == 1.0
    assert {"padding", "long talk"} <= {tally.attacker.name for tally in audited.winners}


class LooksCost(Sum):
    """A sum whose number of looks, each of which costs a tenth, differs by task."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.looks = self.task.seed % 4
        return super().reset(seed=seed, options=options)

    def step(self, action: str) -> Any:
        if self.looks and action == "look":
            self.looks -= 1
            return "Look again." if self.looks else "Now.", -0.1, False, False, {}
        paid = self.pay(action) if not self.looks else 0.0
        return "", paid, True, False, {}

    def demonstrate(self) -> str | Message | None:
        return "look" if self.looks else super().demonstrate()


def test_an_expert_that_nobody_beats_is_the_best_where_tasks_cost_differently() -> None:
    audited = audit(LooksCost, tasks=8, searches=False)
    assert min(audited.expert) < 0.8 < max(audited.expert)
    assert checks(audited)["semantic.oracle_max"].status == "pass"


class Doubled(TextEnv):
    """Sound: a number is asked for, and answered twice as large; each action is an object."""

    system_prompt = 'Write {"do": "look"}, then {"do": "answer", "value": ...}: twice the number.'
    max_turns = 4

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.number, self.has_looked = self.rng.randrange(1000, 90000), False
        return f"Case {self.rng.randrange(1000, 90000)}.", {}

    def step(self, action: str) -> Step:
        if action == '{"do": "look"}':
            self.has_looked = True
            return f"It is {self.number}.", 0.0, False, False, {}
        return "", float(action == self._answer()), True, False, {}

    def demonstrate(self) -> str | Message | None:
        return self._answer() if self.has_looked else '{"do": "look"}'

    def _answer(self) -> str:
        return f'{{"do": "answer", "value": {2 * self.number}}}'


def test_who_writes_the_right_actions_did_the_task_and_a_model_is_told_of_no_tools() -> None:
    told = dict[bool, set[int]]()

    def solve(scene: Scene, *, speaks: bool) -> Iterator[str]:
        told.setdefault(speaks, set()).add(len(scene.briefing.tools))
        yield '{"do": "look"}'
        number = int(scene.shown.removeprefix("It is ").rstrip("."))
        yield f'{{"do": "answer", "value": {2 * number}}}'

    solvers = [
        Attacker(f"speaks {own}", AttackKind.CHEAT, partial(solve, speaks=own), "", speaks=own)
        for own in (True, False)
    ]
    audited = audit(Doubled, tasks=8, attackers=solvers, searches=False)
    assert [tally.mean for tally in audited.tallies] == [1.0, 1.0]
    assert [tally.gain.value for tally in audited.tallies] == [0.0, 0.0]
    assert told == {True: {0}, False: {2}}
