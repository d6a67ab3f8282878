"""The contract suite must fail where the contract is broken: each fault is injected for real."""

import asyncio
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import ludus
from ludus.contract import RuleOutcome
from ludus.envs import (
    Briefing,
    EnvSession,
    GeneratedTasks,
    ListedTasks,
    Task,
    TaskSet,
    TextEnv,
    tool,
)
from ludus.envs.checks import check_env, examine_env, leaks
from ludus.envs.checks.rules import forms_of
from ludus.envs.protocol import Reset, Step
from ludus.errors import CheckFailed, ConfigError, UnknownEnv
from ludus.messages import Message


class Double(TextEnv):
    """Sound in every respect."""

    system_prompt = "Double the number."
    max_turns = 2

    def __init__(self) -> None:
        self.number = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.number = self.rng.randrange(100, 10_000)
        return str(self.number), {}

    def step(self, action: str) -> Step:
        return "", float(action.strip() == self.gold()), True, False, {}

    def gold(self) -> str:
        return str(2 * self.number)

    def demonstrate(self) -> str | Message | None:
        return self.gold()


def test_a_sound_env_passes_every_rule() -> None:
    report = check_env(Double, max_return=1.0)
    assert {f.outcome for f in report.findings} == {RuleOutcome.PASSED}
    assert len(report.findings) == 14


class LeaksInObservation(Double):
    def reset(self, **arguments: Any) -> Reset:
        observation, info = super().reset(**arguments)  # type: ignore[misc]
        return f"{observation} (the answer is {self.gold()})", info


class LeaksInInfo(Double):
    def reset(self, **arguments: Any) -> Reset:
        observation, _ = super().reset(**arguments)  # type: ignore[misc]
        return observation, {"debug": {"target": int(self.gold())}}


class LeaksInBriefing(Double):
    def reset(self, **arguments: Any) -> Reset:
        observation, _ = super().reset(**arguments)  # type: ignore[misc]
        return observation, {"briefing": Briefing(system_prompt=f"Say {self.gold()}.", max_turns=2)}


class Misspelt(Double):
    max_turn = 3


class KeepsState(Double):
    played = 0

    def reset(self, **arguments: Any) -> Reset:
        self.played += 1
        observation, info = super().reset(**arguments)  # type: ignore[misc]
        return f"{observation} {'again' * self.played}", info


class KeepsTries(Double):
    tries: ClassVar[Counter[str]] = Counter()

    def reset(self, **arguments: Any) -> Reset:
        observation, info = super().reset(**arguments)  # type: ignore[misc]
        return f"{observation} {'hint' * self.tries[self.task.id]}", info

    def step(self, action: str) -> Step:
        result = super().step(action)
        self.tries[self.task.id] += result[1] == 0
        return result


class OwnChance(Double):
    def reset(self, **arguments: Any) -> Reset:
        self.number = random.SystemRandom().randrange(10**9)
        return str(self.number), {}


class IgnoresSplit(Double):
    def reset(self, **arguments: Any) -> Reset:
        index = int(self.task.id.partition("/")[2])
        self.number = random.Random(index).randrange(10**6)
        return str(self.number), {}


class JunkPays(Double):
    def step(self, action: str) -> Step:
        return "", 1.0, True, False, {}


class WeakExpert(Double):
    def demonstrate(self) -> str:
        return "junk"


class ExpertStops(Double):
    said = 0

    def reset(self, **arguments: Any) -> Reset:
        self.said = 0
        return super().reset(**arguments)  # type: ignore[misc, no-any-return]

    def demonstrate(self) -> str | None:
        self.said += 1
        return "hm" if self.said == 1 else None

    def step(self, action: str) -> Step:
        return "?", 0.0, False, False, {}

    max_turns = 50


class Breaks(Double):
    def step(self, action: str) -> Step:
        return "", float(int(action) == 2 * self.number), True, False, {}


class UnfairToJunk(Double):
    def step(self, action: str) -> Step:
        if not action.strip().isdigit():
            return "", ludus.Verdict.error("not a number"), True, False, {}
        return super().step(action)  # type: ignore[return-value]


class SecretInfo(Double):
    def step(self, action: str) -> Step:
        return "", float(action == self.gold()), True, False, {"object": object()}


class SilentTool(Double):
    @tool
    def help_me(self) -> str:
        return "no"


class NothingShown(Double):
    system_prompt = ""

    def reset(self, **arguments: Any) -> Reset:
        super().reset(**arguments)  # type: ignore[unused-coroutine]
        return " ", {}


class WrongReward(Double):
    def step(self, action: str) -> Step:
        return "", "1", True, False, {}  # type: ignore[return-value]


class ClosesOnce(Double):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise ValueError("closed already")
        self.closed = True


class ChancyTasks(Double):
    def tasks(self, split: str) -> TaskSet:
        made = [Task(id=f"{split}/{random.SystemRandom().random()}", split=split) for _ in range(5)]
        return ListedTasks(split, made)


class SharedTasks(Double):
    def tasks(self, split: str) -> TaskSet:
        return ListedTasks(split, [Task(id=f"task/{i}", split=split) for i in range(5)])


