"""`ludus audit`: how far an environment or a verifier can be gamed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ludus.agent import ChatPolicy
from ludus.agent.audit import (
    ATTACKERS,
    Attacker,
    Audit,
    CheckStatus,
    Judge,
    audit,
    cases_env,
    judge_by,
    report_of,
)
from ludus.agent.audit.measures import BUDGET_S, STEP_TIMEOUT_S, TASKS
from ludus.agent.audit.model import Closing, close_exploits, model_attacker
from ludus.agent.audit.pressure import ModelTrainer
from ludus.background import run_on_loop
from ludus.envs.checks.subject import Checkable
from ludus.errors import ConfigError, MissingExtra
from ludus.rewards import make_verifier
from ludus.wire.address import parse_served

from .arguments import Flag, VerbHelp, parse
from .check import read_cases
from .names import NameKind, ensure_known, kind_of

STYLES = {
    CheckStatus.PASS: "green",
    CheckStatus.FAIL: "bold red",
    CheckStatus.ERROR: "bold red",
    CheckStatus.SKIP: "yellow",
}


SHOWN = 8
"""Attackers of the table, the best first; a model that was asked for stands there in any case."""


@dataclass(frozen=True)
class AuditOptions:
    """The options of `ludus audit`."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")]
    """An environment (me/echo-v0), one on a server (URL#ID), or a verifier with --cases."""

    cases: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Right answers for a verifier as JSONL, each line {"prompt": ..., "response": ..., "gold":
    ...}.
    """

    tasks: int = TASKS
    """Tasks that each attacker plays. With fewer than 12 only gross faults stand out of chance."""

    seed: int = 0
    """The seed of episodes and attackers; equal seeds give equal figures."""

    step_timeout_s: float = STEP_TIMEOUT_S
    """Seconds that a reset or step may take."""

    budget_s: float = BUDGET_S
    """Seconds for all attackers; the report names attackers that find no time."""

    rl: Flag = False
    """Also train a small policy by the reward alone, and measure what it earns undeserved."""

    rl_budget_s: float = 900.0
    """Seconds for that training."""

    rl_model: Annotated[str, tyro.conf.arg(metavar="MODEL")] = ""
    """Train this language model instead of a table of moves: a folder or name, or tiny, a new small
    one. It finds what only text finds, and takes minutes.
    """

    rl_steps: int = 40
    """Updates of that model, of 2 tasks with 8 rollouts each."""

    judge: Annotated[str, tyro.conf.arg(metavar="VERIFIER")] = ""
    """A verifier that says whether the trained policy succeeds, by the environment's gold. Without
    it, what the expert or the gold answers is success.
    """

    model: Annotated[str, tyro.conf.arg(metavar="URL")] = ""
    """A model behind an OpenAI-compatible server, up to and with /v1, that is asked to cheat."""

    model_name: str = ""
    """The model's name on its server."""

    api_key_env: Annotated[str, tyro.conf.arg(metavar="NAME")] = "LUDUS_API_KEY"
    """The environment variable that holds the server's key."""

    keep: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write an episode of each attack that won; `ludus check ID --exploits FILE` plays it again."""

    fix: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Let the model propose guards until none of the exploits is paid and the expert still is, and
    write them, as JSON.
    """

    all: Flag = False
    """Show the checks that were skipped, too."""

    json: Flag = False
    """Print the report as JSON, in the schema of OpenEnv's RFC 008 (version 2)."""


def main(arguments: Sequence[str]) -> int:
    """Audit, print the report, and return 1 if the verdict is `fail`, else 0."""
    options = parse(
        AuditOptions,
        arguments,
        VerbHelp(
            verb="audit",
            about="Attack an environment or a verifier, and say what the attackers earn.",
            example="ludus audit ludus/twenty-questions-v0",
        ),
    )
    ensure_known(options.name)
    _refuse_contradictions(options)
    for file in filter(None, (options.keep, options.fix)):
        _write(file, b"", "ab")  # before the minutes of an audit; what is there stays for now
    closing: Closing | None = None
    with ExitStack() as stack:
        further: list[Attacker] = []
        if options.model:
            policy = ChatPolicy(
                options.model, options.model_name, api_key=os.environ.get(options.api_key_env, "")
            )
            stack.callback(lambda: run_on_loop(policy.close(), timeout_s=60.0))
            run_on_loop(policy.client.ensure_served(), timeout_s=60.0)
            further.append(model_attacker(policy))
        audited = audit(
            _subject(options),
            tasks=options.tasks,
            seed=options.seed,
            step_timeout_s=options.step_timeout_s,
            budget_s=options.budget_s,
            attackers=(*ATTACKERS, *further),
            pressure_s=options.rl_budget_s if options.rl else 0.0,
            trainer=_trainer(options),
            judge=_judge(options),
        )
        if options.fix is not None and audited.winners:
            closing = close_exploits(_subject(options), audited, policy, seed=options.seed)
            _write(options.fix, msgspec.json.encode(list(closing.guards)))
    report = report_of(audited)
    if options.keep is not None:
        lines = [msgspec.json.encode(exploit) for exploit in audited.exploits(options.seed)]
        _write(options.keep, b"".join(line + b"\n" for line in lines))
    if options.json:
        print(msgspec.json.encode(report).decode())
    else:
        _show(options, audited)
    if closing is not None:
        _tell(closing, options)
    return 1 if report.verdict == "fail" else 0


