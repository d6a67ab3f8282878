"""`ludus retriever`: serve a corpus at `/retrieve`, for every client of Search-R1's protocol."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from ludus.envs.families.search.protocol import MAX_DOCUMENTS
from ludus.envs.families.search.retrievers import (
    Bm25Index,
    RetrieverService,
    corpus_index,
    fictional_index,
)
from ludus.errors import ConfigError
from ludus.secret import NO_SECRET
from ludus.wire.server import HttpServer

from .arguments import Token, VerbHelp, parse
from .signals import listening

EXAMPLE = """\
ludus retriever corpus.jsonl --port 8000
  ludus retriever --people 2000            (the fictional world of ludus/search-v0)
  curl -H 'Content-Type: application/json' http://127.0.0.1:8000/retrieve \\
       -d '{"queries": ["queen of Lotharingia"], "topk": 3, "return_scores": true}'"""


@dataclass(frozen=True, kw_only=True)
class RetrieverOptions:
    """The options of `ludus retriever`: the corpus, the address and the bounds."""

    corpus: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CORPUS")] = ""
    """The corpus: a .jsonl, .json, .csv or .tsv file, also as .gz, of {title, text} or {id,
    contents}, or a hub's data set; by default a fictional world.
    """
    host: str = "127.0.0.1"
    """The address to bind. Off loopback a token is required."""
    port: int = 8000
    """The port to bind, by default that of Search-R1; 0 picks a free one."""
    token: Token = NO_SECRET
    """The bearer token that clients must send; best given as LUDUS_TOKEN or env:NAME, which `ps`
    does not show. Clients that send no header ask http://HOST:PORT/TOKEN/retrieve.
    """
    topk: int = 3
    """The number of documents for a query that does not ask for a number."""
    threads: int = 4
    """The number of threads that search at the same time."""
    max_queue: int = 1024
    """The most requests in flight; a further request is refused (503)."""
    world: int = 0
    """The seed of the fictional world, where no corpus is named."""
    people: int = 240
    """The number of people in the fictional world, where no corpus is named."""


def main(arguments: Sequence[str]) -> int:
    """Serve the corpus until SIGINT or SIGTERM; returns 0."""
    options = parse(
        RetrieverOptions,
        arguments,
        VerbHelp(
            verb="retriever",
            about="Serve a corpus to search in: BM25 behind Search-R1's POST /retrieve.",
            example=EXAMPLE,
        ),
    )
    if not 1 <= options.topk <= MAX_DOCUMENTS:
        raise ConfigError(f"--topk must be from 1 to {MAX_DOCUMENTS}, got {options.topk}")
    for name in ("threads", "max_queue"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1")
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    return asyncio.run(serve(options))


async def serve(options: RetrieverOptions) -> int:
    """Build the index, and serve in this process until SIGINT or SIGTERM; returns 0."""
    index = build_index(options)
    server = build_server(options, index)
    async with listening(server, options.host, options.port) as stop:
        print(f"serving {len(index.documents)} documents at {server.url}/retrieve", flush=True)
        await stop.wait()
    return 0


def build_index(options: RetrieverOptions) -> Bm25Index:
    """Build the index of the corpus that `options` name, or of a fictional world."""
    if options.corpus:
        return corpus_index(options.corpus)
    return fictional_index(options.world, options.people)


def build_server(options: RetrieverOptions, index: Bm25Index) -> HttpServer:
    """Build the server for `index`, not started."""
    service = RetrieverService(
        index, topk=options.topk, threads=options.threads, max_queue=options.max_queue
    )
    return HttpServer(
        [service],
        host=options.host,
        port=options.port,
        token=options.token.reveal() or os.environ.get("LUDUS_TOKEN", ""),
    )
