"""What runs in a Ray actor that holds an engine, without Ray."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from ludus.trainer.engines.process import EngineSpec
from ludus.trainer.engines.process.messages import REPLIES, FailedReply, Ping, Pong, ReadyReply
from ludus.trainer.models.loading import write_shell
from ludus.trainer.models.tiny import build_model

pytest.importorskip("ray", reason="the extra cluster installs Ray")

from ludus.trainer.cluster.engines import EngineHost

PING = msgspec.msgpack.encode(Ping())


async def test_an_engine_that_was_asked_for_twice_is_built_once_at_a_time(tmp_path: Path) -> None:
    write_shell(tmp_path, "", build_model(60, hidden=32, layers=2, heads=2, max_length=128))
    host, spec = EngineHost(1, "cpu"), EngineSpec(folder=str(tmp_path))
    before = set(threading.enumerate())
    first = asyncio.create_task(host.build("first", spec))  # whose run gives up and asks again
    await asyncio.sleep(0)
    replies = await asyncio.gather(first, host.build("second", spec))
    assert [type(REPLIES.decode(reply)) for reply in replies] == [ReadyReply] * 2
    assert isinstance(REPLIES.decode(await host.call("second", PING)), Pong)
    assert isinstance(REPLIES.decode(await host.call("first", PING)), FailedReply)
    left = [one.name for one in threading.enumerate() if one not in before]
    assert left.count("ludus-engine") == 1  # the first holds no memory any more
    assert isinstance(
        REPLIES.decode(await host.build("third", EngineSpec(folder="/no"))), FailedReply
    )
    assert host.life == ""
