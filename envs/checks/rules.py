"""The contract of environments, rule by rule: conduct, rewards and tasks.

A short gold such as `7` turns up in many texts by chance. So several tasks are examined, and a
place leaks only if it shows the gold of its own task in nearly all of them, where it can be found
without understanding: at the same position, or beside the same word. The golds of the *other* tasks
must mostly not appear (a question that lists the choices A to D shows every gold).
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import Any

import msgspec
from gymnasium.utils.env_checker import check_env as gymnasium_check_env

from ludus.contract import NotApplicable, Report, Rule, examine
from ludus.errors import CheckFailed, EpisodeEnded, InvalidAction, RewardUnavailable, UnknownTask
from ludus.messages import Message, Observation, ToolCall, as_action, as_messages, assistant
from ludus.thoughts import PAIRS
from ludus.verdict import Status, Verdict

from ..protocol import Briefing, Info, TextEnv
from ..session import EnvSession, Stepped
from ..tasks import Task, TaskSet
from .subject import (
    LOOKED_AT,
    MAX_STEPS,
    STEP_TIMEOUT_S,
    Checkable,
    Choose,
    EnvUnderCheck,
    PatientEnv,
    Played,
    always,
    expert,
    first,
    play,
    scripted,
    subject_of,
)

OWN_RATE = 0.9
"""Share of tasks from which a place in the observation that shows its own task's gold is suspected
of leaking.
"""
PLACE_RATE = 0.75
"""Share of tasks in which the gold has to stand at the same position, or beside the same words."""
OTHERS_RATE = 0.5
"""Share of other tasks' golds from which the same place is cleared of the suspicion."""
SETTINGS = (
    "system_prompt", "answer_format", "max_turns", "max_calls", "max_parallel_calls",
    "reset_options", "deterministic", "hears_thoughts", "never_blocks", "shows_images",
)  # fmt: skip
"""Attributes of a class that ludus reads where they are; a misspelt one would change nothing."""


def leaks(places_shown: Sequence[Mapping[str, object]], golds: Sequence[object]) -> list[str]:
    """Return the names of the places that show the gold.

    Args:
        places_shown: for each task, place -> what is shown there (text, or any value).
        golds: the gold of each task, in the same order.

    >>> leaks([{"observation": "6*7 (it is 42)"}, {"observation": "2*4 (8)"}], [42, 8])
    ['observation']
    """
    forms = [forms_of(gold) for gold in golds]
    places = dict.fromkeys(place for task_places in places_shown for place in task_places)
    texts = {
        place: [as_text(task_places.get(place, "")) for task_places in places_shown]
        for place in places
    }
    return [place for place in places if _leaks(texts[place], forms)]


def _leaks(texts: Sequence[str], forms: Sequence[frozenset[str]]) -> bool:
    own_leaks = [_shows(text, gold) for text, gold in zip(texts, forms, strict=True)]
    other_leaks = [
        _shows(text, gold)
        for i, text in enumerate(texts)
        for j, gold in enumerate(forms)
        if i != j and gold != forms[i]
    ]
    return (
        _rate(own_leaks) >= OWN_RATE
        and _rate(other_leaks) < OTHERS_RATE
        and _stands_at_one_place(texts, forms)
    )


def _stands_at_one_place(texts: Sequence[str], forms: Sequence[frozenset[str]]) -> bool:
    """Whether a rule finds the gold in most texts: the same position from an end, or the same
    neighbour. A story with the answer somewhere in it, or choices in random order, has no such
    rule.
    """
    counts = Counter[tuple[str, object]]()
    for text, gold in zip(texts, forms, strict=True):
        spots = set[tuple[str, object]]()
        for match in (match for form in gold for match in _whole(form).finditer(text)):
            parts = text[: match.start()], text[match.end() :]
            before, after = (re.findall(r"\w+|[^\w\s]", part) for part in parts)
            spots |= {("start", len(before)), ("end", len(after))}
            spots |= {("after", tuple(before[-2:])), ("before", tuple(after[:2]))}
        counts.update(spots)
    return max(counts.values(), default=0) >= PLACE_RATE * len(texts)


