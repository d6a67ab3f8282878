"""The words of the environment protocol: what clients send and servers answer.

An operation is one struct however it travels: in a stream and in a batch whole, with a tag `op`; on
its own route without the tag and without the field that the path names.

Every reset and step of a session carries a `seq`, counting from 0. The server keeps the last reply,
so the same operation sent again is answered from it and never done twice. Replies echo session and
seq, so that a late one cannot be taken for another's.
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
        pattern=r"^[A-Za-z0-9._:-]{1,128}$", description="chosen by the client; unique to it"
    ),
]
Seq = Annotated[int, msgspec.Meta(ge=0)]
MAX_BATCH = 1024
MAX_PAGE = 1000
MAX_HOLD_S = 30.0


class Beginning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an episode begins."""

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
    """Make a session; with `reset`, also begin an episode."""

    env: str
    session: SessionName
    reset: Beginning | None = None
    """Also begin an episode, as the operation with seq 0."""


class Reset(
    Beginning,
    frozen=True,
    kw_only=True,
    tag_field="op",
    tag="reset",
    forbid_unknown_fields=True,
):
    """Begin an episode in a session."""

    session: SessionName
    seq: Seq
    instance: str = ""
    """The server run that created the session, so that a restart is told from a wrong name."""


class Step(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="op",
    tag="step",
    forbid_unknown_fields=True,
):
    """Play one action."""

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
    """Release a session."""

    session: SessionName


Play = Create | Reset | Step
"""What runs in a session and is answered once per seq."""
Operation = Create | Reset | Step | Delete


class Created(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="created"):
    """A session without an episode yet: its first reset has seq 0."""

    session: str
    instance: str


class ResetReply(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="reset", omit_defaults=True
):
    """The beginning of an episode."""

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
    """What one action led to."""

    session: str
    seq: int
    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any] = {}
    verdict: Verdict | None = None
    """How the reward was composed, if the environment said so."""


class Released(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="released"):
    """A session is no more, whether it was this request that ended it or not."""

    session: str
    released: bool
    """Whether it was there."""


Reply = Created | ResetReply | StepReply | Released
_REPLY: Any = Reply
Outcome = Reply | Encoded | Fault
"""What became of an operation; `Encoded` is a `Reply` that is bytes already."""


def read_outcome(outcome: Outcome) -> Reply | Fault:
    """An outcome as a struct, for those who do not send it on."""
    if isinstance(outcome, Encoded):
        reply: Reply = decode(outcome.data, _REPLY, outcome.format)
        return reply
    return outcome


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/step_batch`."""

    items: list[Operation]
    hold_s: float = MAX_HOLD_S
    """How long to wait for the slow ones. What is not done when others are is answered with
    status 202; send the same operation again to go on waiting for it.
    """


class BatchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `BatchRequest` as the server reads it: each item on its own, so that a wrong one does not
    spoil the others.
    """

    items: Annotated[list[Any], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]
    hold_s: Annotated[float, msgspec.Meta(ge=0, le=MAX_HOLD_S)] = MAX_HOLD_S


class BatchItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one operation of a batch."""

    status: int
    """200 done, 202 still running, otherwise the status of `error`."""
    reply: Reply | None = None
    error: Fault | None = None


class BatchReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answers, in the order of the operations."""

    items: list[BatchItem]


class SentItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A `BatchItem` as the server writes it: its reply may be bytes already."""

    status: int
    reply: Reply | Encoded | None = None
    error: Fault | None = None


class SentReply(msgspec.Struct, frozen=True, kw_only=True):
    """A `BatchReply` as the server writes it."""

    items: list[SentItem]


class EnvCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One environment a server offers."""

    id: str
    description: str
    deterministic: bool
    briefing: Briefing
    splits: dict[str, int | None]
    """Split -> number of tasks; null is without end."""
    reset_options: dict[str, str]
    """Name -> type, of the options a client may set at reset besides `task` and `split`."""
    arguments: dict[str, Any] = {}
    """What it was constructed with, where that differs from its defaults; secrets are left out."""


class EnvList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /v1/envs`."""

    instance: str
    envs: list[EnvCard]


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of `GET /v1/envs/{id}/tasks`."""

    split: str = "train"
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = 100
    task: str = ""
    """An id: the page then holds this task alone."""
