"""Plays tasksets of verifiers, version 1, with a single answer to a prompt.

An id names an installed taskset, or one in the folder that the setting `path` names. A taskset
whose tasks need a container, tools or a judge is refused: there the package itself drives a model.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import itertools
import sys
from importlib import metadata
from typing import Any

from ..contract import SPLITS, PeerBroken, PeerRefusal, as_reward, split

MAX_POSITION = 1_000_000
"""How far an endless taskset is read."""


def load(settings: dict[str, Any]) -> dict[str, Any]:
    """Import the package."""
    importlib.import_module("verifiers.v1")
    return {"version": metadata.version("verifiers")}


def make(family: str, settings: dict[str, Any]) -> VerifiersTasks:
    """Return the environment of a taskset."""
    return VerifiersTasks(family, settings)


def catalogue() -> dict[str, Any]:
    """Return no families, since the package brings none that need nothing."""
    return {"package": "verifiers", "version": metadata.version("verifiers"), "families": []}


class VerifiersTasks:
    """A taskset of verifiers; `settings` are configuration fields, besides `path`."""

    def __init__(self, family: str, settings: dict[str, Any]) -> None:
        left = dict(settings)
        if path := left.pop("path", ""):
            sys.path.insert(0, str(path))
        self.taskset = _taskset(family, left)
        self.endless = not self.taskset.bounded
        self._rows: dict[str, list[Any]] = {}
        if not self.endless:
            try:
                self._rows = split(self.taskset, lambda task: str(task.key))
            except OSError as error:
                raise PeerRefusal(
                    f"{family} of verifiers cannot load its tasks: {error}"
                ) from error
        first = next(iter(self.taskset), None)
        if first is None:
            raise PeerRefusal(f"{family} of verifiers has no tasks")
        _refuse_what_needs_more(family, self.taskset, first)
        self._task: Any = first
        self._trace: Any = None

    def about(self) -> dict[str, Any]:
        """Return the sizes of the splits of a finite taskset."""
        if self.endless:
            return {}
        return {"sizes": {name: len(rows) for name, rows in self._rows.items()}}

    def reset(self, task: dict[str, Any]) -> dict[str, Any]:
        """Show the prompt of a task."""
        index, named = int(task["index"]), str(task["split"])
        if self.endless:
            position = index * len(SPLITS) + SPLITS.index(named)
            if position > MAX_POSITION:
                raise PeerBroken(f"task {index} is past the {MAX_POSITION} that are read")
            self._task = next(itertools.islice(iter(self.taskset), position, None))
        else:
            self._task = self._rows[named][index]
        self._trace = _trace(self._task)
        data = self._task.data
        return {"observation": _messages(data.prompt), "system_prompt": data.system_prompt or ""}

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Score the answer by the task's own rewards."""
        types: Any = importlib.import_module("verifiers.v1.types")
        _append(self._trace, types.AssistantMessage(content=str(action["text"])), sampled=True)
        self._trace.is_completed = self._trace.ok = True
        asyncio.run(self._task.score(self._trace))
        rewards: dict[str, Any] = dict(self._trace.rewards)
        lacking = [name for name, reward in rewards.items() if reward is None]
        ended: dict[str, Any] = {"observation": "", "terminated": True}
        if lacking or not rewards:
            return {**ended, "failure": f"no reward of {', '.join(lacking) or 'any function'}"}
        parts = {
            name: [as_reward(reward.score), as_reward(reward.weight)]
            for name, reward in rewards.items()
        }
        metrics = {name: as_reward(value) for name, value in self._trace.metrics.items()}
        info = {"rewards": parts, "metrics": metrics}
        return {**ended, "reward": as_reward(self._trace.reward), "info": info}


def _taskset(family: str, settings: dict[str, Any]) -> Any:
    loaders: Any = importlib.import_module("verifiers.v1.utils.loaders")
    try:
        taskset = loaders.taskset_class(family)
        config = loaders.concrete_type(
            taskset, importlib.import_module("verifiers.v1.configs.taskset").TasksetConfig
        )
        base = config or importlib.import_module("verifiers.v1.configs.taskset").TasksetConfig
        return taskset(base.model_validate({**settings, "id": family}))
    except ModuleNotFoundError as error:
        raise PeerRefusal(
            f"no taskset {family!r} of verifiers is installed ({error}); ludus env install "
            "verifiers --package NAME, or path=FOLDER"
        ) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise PeerRefusal(f"{family} of verifiers cannot be made: {error}") from error


def _refuse_what_needs_more(family: str, taskset: Any, task: Any) -> None:
    needs = [
        what
        for what, needed in (
            ("a container", task.NEEDS_CONTAINER or task.data.image),
            ("tools", taskset.toolsets(taskset.config) or task.toolsets(task.config)),
            ("a judge", task.plugged_judges()),
            ("a runtime in which it scores", any(map(_needs_runtime, task.hooks("reward")))),
            ("a user that opens the conversation", task.data.prompt is None),
        )
        if needed
    ]
    if needs:
        raise PeerRefusal(
            f"{family} of verifiers cannot be played as one answer: it needs {', '.join(needs)}"
        )


def _needs_runtime(function: Any) -> bool:
    runtime = inspect.signature(function).parameters.get("runtime")
    return runtime is not None and runtime.default is inspect.Parameter.empty


def _trace(task: Any) -> Any:
    traces: Any = importlib.import_module("verifiers.v1.trace")
    agents: Any = importlib.import_module("verifiers.v1.configs.agent")
    types: Any = importlib.import_module("verifiers.v1.types")
    kind = type(task.data)
    trace = traces.Trace[kind, Any, agents.AgentConfig](
        task=traces.TraceTask[kind](
            type=type(task).__name__, data=task.data, key=task.key, hash=task.hash
        ),
        agent=traces.AgentInfo(config=agents.AgentConfig()),
    )
    if task.data.system_prompt:
        _append(trace, types.SystemMessage(content=task.data.system_prompt))
    prompt = task.data.prompt
    for message in [types.UserMessage(content=prompt)] if isinstance(prompt, str) else prompt or []:
        _append(trace, message)
    return trace


def _append(trace: Any, message: Any, *, sampled: bool = False) -> None:
    node: Any = importlib.import_module("verifiers.v1.graph").MessageNode
    parent = len(trace.nodes) - 1 if trace.nodes else None
    trace.nodes.append(node(parent=parent, message=message, sampled=sampled))


def _messages(prompt: Any) -> Any:
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    shown: list[dict[str, str]] = []
    for message in prompt:
        content = message.content
        if not isinstance(content, str):
            raise PeerBroken("the prompt holds parts that are not text")
        shown.append({"role": str(message.role), "content": content})
    return shown
