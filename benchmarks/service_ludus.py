"""The side of ludus in `benchmarks/service.py`: an echo environment, its server and its client.

python benchmarks/service_ludus.py serve            prints the address, serves until stdin closes
python benchmarks/service_ludus.py play URL         reads `sessions steps bytes` a line, answers
                                                    with a line of JSON

serve --blocking    the same environment without `never_blocks`, with plain methods
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, ClassVar

import ludus
from ludus.envs.protocol import Reset, Step, TextEnv
from ludus.envs.serving.client import RemoteSession
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.wire.server import HttpServer

ENV = "bench/echo-v0"


class Echo(TextEnv):
    """Answers with what was said and `size` bytes more; a step counts 1."""

    never_blocks = True
    reset_options: ClassVar[dict[str, type]] = {"size": int}
    size = 0

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> Reset:
        """Begin."""
        self.size = (options or {}).get("size", 0)
        return "", {}

    async def step(self, action: str) -> Step:
        """Echo."""
        return action + "x" * self.size, 1.0, False, False, {}


class PlainEcho(Echo):
    """The same with plain methods that nobody vouches for."""

    never_blocks = False

    def reset(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> Reset:
        """Begin."""
        self.size = (options or {}).get("size", 0)
        return "", {}

    def step(self, action: str) -> Step:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Echo."""
        return action + "x" * self.size, 1.0, False, False, {}


async def serve(*, blocking: bool) -> None:
    """Serve until stdin closes."""
    env = ServedEnv(ENV, factory=PlainEcho if blocking else Echo)
    async with HttpServer([EnvService([env])]) as server:
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def _steps(session: RemoteSession, number: int) -> None:
    for index in range(number):
        _, reward, *_ = await session.step(f"action {index}")
        assert reward == 1.0


async def _run(url: str) -> None:
    async with ludus.connect(url) as server:
        while line := (await asyncio.to_thread(sys.stdin.readline)).split():
            number, steps, size = map(int, line)
            sessions = [server.make_async(ENV) for _ in range(number)]
            await asyncio.gather(*(session.reset(options={"size": size}) for session in sessions))
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            started, cpu_s = time.perf_counter(), time.process_time()
            await asyncio.gather(*(_steps(session, steps) for session in sessions))
            took = {"wall_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu_s}
            print(json.dumps(took), flush=True)
            await asyncio.gather(*(session.close() for session in sessions))


def main() -> None:
    """Serve or play."""
    if sys.argv[1] == "serve":
        asyncio.run(serve(blocking="--blocking" in sys.argv))
    else:
        asyncio.run(_run(sys.argv[2]))


if __name__ == "__main__":
    main()
