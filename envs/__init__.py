"""What a policy acts in: the environment contract, the registry, tasks, and how environments are
served.
"""

from .added_tools import AddedTools
from .gym import GymEnv, make, make_async
from .protocol import Briefing, Info, Reset, Step, TextEnv
from .registry import build_env, env_ids, find_env, register, register_env
from .session import EnvSession
from .tasks import GeneratedTasks, ListedTasks, Task, TaskSet
from .tools import Tool, ToolResult, ToolSpec, tool

__all__ = [
    "AddedTools",
    "Briefing",
    "EnvSession",
    "GeneratedTasks",
    "GymEnv",
    "Info",
    "ListedTasks",
    "Reset",
    "Step",
    "Task",
    "TaskSet",
    "TextEnv",
    "Tool",
    "ToolResult",
    "ToolSpec",
    "build_env",
    "env_ids",
    "find_env",
    "make",
    "make_async",
    "register",
    "register_env",
    "tool",
]
