"""The errors that ludus raises on purpose, as a tree.

    LudusError
    + ConfigError            (ValueError)       a setting that cannot work
    + UnknownName            (LookupError)      a name nobody registered; the message names the near
    miss
      - UnknownEnv
      - UnknownVerifier
      - UnknownTask
      - UnknownTool
    + MissingExtra           (ImportError)      an optional dependency is not installed
    + InvalidAction          (TypeError)        an action of a wrong type
    + InvalidTool            (TypeError)        a function that cannot be told to a policy
    + InvalidScore           (TypeError)        a verifier returned something else than a verdict
    + EpisodeEnded           (RuntimeError)     step before reset, or after the end
    + RewardUnavailable      (RuntimeError)     the reward could not be computed: never read as zero
    + BudgetExceeded         (RuntimeError)     the tokens a model's client may use are spent
    + StaleWeights           (RuntimeError)     an engine does not sample from its weights
    + BrokenGeneration       (RuntimeError)     an engine's answer cannot be trained on
    + TrainingFailed         (RuntimeError)     nothing can be learned: every episode of a step
    failed
      - UpdateRefused                           an update would have spoilt the weights
      - RankLost                                a process that holds a part of the weights is gone
    + SaveFailed             (OSError)          a file of a run could not be written
    + ConstructionFailed     (RuntimeError)     a constructor of an environment or verifier failed
    + CheckFailed            (AssertionError)   an environment or verifier breaks its contract
    + ToolError              (ValueError)       a tool refuses its arguments; the policy is told why
    + RemoteError            (RuntimeError)     a ludus server could not do what was asked
      - ServerUnreachable    (ConnectionError)  nothing answered
      - RequestTimeout       (TimeoutError)     no answer in time
      - RequestRejected      (ValueError)       400, 404, 413, 422: the request itself is wrong
      - Unauthorized         (PermissionError)  401: the bearer token is missing or wrong
      - SequenceConflict                        409: a step was skipped
      - SessionGone                             410: the session was released, expired or lost in a
        restart
        * SessionLost                           by its server's doing, not by what ran in it
      - Overloaded                              429: queues are full; retry after `retry_after_s`
      - ServerFault                             5xx: a bug on the other side

`except Exception` is allowed at the boundaries where a failure becomes data: an HTTP handler, the
episode runner, a pool worker, and the command line. Everything pickles.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ludus.verdict import Verdict


MAX_TRACE = 8000
"""The most characters of a traceback that is sent to another process."""


class LudusError(Exception):
    """The root of all errors that ludus raises on purpose."""


class ConfigError(LudusError, ValueError):
    """A setting that cannot work; the message names the field, the value and what would work."""


class UnknownName(LudusError, LookupError):
    """A name that nobody registered."""

    kind = "name"

    @classmethod
    def near(cls, name: str, known: Iterable[str], *, hint: str = "") -> Self:
        """Build the error with the closest known name in the message.

        >>> str(UnknownEnv.near("ludus/arithmetik-v0", ["ludus/arithmetic-v0"]))
        "no environment named 'ludus/arithmetik-v0'; did you mean 'ludus/arithmetic-v0'?"
        """
        candidates = sorted(known)
        # The closest candidate, and the next candidate if that is nearly as close.
        close = difflib.get_close_matches(name, candidates, n=2, cutoff=0.6)
        likeness = [difflib.SequenceMatcher(None, name, candidate).ratio() for candidate in close]
        matches = [
            candidate
            for candidate, ratio in zip(close, likeness, strict=True)
            if ratio > likeness[0] - 0.05
        ]
        message = f"no {cls.kind} named {name!r}"
        if matches:
            message += "; did you mean " + " or ".join(repr(match) for match in matches) + "?"
        elif 0 < len(candidates) <= 12:
            message += "; known: " + ", ".join(candidates)
        return cls(message + (f" ({hint})" if hint else ""))


class UnknownEnv(UnknownName):
    """No environment has this id."""

    kind = "environment"


class UnknownVerifier(UnknownName):
    """No verifier has this name."""

    kind = "verifier"


class UnknownTask(UnknownName):
    """The environment has no task with this id."""

    kind = "task"


class UnknownSplit(UnknownTask):
    """The environment has no split of this name."""

    kind = "split"


class UnknownTool(UnknownName):
    """The environment declares no tool with this name."""

    kind = "tool"


class MissingExtra(LudusError, ImportError):
    """An optional dependency is not installed."""

    @classmethod
    def of(cls, extra: str, *, needed_for: str) -> Self:
        """Name the extra to install.

        >>> str(MissingExtra.of("search", needed_for="ludus/search-v0"))
        "ludus/search-v0 needs the extra 'search': pip install 'ludus-rl[search]'"
        """
        return cls(f"{needed_for} needs the extra {extra!r}: pip install 'ludus-rl[{extra}]'")


class InvalidAction(LudusError, TypeError):
    """An action that is neither text nor a message."""


class InvalidTool(LudusError, TypeError):
    """A function whose arguments cannot be described to a policy, or that returns no result."""


class InvalidScore(LudusError, TypeError):
    """A verifier returned something that is not a verdict; the message shows what to return."""


class EnvironmentExited(LudusError, RuntimeError):
    """Code of an environment tried to end the process (`sys.exit`); the episode is broken."""


class EpisodeEnded(LudusError, RuntimeError):
    """`step` was called before `reset` or after the episode ended."""


class NotForkable(LudusError, RuntimeError):
    """The state of an environment cannot be had a second time; the message says why."""


class ReplayDiverged(LudusError, RuntimeError):
    """An episode that was played again was answered otherwise; the message names the step."""


class RewardUnavailable(LudusError, RuntimeError):
    """The reward could not be computed, through no fault of the policy.

    The episode leaves the loss and the group baseline. `verdict` says why (its status is never
    `ok`).
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(
            f"reward unavailable ({verdict.status}): {verdict.detail or 'no detail given'}"
        )
        self.verdict = verdict

    def __reduce__(self) -> tuple[type[RewardUnavailable], tuple[Verdict]]:
        return type(self), (self.verdict,)


