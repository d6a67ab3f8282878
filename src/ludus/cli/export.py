"""`ludus export`: a run's episodes and numbers as files of other tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl

import tyro

from ludus.agent.viewer.export import FORMATS, export
from ludus.agent.viewer.server import open_runs
from ludus.agent.viewer.views import filters_of, refuse_filters
from ludus.errors import ConfigError

from .arguments import VerbHelp, parse
from .runs import run_place


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of `ludus export`."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, or a file of episodes."""
    to: str
    """parquet, jsonl, hf, sharegpt, trl, atif, pi, training-trace or inspect."""
    out: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    """The folder to write; by default export-FORMAT in the run folder."""
    filter: Annotated[str, tyro.conf.arg(metavar="QUERY")] = ""
    """The filters of the page's address, such as 'split=train&reward=0.5..&step=..20'."""
    passing: float = 1.0
    """The least reward with which trl labels a completion as good."""


def main(arguments: Sequence[str]) -> int:
    """Write the files and print the paths; returns 0."""
    options = parse(
        ExportOptions,
        arguments,
        VerbHelp(
            verb="export",
            about=f"Write episodes with exact token ids for other tools: {', '.join(FORMATS)}.",
            example="ludus export runs/mine --to parquet --filter 'split=train&reward=1'",
        ),
    )
    pairs = parse_qsl(options.filter, keep_blank_values=True)
    if options.filter and not pairs:
        raise ConfigError(f"--filter {options.filter!r} names no filter; write NAME=VALUE&...")
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise ConfigError(f"--filter gives {name!r} {times} times; give it once")
    given = dict(pairs)
    refuse_filters(given)
    filters = filters_of(given)
    source = run_place(options.run)
    (reader,) = open_runs([source], most=1).readers.values()
    beside = source if source.is_dir() else source.parent
    out = Path(options.out) if options.out else beside / f"export-{options.to}"
    files = export(reader, options.to, out, filters=filters, passing=options.passing)
    print(files[0] if len(files) == 1 else f"{len(files)} files in {out}")
    return 0
