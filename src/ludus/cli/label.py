"""`ludus label`: a local page on which people compare, rank and rate answers."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import tyro
from rich.console import Console
from rich.table import Table

from ludus.agent.labelling.agreement import LabelReport, report_of
from ludus.agent.labelling.journal import LabelJournal
from ludus.agent.labelling.server import LabelServer
from ludus.agent.labelling.sheet import LabelQuestion, load_items
from ludus.agent.viewer.server import serve_until_interrupted
from ludus.errors import ConfigError

from .arguments import Flag, VerbHelp, parse
from .evaluate import EvalOptions, play


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """The options of `ludus label`."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE|RUN|ENV")]
    """Pairs, rankings, answers to rate, or criteria: a .jsonl, .json or .parquet file, or
    owner/name of a hub; or trajectories: the folder of a run, or the id of an environment, which is
    then played.
    """
    ask: Literal["pair", "ranking", "rating"] = "pair"
    """What is asked about trajectories; pairs and rankings are of rollouts of a task."""
    tasks: int = 20
    """How many tasks of an environment are played."""
    samples: int = 2
    """How often a task is played by each player."""
    policy: tuple[Literal["random", "expert", "openai", "local"], ...] = ("expert", "random")
    """Who plays an environment, as in ludus eval; openai and local are the model."""
    model: str = ""
    """The model that plays; see ludus eval."""
    base_url: Annotated[str, tyro.conf.arg(metavar="URL")] = ""
    """The address of the model's server, up to and with /v1."""
    split: str = "test"
    """The split that the environment's tasks are taken from."""
    seed: int = 0
    """The seed of environment and players."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = "labels.jsonl"
    """The file that rows are appended to; labelling goes on where it ended."""
    annotators: tuple[str, ...] = ("me",)
    """The people, each of whom gets an address with a token of their own."""
    guidelines: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """A text file that is shown above every item."""
    tests: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """Items whose answer is known, which everybody gets among the others."""
    overlap: int = 0
    """How many people label an item; 0 is everybody."""
    port: int = 8787
    """The port; 0 takes any that is free."""
    host: str = "127.0.0.1"
    """The address to listen at."""
    report: Flag = False
    """Print agreement and what is known of each person, and serve nothing."""
    json: Flag = False
    """Print the report as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C and print the report, or print the report alone; returns 0."""
    options = parse(
        LabelOptions,
        arguments,
        VerbHelp(
            verb="label",
            about="Compare, rank and rate answers on a local page, by keyboard.",
            example="ludus label pairs.jsonl --annotators ann bob --tests known.jsonl",
        ),
    )
    if options.overlap < 0 or options.overlap > len(options.annotators):
        raise ConfigError(
            f"--overlap {options.overlap} asks more people than the {len(options.annotators)} named"
        )
    items = load_items(
        played(options) if is_environment(options.source) else options.source,
        tests=options.tests,
        ask=LabelQuestion(options.ask),
    )
    if options.report and not Path(options.out).exists():
        raise ConfigError(f"there are no labels in {options.out!r}; name them with --out")
    journal = LabelJournal(Path(options.out))
    if not options.report:
        server = LabelServer(
            items,
            journal,
            options.annotators,
            guidelines=_text(options.guidelines),
            overlap=options.overlap,
            host=options.host,
        )
        _serve(options, server)
    report = report_of(items, list(journal.rows.values()))
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        Console().print(table_of(report))
        print("\n".join(report.notes))
    return 0


def is_environment(source: str) -> bool:
    """Return whether a source is the id of an environment, and neither a file nor a hub's name."""
    name = source.partition("?")[0]
    return not Path(source).exists() and re.search(r"-v\d+$", name) is not None


def played(options: LabelOptions) -> str:
    """Play the environment where it has not been played for these labels, and return the folder of
    episodes. Labelling goes on with the episodes that it began with.

    Raises:
        ConfigError: nothing can play it.
    """
    if min(options.tasks, options.samples) < 1 or not options.policy:
        raise ConfigError("--tasks and --samples must be at least 1, and --policy names a player")
    folder = Path(options.out).with_suffix(".episodes")
    if folder.is_dir():
        return str(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
        place = Path(partial) / "episodes"
        place.mkdir()
        for number, policy in enumerate(options.policy):
            of_model = policy in ("openai", "local")
            play(
                EvalOptions(
                    env=options.source,
                    policy=policy,
                    model=options.model if of_model else "",
                    base_url=options.base_url if policy == "openai" else "",
                    tasks=options.tasks,
                    samples=1 if policy == "expert" else options.samples,
                    split=options.split,
                    seed=options.seed,
                    out=str(place / f"{number}.jsonl"),
                )
            )
        place.rename(folder)  # whole, or not at all
    return str(folder)


def _text(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the guidelines {path!r}: {error}") from None


def _serve(options: LabelOptions, server: LabelServer) -> None:
    def listening(address: str) -> None:
        for name, token in server.tokens.items():
            print(f"{name}  {address}/?token={token}", flush=True)
        print(f"rows go to {options.out}; Ctrl-C ends the page", file=sys.stderr)

    serve_until_interrupted(server.application(), options.host, options.port, listening)


def table_of(report: LabelReport) -> Table:
    """Draw the report as a table, a row for each person."""
    alpha = "unknown" if report.alpha is None else f"{report.alpha:.3f}"
    table = Table(
        "annotator", "labels", "s an item", "test items", "first preferred", "kappa", "look at"
    )
    table.title = (
        f"{report.labels} labels of {report.items} items, {report.labelled_twice} of them by "
        f"several people; Krippendorff's alpha ({report.level}) {alpha}"
    )
    for person in report.annotators:
        table.add_row(
            person.annotator,
            str(person.labels),
            "-" if person.seconds is None else f"{person.seconds:.1f}",
            *("-" if rate is None else f"{rate.value:.2f} ({rate.low:.2f} to {rate.high:.2f})"
              for rate in (person.tests, person.first)),
            "-" if person.agreement is None else f"{person.agreement:.2f}",
            "; ".join(person.concerns) or "-",
        )  # fmt: skip
    return table
