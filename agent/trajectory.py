"""The record of an episode: tokens for the trainer, and messages for people.

    Episode            one task, one seed, one group
      Trajectory       one role's part of the episode, with its verdict
        Segment        one context window: one training row
          Turn         one sampled span: an action or a context summary

Tokens are the source of truth. Sampled ids are kept as sampled and never re-encoded; within a
segment each request's prompt is exactly the ids so far. When that would not hold (a summary, a
template that rewrites history), a new segment starts. Every sampled token is trained in at most
one segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec

from ludus.messages import Message
from ludus.verdict import Verdict

from .images import PlacedImage


class TurnKind(StrEnum):
    """The purpose of a sampled span."""

    ACT = "act"
    """An action, sent to the environment."""
    SUMMARY = "summary"
    """A summary of the context or a memory, written by the policy and trained like an action."""
    THOUGHT = "thought"
    """Thoughts that a budget ended; what the policy said behind the forced phrase is the next turn.
    """
    FOLD = "fold"
    """A call that the context manager answers: of a branch, of the memory tool, of a record."""


class Finish(StrEnum):
    """The reason why the sampling of a span stopped."""

    STOP = "stop"
    """The policy ended its turn."""
    LENGTH = "length"
    """The token budget ran out; a tool call that was cut is never executed."""
    ABORT = "abort"
    """The engine dropped the request."""


class Stop(StrEnum):
    """The reason why a trajectory ended."""

    TERMINATED = "terminated"
    """The environment ended the episode."""
    MAX_TURNS = "max_turns"
    """The environment truncated the episode, or the agent's own limit was reached."""
    CONTEXT_FULL = "context_full"
    """The next prompt would not leave room to answer."""
    MAX_SUMMARIES = "max_summaries"
    """The window is full and no summary is left."""
    LENGTH = "length"
    """The last answer was cut by the token budget, and the environment ended on it."""
    NO_CALLS = "no_calls"
    """Too many consecutive turns without a call that the environment could use."""
    TIMEOUT = "timeout"
    """The time for the episode is used up."""
    REWARD_UNAVAILABLE = "reward_unavailable"
    """The environment could not compute its reward."""
    ENV_ERROR = "env_error"
    """The environment or its server failed."""
    POLICY_ERROR = "policy_error"
    """The engine or the model's server failed."""
    AGENT_FAILED = "agent_failed"
    """The agent behind the gateway crashed; what the policy had answered was judged."""
    AGENT_TIMEOUT = "agent_timeout"
    """The agent behind the gateway was out of time; what the policy had answered was judged."""
    LEFT = "left"
    """The person who played ended the input."""


FAILURES = frozenset(
    {Stop.TIMEOUT, Stop.REWARD_UNAVAILABLE, Stop.ENV_ERROR, Stop.POLICY_ERROR, Stop.LEFT}
)
"""Stops that are not the fault of the policy: such trajectories leave the loss and the group
baseline.
"""
TRUNCATED = frozenset({Stop.MAX_TURNS, Stop.CONTEXT_FULL, Stop.MAX_SUMMARIES})
"""Stops by a limit before the environment had ended the episode, so that a next state exists."""


