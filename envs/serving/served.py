"""An environment on offer by a server: the id, the fixed constructor arguments and the tasks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from ludus.errors import UnknownTask
from ludus.thoughts import AUTO
from ludus.wire.address import parse_served, told_arguments

from ..forking import how_it_forks
from ..gym import is_async_env
from ..protocol import TextEnv
from ..registry import Factory, construct, find_env
from ..session import EnvSession
from ..tasks import SPLITS, TaskPage, TaskSet, page_of
from .env_wire import EnvCard, TaskQuery


class ServedEnv:
    """An environment that a server offers.

    Args:
        env_id: the id under which the environment is offered; also the id in the registry, unless
            `factory` is given.
        arguments: constructor arguments, fixed by the operator of the server.
        factory: a class or function that makes the environment, so that no registration is needed.
        thoughts: the marks around thoughts in actions that come as text; see `ludus.thoughts`.
    """

    def __init__(
        self,
        env_id: str,
        arguments: dict[str, Any] | None = None,
        *,
        factory: Callable[..., TextEnv] | None = None,
        thoughts: str = AUTO,
    ) -> None:
        self.id = env_id
        self.arguments = dict(arguments or {})
        self._factory = factory
        self.thoughts = thoughts
        self.is_async = False
        self.never_blocks = False
        """What the environment declares with these arguments; known after `load`."""
        self.card: EnvCard | None = None
        self._task_sets: dict[str, TaskSet] = {}

    @classmethod
    def parse(cls, text: str, *, thoughts: str = AUTO) -> ServedEnv:
        """Read a name such as `ludus/arithmetic-v0?max_operations=2`; values are JSON, or else
        text.

        >>> ServedEnv.parse("me/echo-v0?n=2&word=vale").arguments
        {'n': 2, 'word': 'vale'}
        """
        env_id, arguments = parse_served(text)
        return cls(env_id, arguments, thoughts=thoughts)

    @property
    def declares_never_blocks(self) -> bool:
        """Whether the class declares that the environment never blocks; builds no environment."""
        target: object = self._factory or self._target
        while isinstance(target, partial):
            target = target.func
        return getattr(target, "never_blocks", False) is True

    def portable(self) -> ServedEnv:
        """Return a copy that carries the class or function, for a process where nothing is
        registered.
        """
        factory = self._factory or partial(construct, self.id, self._target)
        return ServedEnv(self.id, self.arguments, factory=factory, thoughts=self.thoughts)

    def load(self) -> None:
        """Build an environment as a check, and load the tasks. Blocks: call this off the event
        loop.
        """
        env = self.build()
        self.never_blocks = env.never_blocks
        self.is_async = is_async_env(env)
        for split in SPLITS:
            try:
                self._task_sets[split] = env.tasks(split)
            except UnknownTask:
                continue
        self.card = EnvCard(
            id=self.id,
            description=inspect.getdoc(type(env)) or "",
            deterministic=env.deterministic,
            briefing=env.briefing(),
            splits={split: tasks.size for split, tasks in self._task_sets.items()},
            reset_options={
                name: getattr(kind, "__name__", str(kind))
                for name, kind in env.reset_options.items()
            },
            forks=how_it_forks(env),
            arguments=told_arguments(self.arguments),
        )

    def build(self) -> TextEnv:
        """Build a new environment; blocks."""
        if self._factory is not None:
            return self._factory(**self.arguments)
        return construct(self.id, self._target, **self.arguments)

    @cached_property
    def _target(self) -> Factory:
        """What makes the environment, looked up once and not for each session."""
        return find_env(self.id)

    def session(self, env: TextEnv) -> EnvSession:
        """Make a session of `env`; all sessions share the tasks, which are loaded once."""
        return EnvSession(env, self.id, task_sets=self._task_sets, thoughts=self.thoughts)

    def page(self, query: TaskQuery) -> TaskPage:
        """Return some tasks of a split; blocks.

        Raises:
            UnknownTask: the split or task does not exist.
        """
        if query.split not in self._task_sets:
            self._task_sets[query.split] = self.build().tasks(query.split)
        tasks = self._task_sets[query.split]
        if query.task:
            return TaskPage(
                split=query.split, size=tasks.size, offset=0, tasks=[tasks.find(query.task)]
            )
        return page_of(tasks, query.offset, query.limit)
