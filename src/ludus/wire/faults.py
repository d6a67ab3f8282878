"""The table that maps `ludus.errors` to codes and HTTP statuses, and back.

A `Fault` is the body of every answer that is not a success. The client raises the same type of
error that the server met, so code written against a local environment or verifier works unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ludus.errors import (
    CheckFailed,
    ConfigError,
    EpisodeEnded,
    InvalidAction,
    LudusError,
    MissingExtra,
    NotForkable,
    Overloaded,
    ReplayDiverged,
    RequestRejected,
    RequestTimeout,
    RewardUnavailable,
    SequenceConflict,
    ServerFault,
    SessionGone,
    SessionLost,
    Unauthorized,
    UnknownEnv,
    UnknownName,
    UnknownTask,
    UnknownVerifier,
    error_text,
)
from ludus.verdict import Verdict


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Says why a request or an item of a batch was not done."""

    code: str
    """A key of `CODES`; a client that does not know the code goes by the HTTP status."""
    message: str
    """A description of what went wrong and what to do, as a sentence for a person."""
    session: str = ""
    """The name of the session whose operation failed; empty outside sessions."""
    seq: int | None = None
    """The seq that the operation used up, in which case this fault *is* the reply of that seq and
    is kept like any other reply. None for a refusal, which leaves the seq free (decision 0200).
    """
    retryable: bool = False
    """Whether sending the same request again may help."""
    retry_after_s: float | None = None
    """The server's estimate of the seconds until a queue has room; None for other faults."""
    queue_depth: int | None = None
    """How many places of the full queue are taken; None for other faults."""
    limit: int | None = None
    """How many places the full queue has; None for other faults."""
    lost: bool = False
    """Whether a sandbox session ended by its server's doing, and not by what ran in the session."""
    cause: str = ""
    """Which bound a refusal met, where the code is `overloaded`; a key of `CAUSES`."""
    request_id: str = ""
    """The id of the request, also that of its line in the server's access log."""
    verdict: Verdict | None = None
    """The verdict that says why there is no reward, where the code is `reward_unavailable`."""

    def stamp(self, request_id: str) -> None:
        """Note the request that is answered by this fault. A fault that is kept as the reply of a
        seq keeps the id of the first, so that it is the same whenever it is sent.
        """
        if not self.request_id:
            msgspec.structs.force_setattr(self, "request_id", request_id)


