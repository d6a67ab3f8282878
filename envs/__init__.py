"""Environments: the contract that a policy acts in, the registry, tasks, and how environments are
served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.lazy import lazy_exports

if TYPE_CHECKING:
    from .added_tools import AddedTools
    from .checks import check_env
    from .gym import GymEnv, make, make_async
    from .protocol import Briefing, Info, Reset, Step, TextEnv
    from .registry import build_env, env_ids, find_env, register, register_env
    from .serving.connect import RemoteServer, connect
    from .serving.server import EnvService
    from .session import EnvSession
    from .tasks import GeneratedTasks, ListedTasks, Task, TaskSet
    from .tools import Tool, ToolResult, ToolSpec, tool

__all__ = [
    "AddedTools",
    "Briefing",
    "EnvService",
    "EnvSession",
    "GeneratedTasks",
    "GymEnv",
    "Info",
    "ListedTasks",
    "RemoteServer",
    "Reset",
    "Step",
    "Task",
    "TaskSet",
    "TextEnv",
    "Tool",
    "ToolResult",
    "ToolSpec",
    "build_env",
    "check_env",
    "connect",
    "env_ids",
    "find_env",
    "make",
    "make_async",
    "register",
    "register_env",
    "tool",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".added_tools": "AddedTools",
        ".checks": "check_env",
        ".gym": "GymEnv make make_async",
        ".protocol": "Briefing Info Reset Step TextEnv",
        ".registry": "build_env env_ids find_env register register_env",
        ".serving.connect": "RemoteServer connect",
        ".serving.server": "EnvService",
        ".session": "EnvSession",
        ".tasks": "GeneratedTasks ListedTasks Task TaskSet",
        ".tools": "Tool ToolResult ToolSpec tool",
    },
)
