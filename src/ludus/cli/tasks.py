"""`ludus tasks`: a task set from questions with answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import tyro

from ludus.envs.curation import curate, write_collection
from ludus.errors import ConfigError

from .arguments import Flag, VerbHelp, parse


@dataclass(frozen=True, kw_only=True)
class TasksOptions:
    """The options of `ludus tasks`."""

    sources: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE|HUB")]
    """Questions with answers: .jsonl, .json or .parquet files, or owner/name of a hub. The layouts
    of GSM8K, MATH, AIME and others are recognised.
    """
    out: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = "tasks"
    """The folder to write, which must be new or empty."""
    question: str = ""
    """The field with the question."""
    answer: str = ""
    """The field with the answer."""
    verifier: str = "maths"
    """What will score answers; of maths a gold must be readable, others take any gold."""
    validation: float = 0.05
    """The share of tasks for validation."""
    test: float = 0.1
    """The share of tasks for test."""
    seed: int = 0
    """Decides which questions go to which split."""
    json: Flag = False
    """Print the card as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Write the set, and print its card; returns 0."""
    options = parse(
        TasksOptions,
        arguments,
        VerbHelp(
            verb="tasks",
            about="Make a task set without repetitions or unreadable golds, in disjoint splits.",
            example="ludus tasks problems.jsonl --out tasks",
        ),
    )
    if not options.sources:
        raise ConfigError("no source named; give a file or a hub's owner/name")
    folder = Path(options.out)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{str(folder)!r} is not empty; name another folder with --out")
    collection = curate(
        options.sources,
        question=options.question,
        answer=options.answer,
        verifier=options.verifier,
        validation=options.validation,
        test=options.test,
        seed=options.seed,
    )
    card = write_collection(collection, folder)
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(card)).decode())
        return 0
    counts = ", ".join(f"{count} {split}" for split, count in card["tasks"].items())
    print(f"{folder}: {counts}, of {card['rows']} rows in {card['clusters']} clusters")
    for reason, count in card["left_out"].items():
        print(f"left out {count}: {reason}")
    return 0
