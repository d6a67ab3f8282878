"""`ludus check`: test an environment or a verifier against the contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ludus.agent.audit import Exploit, are_closed
from ludus.background import run_on_loop
from ludus.contract import Report, RuleOutcome, examine
from ludus.envs.checks import examine_env
from ludus.envs.checks.subject import STEP_TIMEOUT_S, subject_of
from ludus.envs.serving.connect import connect
from ludus.errors import ConfigError
from ludus.rewards import Sample, make_verifier
from ludus.rewards.checks import examine_verifier
from ludus.rewards.score import close_verifier
from ludus.wire.address import parse_served
from ludus.wire.faults import Refused
from ludus.wire.strict import decode_request

from .arguments import Flag, VerbHelp, parse
from .names import NameKind, ensure_known, kind_of

STYLES = {
    RuleOutcome.PASSED: "green",
    RuleOutcome.FAILED: "bold red",
    RuleOutcome.SKIPPED: "yellow",
}


@dataclass(frozen=True)
class CheckOptions:
    """The options of `ludus check`."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")]
    """An environment (me/echo-v0), a verifier (me/exact), or one on a server (URL#ID)."""

    max_return: Annotated[float | None, tyro.conf.arg(metavar="REWARD")] = None
    """The highest return of an environment, which its expert must reach."""

    step_timeout_s: float = STEP_TIMEOUT_S
    """Seconds that a reset or step of an environment may take."""

    cases: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Right answers for a verifier as JSONL, each line {"response": ..., "gold": ...}."""

    exploits: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Episodes that `ludus audit --keep FILE` wrote: none of them may be paid any more."""

    json: Flag = False
    """Print the report as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Check, print the report, and return 1 if a rule failed, else 0."""
    options = parse(
        CheckOptions,
        arguments,
        VerbHelp(
            verb="check",
            about="Hold an environment or a verifier to its contract.",
            example="ludus check ludus/arithmetic-v0 --max-return 1",
        ),
    )
    ensure_known(options.name)
    report = _examine(options)
    if options.json:
        print(msgspec.json.encode(report).decode())
    else:
        table = Table("", "rule", "what was found", box=None, show_header=False)
        for finding in report.brief():
            outcome = Text(finding.outcome, STYLES[finding.outcome])
            table.add_row(outcome, finding.rule, Text(finding.detail))
        console = Console()
        console.print(table)
        passed = sum(finding.outcome is RuleOutcome.PASSED for finding in report.findings)
        skipped = len(report.findings) - passed - len(report.failures)
        console.print(
            f"{report.subject}: {passed} passed, {len(report.failures)} failed, {skipped} skipped",
            highlight=False,
            markup=False,
        )
    return 0 if report.ok else 1


def _examine(options: CheckOptions) -> Report:
    if kind_of(options.name) is NameKind.ENVIRONMENT:
        if options.cases is not None:
            raise ConfigError(f"--cases is for a verifier; {options.name!r} is an environment")
        exploits = [] if options.exploits is None else read_exploits(options.exploits)
        report = examine_env(
            options.name, max_return=options.max_return, step_timeout_s=options.step_timeout_s
        )
        if options.exploits is None:
            return report
        subject = subject_of(options.name)
        closed = partial(are_closed, exploits=exploits)
        try:
            still_open = examine(options.name, subject, [("exploits", closed)])
        finally:
            subject.close()
        return Report(report.subject, (*report.findings, *still_open.findings))
    if options.exploits is not None:
        raise ConfigError(f"--exploits is for an environment; {options.name!r} is a verifier")
    if options.max_return is not None:
        raise ConfigError(f"--max-return is for an environment; {options.name!r} is a verifier")
    cases = read_cases(options.cases) if options.cases else []
    url, marked, remote = options.name.partition("#")
    if marked:
        server = connect(url)
        try:
            server.score(remote, Sample(response=""))  # a wrong address or name is not a finding
            compares = any(card.group for card in server.verifiers() if card.name == remote)
            remote_verifier = server.group_verifier(remote) if compares else server.verifier(remote)
            return examine_verifier(remote_verifier, cases=cases, name=f"{url}#{remote}")
        finally:
            run_on_loop(server.aclose())
    bare, arguments = parse_served(options.name)
    local_verifier = make_verifier(bare, **arguments)
    try:
        return examine_verifier(local_verifier, cases=cases, name=options.name)
    finally:
        close_verifier(local_verifier)


def read_exploits(path: Path) -> list[Exploit]:
    """Read the file that `ludus audit --keep` wrote.

    Raises:
        ConfigError: the file cannot be read, or a line is no exploit.
    """
    lines = [line for line in _lines(path) if line.strip()]
    try:
        return [msgspec.json.decode(line, type=Exploit) for line in lines]
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is no file of `ludus audit --keep`: {error}") from None


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error


def read_cases(path: Path) -> list[Sample]:
    """Read samples from a file of JSON Lines.

    Raises:
        ConfigError: the file cannot be read or has no samples, or a line is not a sample.
    """
    samples: list[Sample] = []
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            samples.append(decode_request(line, Sample))
        except Refused as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
    if not samples:
        raise ConfigError(f"{str(path)!r} holds no cases")
    return samples
