"""Checks of the arguments and results of an environment's methods.

The errors name what does not fit the contract.

An `EnvSession` picks the task, seeds the randomness, checks types, runs tools, counts turns and
refuses steps out of order. Everything that plays an environment (the gymnasium adapter, the server,
the agent) goes through a session.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, cast

import msgspec

from ludus.errors import (
    CheckFailed,
    ConfigError,
    EnvironmentExited,
    EpisodeEnded,
    InvalidAction,
    RewardUnavailable,
    UnknownSplit,
    UnknownTask,
)
from ludus.messages import Message, Observation, ToolCall, as_action, as_messages, tool_result
from ludus.thoughts import AUTO, apart, marks_of
from ludus.verdict import Verdict

from .protocol import Briefing, Info, TextEnv
from .tasks import SPLITS, Task, TaskPage, TaskSet, page_of, pick
from .tools.running import PlannedCall, run_calls
from .tools.spec import ToolFault, ToolResult, fault_counts

_Slot = tuple[str, str, type]
"""Name of a value, its type in words, and the type that `isinstance` checks. `object` stands for
values that are checked elsewhere: an observation by `_is_observation`, a reward by the session.
"""
_OBSERVATION: _Slot = ("observation", "str or list of Message", object)
_TERMINATED: _Slot = ("terminated", "bool", bool)
_TRUNCATED: _Slot = ("truncated", "bool", bool)
_INFO: _Slot = ("info", "dict", dict)


@lru_cache(maxsize=256)  # every session of a class asks; a refusal is raised and so never cached
def refuse_other_signatures(env: type[TextEnv]) -> None:
    """Refuse a class whose `reset` or `step` cannot be called as the contract says.

    Raises:
        CheckFailed: naming what does not fit.
    """
    name = env.__name__
    # `bind` tries the arguments of a call without making the call.
    try:
        inspect.signature(env.reset).bind("self", seed=None, options=None)
    except TypeError as error:
        raise CheckFailed(
            f"{name}.reset must take what it is called with, "
            f"reset(self, *, seed=None, options=None): {error}"
        ) from None
    try:
        inspect.signature(env.step).bind("self", "")
    except TypeError as error:
        raise CheckFailed(
            f"{name}.step must take one action, step(self, action): {error}"
        ) from None


EXITED = (
    "{}: {} called sys.exit({!r}), and an environment must not end the process; return terminated"
)
"""What is told where an environment exits: its id, the method, and the status."""


def as_task_set(split: str, value: object) -> TaskSet:
    """Return the result of `tasks`, checked to be a set of tasks.

    Raises:
        CheckFailed: names what does not fit.
    """
    if all(hasattr(value, name) for name in ("split", "size", "at", "find")):
        return cast("TaskSet", value)
    raise CheckFailed(
        f"tasks({split!r}) must return a TaskSet, such as GeneratedTasks(split) or "
        f"ListedTasks(split, [Task(...)]), got {value!r:.80}"
    )


def as_reset(value: object) -> tuple[Observation, Info]:
    """Return the checked result of `reset`, with a copy of `info`, which the session extends.

    Raises:
        CheckFailed: names what does not fit.
    """
    slots = (_OBSERVATION, _INFO)
    observation, info = _fitting("reset", value, slots)
    return observation, dict(info)


def as_step(value: object) -> tuple[Observation, object, bool, bool, Info]:
    """Return the result of `step`, checked except for the reward. `info` is a copy, since the
    session adds to it.

    Raises:
        CheckFailed: names what does not fit.
    """
    slots = (_OBSERVATION, ("reward", "", object), _TERMINATED, _TRUNCATED, _INFO)
    observation, reward, terminated, truncated, info = _fitting("step", value, slots)
    return observation, reward, terminated, truncated, dict(info)


def _fitting(method: str, method_value: Any, slots: Sequence[_Slot]) -> tuple[Any, ...]:
    """Return the result of `method`, checked to be a tuple of the wanted values."""
    if not isinstance(method_value, tuple) or len(method_value) != len(slots):
        value_type = (
            f"a tuple of {len(method_value)}"
            if isinstance(method_value, tuple)
            else type(method_value).__name__
        )
        raise CheckFailed(f"{_must_return(method, slots)}; got {value_type}: {method_value!r:.120}")
    for value, (name, _, accepted) in zip(method_value, slots, strict=True):
        fits = _is_observation(value) if name == "observation" else isinstance(value, accepted)
        if not fits:
            hint = "; is an await missing?" if inspect.isawaitable(value) else ""
            raise CheckFailed(
                f"{_must_return(method, slots)}; got {name} of type {type(value).__name__}: "
                f"{value!r:.120}{hint}"
            )
        if name == "observation":
            _refuse_unencodable(method, value)
    return method_value


_BRIEFING: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "system_prompt": ("a text", str),
    "answer_format": ("a text", str),
    "max_turns": ("a whole number, or None", (int, type(None))),
}
"""What an author sets of a briefing -> what it must be, in words and as types."""


def as_briefing(value: object) -> Briefing:
    """Return the checked briefing of an episode.

    Raises:
        CheckFailed: names what does not fit.
    """
    if not isinstance(value, Briefing):
        raise CheckFailed(f"info['briefing'] must be a Briefing, got {type(value).__name__}")
    for name, (words, kinds) in _BRIEFING.items():
        if not isinstance(part := getattr(value, name), kinds):
            hint = " (a comma behind the text?)" if isinstance(part, tuple) else ""
            raise CheckFailed(f"{name} must be {words}, got {part!r:.80}{hint}")
    return value


def _must_return(method: str, slots_wanted: Sequence[_Slot]) -> str:
    slots = ", ".join(f"{name}: {kind}" if kind else name for name, kind, _ in slots_wanted)
    return f"{method}() must return ({slots})"


def _is_observation(value: Any) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, list) and all(isinstance(message, Message) for message in value)


def _refuse_unencodable(method: str, observation: Observation) -> None:
    """Refuse text that is none, such as half of a surrogate pair: neither a server nor a tokenizer
    takes such text, and whoever encodes the observation would be blamed.
    """
    for message in as_messages(observation):
        try:
            message.text.encode()
        except UnicodeEncodeError as error:
            raise CheckFailed(
                f"{method}() returned an observation that is no text: {error}; read what may be "
                "none with errors='replace'"
            ) from None


Stepped = tuple[Observation, float, bool, bool, Info]

MAX_RECORD = 1024
"""Steps of an episode that are kept, so that a fork may play it again."""


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """A reset, which has no action, or a step of an episode, with the answer."""

    action: str | Message | None
    answer: Stepped
    seed: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


class EnvSession:
    """Plays episodes on a `TextEnv`, one after another.

    Args:
        env: the environment.
        env_id: its id; by default the name of its class.
        task_sets: tasks by split, which sessions of the same environment may share.
        thoughts: the marks around thoughts in actions that come as text; see `ludus.thoughts`.

    Raises:
        CheckFailed: `reset` or `step` cannot be called as the contract says.
        ConfigError: no marks have this name.
    """

    def __init__(
        self,
        env: TextEnv,
        env_id: str = "",
        *,
        task_sets: dict[str, TaskSet] | None = None,
        thoughts: str = AUTO,
    ) -> None:
        refuse_other_signatures(type(env))
        marks_of(thoughts)
        self._thoughts = thoughts
        self.env = env
        self.id = env_id or type(env).__name__
        self.turns = 0
        self.record: list[PlayedStep] | None = None
        """The episode so far; None before it begins, and where it is too long to be kept."""
        self._open = False
        self._max_turns: int | None = None
        self._calls_reach_env = False
        self._tasks: dict[str, TaskSet] = {} if task_sets is None else task_sets

    @property
    def deterministic(self) -> bool:
        """Whether task, seed and actions fix the episode."""
        return self.env.deterministic

    @property
    def is_open(self) -> bool:
        """Whether an episode goes on."""
        return self._open

    def go_on_from(self, parent: EnvSession) -> None:
        """Take over the episode of `parent`, of whose environment this session has a copy."""
        self.turns, self._open = parent.turns, parent._open
        self._max_turns, self._calls_reach_env = parent._max_turns, parent._calls_reach_env
        self.record = None if parent.record is None else list(parent.record)

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split. The environment is asked once, and the answer is kept."""
        if split not in SPLITS:
            raise UnknownSplit.near(split, SPLITS)
        if split not in self._tasks:
            self._tasks[split] = as_task_set(split, self.env.tasks(split))
        return self._tasks[split]

    async def task_page(self, split: str, *, offset: int = 0, limit: int = 100) -> TaskPage:
        """Return at most `limit` tasks of a split from index `offset` on. The method is async
        because a remote session, which has it too, asks its server.
        """
        return page_of(self.tasks(split), offset, limit)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode.

        Args:
            seed: the seed of the episode's random numbers, and of the task where none is named.
                None means 0.
            options: `task` (an id), `split` (default train), and what the environment declares.

        Raises:
            UnknownTask: no such task or split.
            ConfigError: an option the environment does not declare, or a value of a wrong type.
        """
        self._open = False
        given_options = dict(options or {})
        task_id, split = given_options.pop("task", None), given_options.pop("split", None)
        if task_id is None:
            task = pick(self.tasks(split or "train"), (0 if seed is None else seed))
        else:
            task = self._find_task(str(task_id), split)
        declared = self.env.reset_options
        for name, value in given_options.items():
            if name not in declared:
                option_names = ", ".join(["task", "split", *declared])
                raise ConfigError(
                    f"{self.id} has no reset option {name!r}; it takes {option_names}"
                )
            try:
                given_options[name] = msgspec.convert(value, declared[name])
            except msgspec.ValidationError as error:
                raise ConfigError(f"{self.id}: reset option {name}={value!r}: {error}") from None
        self.env.task = task
        self.env.rng = task.rng(0 if seed is None else seed)
        try:
            begun = await _value(
                self.env.reset(seed=seed, options=given_options | {"task": task.id})
            )
        except SystemExit as stop:
            raise EnvironmentExited(EXITED.format(self.id, "reset", stop.code)) from stop
        observation, info = as_reset(begun)
        briefing = as_briefing(info.setdefault("briefing", self.env.briefing()))
        info["task"] = task.id
        self._max_turns = briefing.max_turns
        self._calls_reach_env = bool(briefing.tools)
        self.turns = 0
        self.record = [PlayedStep(None, (observation, 0.0, False, False, {}), seed, options or {})]
        self._open = True
        return observation, info

    async def step(self, action: str | Message) -> Stepped:
        """Play an action of the policy.

        The environment gets what was said. Thoughts are left out, unless it says `hears_thoughts`.

        Raises:
            InvalidAction: the action is neither text nor a message.
            EpisodeEnded: before reset or after the end.
            RewardUnavailable: the reward could not be computed; the episode is over and counts for
                nothing.
        """
        if not isinstance(action, (str, Message)):
            raise InvalidAction(
                f"an action is a str or a Message, got {type(action).__name__}: {action!r:.80}"
            )
        if not self._open:
            raise EpisodeEnded(
                f"{self.id}: the episode is over or has not begun; call reset() first"
            )
        # Set again below: after an exception the state of the environment is unknown, so the
        # episode is over.
        self._open = False
        try:
            stepped: Any = self._answer(apart(as_action(action), self._thoughts))
            if inspect.isawaitable(stepped):
                stepped = await stepped
        except SystemExit as stop:
            raise EnvironmentExited(EXITED.format(self.id, "step", stop.code)) from stop
        observation, reward, terminated, truncated, info = as_step(stepped)
        # Read the reward slot; a verdict leaves its parts in `info["verdict"]`.
        if isinstance(reward, Verdict):
            if reward.reward is None:
                raise RewardUnavailable(reward)
            info["verdict"] = reward
            value = reward.reward
        else:
            if isinstance(reward, bool) or not isinstance(reward, (int, float)):
                raise RewardUnavailable(
                    Verdict.error(f"the reward must be a number or a Verdict, got {reward!r:.80}")
                )
            if not math.isfinite(reward):
                raise RewardUnavailable(Verdict.error(f"the reward must be finite, got {reward!r}"))
            value = float(reward)
        self.turns += 1
        if self._max_turns is not None and self.turns >= self._max_turns and not terminated:
            truncated = True
        answer = observation, value, terminated, truncated, info
        if self.record is not None:
            self.record.append(PlayedStep(action, answer))
            self.record = self.record if self.turns <= MAX_RECORD else None
        self._open = not (terminated or truncated)
        if not self._open:
            # The end of an episode has the gold in `info`, so that a verifier can score the episode
            # again. Only plain values can travel to a client.
            gold = self.env.gold()
            if isinstance(gold, (str, int, float, list, dict)):
                info.setdefault("gold", gold)
        return answer

    def abort(self) -> None:
        """End the episode as broken: the next call must be `reset`."""
        self._open = False

    async def close(self) -> None:
        """Release the resources of the environment."""
        self._open = False
        await _value(self.env.close())

    def _answer(self, message: Message) -> Any:
        """Run the calls of `message`, or hand the message to the environment.

        The environment gets text, unless the message has more that this episode asks for: an
        environment written for text must not break because a policy makes calls up.
        """
        if message.tool_calls and self.env.tools:
            return self._run_tools(message)
        is_whole = message.tool_calls and self._calls_reach_env
        answer: Any = message
        if isinstance(message.content, str) and not is_whole:
            answer = message.written if self.env.hears_thoughts else message.content
        return self.env.step(answer)

    async def _run_tools(self, message: Message) -> Stepped:
        """Run the calls; calls after the end of the episode are not run."""
        planned = [self._plan(call, index) for index, call in enumerate(message.tool_calls)]
        results = await run_calls(planned, at_once=self.env.max_parallel_calls)
        replies = [
            tool_result(result.shown, call)
            for result, call in zip(results, message.tool_calls, strict=False)
        ]
        info: Info = {
            "tool_calls": len(results),
            "tool_errors": sum(result.error for result in results),
        }
        if faults := fault_counts(results):
            info["tool_faults"] = faults
        reward = sum(result.reward for result in results)
        return replies, reward, results[-1].terminated, False, info

    def _plan(self, call: ToolCall, index: int) -> PlannedCall:
        """Look a call up; a call that cannot be run is answered with the reason."""
        tools, max_calls = self.env.tools, self.env.max_calls
        if call.error:
            return _refuse_call(ToolFault.UNREADABLE, f"this call was not executed: {call.error}")
        if max_calls is not None and index >= max_calls:
            refusal = (
                f"this call was not executed: {max_calls} a turn, and this is call {index + 1}"
            )
            return _refuse_call(ToolFault.EXCESS, refusal)
        if call.name not in tools:
            refusal = f"no tool named {call.name[:80]!r}; there is {', '.join(tools)}"
            return _refuse_call(ToolFault.UNKNOWN, refusal)
        tool = tools[call.name]
        return PlannedCall(partial(tool.call, call.arguments), tool.concurrent)

    def _find_task(self, task_id: str, split: str | None) -> Task:
        error: UnknownTask | None = None
        for name in [split] if split else SPLITS:
            try:
                return self.tasks(name).find(task_id)
            except UnknownTask as unknown:
                error = error or unknown  # the first split's error is the one that is raised
        assert error is not None
        raise error


def expert_action(session: EnvSession) -> str | Message:
    """Return the action that the environment's own expert takes now.

    Raises:
        ConfigError: it has none, or what it does is not an action.
    """
    answer: object = session.env.demonstrate()
    if isinstance(answer, (str, Message)):
        return answer
    if answer is None:
        raise ConfigError(
            f"{session.id} has no expert: its demonstrate() returned None; write one, or name "
            "another policy"
        )
    raise ConfigError(
        f"demonstrate() of {session.id} must return a str, a Message, or None, got "
        f"{type(answer).__name__}: {answer!r:.80}"
    )


async def _value(step_value: Any) -> Any:
    return await step_value if inspect.isawaitable(step_value) else step_value


def _refuse_call(fault: ToolFault, detail: str) -> PlannedCall:
    async def answer() -> ToolResult:
        return ToolResult.failed(fault, detail)

    return PlannedCall(answer, concurrent=False, refused=True)
