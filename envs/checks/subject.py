"""The environment under check, made from any handle, with a second instance to compare with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ludus.contract import NotApplicable
from ludus.errors import ConfigError, UnknownTask
from ludus.wire.arguments import parse_served

from ..gym import GymEnv, make
from ..protocol import TextEnv
from ..serving.connect import connect
from ..session import EnvSession
from ..tasks import SPLITS, Task, TaskSet
from .patience import STEP_TIMEOUT_S, PatientEnv

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
    made: list[PatientEnv] = field(default_factory=list[PatientEnv])
    late: list[str] = field(default_factory=list[str])
    """Descriptions of calls that did not return in time; shared by all instances."""

    @property
    def gym(self) -> PatientEnv:
        """The instance that the rules play."""
        return self._instance(0)

    @property
    def other(self) -> PatientEnv:
        """A second instance, on which only rules that compare two instances play."""
        return self._instance(1)

    def _instance(self, index: int) -> PatientEnv:
        while len(self.made) <= index:
            self.made.append(PatientEnv(self.make(), self.step_timeout_s, self.late))
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
