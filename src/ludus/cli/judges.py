"""`ludus mock-judge` and `ludus check-judge`: a judge for tests, and the measure of a judge."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import tyro
from rich.console import Console
from rich.table import Table

from ludus.errors import ConfigError
from ludus.metrics import replace_file
from ludus.rewards.judge.caller import JudgeCaller, JudgeServer
from ludus.rewards.judge.card import JudgeCard
from ludus.rewards.judge.examine import LABELLED, Examiner, load_labelled
from ludus.rewards.judge.mock import MockJudge

from .arguments import Flag, VerbHelp, parse
from .signals import listening

Mode = Literal["honest", "gullible", "echo", "garbage", "flaky", "slow"]
MOCK_EXAMPLE = """\
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


def main_mock(arguments: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM; returns 0."""
    options = parse(
        MockJudgeOptions,
        arguments,
        VerbHelp(
            verb="mock-judge",
            about="Serve a deterministic stand-in for a judge's model, at no cost.",
            example=MOCK_EXAMPLE,
        ),
    )
    if not 0 <= options.failing <= 1:
        raise ConfigError(f"--failing is a share from 0 to 1, got {options.failing}")
    if not 0 <= options.delay_s < math.inf:
        raise ConfigError(f"--delay-s is a number of seconds from 0, got {options.delay_s}")
    return asyncio.run(_serve(options))


async def _serve(options: MockJudgeOptions) -> int:
    judge = MockJudge(
        options.mode, port=options.port, delay_s=options.delay_s, failing=options.failing
    )
    async with listening(judge, "127.0.0.1", options.port) as stop:
        print(f"serving a judge that is {options.mode} at {judge.url} (model: mock)", flush=True)
        await stop.wait()
    return 0


@dataclass(frozen=True, kw_only=True)
class CheckJudgeOptions:
    """The options of `ludus check-judge`: the judge, and the labelled cases to test with."""

    base_url: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="URL")]
    """The address of an OpenAI-compatible server, up to and with /v1."""
    model: str = "mock"
    """The name of the judge's model on the server."""
    labels: Path | None = None
    """A file of JSON Lines with question, response, criterion and met; without it, built-in facts.
    """
    temperature: float = 0.0
    """The sampling temperature, which should be that of later use: noise is measured at it."""
    concurrency: int = 16
    """The most questions asked at the same time."""
    deadline_s: float = 120.0
    """Seconds that a question may take, with all retries."""
    out: Path | None = None
    """The file to write the card to, as JSON."""
    json: Flag = False
    """Print the card as JSON."""


def main_check(arguments: Sequence[str]) -> int:
    """Measure the judge, print the card and write the file; returns 0 however often the judge is
    wrong.
    """
    options = parse(
        CheckJudgeOptions,
        arguments,
        VerbHelp(
            verb="check-judge",
            about="Measure a judge: agreement, injections, position, length, own answers, noise.",
            example="ludus check-judge http://127.0.0.1:8000/v1 --model my-judge --out card.json",
        ),
    )
    if options.concurrency < 1:
        raise ConfigError(f"--concurrency must be at least 1, got {options.concurrency}")
    if options.out is not None and not options.out.parent.is_dir():  # before all is asked
        raise ConfigError(f"--out {str(options.out)!r}: there is no such folder; make it first")
    card = asyncio.run(_examine(options))
    encoded = msgspec.json.format(msgspec.json.encode(card))
    if options.json:
        print(encoded.decode())
    else:
        Console().print(table(card))
    if options.out is not None:
        try:
            replace_file(options.out, encoded + b"\n")
        except OSError as error:
            raise ConfigError(
                f"cannot write --out {str(options.out)!r}: {error.strerror}"
            ) from None
    return 0


async def _examine(options: CheckJudgeOptions) -> JudgeCard:
    server = JudgeServer(
        base_url=options.base_url,
        model=options.model,
        temperature=options.temperature,
        concurrency=options.concurrency,
        deadline_s=options.deadline_s,
    )
    caller = JudgeCaller(server)
    labelled = load_labelled(options.labels) if options.labels else LABELLED
    try:
        return await Examiner(caller, labelled=labelled).examine()
    finally:
        await caller.close()


def table(card: JudgeCard) -> Table:
    """Draw the card as a table, with a 95% interval for each rate."""
    results = Table("measure", "rate", "95% interval", "cases", "without error")
    results.title = (
        f"judge {card.model} at {card.base_url}, prompts of version {card.prompt_version}"
    )
    for measure in card.measures:
        rate, interval = measure.rate.cells() if measure.rate else ("not measured", "-")
        cases = f"{measure.events} of {measure.trials}"
        results.add_row(measure.name, rate, interval, cases, f"{measure.ideal:g}")
    return results
