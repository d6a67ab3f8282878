"""A policy playing an environment: policies, the episode loop, trajectories, chat and tool
formats.
"""

from .chat import ChatFormat
from .chat_player import ChatPlayer
from .chat_policy import ChatPolicy
from .engine import Engine, Generation, Sampling
from .human_policy import HumanPlayer, HumanPolicy
from .loop import EpisodeLimits, opening_of, play
from .policy import Player, Policy, ScriptedPolicy, TextPlayer
from .random_policy import RandomPolicy
from .token_player import Span, SpanSampler, TokenPlayer
from .token_policy import TokenPolicy, context_sizes
from .trajectory import FAILURES, Episode, Finish, Segment, Stop, Trajectory, Turn, TurnKind

__all__ = [
    "FAILURES",
    "ChatFormat",
    "ChatPlayer",
    "ChatPolicy",
    "Engine",
    "Episode",
    "EpisodeLimits",
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
    "TextPlayer",
    "TokenPlayer",
    "TokenPolicy",
    "Trajectory",
    "Turn",
    "TurnKind",
    "context_sizes",
    "opening_of",
    "play",
]