class BudgetExceeded(LudusError, RuntimeError):
    """The token budget of a model's client is spent."""


class StaleWeights(LudusError, RuntimeError):
    """An engine samples from other weights than the published weights, so that the samples are not
    the learner's policy.
    """


class BrokenGeneration(LudusError, RuntimeError):
    """An engine's samples cannot be trained on: the numbers are not finite, or do not fit together.

    The episode is played again, or left out.
    """


class TrainingFailed(LudusError, RuntimeError):
    """Every episode of a step or evaluation failed, each after several tries; the message gives the
    commonest reason.
    """


class UpdateRefused(TrainingFailed):
    """An update was not made, since the loss, the gradient or an input is not finite.

    The weights and the optimizer are unchanged.

    Args:
        message: what is not finite.
        rows: rows of the batch at fault; empty where nothing tells them apart.
        remedy: what to do; empty where only the cause of a loss that explodes can be guessed.
    """

    def __init__(self, message: str, rows: Iterable[int] = (), remedy: str = "") -> None:
        self.rows = tuple(rows)
        self.remedy = remedy
        super().__init__(message, self.rows, remedy)

    def __str__(self) -> str:
        return str(self.args[0])


class RankLost(TrainingFailed):
    """A rank of a sharded learner, and so the group, died or failed; the message names the rank."""


class SaveFailed(LudusError, OSError):
    """A file of a run could not be written; the message gives the system's reason."""


class ConstructionFailed(LudusError, RuntimeError):
    """The constructor of an environment or verifier raised what says nothing about its options.

    The message names what was made, the options, the exception and its place.
    """


class CheckFailed(LudusError, AssertionError):
    """An environment or verifier breaks the contract; the message says which rule and how."""


class ToolError(LudusError, ValueError):
    """A tool refuses its arguments or cannot do the work; the policy sees the text as the tool's
    result.
    """


class RemoteError(LudusError, RuntimeError):
    """A ludus server could not do what was asked."""

    retryable = False


class ServerUnreachable(RemoteError, ConnectionError):
    """Nothing answered at the address."""

    retryable = True


class EngineLost(RemoteError, ConnectionError):
    """The process or server that was sampling is gone, with all unfinished answers; another engine
    can be asked.
    """

    retryable = True


class NoEngineLeft(RemoteError):
    """No engine of a pool serves, and none came back in time; the message says why for each."""


class RequestTimeout(RemoteError, TimeoutError):
    """No answer before the deadline."""

    retryable = True


class RequestRejected(RemoteError, ValueError):
    """The server understood the request and refuses it as wrong."""


class Unauthorized(RemoteError, PermissionError):
    """The bearer token is missing or wrong."""


class SequenceConflict(RemoteError):
    """A step was skipped: the session expects another `seq`."""


class SessionGone(RemoteError):
    """The session was released, expired or lost in a restart; start the episode again."""


class SessionLost(SessionGone):
    """A sandbox session that was idle for too long, or whose slot or server ended: nothing that ran
    in the session is to blame.
    """


class Overloaded(RemoteError):
    """Every queue is full. `retry_after_s` is the server's own estimate."""

    retryable = True

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message, retry_after_s)
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return str(self.args[0])


class ServerFault(RemoteError):
    """The server answered 5xx."""

    retryable = True


def error_text(error: BaseException) -> str:
    r"""Return the text of an exception so that it can be encoded: user code may put half of a
    surrogate pair into a message, or raise what has no text.

    >>> error_text(ValueError("bad \ud800"))
    'bad \\ud800'
    """
    try:
        text = str(error)
    except Exception as broken:
        text = f"its text cannot be read ({type(broken).__name__})"
    return _encodable(text)


def error_trace(error: BaseException) -> str:
    """Return the end of the traceback of an exception, where the exception itself stands; it can be
    encoded, as `error_text` can.
    """
    return _encodable("".join(traceback.format_exception(error))[-MAX_TRACE:])


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