class FindsAnything(Double):
    def tasks(self, split: str) -> TaskSet:
        class Loose(GeneratedTasks):
            def find(self, task_id: str) -> Task:
                try:
                    return super().find(task_id)
                except LookupError:
                    return self.at(0)

        return Loose(split)


class NotANumber(Double):
    def step(self, action: str) -> Step:
        return "", float("nan"), True, False, {}


class SaysNumbers(Double):
    def demonstrate(self) -> Any:
        return 5


class CountsItsSteps(Double):
    steps = 0

    def step(self, action: str) -> Step:
        self.steps += 1
        return "", float(action == self.gold()), True, False, {"steps": self.steps}


class TasksInAList(Double):
    def tasks(self, split: str) -> Any:
        return ["a"]


@pytest.mark.parametrize(
    ("broken", "rule", "said"),
    [
        (LeaksInObservation, "gold", "the first observation of nearly all"),
        (LeaksInInfo, "gold", r"info\['debug'\]\['target'\]"),
        (LeaksInBriefing, "gold", "the system prompt"),
        (KeepsState, "replay", "differs at reset"),
        (KeepsTries, "replay", "differs at reset"),
        (OwnChance, "replay", "self.rng"),
        (IgnoresSplit, "splits", "show the same problems"),
        (JunkPays, "expert", "junk earns as much"),
        (WeakExpert, "expert", "junk earns as much"),
        (ExpertStops, "expert", "before the end"),
        (Breaks, "hostile text", "ValueError"),
        (UnfairToJunk, "hostile text", "give it a low reward"),
        (NotANumber, "types", "the reward must be finite, got nan; .* repair that"),
        (SaysNumbers, "expert", r"demonstrate\(\) must return .* got int: 5"),
        (CountsItsSteps, "replay", r"differs at step 1: info\['steps'\] = \d+ against .* = 3;"),
        (TasksInAList, "tasks", r"tasks\('train'\) must return a TaskSet.*got \['a'\]"),
        (SecretInfo, "json", r"info\['object'\] is a object"),
        (Misspelt, "briefing", "nothing reads 'max_turn'; did you mean 'max_turns'"),
        (SilentTool, "briefing", "'help_me' has no description"),
        (NothingShown, "types", "shows nothing"),
        (WrongReward, "types", "must be a number or a Verdict"),
        (ClosesOnce, "close", "closed already"),
        (ChancyTasks, "tasks", "must not depend on chance"),
        (SharedTasks, "splits", "share tasks, such as 'task/0'"),
        (FindsAnything, "tasks", "raise UnknownTask"),
    ],
)
def test_a_broken_env_fails_its_rule_and_is_told_how(
    broken: type[TextEnv], rule: str, said: str
) -> None:
    report = examine_env(broken)
    assert rule in {finding.rule for finding in report.failures}
    with pytest.raises(CheckFailed, match=said):
        report.raise_if_failed()


def test_one_fault_is_told_once() -> None:
    report = examine_env(NotANumber)
    told = {finding.rule: finding.detail for finding in report.brief()}
    assert told["json"] == told["expert"] == "the same as 'types'"
    assert str(report).count("the action '") == 2  # of the expert, and of the hostile text
    full = {finding.rule: finding.detail for finding in report.findings}
    assert full["json"] == full["types"] == told["types"]


class Hangs(Double):
    def step(self, action: str) -> Step:
        while True:
            try:
                time.sleep(60)
            except Exception:  # as some retry loops do
                continue


class HangsOnALoop(Double):
    async def step(self, action: str) -> Step:  # type: ignore[override]
        await asyncio.sleep(60)
        return "", 0.0, True, False, {}


@pytest.mark.parametrize("hanging", [Hangs, HangsOnALoop])
def test_a_step_that_does_not_come_back_is_given_up_and_named(hanging: type[TextEnv]) -> None:
    handler = signal.getsignal(signal.SIGALRM)
    report = examine_env(hanging, step_timeout_s=0.2)
    told = {finding.rule: finding.detail for finding in report.brief()}
    assert re.match(r"step\('\d+'\) did not come back within 0.2 s \(\w+\.py:\d+\)", told["types"])
    assert told["close"] == "the same as 'types'"  # and is not waited for again
    assert signal.getsignal(signal.SIGALRM) is handler


def test_an_env_whose_methods_take_other_arguments_is_told_which() -> None:
    class Bare(Double):
        def reset(self) -> Reset:  # type: ignore[override]
            return "x", {}

    with pytest.raises(CheckFailed, match=r"Bare.reset must take .*seed=None.*'seed'"):
        check_env(Bare)


def test_without_an_expert_no_highest_return_can_be_shown() -> None:
    class Mute(Double):
        def demonstrate(self) -> None:
            return None

    outcomes = {f.rule: f.outcome for f in examine_env(Mute).findings}
    assert outcomes["expert"] is RuleOutcome.SKIPPED
    with pytest.raises(CheckFailed, match="nothing shows that 1 can be reached"):
        check_env(Mute, max_return=1.0)


