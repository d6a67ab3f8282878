"""Rules about conduct: types, the order of calls, replay, and the end of an episode."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from gymnasium.utils.env_checker import check_env as gymnasium_check_env

from ludus.contract import NotApplicable
from ludus.errors import CheckFailed, EpisodeEnded, InvalidAction
from ludus.messages import Message, as_messages
from ludus.verdict import Verdict

from ..protocol import Briefing, Info
from ..session import Stepped
from ..tasks import Task
from .patience import PatientEnv
from .playing import MAX_STEPS, Choose, Played, always, expert, play, scripted
from .subject import EnvUnderCheck

WRONG_ACTIONS: tuple[Any, ...] = (None, 42, b"bytes", ["a", "list"], {"role": "assistant"})
JUNK = "junk"


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
        _declares_its_images(task, episode)
        if not opening_text and not pictures and not _briefing(info).system_prompt:
            raise CheckFailed(
                f"task {task.id!r} shows nothing: no system prompt and an empty first observation"
            )
    return f"{len(subject.tasks(4))} episodes"


def _declares_its_images(task: Task, episode: Played) -> None:
    """Refuse images that a policy answers to and the briefing does not declare: a model that reads
    text alone would be played without them.
    """
    declared = _briefing(episode.infos[0]).shows_images
    answered = [seen[0] for seen in episode.seen[:-1]]  # no policy answers the last observation
    if not declared and any(
        message.images for observation in answered for message in as_messages(observation)
    ):
        raise CheckFailed(
            f"task {task.id!r} shows an image that its briefing does not declare; set "
            "shows_images = True on the class"
        )


def _briefing(info: Info) -> Briefing:
    briefing = info.get("briefing")
    if not isinstance(briefing, Briefing):
        raise CheckFailed(f"info['briefing'] is {type(briefing).__name__}, not a Briefing")
    return briefing


def describes_its_tools(subject: EnvUnderCheck) -> str:
    """Every tool has a description and a JSON Schema object for the parameters."""
    _, info = subject.gym.reset(seed=0)
    tools = _briefing(info).tools
    for tool in tools:
        if not tool.description.strip():
            raise CheckFailed(f"tool {tool.name!r} has no description; give it a docstring")
        if tool.parameters.get("type") != "object":
            raise CheckFailed(f"the parameters of tool {tool.name!r} are not a JSON Schema object")
    return f"tools: {', '.join(tool.name for tool in tools)}" if tools else "no tools"


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
    # The second instance first plays another task with another seed. What it keeps from that
    # episode then shows as a difference in the replay.
    for task, before in zip(tasks, tasks[1:] + tasks[:1], strict=True):
        episode = _some_episode(subject, task)
        play(subject.other, before.id, always(JUNK), seed=1)
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
    for index, (first, second) in enumerate(zip(episode.infos, replay.infos, strict=True)):
        before, after = unmeasured(first), unmeasured(second)
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
    subject.gym.step(JUNK)  # raises if a refused action has ended the episode
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
