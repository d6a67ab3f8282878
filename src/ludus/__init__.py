"""Text environments, reward verifiers and a multi-turn RL trainer."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Built, the sub-packages are here. In a checkout they are the folders at the root.
_root = Path(__file__).resolve().parents[2]
if all((_root / name).is_dir() for name in ("envs", "rewards", "agent", "trainer", "sandboxes")):
    __path__.insert(0, str(_root))

from ludus import gymnasium_hook, installed
from ludus.lazy import lazy_exports

if TYPE_CHECKING:
    from ludus.envs import (
        Briefing,
        TextEnv,
        ToolResult,
        check_env,
        connect,
        make,
        make_async,
        register,
        tool,
    )
    from ludus.errors import LudusError, RewardUnavailable, ToolError
    from ludus.messages import Message, Role, ToolCall
    from ludus.rewards import Sample, check_verifier, make_verifier, verifier
    from ludus.rewards.score import score
    from ludus.verdict import Status, Verdict

__all__ = [
    "Briefing",
    "LudusError",
    "Message",
    "RewardUnavailable",
    "Role",
    "Sample",
    "Status",
    "TextEnv",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "Verdict",
    "check_env",
    "check_verifier",
    "connect",
    "make",
    "make_async",
    "make_verifier",
    "register",
    "score",
    "tool",
    "verifier",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ludus.envs": "Briefing TextEnv ToolResult check_env connect make make_async register tool",
        "ludus.errors": "LudusError RewardUnavailable ToolError",
        "ludus.messages": "Message Role ToolCall",
        "ludus.rewards": "Sample check_verifier make_verifier verifier",
        "ludus.rewards.score": "score",
        "ludus.verdict": "Status Verdict",
    },
)

gymnasium_hook.install()
installed.warn_of_a_foreign_one(sys.path)
