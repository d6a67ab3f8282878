"""What a server allows itself: files, and lines of its log."""

from __future__ import annotations

import asyncio
import logging
import resource
import sys

import aiohttp
import pytest

from ludus.cli.serve import MAX_MESSAGES, RateLimit, build_server
from ludus.cli.serve_options import read_options
from ludus.errors import ConfigError
from ludus.wire.admission import connections_within
from ludus.wire.server import HttpServer


def test_connections_leave_files_for_workers_and_the_rest() -> None:
    for files in (64, 256, 1024, 65536):
        for workers in (0, 8, 64):
            number = connections_within(files, workers)
            assert 8 <= number <= 8192
            assert number == 8 or number + 4 * workers + 64 <= files


def test_a_limit_of_bodies_is_never_that_of_no_byte() -> None:
    """A WebSocket takes 0 for no limit."""
    with pytest.raises(ConfigError, match="max_body_bytes must be at least 1, got 0"):
        HttpServer([], max_body_bytes=0)
    build_server(read_options(["exact", "--max-body-mb", "1e-9"]))


def test_each_kind_of_message_is_written_a_few_times_and_then_counted() -> None:
    limit = RateLimit()

    def passes(message: str, at: float) -> logging.LogRecord | None:
        record = logging.LogRecord("x", logging.INFO, "", 0, message, (), None)
        record.created = at
        return record if limit.filter(record) else None

    assert sum(passes("burst", 0.0) is not None for _ in range(5000)) == MAX_MESSAGES
    assert passes("another", 0.0) is not None
    late = passes("burst", 60.0)
    assert late is not None
    assert "4900 like it were left out" in str(late.msg)


async def test_a_server_with_64_files_turns_connections_away_and_serves_on() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ludus", "serve", "ludus/arithmetic-v0", "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            url = (await process.stdout.readline()).decode().split()[-1]
            host, _, port = url.removeprefix("http://").partition(":")
            idle = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
            async with aiohttp.ClientSession(url) as http, http.get("/readyz") as reply:
                assert reply.status == 200
            for _, writer in idle:
                writer.transport.abort()
        process.terminate()
        _, log = await process.communicate()
        assert b"Too many open files" not in log
        assert len(log) < 100_000
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
