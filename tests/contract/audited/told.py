"""Environments that are told as generators, so that each fits on half a page.

A script yields what is shown and what the expert does there, and a reward if one is paid on the
way; it is sent what the policy says, or the name and the arguments of the tool that it calls. What
it returns is the last reward.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import ludus
from ludus.envs import ToolResult, tool
from ludus.messages import Message, ToolCall, assistant

Action = str | Message
Told = tuple[str, Action] | tuple[str, Action, float]
Script = Generator[Told, Any, float]
Writes = Callable[[random.Random], Script]
Register = Callable[[Writes], Writes]


def call(name: str, /, **arguments: Any) -> Message:
    """Return a message that calls one tool."""
    return assistant("", [ToolCall(name=name, arguments=arguments)])


class ToldEnv(ludus.TextEnv):
    """An environment that is a script."""

    never_blocks = True
    max_turns = 12
    script: Writes
    has_gold = False
    ends_by_tool = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        draw = random.Random(f"{type(self).__name__}/{self.task.seed}")
        self.playing, self.owed = type(self).script(draw), 0.0
        shown, self.best = next(self.playing)[:2]
        self.answer = self.best
        return shown, {}

    def send(self, said: Any) -> str:
        shown, self.best, *paid = self.playing.send(said)
        self.owed += sum(paid)
        return shown

    def hear(self, called: tuple[Any, ...]) -> str | ToolResult:
        """Answer the call of a tool; a script that has ended hears no more."""
        try:
            return self.send(called)
        except StopIteration as end:
            self.owed += end.value or 0.0
            if self.ends_by_tool:
                return ToolResult(content="It is over.", reward=self.owed, terminated=True)
            return "It is over."

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        try:
            shown = self.send(action.strip())
        except StopIteration as end:
            return "", self.owed + (end.value or 0.0), True, False, {}
        paid, self.owed = self.owed, 0.0
        return shown, paid, False, False, {}

    def gold(self) -> object | None:
        return self.answer if self.has_gold else None

    def demonstrate(self) -> Action | None:
        return self.best


def _tool(name: str, about: str, arguments: dict[str, type]) -> Any:
    def function(self: ToldEnv, **given: Any) -> str | ToolResult:
        return self.hear((name, *given.values()))

    kinds = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    kinds += [
        inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, annotation=kind)
        for each, kind in arguments.items()
    ]
    function.__name__ = function.__qualname__ = name
    function.__doc__ = about
    function.__annotations__ = {**arguments, "return": str}
    function.__signature__ = inspect.Signature(kinds, return_annotation=str)  # type: ignore
    return tool(function)


def registered(
    ids: list[str],
    folder: str,
    prompt: str,
    *,
    gold: bool = False,
    turns: int = 12,
    ends: bool = False,
    **tools: Any,
) -> Register:
    """Return a decorator that registers a script under `FOLDER/NAME-v0`.

    Args:
        ids: where the id is kept.
        folder: what ids begin with.
        prompt: the system prompt.
        gold: whether the expert's first action is the gold.
        turns: the most turns.
        ends: whether a tool may end the episode, and not only a text.
        tools: name -> (description, argument -> type).
    """

    def register(script: Writes) -> Writes:
        members = {name: _tool(name, *about) for name, about in tools.items()}
        members |= {
            "script": staticmethod(script),
            "system_prompt": prompt,
            "has_gold": gold,
            "max_turns": turns,
            "ends_by_tool": ends,
            "__doc__": script.__doc__,
        }
        env_id = f"{folder}/{script.__name__.replace('_', '-')}-v0"
        ids.append(env_id)
        ludus.register(env_id)(type(script.__name__, (ToldEnv,), members))
        return script

    return register


def registered_twice(
    ids: list[str], sound_ids: list[str], folder: str, prompt: str, **given: Any
) -> Callable[[Callable[..., Script]], Callable[..., Script]]:
    """Return a decorator that registers a script with its slip (`slips` is true) under
    `FOLDER/NAME-v0`, and without under `sound-FOLDER/NAME-v0`; `given` as for `registered`.
    """

    def register(script: Callable[..., Script]) -> Callable[..., Script]:
        for known, where, slips in ((ids, folder, True), (sound_ids, f"sound-{folder}", False)):
            writes: Writes = partial(script, slips=slips)
            writes.__name__, writes.__doc__ = script.__name__, script.__doc__  # type: ignore
            registered(known, where, prompt, **given)(writes)
        return script

    return register
