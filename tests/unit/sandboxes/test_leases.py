"""The table of what a sandbox server makes for clients by name."""

from __future__ import annotations

import logging

import pytest

from ludus.sandboxes.serving.repls import Leases, Terms
from ludus.wire.faults import Refused


async def test_what_did_not_start_holds_no_name_and_no_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = list[str]()

    async def close(made: str) -> None:
        closed.append(made)

    async def without_descriptors() -> str:
        raise OSError(24, "Too many open files")

    async def with_a_bug() -> str:
        raise ZeroDivisionError

    async def start() -> str:
        return "made"

    leases: Leases[str] = Leases(Terms("REPL", 1, 600, 600), close, instance="i")
    with caplog.at_level(logging.ERROR):
        with pytest.raises(Refused, match=r"did not start: .*Too many open files"):
            await leases.make("name", "request", without_descriptors, ttl_s=None)
        with pytest.raises(ZeroDivisionError):
            await leases.make("name", "request", with_a_bug, ttl_s=None)
        assert len(leases) == 0
        await leases.make("name", "request", start, ttl_s=None)
        await leases.stop()
    assert closed == ["made"]
    assert not caplog.records
