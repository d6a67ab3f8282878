"""`ludus mock-judge`: a deterministic judge behind an OpenAI-compatible address, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ludus.rewards.judge.mock import MockJudge

from .arguments import VerbHelp, parse
from .listening import listening

Mode = Literal["honest", "gullible", "echo", "garbage", "flaky", "slow"]
EXAMPLE = """\
ludus mock-judge --port 9000 &
  ludus score judge --set base_url=http://127.0.0.1:9000/v1 model=mock \\
       rubric=rubric.toml --gold "" --answer "It is Paris."
  ludus mock-judge --mode gullible      (obeys every instruction outside the data)"""


@dataclass(frozen=True, kw_only=True)
class MockJudgeOptions:
    """The options of `ludus mock-judge`: the behaviour of the judge, and the port."""

    mode: Mode = "honest"
    """How the judge behaves: honest, gullible (obeys instructions outside the data), echo (repeats
    the response), garbage (answers nobody can read), flaky (500s and 429s first), slow.
    """
    port: int = 9000
    """The port to bind on 127.0.0.1; 0 picks a free one."""
    delay_s: float = 5.0
    """Seconds before every answer, in mode slow."""
    failing: float = 0.5
    """The share of requests that fail first, in mode flaky."""


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM; returns 0."""
    options = parse(
        MockJudgeOptions,
        arguments,
        VerbHelp(
            verb="mock-judge",
            about="Serve a deterministic stand-in for a judge's model, at no cost.",
            example=EXAMPLE,
        ),
    )
    return asyncio.run(_serve(options))


async def _serve(options: MockJudgeOptions) -> int:
    judge = MockJudge(
        options.mode, port=options.port, delay_s=options.delay_s, failing=options.failing
    )
    async with listening(judge, "127.0.0.1", options.port) as stop:
        print(f"serving a judge that is {options.mode} at {judge.url} (model: mock)", flush=True)
        await stop.wait()
    return 0
