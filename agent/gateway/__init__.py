"""The gateway: agents outside ludus call a policy like the server of any model.

    tree.py        which call continues which: messages in canonical form, rows, typed causes
    rollout.py     one rollout: its calls, budgets, retries and end
    dialects/      OpenAI chat and responses, Anthropic messages: translation and nothing else
    service.py     the HTTP server, a key for each rollout
    served.py      a model behind a server in place of an engine, for evaluation
    programs.py    agents: functions, programs of this machine, programs in a sandbox
    launch.py      lets an agent play one episode

The ids of a row are what the engine saw and sampled. An exact echo of an earlier answer is
continued with the ids that were sampled; any other history opens a row, and the row names why.
"""

from .dialects import DIALECTS
from .launch import AgentLimits, AgentMaker, run_agent
from .programs import Agent, AgentCommand, AgentSandbox, AgentTask, agent_of
from .rollout import Rollout, RolloutLimits
from .served import TextWriter
from .service import Gateway
from .tree import Cause, PolicyCall, Tree

__all__ = [
    "DIALECTS",
    "Agent",
    "AgentCommand",
    "AgentLimits",
    "AgentMaker",
    "AgentSandbox",
    "AgentTask",
    "Cause",
    "Gateway",
    "PolicyCall",
    "Rollout",
    "RolloutLimits",
    "TextWriter",
    "Tree",
    "agent_of",
    "run_agent",
]