class FaultReply(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an answer with a status of 400 or more."""

    error: Fault


@dataclass(frozen=True, slots=True)
class Code:
    """The HTTP status of a fault, and the error type that a client raises."""

    status: int
    error: type[LudusError]
    retryable: bool = False


CODES: dict[str, Code] = {
    "malformed": Code(400, RequestRejected),
    "unauthorized": Code(401, Unauthorized),
    "forbidden": Code(403, Unauthorized),
    "not_found": Code(404, RequestRejected),
    "unknown_env": Code(404, UnknownEnv),
    "unknown_verifier": Code(404, UnknownVerifier),
    "unknown_task": Code(404, UnknownTask),
    "unknown_session": Code(404, SessionGone),
    "unknown_language": Code(404, UnknownName),
    "method_not_allowed": Code(405, RequestRejected),
    "slow_body": Code(408, RequestTimeout),
    "sequence_conflict": Code(409, SequenceConflict),
    "episode_ended": Code(409, EpisodeEnded),
    "replay_diverged": Code(409, ReplayDiverged),
    "session_gone": Code(410, SessionGone),
    "too_large": Code(413, RequestRejected),
    "unsupported_media": Code(415, RequestRejected),
    "misdirected": Code(421, RequestRejected),
    "invalid": Code(422, RequestRejected),
    "invalid_action": Code(422, InvalidAction),
    "invalid_option": Code(422, ConfigError),
    "file_refused": Code(422, RequestRejected),
    "not_forkable": Code(422, NotForkable),
    "not_snapshotable": Code(422, RequestRejected),
    "upgrade_required": Code(426, RequestRejected),
    "reward_unavailable": Code(424, RewardUnavailable),
    "overloaded": Code(429, Overloaded, retryable=True),
    "chaos": Code(500, ServerFault, retryable=True),
    "env_failed": Code(500, ServerFault),
    "contract_broken": Code(500, CheckFailed),
    "internal": Code(500, ServerFault),
    "missing_extra": Code(501, MissingExtra),
    "worker_lost": Code(503, ServerFault, retryable=True),
    "stopping": Code(503, ServerFault, retryable=True),
    "sandbox_failed": Code(503, ServerFault, retryable=True),
    "step_timeout": Code(504, RequestTimeout),
    "deadline": Code(504, RequestTimeout, retryable=True),
}
"""The code of a fault -> its status, its error type, and whether another attempt may help."""

# `Refused` is not in this list, since it carries a code of its own.
_CODE_OF: list[tuple[type[LudusError], str]] = [
    (RewardUnavailable, "reward_unavailable"),
    (UnknownEnv, "unknown_env"),
    (UnknownVerifier, "unknown_verifier"),
    (UnknownTask, "unknown_task"),
    (InvalidAction, "invalid_action"),
    (EpisodeEnded, "episode_ended"),
    (NotForkable, "not_forkable"),
    (ReplayDiverged, "replay_diverged"),
    (CheckFailed, "contract_broken"),
    (ConfigError, "invalid_option"),
    (MissingExtra, "missing_extra"),
    (SequenceConflict, "sequence_conflict"),
    (SessionGone, "session_gone"),
    (Overloaded, "overloaded"),
    (Unauthorized, "unauthorized"),
]

# The errors for codes that this client does not know, such as those of a newer server.
_BY_STATUS: dict[int, type[LudusError]] = {
    401: Unauthorized,
    403: Unauthorized,
    408: RequestTimeout,
    409: SequenceConflict,
    410: SessionGone,
    429: Overloaded,
    504: RequestTimeout,
}


class Refused(RequestRejected):
    """The server refuses a request; `code`, a key of `CODES`, says why."""

    def __init__(self, message: str, code: str) -> None:
        # Unpickling calls the class with `args`, so the code has to be among them, and `__str__`
        # must then show the message alone.
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


CAUSES = {
    "queue": "operations in flight of the whole server, or of a name and principal",
    "sessions": "open sessions",
    "requests": "requests in flight",
    "bytes": "bytes of the bodies in flight",
    "rate": "the principal's operations a second",
    "principal_sessions": "the principal's open sessions",
    "principal_bytes": "bytes of the principal's bodies in flight",
    "sandbox": "slots of the sandbox",
}
"""The cause of a 429 -> the bound that it met; the label of `ludus_refused_total`."""


class QueueFull(Overloaded):
    """A bounded queue is full: `depth` of `limit` places are taken.

    `cause` is a key of `CAUSES`.
    """

    def __init__(
        self,
        message: str,
        retry_after_s: float = 1.0,
        *,
        depth: int = 0,
        limit: int = 0,
        cause: str = "queue",
    ) -> None:
        super().__init__(message, retry_after_s)
        self.cause = cause
        self.depth = depth
        self.limit = limit


def fault_of(
    error: BaseException, *, session: str = "", seq: int | None = None, otherwise: str = "internal"
) -> Fault:
    """Build the fault that tells a client of `error`.

    Args:
        error: what was raised.
        session: the name of the session whose operation failed.
        seq: the seq of the operation, if the operation used it up.
        otherwise: the code of an error without a code of its own, such as one of user code.
    """
    if isinstance(error, Refused):
        code = error.code
    else:
        code = next((code for kind, code in _CODE_OF if isinstance(error, kind)), otherwise)
    ours = isinstance(error, LudusError)
    return Fault(
        code=code,
        message=error_text(error) if ours else f"{type(error).__name__}: {error_text(error)}",
        session=session,
        seq=seq,
        retryable=CODES[code].retryable,
        retry_after_s=error.retry_after_s if isinstance(error, Overloaded) else None,
        queue_depth=error.depth if isinstance(error, QueueFull) else None,
        limit=error.limit if isinstance(error, QueueFull) else None,
        lost=isinstance(error, SessionLost),
        cause=error.cause if isinstance(error, QueueFull) else "",
        verdict=error.verdict if isinstance(error, RewardUnavailable) else None,
    )


def status_of(fault: Fault) -> int:
    """Return the HTTP status of a fault."""
    return CODES[fault.code].status


def error_of(fault: Fault, status: int) -> LudusError:
    """Build the error that a client raises for a fault; `used_seq` and `code_of` read the fault
    back.
    """
    kind = _BY_STATUS.get(status, ServerFault if status >= 500 else RequestRejected)
    if fault.code in CODES:  # else a code of a newer server, whose status says enough
        kind = CODES[fault.code].error
    if kind is SessionGone and fault.lost:
        kind = SessionLost
    error: LudusError
    if kind is RewardUnavailable:
        error = RewardUnavailable(fault.verdict or Verdict.unavailable(fault.message))
    elif kind is Overloaded:
        error = Overloaded(fault.message, fault.retry_after_s or 1.0)
    else:
        error = kind(fault.message)
        if isinstance(error, (ServerFault, RequestTimeout)):
            error.retryable = fault.retryable
    # `ludus.errors` declares no such attribute: only errors that came from a server have a fault.
    error.__dict__["fault"] = fault
    return error


def used_seq(error: LudusError) -> bool:
    """Say whether `error` is the reply to an operation, so that its seq is used up; after a refusal
    the same seq may be sent again.
    """
    fault = error.__dict__.get("fault")
    return isinstance(fault, Fault) and fault.seq is not None


def code_of(error: BaseException) -> str:
    """Return the code that a server sent with `error`; empty for an error from elsewhere."""
    fault = error.__dict__.get("fault")
    return fault.code if isinstance(fault, Fault) else ""


def is_too_large(error: BaseException) -> bool:
    """Say whether `error` is a server's refusal of a body that was too large."""
    return code_of(error) == "too_large"
