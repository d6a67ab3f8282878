"""An environment as a server offers it: its id, the arguments fixed for it, its tasks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from ludus.errors import UnknownTask
from ludus.wire.arguments import parse_served, told_arguments

from ..gym import is_async_env
from ..protocol import TextEnv
from ..registry import build_env, construct, find_env
from ..session import EnvSession
from ..tasks import SPLITS, TaskPage, TaskSet, page_of
from .env_wire import EnvCard, TaskQuery


class ServedEnv:
    """One environment on offer.

    Args:
        env_id: under which it is offered; of the registry, unless there is a `factory`.
        arguments: constructor arguments, fixed by whoever serves.
        factory: a class, or a function that makes one, that need not be registered.
    """

    def __init__(
        self,
        env_id: str,
        arguments: dict[str, Any] | None = None,
        *,
        factory: Callable[..., TextEnv] | None = None,
    ) -> None:
        self.id = env_id
        self.arguments = dict(arguments or {})
        self._factory = factory
        self.is_async = False
        self.never_blocks = False
        """What the environment itself says, with its arguments; known once it is loaded."""
        self.card: EnvCard | None = None
        self._task_sets: dict[str, TaskSet] = {}

    @classmethod
    def parse(cls, text: str) -> ServedEnv:
        """Read `ludus/arithmetic-v0?max_operations=2`; values are JSON, or else text.

        >>> ServedEnv.parse("me/echo-v0?n=2&word=vale").arguments
        {'n': 2, 'word': 'vale'}
        """
        env_id, arguments = parse_served(text)
        return cls(env_id, arguments)

    @property
    def declares_never_blocks(self) -> bool:
        """Whether its class says that it never blocks; nothing is built to find out."""
        target: object = self._factory or find_env(self.id)
        while isinstance(target, partial):
            target = target.func
        return getattr(target, "never_blocks", False) is True

    def portable(self) -> ServedEnv:
        """The same where nothing is registered: it carries its class or function with it."""
        factory = self._factory or partial(construct, self.id, find_env(self.id))
        return ServedEnv(self.id, self.arguments, factory=factory)

    def load(self) -> None:
        """Build one to see that it works, and load its tasks. Blocks: call it off the loop."""
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
            reset_options={name: _spoken(kind) for name, kind in env.reset_options.items()},
            arguments=told_arguments(self.arguments),
        )

    def build(self) -> TextEnv:
        """A new environment. Blocks."""
        if self._factory is not None:
            return self._factory(**self.arguments)
        return build_env(self.id, **self.arguments)

    def session(self, env: TextEnv) -> EnvSession:
        """Drive `env`; the tasks, loaded once, are shared by all sessions."""
        return EnvSession(env, self.id, task_sets=self._task_sets)

    def page(self, query: TaskQuery) -> TaskPage:
        """Some tasks of a split. Blocks.

        Raises:
            UnknownTask: no such split or task.
        """
        if query.split not in self._task_sets:
            self._task_sets[query.split] = self.build().tasks(query.split)
        tasks = self._task_sets[query.split]
        if query.task:
            return TaskPage(
                split=query.split, size=tasks.size, offset=0, tasks=[tasks.find(query.task)]
            )
        return page_of(tasks, query.offset, query.limit)


def _spoken(kind: object) -> str:
    return getattr(kind, "__name__", str(kind))
