"""Text environments, reward verifiers and a multi-turn RL trainer."""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Built, the sub-packages are here. In a checkout they are the folders at the root.
_root = Path(__file__).resolve().parents[2]
if all((_root / name).is_dir() for name in ("envs", "rewards", "agent", "trainer", "sandboxes")):
    __path__.insert(0, str(_root))

from ludus import gymnasium_hook, installed

if TYPE_CHECKING:
    from ludus.envs import (
        Briefing as Briefing,
        TextEnv as TextEnv,
        ToolResult as ToolResult,
        make as make,
        make_async as make_async,
        register as register,
        tool as tool,
    )
    from ludus.envs.checks import check_env as check_env
    from ludus.envs.serving.connect import connect as connect
    from ludus.errors import (
        LudusError as LudusError,
        RewardUnavailable as RewardUnavailable,
        ToolError as ToolError,
    )
    from ludus.messages import Message as Message, Role as Role, ToolCall as ToolCall
    from ludus.rewards import Sample as Sample, make_verifier as make_verifier, verifier as verifier
    from ludus.rewards.checks import check_verifier as check_verifier
    from ludus.rewards.score import score as score
    from ludus.verdict import Status as Status, Verdict as Verdict

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

# Exported lazily, so that `import ludus` stays light.
_exports = {
    "Briefing": "ludus.envs",
    "LudusError": "ludus.errors",
    "Message": "ludus.messages",
    "RewardUnavailable": "ludus.errors",
    "Role": "ludus.messages",
    "TextEnv": "ludus.envs",
    "ToolCall": "ludus.messages",
    "ToolError": "ludus.errors",
    "ToolResult": "ludus.envs",
    "check_env": "ludus.envs.checks",
    "check_verifier": "ludus.rewards.checks",
    "connect": "ludus.envs.serving.connect",
    "make": "ludus.envs",
    "make_async": "ludus.envs",
    "register": "ludus.envs",
    "tool": "ludus.envs",
    "Sample": "ludus.rewards",
    "Status": "ludus.verdict",
    "Verdict": "ludus.verdict",
    "make_verifier": "ludus.rewards",
    "score": "ludus.rewards.score",
    "verifier": "ludus.rewards",
}


gymnasium_hook.install()
installed.warn_of_a_foreign_one(sys.path)


def __dir__() -> list[str]:
    return sorted({*globals(), *_exports})


def __getattr__(name: str) -> object:
    if name in _exports:
        return getattr(import_module(_exports[name]), name)
    raise AttributeError(f"module 'ludus' has no attribute {name!r}")