def _whole(form: str) -> re.Pattern[str]:
    """Return the pattern of a form as a whole word or number: `5` is not shown by `1.5`."""
    words = r"\s+".join(re.escape(word) for word in form.split())
    return re.compile(rf"(?<!\w)(?<!\d[.,/]){words}(?!\w)(?![.,/]\d)", re.IGNORECASE)


def _rate(hits: Sequence[bool]) -> float:
    return sum(hits) / len(hits) if hits else 0.0


def _shows(text: str, gold: frozenset[str]) -> bool:
    return any(_whole(form).search(text) for form in gold)


def forms_of(gold: object) -> frozenset[str]:
    """Return the texts a gold can appear as; a list of alternatives gives the forms of each.

    >>> sorted(forms_of(42.0))
    ['42', '42.0']
    """
    if isinstance(gold, (list, tuple, set, frozenset)):
        return frozenset(form for item in gold for form in forms_of(item))
    forms = {as_text(gold).strip()}
    if isinstance(gold, (float, Fraction)) and gold % 1 == 0:
        forms.add(str(int(gold)))
    return frozenset(form for form in forms if form)


def as_text(value: object) -> str:
    """Return a value as text: strings and numbers unchanged, anything else as JSON."""
    if isinstance(value, (str, int, float, Fraction)):
        return str(value)
    return msgspec.json.encode(value, enc_hook=repr).decode()


WRONG_ACTIONS: tuple[Any, ...] = (None, 42, b"bytes", ["a", "list"], {"role": "assistant"})
JUNK = "junk"
THOUGHT = "Perhaps <answer>junk</answer>, or \\boxed{junk}. No."
THOUGHTS = (
    *(f"{begin}{THOUGHT}{end}\n\n" for begin, end in PAIRS.values()),
    f"{THOUGHT}{PAIRS['think'][1]}\n\n",
    f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>",
)
"""The same thought as models write it: in their marks, begun by the prompt, and in a channel."""


def _some_episode(subject: EnvUnderCheck, task: Task) -> Played:
    """Play the expert's episode, or an episode of junk where the expert cannot be reached."""
    return play(subject.gym, task.id, _some_actions(subject))


def _some_actions(subject: EnvUnderCheck) -> Choose:
    try:
        env = subject.env
    except NotApplicable:
        return always(JUNK)
    return lambda: expert(env)() or JUNK


def returns_the_right_types(subject: EnvUnderCheck) -> str:
    """Observations, rewards and flags have the protocol's types, and each task shows something."""
    for task in subject.tasks(4):
        episode = _some_episode(subject, task)
        observation, info = episode.seen[0][0], episode.infos[0]
        opening_text = "".join(message.text for message in as_messages(observation)).strip()
        pictures = any(message.images for message in as_messages(observation))
        # Without the declaration a model that reads text alone would be played without the images.
        declared = _briefing(episode.infos[0]).shows_images
        answered = [seen[0] for seen in episode.seen[:-1]]  # no policy answers the last observation
        if not declared and any(
            message.images for observation in answered for message in as_messages(observation)
        ):
            raise CheckFailed(
                f"task {task.id!r} shows an image that its briefing does not declare; set "
                "shows_images = True on the class"
            )
        if not opening_text and not pictures and not _briefing(info).system_prompt:
            raise CheckFailed(
                f"task {task.id!r} shows nothing: no system prompt and an empty first observation"
            )
    return f"{len(subject.tasks(4))} episodes"


def _briefing(info: Info) -> Briefing:
    briefing = info.get("briefing")
    if not isinstance(briefing, Briefing):
        raise CheckFailed(f"info['briefing'] is {type(briefing).__name__}, not a Briefing")
    return briefing


def is_described(subject: EnvUnderCheck) -> str:
    """Every tool has a description and a JSON Schema object for the parameters; no setting is
    misspelt.
    """
    with suppress(NotApplicable):
        refuse_misspelt(type(subject.env))
    _, info = subject.gym.reset(seed=0)
    tools = _briefing(info).tools
    for tool in tools:
        if not tool.description.strip():
            raise CheckFailed(f"tool {tool.name!r} has no description; give it a docstring")
        if tool.parameters.get("type") != "object":
            raise CheckFailed(f"the parameters of tool {tool.name!r} are not a JSON Schema object")
    return f"tools: {', '.join(tool.name for tool in tools)}" if tools else "no tools"


