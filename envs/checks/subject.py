"""The environment under check: made from any handle, played within a time limit, and recorded."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from types import FrameType
from typing import Any

import msgspec

from ludus.contract import NotApplicable
from ludus.errors import CheckFailed, ConfigError, RewardUnavailable, UnknownTask
from ludus.messages import Message, Observation
from ludus.verdict import Status
from ludus.wire.address import parse_served

from ..gym import GymEnv, make
from ..protocol import Info, TextEnv
from ..serving.connect import connect
from ..session import EnvSession, Stepped
from ..tasks import SPLITS, Task, TaskSet

STEP_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 5.0


class PatientEnv(GymEnv):
    """A view of `gym` with a time limit on every call; after a late call, no further call is made.

    The limit works on the main thread alone, where a signal (SIGALRM) interrupts the waiting call.
    """

    def __init__(self, gym: GymEnv, timeout_s: float, late: list[str]) -> None:
        """Bound `gym`; instances of an environment share `late`, the calls given up."""
        self.__dict__.update(gym.__dict__)
        self._timeout_s, self._late = timeout_s, late

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode; raises CheckFailed if `reset` takes longer than the limit."""
        with self._bounded("reset()", self._timeout_s):
            return super().reset(seed=seed, options=options)

    def step(self, action: str | Message) -> Stepped:
        """Play an action; raises CheckFailed if `step` takes longer than the limit."""
        with self._bounded(f"step({action!r:.60})", self._timeout_s):
            return super().step(action)

    def close(self) -> None:
        """Release the environment, unless an earlier call is stuck."""
        with self._bounded("close()", CLOSE_TIMEOUT_S):
            super().close()

    @contextmanager
    def _bounded(self, call: str, timeout_s: float) -> Generator[None]:
        if self._late:
            raise CheckFailed(self._late[0])
        try:
            with _alarm(timeout_s):
                yield
        except _Late as late:
            self._late.append(
                f"{call} did not come back within {timeout_s:g} s ({late}); bound what it waits "
                "for: every episode that gets there would hang"
            )
            raise CheckFailed(self._late[0]) from None


class _Late(BaseException):
    """Interrupts a late call. The class is not an Exception, so that no handler of the environment
    stops it.
    """


