"""Adds tools to an environment: a calculator for a maths problem, the tools of an MCP server.

ludus.make(AddedTools(build_env("ludus/maths-v0"), [Tool(python)]))
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message

from .protocol import Briefing, Step, TextEnv
from .session import as_step
from .tasks import TaskSet
from .tools import Tool


class AddedTools(TextEnv):
    """An environment in which the policy may call further tools besides the environment's own.

    Args:
        env: plays the episode.
        added: the further tools. `close` does not close them.
        more_turns: how many turns an episode may have beyond the environment's own `max_turns`, for
            calls of the added tools. Turns without a call count against the environment's own
            bound.

    Raises:
        ConfigError: two tools have one name, or `more_turns` is below 0.
    """

    # The results of the added tools need not be fixed by the task and the seed.
    deterministic = False

    def __init__(self, env: TextEnv, added: Sequence[Tool], *, more_turns: int = 16) -> None:
        if more_turns < 0:
            raise ConfigError(f"more_turns must be 0 or more, got {more_turns}")
        self.env = env
        self.more_turns = more_turns
        self._text_turns = 0
        self._own_max_turns: int | None = None
        # The attribute is declared for classes (`ClassVar`), and type checkers refuse to set it on
        # an object. Here it depends on the wrapped environment, so it is set all the same.
        vars(self)["reset_options"] = env.reset_options
        self.hears_thoughts = env.hears_thoughts
        self.max_calls = env.max_calls
        self.max_parallel_calls = env.max_parallel_calls
        self.added = {tool.spec.name: tool for tool in added}
        if len(self.added) != len(added) or self.added.keys() & env.tools.keys():
            names = [*env.tools, *(tool.spec.name for tool in added)]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ConfigError(
                f"two tools have the name {twice[0]!r}; give one of them another name"
            )

    @property
    def tools(self) -> dict[str, Tool]:
        """Return the environment's tools, then the added tools."""
        return {**self.env.tools, **self.added}

    def briefing(self) -> Briefing:
        """Return the environment's briefing with the added tools and turns."""
        return self._extended(self.env.briefing())

    def _extended(self, briefing: Briefing) -> Briefing:
        if briefing.tools and not self.env.tools:
            raise ConfigError(
                f"{type(self.env).__name__} answers calls itself, so no tools can be added to it; "
                "take an environment whose tools are `@tool` methods, or one without tools"
            )
        specs = [tool.spec for tool in self.added.values()]
        own_max_turns = briefing.max_turns
        return msgspec.structs.replace(
            briefing,
            tools=[*briefing.tools, *specs],
            max_turns=None if own_max_turns is None else own_max_turns + self.more_turns,
        )

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of the environment."""
        self.env.task, self.env.rng = self.task, self.rng
        reset_result = self.env.reset(seed=seed, options=options)
        observation, info = (
            await reset_result if inspect.isawaitable(reset_result) else reset_result
        )
        briefing = info.get("briefing", self.env.briefing())
        self._text_turns, self._own_max_turns = 0, briefing.max_turns
        return observation, {**info, "briefing": self._extended(briefing)}

    async def step(self, action: str) -> Step:
        """Step the environment; truncate the episode as late as without the added tools."""
        step_result = self.env.step(action)
        stepped = await step_result if inspect.isawaitable(step_result) else step_result
        # Turns with calls do not come here: the session runs them.
        self._text_turns += 1
        if self._own_max_turns is None or self._text_turns < self._own_max_turns:
            return stepped
        as_step(stepped)  # raises a `CheckFailed` that names the fault before the tuple is unpacked
        observation, reward, terminated, truncated, info = stepped
        return observation, reward, terminated, truncated or not terminated, info

    async def close(self) -> None:
        """Release the resources of the environment."""
        close_result = self.env.close()
        if inspect.isawaitable(close_result):
            await close_result

    def tasks(self, split: str) -> TaskSet:
        """Return the environment's tasks."""
        return self.env.tasks(split)

    def gold(self) -> object | None:
        """Return the environment's gold."""
        return self.env.gold()

    def demonstrate(self) -> str | Message | None:
        """Return the action of the environment's expert, who does not use the added tools."""
        return self.env.demonstrate()

    def demonstrate_summary(self, *, newest: bool) -> str | None:
        """Return the summary of the environment's expert."""
        return self.env.demonstrate_summary(newest=newest)