def refuse_misspelt(env: type) -> None:
    """Refuse a class with an attribute that is nearly a setting of the contract: nobody reads it.

    Raises:
        CheckFailed: with the attribute and the setting.
    """
    own = {name for kind in env.__mro__ if not issubclass(TextEnv, kind) for name in vars(kind)}
    for name in sorted(own - set(dir(TextEnv))):
        if near := get_close_matches(name, SETTINGS, n=1, cutoff=0.85):
            raise CheckFailed(f"nothing reads {name!r}; did you mean {near[0]!r}?")


def info_is_json(subject: EnvUnderCheck) -> str:
    """Every `info` can be encoded as JSON, so that a server can send the info to clients."""
    for task in subject.tasks(2):
        for info in _some_episode(subject, task).infos:
            for key, value in info.items():
                try:
                    msgspec.json.encode({key: value})
                except (TypeError, ValueError, OverflowError, RecursionError) as error:
                    raise CheckFailed(
                        f"info[{key!r}] is a {type(value).__name__} and cannot be sent as "
                        f"JSON: {error}"
                    ) from None
    return "every info of 2 episodes"


def replays_an_episode(subject: EnvUnderCheck) -> str:
    """The task, the seed and the actions fix the episode, whatever was played before."""
    if not subject.gym.session.deterministic:
        raise NotApplicable("the environment says deterministic = False")
    tasks = subject.tasks(3)
    # The second instance first plays another task and this one with another seed. What it, or the
    # process, keeps from those episodes then shows as a difference in the replay.
    for task, before in zip(tasks, tasks[1:] + tasks[:1], strict=True):
        episode = _some_episode(subject, task)
        for played in (before, task):
            play(subject.other, played.id, always(JUNK), seed=1)
        replay = play(subject.other, task.id, scripted(episode.actions))
        _are_equal(task, episode, replay)
    return f"{len(tasks)} episodes, each in two instances"


def _are_equal(task: Task, episode: Played, replay: Played) -> None:
    left, right = episode.lines(), replay.lines()
    for index, (left_text, right_text) in enumerate(zip(left, right, strict=False)):
        if left_text != right_text:
            raise _differs(task, index, left_text.decode(), right_text.decode())
    if len(left) != len(right):
        raise CheckFailed(f"task {task.id!r} replayed is {len(right)} steps, not {len(left)}")
    for index, (seen, seen_again) in enumerate(zip(episode.infos, replay.infos, strict=True)):
        before, after = unmeasured(seen), unmeasured(seen_again)
        for key in before | after:
            if before.get(key) != after.get(key):
                info_texts = [f"info[{key!r}] = {info.get(key)!r}" for info in (before, after)]
                raise _differs(task, index, *info_texts)


def _differs(task: Task, index: int, left_text: str, right_text: str) -> CheckFailed:
    place = "reset" if index == 0 else f"step {index}"
    return CheckFailed(
        f"task {task.id!r} with seed 0 and the same actions differs at {place}: "
        f"{left_text:.80} against {right_text:.80}; draw all random numbers from self.rng and set "
        "everything up in reset(), or say deterministic = False"
    )


def unmeasured(info: Info) -> Info:
    """Return `info` without the metrics of the verdict, since the time of a grading may differ."""
    verdict = info.get("verdict")
    if not isinstance(verdict, Verdict):
        return info
    return {**info, "verdict": msgspec.structs.replace(verdict, metrics={})}


def refuses_steps_out_of_order(subject: EnvUnderCheck) -> str:
    """A step after the end of an episode raises EpisodeEnded."""
    task = subject.tasks(1)[0]
    episode = _some_episode(subject, task)
    if not episode.ended:
        raise NotApplicable(f"no end within {MAX_STEPS} steps of junk")
    _must_raise(EpisodeEnded, lambda: subject.gym.step(JUNK), "a step after the end")
    return "a step after the end"