def _refuse_contradictions(options: AuditOptions) -> None:
    if options.tasks < 1:
        raise ConfigError(f"--tasks is {options.tasks}; give at least 1")
    for flag, seconds in (("budget-s", options.budget_s), ("rl-budget-s", options.rl_budget_s)):
        if not seconds >= 0:
            raise ConfigError(f"--{flag} is {seconds:g}; give seconds from 0, or inf")
    if options.judge and not options.rl:
        raise ConfigError("--judge judges the policy that --rl trains; give --rl too")
    if options.rl_model and not options.rl:
        raise ConfigError("--rl-model is the model that --rl trains; give --rl too")
    if options.rl_steps < 1:
        raise ConfigError(f"--rl-steps is {options.rl_steps}; give at least 1")
    if options.fix is not None and not options.model:
        raise ConfigError("--fix asks a model for guards; give --model URL and --model-name NAME")
    if bool(options.model) is not bool(options.model_name):
        raise ConfigError("--model URL and --model-name NAME go together")


def _tell(closing: Closing, options: AuditOptions) -> None:
    ending = (
        f"closed after {closing.rounds} proposals, the expert is paid as before"
        if closing.is_closed
        else f"not closed by {closing.rounds} proposals: {closing.refusals[-1]}"
    )
    Console(stderr=options.json).print(
        f"{len(closing.exploits)} exploits: {ending}; guards are in {options.fix}",
        highlight=False,
        markup=False,
    )


def _write(path: Path, content: bytes, mode: Literal["wb", "ab"] = "wb") -> None:
    try:
        with path.open(mode) as file:
            file.write(content)
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror}") from error


def _judge(options: AuditOptions) -> Judge | None:
    if not options.judge:
        return None
    bare, arguments = parse_served(options.judge)
    return judge_by(make_verifier(bare, **arguments))


def _trainer(options: AuditOptions) -> ModelTrainer | None:
    if not options.rl_model:
        return None
    if kind_of(options.name) is not NameKind.ENVIRONMENT:
        raise ConfigError(
            "--rl-model trains in an environment; a verifier is put under pressure by --rl alone"
        )
    try:
        from ludus.trainer.pressed import PressedModel
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="--rl-model") from error
    url, _, env = options.name.rpartition("#")
    return PressedModel(options.rl_model, env, env_url=url, steps=options.rl_steps)


def _subject(options: AuditOptions) -> Checkable:
    if kind_of(options.name) is NameKind.ENVIRONMENT:
        if options.cases is not None:
            raise ConfigError(f"--cases is for a verifier; {options.name!r} is an environment")
        return options.name
    if options.cases is None:
        raise ConfigError(
            f"{options.name!r} is a verifier: give --cases FILE, lines with prompt, response and "
            "gold, so that there is something to be answered"
        )
    if "#" in options.name:
        raise ConfigError("audit a verifier where it runs, by its bare name")
    bare, arguments = parse_served(options.name)
    return cases_env(options.name, make_verifier(bare, **arguments), read_cases(options.cases))


def _show(options: AuditOptions, audited: Audit) -> None:
    console = Console()
    report = report_of(audited)
    table = Table("", "check", "what was measured", box=None, show_header=False)
    skipped = 0
    for result in report.results:
        if result.status is CheckStatus.SKIP and not options.all:
            skipped += 1
            continue
        figures = ", ".join(_figure(*item) for item in result.measured.items())
        lines = [figures, *result.evidence, result.remediation]
        detail = Text("\n".join(line for line in lines if line))
        table.add_row(Text(result.status, STYLES[result.status]), result.check_id, detail)
    console.print(table)
    attacks = Table("attacker", "kind", "mean reward", "gain", "interval", box=None)
    ranked = sorted(audited.tallies, key=lambda t: -t.mean)
    asked = [t for t in ranked[SHOWN:] if t.attacker.name in ("model", "pressure")]
    for tally in [*ranked[:SHOWN], *asked]:
        interval = f"{tally.gain.low:.2f} to {tally.gain.high:.2f}"
        style = "bold red" if tally.wins else ""
        cells = (f"{tally.mean:.3f}", f"{tally.gain.value:.2f}", interval)
        attacks.add_row(tally.attacker.name, tally.attacker.kind, *cells, style=style)
    console.print(attacks)
    for tally in audited.tallies:
        if tally.unplayed:
            console.print(f"{tally.attacker.name}: {tally.unplayed}", markup=False)
    expert = f"the expert earns {audited.oracle:.3f}" if audited.expert else "without an expert"
    console.print(
        f"{report.target}: {report.verdict}; {expert}, "
        f"{len(audited.winners)} of {len(audited.tallies)} attackers win, {skipped} checks skipped "
        "(--all shows why)",
        highlight=False,
        markup=False,
    )


def _figure(name: str, value: float | str | list[float]) -> str:
    if isinstance(value, list):
        return f"{name} {value[0]:.2f} to {value[1]:.2f}"
    return f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
