"""Errors as they travel."""

from __future__ import annotations

import pickle

import pytest

from ludus import errors
from ludus.errors import LudusError, Overloaded, RemoteError, RewardUnavailable
from ludus.verdict import Verdict
from ludus.wire.faults import (
    CODES,
    Fault,
    QueueFull,
    Refused,
    error_of,
    fault_of,
    status_of,
    used_seq,
)

RAISED = [
    errors.UnknownEnv("no environment"),
    errors.UnknownVerifier("no verifier"),
    errors.UnknownTask("no task"),
    errors.InvalidAction("an int"),
    errors.EpisodeEnded("over"),
    errors.CheckFailed("broken"),
    errors.ConfigError("wrong option"),
    errors.MissingExtra("needs search"),
    errors.SequenceConflict("skipped"),
    errors.SessionGone("gone"),
    errors.SessionLost("idle"),
    errors.Unauthorized("who?"),
    Overloaded("full", 2.5),
    RewardUnavailable(Verdict.unavailable("late")),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_the_type_it_was(error: LudusError) -> None:
    fault = fault_of(error)
    back = error_of(fault, status_of(fault))
    assert type(back) is type(error)
    assert str(back) == str(error)


def test_the_verdict_and_the_time_to_wait_survive() -> None:
    verdict = Verdict.unavailable("late")
    back = error_of(fault_of(RewardUnavailable(verdict)), 424)
    assert isinstance(back, RewardUnavailable)
    assert back.verdict == verdict
    full = fault_of(QueueFull("full", 2.5, depth=3, limit=3))
    assert (full.retry_after_s, full.queue_depth, full.limit, full.retryable) == (2.5, 3, 3, True)
    back = error_of(full, 429)
    assert isinstance(back, Overloaded)
    assert back.retry_after_s == 2.5


def test_an_error_of_somebody_else_tells_its_type() -> None:
    fault = fault_of(ZeroDivisionError("1/0"), session="a", seq=3, otherwise="env_failed")
    assert (fault.code, fault.message) == ("env_failed", "ZeroDivisionError: 1/0")
    assert (fault.session, fault.seq, fault.retryable) == ("a", 3, False)


def test_a_code_of_a_newer_server_goes_by_its_status() -> None:
    fault = Fault(code="from_the_future", message="?", retryable=True)
    assert type(error_of(fault, 410)) is errors.SessionGone
    assert type(error_of(fault, 418)) is errors.RequestRejected
    back = error_of(fault, 599)
    assert isinstance(back, errors.ServerFault)
    assert back.retryable


def test_only_faults_with_a_seq_have_used_it_up() -> None:
    assert used_seq(error_of(Fault(code="env_failed", message="", seq=0), 500))
    assert not used_seq(error_of(Fault(code="overloaded", message=""), 429))
    assert not used_seq(errors.ServerUnreachable("no answer"))


@pytest.mark.parametrize("code", CODES)
def test_every_code_makes_an_error_that_pickles(code: str) -> None:
    error = error_of(Fault(code=code, message="why"), CODES[code].status)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    if isinstance(error, RemoteError):
        assert isinstance(again, RemoteError)
        assert again.retryable == error.retryable


def test_refusals_pickle_with_their_code() -> None:
    again = pickle.loads(pickle.dumps(Refused("too large", "too_large")))
    assert (again.code, str(again)) == ("too_large", "too large")