def refuses_wrong_actions(subject: EnvUnderCheck) -> str:
    """An action of a wrong type raises InvalidAction, and the episode goes on."""
    subject.gym.reset(seed=0)
    step: Callable[[Any], object] = subject.gym.step
    for action in WRONG_ACTIONS:
        _must_raise(InvalidAction, partial(step, action), f"the action {action!r}")
    try:
        subject.gym.step(JUNK)  # raises if a refused action has ended the episode
    except RewardUnavailable as error:  # the step was taken; its reward is another rule's matter
        if error.verdict.status is not Status.UNAVAILABLE:
            raise
    return ", ".join(type(action).__name__ for action in WRONG_ACTIONS)


def _must_raise(expected: type[Exception], act: Callable[[], object], action: str) -> None:
    try:
        act()
    except expected:
        return
    raise CheckFailed(f"{action} must raise {expected.__name__}, and was accepted")


def passes_gymnasiums_own_check(subject: EnvUnderCheck) -> str:
    """`gymnasium.utils.env_checker.check_env` passes; a warning counts as a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            gymnasium_check_env(_Unmeasured(subject.gym))
        except RewardUnavailable as error:
            if error.verdict.status is not Status.UNAVAILABLE:
                raise
            raise NotApplicable(str(error)) from None
        except (AssertionError, UserWarning) as error:
            # gymnasium colours its messages for a terminal, in several lines.
            raise CheckFailed(" ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())) from None
    return "check_env"


class _Unmeasured(PatientEnv):
    """A view of `gym` whose infos can be compared, because measured times are removed."""

    def __init__(self, gym: PatientEnv) -> None:
        self.__dict__.update(gym.__dict__)

    def step(self, action: str | Message) -> Stepped:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, unmeasured(info)


def closes_twice(subject: EnvUnderCheck) -> str:
    """`close` may be called a second time."""
    subject.gym.close()
    subject.gym.close()
    return "twice"


WRONG_ANSWERS = ("", "junk", "0", "I do not know.")
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
    return [junk for junk in WRONG_ANSWERS if junk != text]


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


def hears_no_thoughts(subject: EnvUnderCheck) -> str:
    """With thoughts before them, the expert's actions earn what they earn without; what stands in a
    thought that never ends earns what silence earns.
    """
    if not subject.gym.session.deterministic:
        raise NotApplicable("the environment says deterministic = False")
    session = subject.gym.session
    if isinstance(session, EnvSession) and session.env.hears_thoughts:
        raise NotApplicable("the environment says hears_thoughts = True")
    tasks = subject.tasks(2)
    for task in tasks:
        episode = _some_episode(subject, task)
        for thought in THOUGHTS:
            thinking = [
                msgspec.structs.replace(action, content=thought + action.text)
                for action in map(as_action, episode.actions)
            ]
            replay = play(subject.gym, task.id, scripted(thinking))
            if replay.total != episode.total:
                raise CheckFailed(
                    f"on {task.id!r} actions after the thought {thought!r} earn {replay.total:g}, "
                    f"without it {episode.total:g}; leave thoughts to the session, or say "
                    "hears_thoughts = True if their format is scored"
                )
        cut = f"{PAIRS['think'][0]}{THOUGHT} {as_action(episode.actions[0]).text}"
        silent, thinking_on = (play(subject.gym, task.id, scripted([text])) for text in ("", cut))
        if thinking_on.total != silent.total:
            raise CheckFailed(
                f"on {task.id!r} the thought {cut!r:.80}, which never ends, earns "
                f"{thinking_on.total:g}, silence {silent.total:g}; leave thoughts to the session"
            )
    return f"{len(THOUGHTS)} kinds of marks, {len(tasks)} tasks"


COMPARED = 500
"""Number of tasks of each split whose ids are compared."""
NO_SUCH_TASK = "no-such-task/of-any-split"


def has_stable_tasks(subject: EnvUnderCheck) -> str:
    """An index gives the same task in every instance, and the task's id finds that task again."""
    splits = subject.splits()
    if not splits:
        raise CheckFailed("no split has any tasks; tasks(split) must have some for 'train'")
    for split, tasks in splits.items():
        second_tasks = subject.other.tasks(split)
        for index, task in enumerate(first(tasks, LOOKED_AT)):
            if task.split != split:
                raise CheckFailed(f"task {task.id!r} of split {split!r} says split {task.split!r}")
            if second_tasks.at(index) != task:
                raise CheckFailed(
                    f"task {index} of split {split!r} is {task.id!r} in one instance and "
                    f"{second_tasks.at(index).id!r} in another; ids must not depend on chance"
                )
            if tasks.find(task.id) != task:
                raise CheckFailed(f"find({task.id!r}) is not the task at {index} of {split!r}")
        _refuses_what_is_not_there(tasks)
    return ", ".join(
        f"{split}: " + ("without end" if tasks.size is None else f"{tasks.size} tasks")
        for split, tasks in splits.items()
    )


