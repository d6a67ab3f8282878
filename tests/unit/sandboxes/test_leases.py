"""The table of what a sandbox server makes for clients by name."""

from __future__ import annotations

import asyncio
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


async def test_what_fails_after_its_client_left_holds_no_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, room = asyncio.Event(), asyncio.Event()

    async def close(made: str) -> None:
        raise AssertionError("nothing was made")

    async def fails() -> str:
        begun.set()
        await room.wait()
        raise OSError(28, "No space left on device")

    leases: Leases[str] = Leases(Terms("REPL", 1, 600, 600), close, instance="i")
    with caplog.at_level(logging.ERROR):
        client = asyncio.create_task(leases.make("name", "request", fails, ttl_s=None))
        await begun.wait()
        client.cancel()
        await asyncio.wait([client])
        assert len(leases) == 1
        room.set()
        async with asyncio.timeout(10):
            while len(leases):
                await asyncio.sleep(0)
        await leases.stop()
    assert not caplog.records
