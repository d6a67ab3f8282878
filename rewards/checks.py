"""The contract of verifiers, as checks that anyone can run on their own verifier.

from ludus.rewards.checks import check_verifier

def test_exact_keeps_the_contract() -> None:
    check_verifier("me/exact", cases=[Sample(response="42", gold="42")])
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ludus.background import run_on_loop
from ludus.contract import Finding, NotApplicable, Report, Rule, RuleOutcome, examine
from ludus.errors import CheckFailed, InvalidScore
from ludus.verdict import Verdict

from .protocol import FunctionVerifier, GroupVerifier, Sample, ScoreFunction, Verifier
from .registry import make_verifier
from .score import score_sample

__all__ = ["Finding", "Report", "RuleOutcome", "check_verifier", "examine_verifier"]

TIMEOUT_S = 60.0
HOSTILE = (
    "",
    " \n\t ",
    "\x00\x1b[31m\u202e",
    "%s {0} {x!r} ${y} \\",
    "]]>'\";-- <tool_call>{</tool_call>",
    "9^{9^{9^9}}",
    "\\boxed{9^{9^{9^9}}}",
    "\\boxed{" * 500,
    "(" * 5_000 + ")" * 5_000,
    "7" * 20_000,
    "数" * 20_000,
    "__import__('os').system('false')",
)
"""Texts that a policy may write. Each has to get a low reward, and may never raise an exception."""
BLAND_GOLD = "42"
"""The gold of samples with hostile text, where no case is given."""


@dataclass
class VerifierUnderCheck:
    """A verifier whose contract is checked."""

    verifier: Verifier
    cases: Sequence[Sample]
    """Samples with right answers."""

    def score(self, sample: Sample) -> Verdict:
        """Return the verdict on `sample`.

        Raises:
            CheckFailed: the verifier raised an exception, or returned no verdict.
        """
        try:
            answer: object = score_sample(self.verifier, sample, timeout_s=TIMEOUT_S)
        except InvalidScore as error:
            raise CheckFailed(f"{shown(sample)}: {error}") from error
        except Exception as error:
            raise CheckFailed(
                f"{shown(sample)} raises {type(error).__name__}: {error}; what a policy wrote "
                "earns a low reward, an unusable gold is Verdict.invalid(...)"
            ) from error
        return verdict_of(answer, sample)


def verdict_of(answer: object, sample: Sample) -> Verdict:
    """Return what a verifier returned, if that is a verdict.

    Raises:
        CheckFailed: the verifier returned something else.
    """
    if not isinstance(answer, Verdict):
        raise CheckFailed(
            f"{shown(sample)} gives {type(answer).__name__} {answer!r:.60}; "
            "score() returns a Verdict"
        )
    return answer


def shown(sample: Sample) -> str:
    """Return a sample as messages show it."""
    return f"response {sample.text!r:.60} with gold {sample.gold!r:.40}"


def check_verifier(
    verifier: str | Verifier | type[Verifier] | ScoreFunction, *, cases: Sequence[Sample] = ()
) -> Report:
    """Hold a verifier to the contract.

    Args:
        verifier: a name, an object with `score`, a class that is made without arguments, or a score
            function.
        cases: samples whose responses are right: each must earn the reward 1.

    Returns:
        What each rule found.

    Raises:
        CheckFailed: rules are broken; the message names each, and what to do.
    """
    return examine_verifier(verifier, cases=cases).raise_if_failed()


def examine_verifier(
    verifier: str | Verifier | type[Verifier] | ScoreFunction,
    *,
    cases: Sequence[Sample] = (),
    name: str = "",
) -> Report:
    """Apply the rules of `check_verifier` and return a report; `name` is the subject's name in the
    report.
    """
    if isinstance(verifier, str):
        return examine(name or verifier, VerifierUnderCheck(make_verifier(verifier), cases), RULES)
    verifier_name = name or getattr(verifier, "__name__", type(verifier).__name__)
    instance = verifier() if isinstance(verifier, type) else verifier
    checked_verifier = instance if isinstance(instance, Verifier) else FunctionVerifier(instance)
    return examine(verifier_name, VerifierUnderCheck(checked_verifier, cases), RULES)


def rewards_right_answers(subject: VerifierUnderCheck) -> str:
    """Each case of a right answer earns 1."""
    if not subject.cases:
        raise NotApplicable("no cases given (--cases FILE: right answers)")
    for case in subject.cases:
        verdict = subject.score(case)
        if verdict.reward != 1.0:
            raise CheckFailed(f"{shown(case)} must earn 1, got {_said(verdict)}")
    return f"{len(subject.cases)} right answers earn 1"


def _said(verdict: Verdict) -> str:
    worth = verdict.status.value if verdict.reward is None else f"reward {verdict.reward:g}"
    return f"{worth} ({verdict.detail})" if verdict.detail else worth


def tells_right_from_wrong(subject: VerifierUnderCheck) -> str:
    """An empty answer earns less than a right answer."""
    if not subject.cases:
        raise NotApplicable("no cases given (--cases FILE: right answers)")
    # A right answer that earns nothing fails the rule before; an empty one cannot earn less.
    paid = [case for case in subject.cases if subject.score(case).reward]
    if not paid:
        raise NotApplicable("no right answer earns anything")
    for case in paid:
        empty = msgspec.structs.replace(case, response="")
        if subject.score(empty).reward == subject.score(case).reward:
            raise CheckFailed(f"with gold {case.gold!r:.40} an empty response is as good as right")
    return "an empty answer earns less"


def judges_hostile_text(subject: VerifierUnderCheck) -> str:
    """Hostile text gets a verdict, which is ok if the gold is usable."""
    samples = subject.cases or [Sample(response="", gold=BLAND_GOLD)]
    usable = bool(subject.cases)
    for text in HOSTILE:
        sample = msgspec.structs.replace(samples[0], response=text)
        verdict = subject.score(sample)
        if usable and not verdict.ok:
            raise CheckFailed(
                f"{shown(sample)} is {verdict.status}: {verdict.detail}; with a usable gold the "
                "fault is the policy's: ok, with reward 0"
            )
        if verdict.reward is not None and usable and verdict.reward >= 1.0:
            raise CheckFailed(f"{shown(sample)} earns {verdict.reward:g}")
    return f"{len(HOSTILE)} responses"


def survives_a_missing_gold(subject: VerifierUnderCheck) -> str:
    """A sample without a gold gets a verdict: `invalid`, or a reward that needs no gold."""
    verdict = subject.score(Sample(response="42"))
    return f"{verdict.status}: {verdict.detail}" if not verdict.ok else "needs no gold"


def gives_the_same_again(subject: VerifierUnderCheck) -> str:
    """The same sample gets the same reward, alone or after others."""
    if not getattr(subject.verifier, "deterministic", True):
        raise NotApplicable("the verifier says deterministic = False")
    samples = [*subject.cases[:8], *(Sample(response=t, gold=BLAND_GOLD) for t in ("42", "41"))]
    before = [subject.score(sample) for sample in samples]
    after = [subject.score(sample) for sample in reversed(samples)][::-1]
    for sample, first, second in zip(samples, before, after, strict=True):
        if (first.status, first.reward) != (second.status, second.reward):
            raise CheckFailed(
                f"{shown(sample)} was {first.status} {first.reward}, then {second.status} "
                f"{second.reward}; say deterministic = False if a judge is inside"
            )
    return f"{len(samples)} samples twice"


def travels(subject: VerifierUnderCheck) -> str:
    """A verdict can be sent as JSON."""
    sample = subject.cases[0] if subject.cases else Sample(response="42", gold=BLAND_GOLD)
    verdict = subject.score(sample)
    try:
        decoded = msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict)
    except (TypeError, ValueError, OverflowError) as error:
        raise CheckFailed(f"{shown(sample)}: {verdict} cannot be sent as JSON: {error}") from None
    if decoded != verdict:
        raise CheckFailed(f"{shown(sample)}: {verdict} comes back as {decoded}")
    return "as JSON and back"


def scores_groups(subject: VerifierUnderCheck) -> str:
    """`score_group` returns a verdict for each answer, in order."""
    verifier = subject.verifier
    if not isinstance(verifier, GroupVerifier):
        raise NotApplicable("no score_group")
    case = subject.cases[0] if subject.cases else Sample(response="42", gold=BLAND_GOLD)
    for count in (1, 2, 5):
        group = [case, *[msgspec.structs.replace(case, response=f"{i}?") for i in range(1, count)]]
        verdicts = _group(verifier, group)
        if len(verdicts) != count:
            raise CheckFailed(f"score_group of {count} samples gave {len(verdicts)} verdicts")
        for sample, verdict in zip(group, verdicts, strict=True):
            verdict_of(verdict, sample)
    return "groups of 1, 2 and 5"


def _group(verifier: GroupVerifier, samples: Sequence[Sample]) -> Sequence[object]:
    group_scoring = verifier.score_group(samples)
    if not inspect.isawaitable(group_scoring):
        return list(group_scoring)

    async def awaited() -> Sequence[Verdict]:
        return await group_scoring

    return list(run_on_loop(awaited(), timeout_s=TIMEOUT_S))


RULES: list[Rule[VerifierUnderCheck]] = [
    ("right answers", rewards_right_answers),
    ("wrong answers", tells_right_from_wrong),
    ("hostile text", judges_hostile_text),
    ("no gold", survives_a_missing_gold),
    ("deterministic", gives_the_same_again),
    ("json", travels),
    ("groups", scores_groups),
]