def _refuses_what_is_not_there(tasks: TaskSet) -> None:
    try:
        tasks.find(NO_SUCH_TASK)
    except UnknownTask:
        pass
    else:
        raise CheckFailed(f"find({NO_SUCH_TASK!r}) found a task; raise UnknownTask")
    if tasks.size is None:
        return
    try:
        tasks.at(tasks.size)
    except IndexError:
        return
    raise CheckFailed(f"at({tasks.size}) is past the end and found a task; raise IndexError")


def keeps_splits_apart(subject: EnvUnderCheck) -> str:
    """No id is in two splits, and no two splits show the same problems in the same order."""
    splits = subject.splits()
    if len(splits) < 2:
        raise NotApplicable(f"there is one split, {', '.join(splits)}")
    for left, right in combinations(splits, 2):
        common = {task.id for task in first(splits[left], COMPARED)} & {
            task.id for task in first(splits[right], COMPARED)
        }
        if common:
            raise CheckFailed(f"{left!r} and {right!r} share tasks, such as {min(common)!r}")
        # Compare first observations by index; if all are equal, the environment ignores the split.
        shown_tasks = [
            [
                repr(subject.gym.reset(seed=0, options={"task": task.id})[0])
                for task in first(subject.gym.tasks(split), LOOKED_AT)
            ]
            for split in (left, right)
        ]
        if shown_tasks[0] == shown_tasks[1] and len(set(shown_tasks[0])) >= 3:
            raise CheckFailed(
                f"{left!r} and {right!r} show the same problems; draw them from self.task.seed or "
                "self.rng, which differ by split"
            )
    return f"{', '.join(splits)} share no task"


RULES: list[Rule[EnvUnderCheck]] = [
    ("types", returns_the_right_types),
    ("briefing", is_described),
    ("json", info_is_json),
    ("tasks", has_stable_tasks),
    ("splits", keeps_splits_apart),
    ("replay", replays_an_episode),
    ("gold", hides_its_gold),
    ("expert", rewards_its_expert),
    ("hostile text", scores_hostile_text),
    ("thoughts", hears_no_thoughts),
    ("order", refuses_steps_out_of_order),
    ("actions", refuses_wrong_actions),
    ("gymnasium", passes_gymnasiums_own_check),
    ("close", closes_twice),
]
"""The rules in order; the rules that leave the environment closed come last."""


def check_env(
    env: Checkable, *, max_return: float | None = None, step_timeout_s: float = STEP_TIMEOUT_S
) -> Report:
    """Check an environment against the contract.

    Args:
        env: an id, `URL#ID` of a served environment, or a `TextEnv` class or object.
        max_return: the highest possible return; the environment's expert must reach it.
        step_timeout_s: the limit of a single reset or step; a later call is given up, which works
            on the main thread only.

    Returns:
        What each rule found.

    Raises:
        CheckFailed: rules are broken; the message names each, and what to do.
    """
    report = examine_env(env, max_return=max_return, step_timeout_s=step_timeout_s)
    return report.raise_if_failed()


def examine_env(
    env: Checkable, *, max_return: float | None = None, step_timeout_s: float = STEP_TIMEOUT_S
) -> Report:
    """Do what `check_env` does, but report broken rules instead of raising."""
    subject = subject_of(env)
    subject.max_return, subject.step_timeout_s = max_return, step_timeout_s
    try:
        _ = subject.gym  # an unknown id or a missing extra raises here, and is not a finding
        return examine(subject.name, subject, RULES)
    finally:
        subject.close()
