"""The messages of the environment protocol: what clients send and servers answer.

An operation is the same struct on every way: in a stream and in a batch it is sent whole, with a
tag `op`; on its own route it is sent without the tag and without the field that the path names.

Every reset and step of a session carries a `seq`, counting from 0. The server keeps the last reply,
so an operation that is sent again gets the kept reply and is never carried out twice. Replies echo
session and seq, so that a client recognises a late reply to another operation.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ludus.messages import Message, Observation
from ludus.verdict import Verdict
from ludus.wire.codec import Encoded, decode
from ludus.wire.faults import Fault

from ..protocol import Briefing

SessionName = Annotated[
    str,
    msgspec.Meta(
        # Python's `$` also matches before a last newline.
        pattern=r"^[A-Za-z0-9._:-]{1,128}$(?!\n)",
        description="chosen by the client; unique to it",
    ),
]
Seq = Annotated[int, msgspec.Meta(ge=0)]
MAX_BATCH = 1024
MAX_CHILDREN = 64
MAX_PAGE = 1000
MAX_HOLD_S = 30.0


class Beginning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The seed and the options with which an episode begins."""

    seed: int | None = None
    options: dict[str, Any] = {}


class Create(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="op",
    tag="create",
    forbid_unknown_fields=True,
):
    """Makes a session; with `reset`, also begins an episode."""

    env: str
    session: SessionName
    reset: Beginning | None = None
    """How the first episode begins, as the operation with seq 0; None makes a session without an
    episode.
    """


class Reset(
    Beginning, frozen=True, kw_only=True, tag_field="op", tag="reset", forbid_unknown_fields=True
):
    """Begins an episode in a session."""

    session: SessionName
    seq: Seq
    instance: str = ""
    """The id of the server process that created the session. A server that was restarted then
    answers that the session is lost, rather than that its name is unknown.
    """


class Step(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="op",
    tag="step",
    forbid_unknown_fields=True,
):
    """Plays an action in the episode of a session."""

    session: SessionName
    seq: Seq
    action: str | Message
    instance: str = ""


class Delete(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="op",
    tag="delete",
    forbid_unknown_fields=True,
):
    """Releases a session and closes the environment."""

    session: SessionName


class Fork(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="op",
    tag="fork",
    forbid_unknown_fields=True,
):
    """Makes sessions in the state of another session, which goes on unchanged.

    It uses no seq of the parent, and the same fork sent again is answered by the kept reply. The
    children live where the parent does, have leases of their own, and count their seq from 0.
    """

    session: SessionName
    """The parent."""
    seq: Seq
    """The parent's next seq: a fork of another moment is refused."""
    children: Annotated[list[SessionName], msgspec.Meta(min_length=1, max_length=MAX_CHILDREN)]
    seeds: list[int] | None = None
    """A seed for each child, which draws anew from the fork on; null lets every child draw what the
    parent will draw.
    """
    instance: str = ""


Play = Create | Reset | Step
"""An operation that runs the environment, and is carried out once for each seq."""
Operation = Create | Reset | Step | Delete | Fork


class Created(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="created"):
    """The reply to a create without an episode: the session's first reset has seq 0."""

    session: str
    instance: str


class ResetReply(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="reset", omit_defaults=True
):
    """The reply to a reset: the first observation, the briefing and the task."""

    session: str
    seq: int
    instance: str
    observation: Observation
    briefing: Briefing
    task: str
    info: dict[str, Any] = {}


class StepReply(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="step", omit_defaults=True
):
    """The reply to a step: the next observation, the reward and whether the episode ended."""

    session: str
    seq: int
    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any] = {}
    verdict: Verdict | None = None
    """How the reward was composed, if the environment gave a verdict."""


class Released(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="released"):
    """The reply to a delete: the session does not exist any more."""

    session: str
    released: bool
    """Whether this request ended the session; false where the session did not exist."""


class ForkedChild(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a child."""

    session: str
    error: Fault | None = None
    """Why there is no such session; null where there is."""


class Forked(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="forked"):
    """The reply to a fork: an outcome for each child, some of which may have failed."""

    session: str
    instance: str
    turn: int
    """The turns that the parent had played."""
    how: str
    """`copy` or `replay`."""
    digest: str
    """Digits of what the state follows from; empty where it follows from more than the episode."""
    children: list[ForkedChild]


class ForkDone(msgspec.Struct, frozen=True):
    """What was made of a fork where the parent is played."""

    turn: int
    how: str
    digest: str
    faults: dict[str, Fault] = {}
    """By the child that could not be made."""


Reply = Created | ResetReply | StepReply | Released | Forked
_REPLY: Any = Reply
Outcome = Reply | Encoded | Fault
"""The result of an operation. `Encoded` is a `Reply` that is already encoded for the response."""


def read_outcome(outcome: Outcome) -> Reply | Fault:
    """Decode an outcome for a caller that reads the reply rather than forwards the bytes."""
    if isinstance(outcome, Encoded):
        reply: Reply = decode(outcome.data, _REPLY, outcome.format)
        return reply
    return outcome


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/step_batch`."""

    items: list[Operation]
    hold_s: float = MAX_HOLD_S
    """How long, in seconds, the server waits for slow operations. An operation that is not done
    when the others are is answered with status 202; the client sends the operation again to go on
    waiting.
    """


class BatchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `BatchRequest` in the form that the server reads.

    Each item is decoded separately, so that a wrong item does not spoil the others.
    """

    items: Annotated[list[Any], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]
    hold_s: Annotated[float, msgspec.Meta(ge=0, le=MAX_HOLD_S)] = MAX_HOLD_S


class BatchItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to an operation of a batch."""

    status: int
    """200 for a reply, 202 for an operation that still runs, otherwise the status of `error`."""
    reply: Reply | None = None
    error: Fault | None = None


class BatchReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to a batch, in the order of the operations."""

    items: list[BatchItem]


class SentItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A `BatchItem` in the form that the server writes: the reply may be encoded already."""

    status: int
    reply: Reply | Encoded | None = None
    error: Fault | None = None


class SentReply(msgspec.Struct, frozen=True, kw_only=True):
    """A `BatchReply` in the form that the server writes."""

    items: list[SentItem]


class EnvCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server's description of an environment on offer."""

    id: str
    description: str
    deterministic: bool
    briefing: Briefing
    splits: dict[str, int | None]
    """The number of tasks by name of split; null for a split without end."""
    reset_options: dict[str, str]
    """The type by name of each option that a client may set at reset, besides `task` and
    `split`.
    """
    forks: str = "no"
    """How an episode is forked: `copy`, `replay` or `no`."""
    arguments: dict[str, Any] = {}
    """The constructor arguments that differ from the defaults; secrets are left out."""


class EnvList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /v1/envs`."""

    instance: str
    envs: list[EnvCard]


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of `GET /v1/envs/{id}/tasks`."""

    split: str = "train"
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = 100
    task: str = ""
    """The id of a task, if only that task is wanted; empty for a page of tasks."""