@contextmanager
def _alarm(timeout_s: float) -> Generator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_: int, frame: FrameType | None) -> None:
        assert frame is not None  # the signal interrupted some frame
        raise _Late(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


Checkable = str | type[TextEnv] | TextEnv | GymEnv
LOOKED_AT = 12
"""How many tasks a rule plays or examines where a single task would not show a fault."""


@dataclass
class EnvUnderCheck:
    """An environment under check, with the instances the rules play."""

    name: str
    make: Callable[[], GymEnv]
    """Makes another instance; where an object is checked, returns that same object each time."""
    max_return: float | None = None
    step_timeout_s: float = STEP_TIMEOUT_S
    release: Callable[[], None] = lambda: None
    """Closes what else was opened for the check, such as a connection to a server."""
    view: Callable[[PatientEnv], PatientEnv] = lambda gym: gym
    """Returns what is played instead of an instance: a view of it that pays otherwise."""
    made: list[PatientEnv] = field(default_factory=list[PatientEnv])
    late: list[str] = field(default_factory=list[str])
    """Descriptions of calls that did not return in time; shared by all instances."""

    @property
    def gym(self) -> PatientEnv:
        """The instance that the rules play.

        Raises:
            ConfigError: a step has no limit that can be kept.
        """
        if not 0 < self.step_timeout_s < math.inf:
            raise ConfigError(f"step_timeout_s must be seconds above 0, got {self.step_timeout_s}")
        return self._instance(0)

    @property
    def other(self) -> PatientEnv:
        """A second instance, on which only rules that compare two instances play."""
        return self._instance(1)

    def _instance(self, index: int) -> PatientEnv:
        while len(self.made) <= index:
            self.made.append(self.view(PatientEnv(self.make(), self.step_timeout_s, self.late)))
        return self.made[index]

    @property
    def env(self) -> TextEnv:
        """The environment itself, which has the gold and the expert.

        Raises:
            NotApplicable: the environment is on a server.
        """
        session = self.gym.session
        if isinstance(session, EnvSession):
            return session.env
        raise NotApplicable("only where the environment runs in this process")

    def splits(self) -> dict[str, TaskSet]:
        """Return the splits that have tasks."""
        task_sets: dict[str, TaskSet] = {}
        for split in SPLITS:
            try:
                tasks = self.gym.tasks(split)
            except UnknownTask:
                continue
            if tasks.size != 0:
                task_sets[split] = tasks
        return task_sets

    def tasks(self, count: int = LOOKED_AT) -> list[Task]:
        """Return the first `count` tasks of the first split that has any."""
        for tasks in self.splits().values():
            return first(tasks, count)
        raise NotApplicable(f"no split has any tasks; splits are {', '.join(SPLITS)}")

    def close(self) -> None:
        """Close all instances and everything else that the check opened."""
        for gym in self.made:
            with contextlib.suppress(Exception):  # the rule `close` reports a faulty close
                gym.close()
        self.release()


def first(tasks: TaskSet, count: int) -> list[Task]:
    """Return the first `count` tasks, or all where the set is smaller."""
    return [tasks.at(i) for i in range(count if tasks.size is None else min(count, tasks.size))]


def subject_of(env: Checkable) -> EnvUnderCheck:
    """Make a subject from `ID`, `ID?argument=value`, `URL#ID`, a class, or an object."""
    if isinstance(env, GymEnv):
        return EnvUnderCheck(env.session.id, lambda: env)
    if isinstance(env, str) and "#" in env:
        url, env_id = env.split("#", 1)
        server = connect(url)
        return EnvUnderCheck(env, partial(server.make, env_id), release=server.close)
    if isinstance(env, str):
        env_id, arguments = parse_served(env)
        return EnvUnderCheck(env, partial(make, env_id, **arguments))
    if isinstance(env, TextEnv):
        instance = make(env)
        return EnvUnderCheck(instance.session.id, lambda: instance)
    if isinstance(env, type) and issubclass(env, TextEnv):
        return EnvUnderCheck(env.__name__, partial(make, env))
    raise ConfigError(
        f"cannot check {env!r:.80}: hand in an id, 'URL#ID', or a TextEnv class or object"
    )


MAX_STEPS = 256
"""An episode that has not ended after this many steps is abandoned."""

Choose = Callable[[], str | Message | None]


@dataclass
class Played:
    """The record of an episode."""

    seen: list[tuple[Observation, float, bool, bool]] = field(
        default_factory=list[tuple[Observation, float, bool, bool]]
    )
    """The first observation with reward 0, then what each step returned."""
    infos: list[Info] = field(default_factory=list[Info])
    actions: list[str | Message] = field(default_factory=list[str | Message])

    @property
    def total(self) -> float:
        """The return: the sum of the rewards."""
        return sum(reward for _, reward, _, _ in self.seen)

    @property
    def terminated(self) -> bool:
        """Whether the environment itself ended the episode."""
        return self.seen[-1][2]

    @property
    def ended(self) -> bool:
        """Whether the episode was terminated or truncated."""
        return self.seen[-1][2] or self.seen[-1][3]

    def lines(self) -> list[bytes]:
        """Return each step as JSON, so that two episodes can be compared."""
        return [msgspec.json.encode(step) for step in self.seen]


def play(
    gym: GymEnv,
    task_id: str,
    choose: Choose,
    *,
    seed: int = 0,
    episode: Played | None = None,
    max_steps: int = MAX_STEPS,
) -> Played:
    """Play `task_id` until the episode ends or `choose` returns None.

    Args:
        gym: the instance to play.
        task_id: the task.
        choose: returns the next action.
        seed: the seed of the episode.
        episode: an empty record to fill, for a policy that reads what was played.
        max_steps: steps after which the episode is abandoned.

    Raises:
        NotApplicable: a judge or a server that the reward needs is not available now.
        CheckFailed: the reward could not be computed for another reason.
    """
    episode = Played() if episode is None else episode
    observation, info = gym.reset(seed=seed, options={"task": task_id})
    episode.seen.append((observation, 0.0, False, False))
    episode.infos.append(info)
    for _ in range(max_steps):
        action = choose()
        if action is None:
            break
        episode.actions.append(action)
        observation, reward, terminated, truncated, info = _step(gym, action)
        episode.seen.append((observation, reward, terminated, truncated))
        episode.infos.append(info)
        if episode.ended:
            break
    return episode


def _step(gym: GymEnv, action: str | Message) -> tuple[Observation, float, bool, bool, Info]:
    try:
        return gym.step(action)
    except RewardUnavailable as error:
        if error.verdict.status is Status.UNAVAILABLE:
            raise NotApplicable(str(error)) from None
        raise CheckFailed(
            f"the action {action!r:.60} led to {error}; if the policy is at fault, give it a low "
            "reward; if step() or its scorer is, repair that"
        ) from None


def expert(env: TextEnv) -> Choose:
    """Return the policy that says what `env.demonstrate()` says.

    Raises:
        CheckFailed: what `demonstrate` returns is not an action.
    """

    def choose() -> str | Message | None:
        answer: object = env.demonstrate()
        if answer is None or isinstance(answer, (str, Message)):
            return answer
        raise CheckFailed(
            "demonstrate() must return what the expert says as a str, a Message, or None, got "
            f"{type(answer).__name__}: {answer!r:.80}"
        )

    return choose


def scripted(actions: Iterable[str | Message]) -> Choose:
    """Return a policy that plays `actions` in order, then stops."""
    remaining = chain(actions, repeat(None))
    return lambda: next(remaining)


def always(action: str | Message) -> Choose:
    """Return a policy that repeats `action`."""
    return lambda: action
