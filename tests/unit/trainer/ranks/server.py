"""A rank that torchrun has started; rank 0 starts a server as a run does, and waits for its answer.

torchrun --standalone --nproc_per_node 2 server.py PYTHON LOG
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from ludus.trainer.engines.vllm.client import VllmClient
from ludus.trainer.engines.vllm.server import Launch, VllmServer


async def main() -> None:
    python, log = sys.argv[1:]
    assert "TORCHELASTIC_RUN_ID" in os.environ, "torchrun has started this"
    if os.environ["RANK"] != "0":
        return
    server = VllmServer(
        Launch(model="-", dtype="float32", max_model_len=8, log=Path(log), cpu=True, python=python)
    )
    client = VllmClient(server.url, hint=server.hint)
    try:
        await server.ready(client, 40)
    finally:
        await client.close()
        await server.close()
    print("the server answers")


asyncio.run(main())
