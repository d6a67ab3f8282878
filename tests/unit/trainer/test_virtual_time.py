"""The event loop whose clock jumps."""

from __future__ import annotations

import asyncio

import pytest

from ludus.trainer.stream.virtual_time import VirtualTimeLoop


@pytest.mark.parametrize("begun_s", [0.0, 1e6, 1e9, 1e12])
def test_timers_end_however_late_it_is(begun_s: float) -> None:
    """From 1.7e7 s on, the system's resolution is lost in the time, and a due timer never ran."""

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.skip(begun_s)
        clock, times = loop.time, [loop.time()]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await asyncio.Event().wait()
        times.append(clock())
        await asyncio.gather(asyncio.sleep(3), asyncio.sleep(5))
        return [*times, clock()]

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(main()) == [begun_s, begun_s + 7, begun_s + 12]
