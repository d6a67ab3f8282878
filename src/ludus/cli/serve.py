"""`ludus serve`: environments, verifiers and sandboxes over HTTP."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from ludus.envs.outside.sources import is_outside
from ludus.envs.registry import env_ids, is_env
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.envs.serving.worker_placement import THREADS
from ludus.errors import ConfigError
from ludus.integrations.nemo_gym import NemoGymService
from ludus.integrations.openenv.service import OpenEnvService
from ludus.isolation import WorkerLimits
from ludus.rewards import verifier_names
from ludus.rewards.serving.server import ScoreService
from ludus.secret import NO_SECRET
from ludus.wire.arguments import format_served, parse_served, told_arguments
from ludus.wire.chaos import Chaos
from ludus.wire.routes import Service
from ludus.wire.server import DEFAULT_PORT, HttpServer

from .arguments import Token, VerbHelp, parse
from .listening import listening
from .named_options import from_file, take_options
from .names import UnknownThing
from .workers import WORKER_VARIABLE, Workers

SANDBOX = "sandbox"

EXAMPLE = """\
ludus serve ludus/arithmetic-v0 maths
  ludus serve 'ludus/arithmetic-v0?max_operations=2' --port 0
  ludus serve image-reward 'clip-score?device=cuda'
  ludus serve judge --rubric rubric.toml --base-url http://127.0.0.1:8000/v1 --model my-judge
  ludus serve 'sandbox?slots=8&max_timeout_s=60'
  LUDUS_TOKEN=secret ludus serve maths --host 0.0.0.0 --workers 4"""


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The options of `ludus serve`: what to serve, the address, and the bounds."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """What to serve: environments (-vN), verifiers, and 'sandbox'; arguments as in
    'me/echo-v0?length=3'.
    """
    options: Path | None = None
    """A TOML file with options of what is served: a table for each name, or plain keys for one
    name.
    """
    host: str = "127.0.0.1"
    """The address to bind. Off loopback a token is required."""
    port: int = DEFAULT_PORT
    """The port to bind; 0 picks a free one. Several workers take this port and those after it."""
    token: Token = NO_SECRET
    """The bearer token that clients must send; best given as LUDUS_TOKEN or env:NAME, which `ps`
    does not show.
    """
    workers: int = 1
    """The number of server processes, each with a port; clients spread sessions over them."""
    max_sessions: int = SessionLimits().max_sessions
    """The most sessions per worker; a further one is refused (429)."""
    max_queue: int = SessionLimits().max_queue
    """The most operations in flight per worker; a further one is refused (429)."""
    step_timeout_s: float = SessionLimits().step_timeout_s
    """Seconds that a reset or step may take."""
    score_timeout_s: float = 60.0
    """Seconds that a verdict may take."""
    lease_s: float = SessionLimits().lease_s
    """Seconds after which a session that nobody uses is released."""
    lifetime_s: float = SessionLimits().lifetime_s
    """Seconds after which any session is released, used or not."""
    processes_per_env: int = WorkerLimits().processes
    """The most worker processes of each environment that does not declare `never_blocks`. Sessions
    spread over them; those of one process are lost together if it dies or a step in it hangs.
    """
    threads: int = THREADS
    """The threads of each such process, for plain `def` methods; a session always runs on the same
    one.
    """
    processes_per_verifier: int = WorkerLimits().processes
    """The most worker processes of each verifier that does not declare `never_blocks`."""
    worker_memory_mb: int = WorkerLimits().memory_bytes >> 20
    """The private writable memory of a worker process, in MiB; an allocation past it fails there.
    """
    model_memory_mb: int = 0
    """The memory for the weights of all reward models together, in MiB; 0 takes 80 % of the
    machine's. Models that do not fit are refused at the start.
    """
    max_reply_mb: float = 16.0
    """The longest answer of user code, in MiB; a longer one is a fault of that code, and never
    sent.
    """
    max_body_mb: float = 16.0
    """The largest request body, in MiB; a larger one is refused (413)."""
    nemo_gym_model: str = ""
    """The address of the model server for NeMo Gym's `/run`; empty leaves that route out."""
    chaos: str = ""
    """Faults to inject on purpose, to test a trainer: drop=0.1,delay=0.2:0.5,error=0.1."""


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM; returns 0."""
    options = parse(
        ServeOptions,
        take_options(arguments, ServeOptions),
        VerbHelp(
            verb="serve",
            about="Serve environments, verifiers and sandboxes over HTTP; protocol: docs/http.md.",
            example=EXAMPLE,
        ),
    )
    options = replace(options, names=tuple(from_file(options.names, options.options)), options=None)
    _check(options)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if options.workers > 1:
        return Workers(options).run()
    return asyncio.run(serve(options))


async def serve(options: ServeOptions) -> int:
    """Run the server in this process until SIGINT or SIGTERM; returns 0."""
    # The variable is for this process alone, and not for those that it starts.
    address = os.environ.pop(WORKER_VARIABLE, "")
    server = build_server(options)
    async with listening(server, options.host, options.port) as stop:
        if address:
            loop = asyncio.get_running_loop()
            loop.add_reader(sys.stdin.fileno(), stop.set)  # it ends when whoever started us does
            os.write(int(address), server.url.encode())
            os.close(int(address))
        print(ready_line(server.url, options), flush=True)
        await stop.wait()
        print("stopping", flush=True)
    return 0


def build_server(options: ServeOptions) -> HttpServer:
    """Build the server that `options` describe, not started."""
    envs, verifiers = split_names([name for name in options.names if not is_sandbox(name)])
    services: list[Service] = []
    for name in filter(is_sandbox, options.names):
        from ludus.sandboxes.serving.server import sandbox_services

        services += sandbox_services(**parse_served(name)[1])
    if envs:
        limits = SessionLimits(
            max_sessions=options.max_sessions,
            max_queue=options.max_queue,
            max_queue_per_env=options.max_queue,
            step_timeout_s=options.step_timeout_s,
            lease_s=options.lease_s,
            lifetime_s=options.lifetime_s,
        )
        env_service = EnvService(
            envs,
            limits=limits,
            workers=_workers(options, options.processes_per_env),
            threads=options.threads,
        )
        services += [
            env_service,
            OpenEnvService(env_service),
            NemoGymService(env_service, model_url=options.nemo_gym_model),
        ]
    if verifiers:
        services.append(
            ScoreService(
                verifiers,
                timeout_s=options.score_timeout_s,
                max_queue=options.max_queue,
                workers=_workers(options, options.processes_per_verifier),
                model_memory_bytes=options.model_memory_mb << 20,
            )
        )
    return HttpServer(
        services,
        host=options.host,
        port=options.port,
        token=options.token.reveal() or os.environ.get("LUDUS_TOKEN", ""),
        max_body_bytes=int(options.max_body_mb * (1 << 20)),
        chaos=Chaos.parse(options.chaos),
    )


def _workers(options: ServeOptions, processes: int) -> WorkerLimits:
    return WorkerLimits(
        processes=processes,
        memory_bytes=options.worker_memory_mb << 20,
        max_reply_bytes=int(options.max_reply_mb * (1 << 20)),
    )


def is_sandbox(name: str) -> bool:
    """Say whether a served name is that of the sandbox."""
    return parse_served(name)[0] == SANDBOX


def split_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split served names into environments and verifiers.

    Raises:
        UnknownThing: a name is neither; the message has the closest name of either kind.
    """
    envs, verifiers = set(env_ids()), set(verifier_names())
    for name in names:
        bare = parse_served(name)[0]
        if bare not in envs | verifiers and not is_outside(bare):
            raise UnknownThing.near(
                bare,
                envs | verifiers | {SANDBOX},
                hint="ludus list; a file of yours is named by --import",
            )
    served = {name: is_env(parse_served(name)[0]) for name in names}
    return (
        [name for name in names if served[name]],
        [name for name in names if not served[name]],
    )


