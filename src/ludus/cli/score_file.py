"""The scoring of a file of answers by `ludus score`: a verdict a row, and what was measured."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ludus.envs.serving.connect import connect
from ludus.errors import ConfigError, UnknownVerifier
from ludus.rewards import Verifier, make_verifier
from ludus.rewards.maths.explain import escaped, shortened
from ludus.rewards.report import ScoringReport, by_category, cpu_seconds, measured
from ludus.rewards.rows import AnswerRow, VerdictFile, VerifierOf, read_rows, score_rows
from ludus.verdict import Verdict
from ludus.wire.address import parse_served

from .progress import progress_bar
from .signals import run_interruptible

SHOWN = 5
"""How many rows without a reward are shown."""


def score_answers(
    path: Path, verifier: str, settings: dict[str, Any], *, out: str, url: str
) -> ScoringReport:
    """Score a file, write the verdicts to `out` where that is given, and return what was measured.

    Args:
        path: the file of answers.
        verifier: judges the rows that name no verifier of their own; may be empty.
        settings: the options of `verifier`.
        out: a file for the verdicts; one that is there is gone on with.
        url: a server with the verifiers; empty scores in this process.

    Raises:
        ConfigError: a file cannot be read or written, or a row names no verifier.
        UnknownVerifier: nothing has the name of a verifier.
    """
    rows = read_rows(path, verifier)
    nameless = next((row for row in rows if not row.verifier), None)
    if nameless is not None:
        raise ConfigError(
            f"{path}:{nameless.line}: the row names no verifier; give one to the others: "
            f"ludus score VERIFIER --file {path}"
        )
    options = {verifier: settings}
    file = VerdictFile(Path(out), rows, options) if out else None
    started, cpu_s = time.perf_counter(), cpu_seconds()
    try:
        verdicts = run_interruptible(_score(rows, options, file, url))
    finally:
        if file is not None:
            file.close()
    return measured(
        rows, verdicts, wall_s=time.perf_counter() - started, cpu_s=cpu_seconds() - cpu_s
    )


async def _score(
    rows: Sequence[AnswerRow],
    settings: dict[str, dict[str, Any]],
    file: VerdictFile | None,
    url: str,
) -> list[Verdict]:
    known = {} if file is None else {line: record.verdict() for line, record in file.known.items()}
    if known:
        print(f"{len(known)} of {len(rows)} rows are scored already", file=sys.stderr)
    with progress_bar() as progress:
        bar = progress.add_task("rows", total=len(rows), completed=len(known))

        def note(row: AnswerRow, verdict: Verdict) -> None:
            progress.update(bar, advance=1)
            if file is not None:
                file.add(row, verdict)

        async with _served(url, rows) if url else _own(settings) as verifier_of:
            return await score_rows(rows, verifier_of, known=known, on_verdict=note)


@asynccontextmanager
async def _own(settings: dict[str, dict[str, Any]]) -> AsyncGenerator[VerifierOf]:
    """Yield a function that makes the verifiers of this process, which are closed afterwards."""
    async with AsyncExitStack() as stack:

        def verifier_of(name: str) -> Verifier:
            bare, arguments = parse_served(name)
            verifier = make_verifier(bare, **(settings.get(name) or arguments))
            stack.push_async_callback(_close, verifier)
            return verifier

        yield verifier_of


async def _close(verifier: Verifier) -> None:
    close = getattr(verifier, "close", None)
    closing = close() if callable(close) else None
    if inspect.isawaitable(closing):
        await closing


@asynccontextmanager
async def _served(url: str, rows: Sequence[AnswerRow]) -> AsyncGenerator[VerifierOf]:
    """Yield a function that returns the verifiers of a server, which offers all that are named."""
    async with connect(url) as server:
        offered = [card.name for card in await asyncio.to_thread(server.verifiers)]
        for name in {row.verifier for row in rows}:
            if "?" in name:
                raise ConfigError(
                    f"{name!r}: a server fixes the options of its verifiers; give them to ludus "
                    "serve, and leave out what follows the '?'"
                )
            if name not in offered:
                raise UnknownVerifier.near(name, offered, hint=f"served at {url}")
        yield server.verifier


def show_report(report: ScoringReport, *, out: str, wrong: int, as_json: bool) -> None:
    """Print what was measured, and `wrong` answers whose verdict differs from the label."""
    counts = report.overall
    if as_json:
        fields: dict[str, object] = {
            "rows": report.rows, "mean_reward": report.mean_reward,
            "statuses": report.statuses, "pool_fates": report.fates,
            "per_cpu_second": report.per_cpu_second, "wall_s": report.wall_s,
            "unscored": [
                {"row": row.line, "status": verdict.status, "detail": verdict.detail}
                for row, verdict in report.unscored[:SHOWN]
            ],
        }  # fmt: skip
        labelled = {
            "accuracy": counts.accuracy, "precision": counts.precision, "recall": counts.recall,
            "categories": {name: count.accuracy for name, count in report.categories.items()},
        }  # fmt: skip
        fields |= labelled if counts.total else {}  # without labels nothing is right or wrong
        print(json.dumps(fields | ({"out": out} if out else {})))
        return
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(report.statuses.items()))
    mean = report.mean_reward
    worth = "no reward" if mean is None else f"mean reward {mean:.4f}"
    print(f"{report.rows} answers ({statuses}), {worth}")
    for row, verdict in report.unscored[:SHOWN]:
        why = escaped(shortened(verdict.detail)) or "no reason given"
        print(f"  line {row.line}: {verdict.status}: {why}")
    if (more := len(report.unscored) - SHOWN) > 0:
        print(f"  and {more} more without a reward{'' if out else '; --out FILE has each'}")
    print(f"{report.per_cpu_second:.0f} per CPU-second, {report.wall_s:.1f} s in all")
    if out:
        print(f"verdicts  {out}")
    if report.fates:
        fates = ", ".join(f"{count} {fate}" for fate, count in sorted(report.fates.items()))
        print(f"pool workers: {fates}")
    if counts.total:
        _show_counts(report, wrong)


def _show_counts(report: ScoringReport, wrong: int) -> None:
    counts = report.overall
    print(
        f"accuracy {counts.accuracy:.4f}  precision {counts.precision:.4f}  "
        f"recall {counts.recall:.4f}"
    )
    table = Table("category", "cases", "accuracy", "precision", "recall")
    for name, count in by_category(report):
        numbers = (f"{x:.3f}" for x in (count.accuracy, count.precision, count.recall))
        table.add_row(name or "-", str(count.total), *numbers)
    Console().print(table)
    for row, verdict in report.wrong[:wrong]:
        description = (
            f"{row.id} {row.category} label {row.label}: gold {row.gold!r}, {row.response!r}"
        )
        print(f"{escaped(shortened(description))} -> {escaped(verdict.detail)}")
