"""The side of OpenEnv in `benchmarks/service.py`: its own server and its own client.

Run by the Python of a virtual environment that has `openenv-core`; it imports nothing of ludus.

    python benchmarks/service_openenv.py serve
    python benchmarks/service_openenv.py play URL

Both do what the commands of `service_ludus.py` do.
"""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from typing import Any


async def serve() -> None:
    """Serve until stdin closes."""
    import uvicorn
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class Say(Action):
        text: str

    class Heard(Observation):
        text: str

    class Echo(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self.size = 0

        async def reset_async(self, *args: Any, size: int = 0, **kwargs: Any) -> Heard:
            self.size = size
            return Heard(text="")

        async def step_async(self, action: Say, *args: Any, **kwargs: Any) -> Heard:
            return Heard(text=action.text + "x" * self.size, reward=1.0)

        def reset(self, *args: Any, **kwargs: Any) -> Heard:
            raise NotImplementedError

        def step(self, action: Say, *args: Any, **kwargs: Any) -> Heard:
            raise NotImplementedError

        @property
        def state(self) -> State:
            return State()

    app = create_fastapi_app(Echo, Say, Heard, max_concurrent_envs=4096)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="critical")
    )  # a line per client that leaves
    serving = asyncio.create_task(server.serve([listener]))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving


async def _steps(client: Any, number: int) -> None:
    for index in range(number):
        result = await client.step({"text": f"action {index}"})
        assert result.reward == 1.0


async def _run(url: str) -> None:
    from openenv.core.generic_client import GenericEnvClient

    while line := (await asyncio.to_thread(sys.stdin.readline)).split():
        number, steps, size = map(int, line)
        clients = [GenericEnvClient(base_url=url) for _ in range(number)]
        for client in clients:
            await client.connect()
        await asyncio.gather(*(client.reset(size=size) for client in clients))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        started, cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*(_steps(client, steps) for client in clients))
        took = {"wall_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu_s}
        print(json.dumps(took), flush=True)
        for client in clients:
            await client.close()


if __name__ == "__main__":
    asyncio.run(serve() if sys.argv[1] == "serve" else _run(sys.argv[2]))
