"""`ludus retriever`: a corpus behind `/retrieve`, for every client that speaks Search-R1."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from ludus.envs.families.search import Bm25Index, RetrieverService, corpus_index, fictional_index
from ludus.envs.families.search.protocol import MAX_DOCUMENTS
from ludus.errors import ConfigError
from ludus.secret import NO_SECRET
from ludus.wire.server import HttpServer

from .arguments import Token, parse
from .listening import cannot_listen

EXAMPLE = """\
ludus retriever corpus.jsonl --port 8000
  ludus retriever --people 2000            (the fictional world of ludus/search-v0)
  curl -H 'Content-Type: application/json' http://127.0.0.1:8000/retrieve \\
       -d '{"queries": ["queen of Lotharingia"], "topk": 3, "return_scores": true}'"""


@dataclass(frozen=True, kw_only=True)
class RetrieverOptions:
    """What to serve, and where."""

    corpus: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CORPUS")] = ""
    """A .jsonl, .json, .csv or .tsv file, each also .gz, of {title, text} or {id, contents}, or a
    hub's data set."""
    host: str = "127.0.0.1"
    """Address to bind. Off loopback a token is required."""
    port: int = 8000
    """Search-R1's own. 0 picks a free one."""
    token: Token = NO_SECRET
    """Bearer token clients must send; best as LUDUS_TOKEN or env:NAME, which `ps` does not show.
    Clients that send no header ask http://HOST:PORT/TOKEN/retrieve."""
    topk: int = 3
    """Documents for a query that does not say."""
    threads: int = 4
    """That search at once."""
    max_queue: int = 1024
    """Requests in flight; past it 503."""
    world: int = 0
    """Without a corpus: the seed of the fictional world."""
    people: int = 240
    """Without a corpus: the size of that world."""


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM."""
    options = parse(
        RetrieverOptions,
        arguments,
        verb="retriever",
        about="Serve a corpus to search in: BM25 behind Search-R1's POST /retrieve.",
        example=EXAMPLE,
    )
    _check(options)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    return asyncio.run(serve(options))


async def serve(options: RetrieverOptions) -> int:
    """Serve in this process."""
    index = build_index(options)
    server = build_server(options, index)
    try:
        await server.start()
    except OSError as error:
        raise cannot_listen(options.host, options.port, error) from error
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    print(f"serving {len(index.documents)} documents at {server.url}/retrieve", flush=True)
    await stop.wait()
    await server.stop()
    return 0


def build_index(options: RetrieverOptions) -> Bm25Index:
    """The index of the corpus that `options` name."""
    if options.corpus:
        return corpus_index(options.corpus)
    return fictional_index(options.world, options.people)


def build_server(options: RetrieverOptions, index: Bm25Index) -> HttpServer:
    """The server, not started."""
    service = RetrieverService(
        index, topk=options.topk, threads=options.threads, max_queue=options.max_queue
    )
    return HttpServer(
        [service],
        host=options.host,
        port=options.port,
        token=options.token.reveal() or os.environ.get("LUDUS_TOKEN", ""),
    )


def _check(options: RetrieverOptions) -> None:
    if not 1 <= options.topk <= MAX_DOCUMENTS:
        raise ConfigError(f"--topk must be from 1 to {MAX_DOCUMENTS}, got {options.topk}")
    for name in ("threads", "max_queue"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1")
    if not 0 <= options.port <= 65535:
        raise ConfigError(f"--port must be from 0 to 65535, got {options.port}")