def test_what_was_measured_may_differ_from_run_to_run() -> None:
    class Timed(Double):
        def step(self, action: str) -> Step:
            took = {"seconds": time.perf_counter()}
            return "", ludus.Verdict.of(float(action == self.gold()), metrics=took), True, False, {}

    assert check_env(Timed, max_return=1.0).ok


def test_tasks_that_are_all_the_same_are_remarked_on() -> None:
    class Ignorant(Double):
        def reset(self, **arguments: Any) -> Reset:
            self.number = random.Random(0).randrange(1000)
            return str(self.number), {}

    def said(env: type[TextEnv]) -> str:
        (gold,) = [f.detail for f in check_env(env).findings if f.rule == "gold"]
        return gold

    assert "is self.rng used?" in said(Ignorant)
    assert said(Double) == "12 tasks"


def test_an_expert_below_the_maximum_fails() -> None:
    with pytest.raises(CheckFailed, match="the expert earns 1, the maximum is 2"):
        check_env(Double, max_return=2.0)


def test_an_env_that_says_it_is_not_deterministic_need_not_replay() -> None:
    class Judged(OwnChance):
        deterministic = False

    outcomes = {f.rule: f.outcome for f in examine_env(Judged).findings}
    assert outcomes["replay"] is RuleOutcome.SKIPPED
    assert RuleOutcome.FAILED not in outcomes.values()


def test_an_object_and_a_made_env_can_be_checked_too() -> None:
    assert check_env(Double()).ok
    assert check_env(ludus.make(Double)).ok


def test_unknown_ids_and_other_things_are_no_findings() -> None:
    with pytest.raises(UnknownEnv):
        check_env("ludus/arithmetik-v0")
    with pytest.raises(ConfigError, match="cannot check 3"):
        check_env(3)  # type: ignore[arg-type]


# --- leaks -----------------------------------------------------------------------------------

rng = random.Random(0)


def shown(line: Callable[[int], str], golds: list[Any]) -> list[str]:
    return leaks([{"place": line(i)} for i in range(len(golds))], golds)


def test_short_golds_that_appear_by_chance_are_no_leak() -> None:
    golds = [str(n) for n in (7, 3, 1, 2, 9, 4, 8, 6)]
    assert shown(lambda i: f"{i} plus {golds[i] if i < 4 else 0} is what?", golds) == []


def test_choices_that_are_always_listed_are_no_leak() -> None:
    golds = list("ABCDABCD")
    assert shown(lambda _: "A) one B) two C) three D) four", golds) == []


def test_a_gold_is_found_as_a_whole_word_only() -> None:
    golds = [str(n) for n in range(10, 20)]
    assert shown(lambda i: f"x{golds[i]}y 1.{golds[i]} {golds[i]},5 9{golds[i]}", golds) == []
    assert shown(lambda i: f"it is {golds[i]}.", golds) == ["place"]


def test_letter_case_spaces_and_other_forms_do_not_hide_a_leak() -> None:
    assert shown(lambda i: f"THE  CAT {i}", [f"the cat {i}" for i in range(8)]) == ["place"]
    assert shown(lambda i: f"so {i + 100}!", [float(i + 100) for i in range(8)]) == ["place"]
    assert shown(lambda i: f"so {i + 100}!", [["none", str(i + 100)] for i in range(8)]) == [
        "place"
    ]


def test_a_leak_in_one_task_of_several_is_chance_and_in_all_but_one_of_twelve_is_not() -> None:
    golds = [str(n) for n in range(100, 112)]
    assert shown(lambda i: golds[i] if i == 0 else "", golds) == []
    assert shown(lambda i: golds[i] if i else "", golds) == ["place"]


def test_the_only_gold_there_is_leaks_if_it_is_always_shown() -> None:
    assert shown(lambda _: "the password is xyzzy", ["xyzzy"] * 3) == ["place"]


@pytest.mark.parametrize(
    ("gold", "forms"),
    [(3, {"3"}), (3.0, {"3", "3.0"}), (" a ", {"a"}), ("", set()), (["1", "2"], {"1", "2"}),
     ({"a": 1}, {'{"a":1}'}), (float("inf"), {"inf"}), (float("nan"), {"nan"})],
)  # fmt: skip
def test_the_forms_a_gold_is_shown_in(gold: object, forms: set[str]) -> None:
    assert forms_of(gold) == forms


class Contains(Double):
    """Pays for the answer wherever it stands."""

    def step(self, action: str) -> Step:
        return "", float(self.gold() in action), True, False, {}


@pytest.mark.parametrize(("env", "words"), [(Double, "without it 1"), (Contains, "never ends")])
def test_an_environment_that_hears_thoughts_unasked_fails_the_rule(
    env: type[TextEnv], words: str
) -> None:
    gym = ludus.make(env)
    gym.session = EnvSession(env(), "me/double-v0", thoughts="none")  # thoughts stay in the text
    (found,) = [f for f in examine_env(gym).findings if f.rule == "thoughts"]
    assert found.outcome is RuleOutcome.FAILED
    assert words in found.detail
