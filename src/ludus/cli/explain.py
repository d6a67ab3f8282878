"""`ludus explain`: how a run stands, why, and what to do, from the files of the run folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import tyro

from ludus.errors import ConfigError
from ludus.trainer.findings.diagnosis import diagnose, events_of
from ludus.trainer.findings.summary import explained

from .arguments import Flag, VerbHelp, parse
from .gains import measure_gains, show_gains
from .runs import run_place


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """The options of `ludus explain`."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder of a run: one that goes on, has ended or crashed, or a copy."""
    json: Flag = False
    """Print one JSON object instead: `state`, `step`, `steps`, `findings` (the open ones and their
    causes, as in findings.jsonl) and `events`.
    """
    gains: Flag = False
    """Say instead what RL did: tasks sharpened and gained, experience that is not used, habits of
    thought, changed weights; of the first and the last evaluation.
    """
    before: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """With --gains, episodes of the first policy (ludus eval --samples 16 --out FILE)."""
    after: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """With --gains, episodes of the trained policy on the same tasks."""


def main(arguments: Sequence[str]) -> int:
    """Explain a run; returns 0, and 1 for a run that is broken or stuck."""
    options = parse(
        ExplainOptions,
        arguments,
        VerbHelp(
            verb="explain",
            about="Say how a training run stands, why, and what to do: solved, learning, stuck or "
            "broken, by today's rules. Exit status 1 where it is stuck or broken.",
            example="ludus explain runs/mine",
        ),
    )
    folder = run_place(options.run)
    if not (folder / "metrics.jsonl").exists():
        raise ConfigError(f"{str(folder)!r} holds no run: there is no metrics.jsonl")
    if options.gains:
        run_gains = measure_gains(folder, options.before, options.after)
        if options.json:
            print(msgspec.json.encode(run_gains).decode())
        else:
            show_gains(run_gains)
        return 0
    if options.before or options.after:
        raise ConfigError("--before and --after are for --gains")
    diagnosis, events = diagnose(folder), events_of(folder)
    if options.json:
        history = diagnosis.history
        whole = {
            "state": diagnosis.state,
            "step": history.step,
            "steps": history.steps,
            "findings": diagnosis.standing(),
            "events": events,
        }
        print(msgspec.json.encode(whole).decode())
    else:
        print("\n".join(explained(diagnosis, events)))
    return int(diagnosis.state in ("broken", "stuck"))
