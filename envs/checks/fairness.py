"""Rules about rewards: the gold is hidden, the expert is best, and no action raises an error."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ludus.contract import NotApplicable
from ludus.errors import CheckFailed
from ludus.messages import Message, Observation, ToolCall, as_messages, assistant

from ..protocol import Briefing, Info
from .leaks import leaks
from .playing import always, expert, play
from .subject import EnvUnderCheck

JUNK = ("", "junk", "0", "I do not know.")
HOSTILE = (
    "",
    " \n\t ",
    "\x00\x1b[31m\u202e",
    "%s {0} {x!r} ${y} \\",
    "]]>'\";-- <tool_call>{</tool_call>",
    "9^{9^{9^9}}",
    "(" * 5_000,
    "7" * 20_000,
    "数" * 20_000,
)
"""Texts that policies have been seen to say, or might: each has to be answered, never to raise."""


def hides_its_gold(subject: EnvUnderCheck) -> str:
    """The first observation, the briefing and `info` do not show the answer."""
    env, places_shown, golds = subject.env, list[Mapping[str, object]](), list[object]()
    for task in subject.tasks():
        observation, info = subject.gym.reset(seed=0, options={"task": task.id})
        gold = env.gold()
        if gold is None or gold == "":
            continue
        places_shown.append(places(observation, info))
        golds.append(gold)
    if not golds:
        raise NotApplicable("gold() gives none")
    leaking = leaks(places_shown, golds)
    if leaking:
        raise CheckFailed(
            f"the gold stands in {' and in '.join(leaking)} of nearly all of {len(golds)} tasks; "
            "take it out, or return None from gold() if showing it is the point"
        )
    problems = [
        (places_of_task["the first observation"], gold)
        for places_of_task, gold in zip(places_shown, golds, strict=True)
    ]
    if len(problems) > 2 and all(problem == problems[0] for problem in problems):
        return f"{len(golds)} tasks, all with one question and one gold: is self.rng used?"
    return f"{len(golds)} tasks"


def places(observation: Observation, info: Info) -> dict[str, object]:
    """Return what is shown before the first action, as a mapping from place to content."""
    observations: dict[str, object] = {
        "the first observation": "\n".join(m.text for m in as_messages(observation))
    }
    for key, value in info.items():
        if isinstance(value, Briefing):
            observations["the system prompt"] = f"{value.system_prompt}\n{value.answer_format}"
            observations["the tools"] = value.tools
        else:
            observations |= _values(f"info[{key!r}]", value)
    return observations


def _values(name: str, value: object) -> dict[str, object]:
    if isinstance(value, dict):
        field_values: dict[str, object] = {}
        for key, inner in value.items():
            field_values |= _values(f"{name}[{key!r}]", inner)
        return field_values
    return {name: value}


def rewards_its_expert(subject: EnvUnderCheck) -> str:
    """The expert earns more than junk, on no task less, and the maximum where that is known."""
    env, earned, wasted = subject.env, list[float](), list[float]()
    for task in subject.tasks(6):
        episode = play(subject.gym, task.id, expert(env))
        if not episode.actions and subject.max_return is None:
            raise NotApplicable("demonstrate() gives no expert")
        if not episode.actions:
            raise CheckFailed(
                f"demonstrate() gives no expert, so nothing shows that {subject.max_return:g} can "
                "be reached; write one, or leave the highest return out"
            )
        if not episode.ended:
            raise CheckFailed(
                f"on {task.id!r} the expert stops after {len(episode.actions)} actions, "
                "before the end"
            )
        if subject.max_return is not None and abs(episode.total - subject.max_return) > 1e-9:
            raise CheckFailed(
                f"on {task.id!r} the expert earns {episode.total:g}, the maximum is "
                f"{subject.max_return:g}"
            )
        best = max(
            play(subject.gym, task.id, always(junk)).total
            for junk in _bad_answers(subject, task.id)
        )
        if best > episode.total:
            raise CheckFailed(f"on {task.id!r} junk earns {best:g}, the expert {episode.total:g}")
        earned.append(episode.total)
        wasted.append(best)
    if sum(earned) <= sum(wasted):
        raise CheckFailed(f"junk earns as much as the expert, {sum(earned) / len(earned):g}")
    return f"{_mean(earned):g} for the expert, {_mean(wasted):g} for junk, {len(earned)} tasks"


def _bad_answers(subject: EnvUnderCheck, task_id: str) -> list[str]:
    """Return the junk answers that do not happen to be the right answer."""
    subject.gym.reset(seed=0, options={"task": task_id})
    gold = subject.env.gold()
    text = str(gold) if isinstance(gold, (str, int, float, Fraction)) else ""
    return [junk for junk in JUNK if junk != text]


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def scores_hostile_text(subject: EnvUnderCheck) -> str:
    """Whatever a policy says or calls is answered and never raises."""
    task = subject.tasks(1)[0]
    # Calls of unknown tools, with wrong arguments, and with a parse error.
    _, info = subject.gym.reset(seed=0)
    names = [tool.name for tool in info["briefing"].tools]
    calls = [ToolCall(name="no_such_tool", id="call_0"), ToolCall(name="", error="not JSON")]
    calls += [ToolCall(name=name, arguments={"no_such_argument": [None]}) for name in names]
    calls += [ToolCall(name=name) for name in names]
    actions: list[str | Message] = [*HOSTILE, *[assistant("", [call]) for call in calls]]
    for action in actions:
        try:
            play(subject.gym, task.id, always(action))
        except (CheckFailed, NotApplicable):
            raise
        except Exception as error:
            raise CheckFailed(
                f"the action {action!r:.60} raises {type(error).__name__}: {error}; what the "
                "policy says is its own fault: answer it, with a low reward"
            ) from error
    return f"{len(actions)} actions"