class Turn(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A sampled span, and the input that the policy saw before."""

    kind: TurnKind = TurnKind.ACT
    obs_ids: list[int] = []
    """Environment and template tokens between the last span and this one; not trained. Empty in
    a segment's first turn.
    """
    obs_images: list[PlacedImage] = []
    """The images shown in `obs_ids`, with positions in `obs_ids`."""
    out_ids: list[int] = []
    """The sampled tokens, the end-of-turn token included."""
    logprobs: list[float] = []
    """Log-probability in nats of each sampled token, as reported by the engine."""
    tokens: int = 0
    """How many tokens were sampled, as the model's server counts; 0 where `out_ids` are known."""
    versions: list[int] = []
    """Version of the weights that sampled each token."""
    finish: Finish = Finish.STOP
    reward: float = 0.0
    """The environment's reward for this action, and what verifiers gave to this turn."""
    anchor: str = ""
    """A digest of the observation before the action; equal in two rollouts that reached the same
    state (GiGPO).
    """
    observation: list[Message] = []
    """The messages behind `obs_ids`, for people."""
    message: Message | None = None
    """The sampled span as parsed, for people."""
    action: Message | None = None
    """The action as the environment heard it, where that is not all of `message`: a part was for
    the context manager.
    """
    trained: bool = True
    """Whether the sampled tokens count in the loss."""
    node: str = ""
    """The node of its tree, in a rollout that is a leaf of one: `1/0/2` is the third child of the
    first child of the second root. Turns of a node were sampled once.
    """
    shared: bool = False
    """Whether it was sampled for another rollout, and stands here as the past of this one."""


class Segment(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A context window: `prompt_ids`, then the turns' `obs_ids` and `out_ids` in order."""

    prompt_ids: list[int] = []
    prompt_images: list[PlacedImage] = []
    """The images shown in `prompt_ids`."""
    turns: list[Turn] = []
    break_reason: str = ""
    """The reason why the next segment began: drift, summary, or the name of the context manager
    that cut; empty in the last segment.
    """
    cause: str = ""
    """The reason why this segment began, in a rollout of an agent behind the gateway; see
    `gateway.tree.Cause`.
    """
    parent: int = -1
    """Index of the segment that this one forked from or took its history from; -1 for none."""
    discarded: list[Turn] = []
    """Actions that the environment executed but that left this window before the summary. These are
    not in `ids()` and not trained, but their rewards are part of the return.
    """

    def ids(self) -> list[int]:
        """Return all tokens of the row."""
        row = list(self.prompt_ids)
        for turn in self.turns:
            row += turn.obs_ids
            row += turn.out_ids
        return row

    def images(self) -> list[PlacedImage]:
        """Return the images of the row, with positions in `ids()`."""
        images = list(self.prompt_images)
        for start, turn in self.spans():
            images += [image.moved(start - len(turn.obs_ids)) for image in turn.obs_images]
        return images

    def spans(self) -> Iterator[tuple[int, Turn]]:
        """Yield each turn with the index of the first sampled token in `ids()`."""
        start = len(self.prompt_ids)
        for turn in self.turns:
            start += len(turn.obs_ids)
            yield start, turn
            start += len(turn.out_ids)


class Trajectory(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The part of a single role in an episode."""

    role: str = "policy"
    about: str = ""
    """What the role was asked for, beside the task: the trajectories of a group that have the same
    role and text are compared with each other, and with no others.
    """
    verdict: Verdict
    terminated: bool = False
    stop: Stop = Stop.TERMINATED
    segments: list[Segment] = []
    node: str = ""
    """The leaf's node, in a tree of rollouts; see `Turn.node`."""
    exclude_from_loss: bool = False
    exclude_from_baseline: bool = False
    state_ids: list[int] = []
    """The window that the policy would have read next, where a limit cut the episode: the state
    after truncation, which a value head can judge. Empty where the environment ended the
    episode, and for policies without tokens.
    """
    state_images: list[PlacedImage] = []
    """The images shown in `state_ids`."""
    closing: list[Message] = []
    """The observation after the last action, if there was one. No policy has read it, but a person
    or a verifier of images may want to.
    """
    gold: Any = None
    """The answer according to the environment, known once the episode is over; for verifiers."""
    asked: dict[str, float] = {}
    """What the sampling policy asked of this trajectory besides the task: target (tokens), shortest
    (tokens), hint (share of the expert's work), temperature ..."""
    metrics: dict[str, float] = {}
    """Counts of this trajectory: tool_calls, tool_errors, parse_errors, summaries ..."""

    @property
    def turns(self) -> list[Turn]:
        """The turns of all segments, in order."""
        return [turn for segment in self.segments for turn in segment.turns]

    @property
    def discarded(self) -> list[Turn]:
        """The turns that left the window before the summary was written."""
        return [turn for segment in self.segments for turn in segment.discarded]

    @property
    def ret(self) -> float:
        """The return: the undiscounted sum of the rewards of all turns, including discarded
        turns.
        """
        return sum(turn.reward for turn in [*self.turns, *self.discarded])

    @property
    def sampled_tokens(self) -> int:
        """How many tokens the policy sampled, for this trajectory."""
        turns = [turn for turn in [*self.turns, *self.discarded] if not turn.shared]
        return sum(len(turn.out_ids) or turn.tokens for turn in turns)


class Episode(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A task played to an end, by all roles."""

    task: str
    group: str = ""
    """Rollouts of one group share the task and the environment seed."""
    seed: int = 0
    trajectories: list[Trajectory] = []
    """One trajectory per role."""
    index: int = 0
    """The index of the rollout within the group."""
    ordinal: int = -1
    """The ordinal of the rollout in a training run, in the order of issue, which decides the
    sampling seed; -1 outside of training.
    """
    split: str = "train"
    wall_s: float = 0.0
