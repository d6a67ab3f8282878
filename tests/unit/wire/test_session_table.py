"""The table of named sessions that environments and REPLs share."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

from ludus.errors import SequenceConflict, SessionGone
from ludus.wire.faults import QueueFull
from ludus.wire.session_table import (
    MAX_NAME,
    MIN_KEPT_BYTES,
    KeptReplies,
    Lease,
    NumberedRequests,
    Overdue,
    SessionTable,
)


class Held(Lease):
    """A lease that counts how often it is closed."""

    closed = 0

    async def close(self) -> None:
        self.closed += 1


def table_of(most: int = 2, lifetime_s: float = 1000.0) -> SessionTable[Held]:
    table: SessionTable[Held] = SessionTable(
        "REPL",
        most=most,
        lifetime_s=lifetime_s,
        reap_every_s=1.0,
        on_overdue=lambda lease, why: table.release(lease, why),
    )
    return table


@pytest.mark.asyncio
async def test_a_full_table_ends_what_is_idle_before_it_refuses() -> None:
    table = table_of()
    idle, busy = Held("idle", ttl_s=10), Held("busy", ttl_s=10)
    busy.busy = 1
    for lease in (idle, busy):
        table.check_new(lease.name)
        table.add(lease)
    with pytest.raises(QueueFull, match="2 of 2 REPLs are open"):
        table.check_new("third")
    idle.touched -= 11
    busy.touched -= 11
    table.check_new("third")
    await table.stop()
    assert (table.find("idle"), table.find("busy"), idle.closed) == (None, busy, 1)
    with pytest.raises(SessionGone, match=r"REPL 'idle' is gone \(expired\)"):
        table.check_new("idle")


@pytest.mark.asyncio
async def test_what_is_too_old_ends_though_it_is_busy() -> None:
    table = table_of(lifetime_s=100)
    old = Held("old", ttl_s=10)
    old.busy, old.born = 1, old.born - 101
    table.add(old)
    table.sweep()
    await table.stop()
    assert (table.why_gone("old"), old.closed) == (Overdue.TOO_OLD, 1)


@pytest.mark.asyncio
async def test_a_lease_is_closed_once_and_its_first_reason_is_kept() -> None:
    table = table_of()
    lease = Held("a", ttl_s=10)
    table.add(lease)
    assert table.release(lease, "it was deleted")
    assert not table.release(lease, "again")
    table.bury("a", "again")
    table.bury("x" * (MAX_NAME + 1), "too long to have been one")
    await table.stop()
    assert (table.why_gone("a"), lease.closed, len(table)) == ("it was deleted", 1, 0)
    assert table.why_gone("x" * (MAX_NAME + 1)) == ""


@pytest.mark.asyncio
async def test_a_late_release_does_not_end_the_next_of_that_name() -> None:
    table = table_of()
    first, second = Held("a", ttl_s=10), Held("a", ttl_s=10)
    table.add(first)
    table.release(first, "it did not start", bury=False)
    table.add(second)
    assert not table.release(first, "late")
    assert table.find("a") is second


@pytest.mark.asyncio
async def test_a_close_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Held):
        async def close(self) -> None:
            raise RuntimeError("no end")

    table = table_of()
    table.add(Broken("b", ttl_s=10))
    with caplog.at_level(logging.ERROR):
        table.release(table.all()[0], "it was deleted")
        await table.stop()
    assert "REPL 'b' did not end cleanly" in caplog.text


@pytest.mark.asyncio
async def test_numbered_requests_are_begun_once() -> None:
    requests: NumberedRequests[str, int] = NumberedRequests("REPL 'a'")
    assert requests.kept("x", 0) is None
    reply: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    requests.begun("x", 0, reply)
    assert requests.kept("x", 0) is reply
    with pytest.raises(SequenceConflict, match="REPL 'a': seq 0 is still running"):
        requests.kept("y", 1)
    with pytest.raises(SequenceConflict, match="sent before with another payload"):
        requests.kept("y", 0)
    reply.set_result(7)
    assert (requests.kept("x", 0), requests.kept("y", 1)) == (reply, None)
    with pytest.raises(SequenceConflict, match="seq 3 skips; the next is 1"):
        requests.kept("y", 3)
    requests.begun("y", 1, reply)
    with pytest.raises(SequenceConflict, match="seq 0 is long past; the next is 2"):
        requests.kept("x", 0)


@pytest.mark.parametrize("seed", range(20))
async def test_kept_replies_stay_within_their_budget_and_the_newest_stay(seed: int) -> None:
    rng, limit = random.Random(seed), 100_000
    kept = KeptReplies(limit)
    sessions = [NumberedRequests[int, int](f"session {n}") for n in range(8)]
    seqs = dict.fromkeys(sessions, 0)
    newest: list[tuple[NumberedRequests[int, int], int]] = []  # by plain Python: who keeps what
    for request in range(60):
        session = rng.choice(sessions)
        future = asyncio.get_running_loop().create_future()
        session.begun(request, seqs[session], future)
        future.set_result(request)
        size = rng.choice([0, MIN_KEPT_BYTES - 1, rng.randrange(MIN_KEPT_BYTES, limit)])
        kept.note(session, size)
        newest = [(one, held) for one, held in newest if one is not session]
        newest += [(session, size)] if size >= MIN_KEPT_BYTES else []
        while sum(held for _, held in newest) > limit:
            forgotten, _ = newest.pop(0)
            with pytest.raises(SessionGone, match="not kept any more"):
                forgotten.kept(-1, seqs[forgotten] - 1)
        assert kept.held == sum(held for _, held in newest)
        assert session.kept(request, seqs[session]) is future
        seqs[session] += 1
    for session in sessions:
        kept.drop(session)
    assert kept.held == 0
