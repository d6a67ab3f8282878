"""A policy playing an environment: policies, the episode loop, trajectories, chat and tool
formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.lazy import lazy_exports

if TYPE_CHECKING:
    from .chat import ChatFormat
    from .chat_policy import ChatPlayer, ChatPolicy
    from .engine import Engine, Generation, Sampling, TensorMeta, WeightSource
    from .episodes import read_episodes, write_episodes
    from .evaluation import Evaluation, evaluate, summarise
    from .human_policy import HumanPlayer, HumanPolicy
    from .loop import EpisodeLimits, opening_of, play
    from .policy import Player, Policy, RandomPolicy, ScriptedPolicy, TextPlayer
    from .rows import Span, SpanSampler
    from .token_policy import TokenPlayer, TokenPolicy, context_sizes
    from .trajectory import FAILURES, Episode, Finish, Segment, Stop, Trajectory, Turn, TurnKind

__all__ = [
    "FAILURES",
    "ChatFormat",
    "ChatPlayer",
    "ChatPolicy",
    "Engine",
    "Episode",
    "EpisodeLimits",
    "Evaluation",
    "Finish",
    "Generation",
    "HumanPlayer",
    "HumanPolicy",
    "Player",
    "Policy",
    "RandomPolicy",
    "Sampling",
    "ScriptedPolicy",
    "Segment",
    "Span",
    "SpanSampler",
    "Stop",
    "TensorMeta",
    "TextPlayer",
    "TokenPlayer",
    "TokenPolicy",
    "Trajectory",
    "Turn",
    "TurnKind",
    "WeightSource",
    "context_sizes",
    "evaluate",
    "opening_of",
    "play",
    "read_episodes",
    "summarise",
    "write_episodes",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".chat": "ChatFormat",
        ".chat_policy": "ChatPlayer ChatPolicy",
        ".engine": "Engine Generation Sampling TensorMeta WeightSource",
        ".episodes": "read_episodes write_episodes",
        ".evaluation": "Evaluation evaluate summarise",
        ".human_policy": "HumanPlayer HumanPolicy",
        ".loop": "EpisodeLimits opening_of play",
        ".policy": "Player Policy RandomPolicy ScriptedPolicy TextPlayer",
        ".rows": "Span SpanSampler",
        ".token_policy": "TokenPlayer TokenPolicy context_sizes",
        ".trajectory": "Episode FAILURES Finish Segment Stop Trajectory Turn TurnKind",
    },
)
