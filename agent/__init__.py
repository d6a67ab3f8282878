"""One policy playing one environment: policies, loop, trajectories, chat and tool formats."""

from .chat import ChatFormat
from .chat_policy import ChatPlayer, ChatPolicy
from .engine import Engine, Generation, Sampling
from .human_policy import HumanPlayer, HumanPolicy
from .loop import Limits, play
from .policy import Player, Policy, ScriptedPolicy, TextPlayer
from .random_policy import RandomPolicy
from .token_policy import TokenPlayer, TokenPolicy
from .trajectory import FAILURES, Episode, Finish, Segment, Stop, Trajectory, Turn, TurnKind

__all__ = [
    "FAILURES",
    "ChatFormat",
    "ChatPlayer",
    "ChatPolicy",
    "Engine",
    "Episode",
    "Finish",
    "Generation",
    "HumanPlayer",
    "HumanPolicy",
    "Limits",
    "Player",
    "Policy",
    "RandomPolicy",
    "Sampling",
    "ScriptedPolicy",
    "Segment",
    "Stop",
    "TextPlayer",
    "TokenPlayer",
    "TokenPolicy",
    "Trajectory",
    "Turn",
    "TurnKind",
    "play",
]