def ready_line(urls: str, options: ServeOptions) -> str:
    """Write the line printed once clients may connect, which also tells a parent the address."""
    served = [parse_served(name) for name in options.names]
    names = [format_served(name, told_arguments(arguments)) for name, arguments in served]
    return f"serving {', '.join(names)} at {urls}"


def _check(options: ServeOptions) -> None:
    if not options.names:
        raise ConfigError(
            "nothing to serve; name environments or verifiers (ludus list), or 'sandbox'"
        )
    if sum(map(is_sandbox, options.names)) > 1:
        raise ConfigError("one server has one sandbox; give 'sandbox' once")
    if options.workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {options.workers}")
    last = options.port + options.workers - 1
    if options.port < 0 or last > 65535:
        raise ConfigError(f"ports are 0 to 65535, got {options.port} to {last}")
    for name in (
        "max_sessions",
        "max_queue",
        "threads",
        "processes_per_env",
        "processes_per_verifier",
    ):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1")
    if options.model_memory_mb < 0:
        raise ConfigError(f"--model-memory-mb must be at least 0, got {options.model_memory_mb}")
    for name in ("step_timeout_s", "score_timeout_s", "lease_s", "lifetime_s", "max_body_mb"):
        if not 0 < getattr(options, name) < math.inf:
            raise ConfigError(f"--{name.replace('_', '-')} must be a number more than 0")
    build_server(options)  # a token off loopback, chaos
