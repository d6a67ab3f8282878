"""Carries out an operation on a session and encodes the reply once."""

from __future__ import annotations

from dataclasses import dataclass

from ludus.errors import LudusError, ServerFault
from ludus.wire.codec import Encoded, Format, encode
from ludus.wire.faults import Fault, fault_of

from ..protocol import Briefing
from ..session import EnvSession
from .env_wire import Beginning, Create, Play, Reply, Reset, ResetReply, Step, StepReply


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """How a reply is encoded, and how long it may be."""

    max_bytes: int
    """The limit on a reply; a longer reply counts as a fault of the environment."""
    format: Format = Format.MSGPACK
    """The format, if it can express the reply; the encoded reply tells which was used."""


async def perform(
    session: EnvSession,
    play: Play,
    seq: int,
    instance: str,
    form: ReplyForm,
) -> Encoded:
    """Carry out an operation and encode the reply.

    Args:
        session: the session of the environment.
        play: the operation.
        seq: the number of the operation in its session.
        instance: the id of this server process.
        form: the format and the longest length of the reply.

    Raises:
        TypeError: the reply cannot be encoded.
        ServerFault: the reply is longer than `form.max_bytes`.
        LudusError, Exception: the environment raised it.
    """
    reply: Reply
    match play:
        case Create(reset=beginning):
            reply = await _reset(session, beginning or Beginning(), play.session, seq, instance)
        case Reset():
            reply = await _reset(session, play, play.session, seq, instance)
        case Step():
            stepped = await session.step(play.action)
            observation, reward, terminated, truncated, info = stepped
            reply = StepReply(
                session=play.session,
                seq=seq,
                observation=observation,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                verdict=info.pop("verdict", None),
                info=info,
            )
    try:
        data, new_state = encode(reply, form.format)
    except (TypeError, ValueError, RecursionError) as error:
        session.abort()
        raise TypeError(f"the answer of {session.id} cannot be sent: {error}") from error
    if len(data) > form.max_bytes:
        session.abort()
        raise ServerFault(
            f"the answer of {session.id} has {len(data)} bytes; this server sends at most "
            f"{form.max_bytes} (--max-reply-mb)"
        )
    return Encoded(data, new_state)


def fault_in(error: BaseException, session: str, seq: int) -> Fault:
    """Turn an exception of an environment into the fault that the client gets."""
    return fault_of(error, session=session, seq=seq, otherwise="env_failed")


def is_bug(error: BaseException) -> bool:
    """Whether the environment's author should see a traceback: any exception that is not a
    LudusError.
    """
    return not isinstance(error, LudusError)


async def _reset(
    session: EnvSession, beginning: Beginning, name: str, seq: int, instance: str
) -> ResetReply:
    observation, info = await session.reset(seed=beginning.seed, options=dict(beginning.options))
    briefing = info.pop("briefing")
    assert isinstance(briefing, Briefing)
    return ResetReply(
        session=name,
        seq=seq,
        instance=instance,
        observation=observation,
        briefing=briefing,
        task=str(info.pop("task")),
        info=info,
    )
