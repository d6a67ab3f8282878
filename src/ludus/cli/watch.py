"""`ludus watch`: a live page of runs, which only reads run folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import tyro

from ludus.secret import NO_SECRET

from .arguments import Flag, Token, VerbHelp, parse
from .runs import run_place


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """The options of `ludus watch`."""

    runs: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[RUN|FOLDER ...]")
    ] = ()
    """Run folders, folders that hold some, or files of episodes; by default the folder `runs`."""
    port: int = 8786
    """The port; 0 takes any that is free."""
    host: str = "127.0.0.1"
    """The address to listen at. Off loopback a token is required."""
    token: Token = NO_SECRET
    """What a browser must bring; best given as LUDUS_TOKEN or env:NAME."""
    prefix: str = "/"
    """The path under which a proxy shows the page."""
    tokenizer: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    """A model folder or tokenizer.json, for the texts of tokens; by default the run's own."""
    json: Annotated[str, tyro.conf.arg(metavar="VIEW")] = ""
    """Print a view as JSON instead: runs, overview, columns, series, lanes, steps, tasks, episodes,
    episode, counts, accounts, settings, compare; with `?name=value&...` as the page asks.
    """
    content: Flag = False
    """Let --json print what models and environments wrote, which may address whoever reads it."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """Write the page as a file of at most 5 MB instead."""


def main(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C, or print a view, or write a file; returns 0."""
    options = parse(
        WatchOptions,
        arguments,
        VerbHelp(
            verb="watch",
            about="Show runs as a live page: findings, metrics, timeline, episodes token by token.",
            example="ludus watch runs/mine",
        ),
    )
    places = [run_place(place) for place in options.runs] or [Path("runs")]
    if options.json:
        return _print_view(options, places)
    if options.out:
        return _write_file(options, places)
    return _serve(options, places)


def _tokenizer(options: WatchOptions) -> Path | None:
    return Path(options.tokenizer) if options.tokenizer else None


def _print_view(options: WatchOptions, places: list[Path]) -> int:
    from urllib.parse import parse_qsl

    from ludus.agent.viewer.server import open_runs
    from ludus.agent.viewer.views import refuse_query, view, without_text

    name, _, words = options.json.partition("?")
    runs = open_runs(places, tokenizer=_tokenizer(options))
    query = dict(parse_qsl(words))
    refuse_query(name, runs, query)
    data = msgspec.to_builtins(view(name, runs, query), enc_hook=str)
    print(msgspec.json.encode(data if options.content else without_text(data)).decode())
    return 0


def _write_file(options: WatchOptions, places: list[Path]) -> int:
    from ludus.agent.viewer import PageHead, page_of
    from ludus.agent.viewer.server import open_runs

    from .view import write_page

    readers = list(open_runs(places, tokenizer=_tokenizer(options)).readers.values())
    head = PageHead(first="runs" if len(readers) > 1 else "overview")
    print(write_page(page_of(readers, head), Path(options.out)))
    return 0


def _serve(options: WatchOptions, places: list[Path]) -> int:
    from ludus.agent.viewer.server import WatchServer, refuse_open_door, serve_until_interrupted

    token = options.token.reveal() or os.environ.get("LUDUS_TOKEN", "")
    refuse_open_door(options.host, token)
    server = WatchServer(places, token=token, prefix=options.prefix, tokenizer=_tokenizer(options))

    def listening(address: str) -> None:
        asked = f"?token={token}" if token else ""
        count = len(server.runs.readers)
        print(f"{count} run{'s' * (count != 1)} at {address}{server.prefix}{asked}", flush=True)
        print("Ctrl-C ends the page; no run depends on it", file=sys.stderr)

    serve_until_interrupted(server.application(), options.host, options.port, listening)
    return 0
