"""`ludus serve`: environments, verifiers and sandboxes over HTTP, by one process or several.

A session lives in one process, so connections must not be spread blindly over the processes, as
SO_REUSEPORT would do. Each worker has an address, and clients choose one for a session (decision
0202). A worker that dies is started again on its port; clients play its sessions again elsewhere,
or are told by a typed error that they are gone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import os
import resource
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from ludus.envs.outside.sources import is_outside
from ludus.envs.registry import env_ids, is_env
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.errors import ConfigError, LudusError, MissingExtra
from ludus.integrations.nemo_gym import NemoGymService
from ludus.integrations.openenv.service import OpenEnvService
from ludus.integrations.ors import OrsService
from ludus.isolation.group import WorkerLimits
from ludus.registry import HINT, imported
from ludus.rewards import verifier_names
from ludus.rewards.serving.server import ScoreService
from ludus.sandboxes.settings import TENANTS_VARIABLE
from ludus.secret import Secret
from ludus.wire.access import AccessLog
from ludus.wire.address import format_served, parse_served, told_arguments
from ludus.wire.admission import connections_within
from ludus.wire.chaos import Chaos
from ludus.wire.principals import Principals
from ludus.wire.routes import Service
from ludus.wire.server import HttpServer
from ludus.wire.tls import ServerTls
from ludus.wire.tracing import Tracer

from .names import UnknownThing
from .serve_options import (
    LEARNER,
    LIVE,
    SANDBOX,
    ServeOptions,
    is_sandbox,
    read_options,
    replicas_of,
)
from .signals import listening
from .workers import WORKER_VARIABLE, ServerWorker, Workers, without

logger = logging.getLogger(__name__)
MAX_FILES = 1 << 16
"""The most files that a server may open, where the system allows more."""
MAX_MESSAGES, MESSAGES_S, MAX_KINDS = 100, 10.0, 10_000
"""How many messages of a kind are logged within so many seconds, and how many kinds are counted."""


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM; returns 0."""
    if arguments and arguments[0] == LEARNER:
        from .learner import main as serve_learner

        return serve_learner(arguments[1:])
    options = read_options(arguments)
    if options.ray:
        return _on_ray(options, arguments)
    build_server(options)  # a token off loopback, chaos
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(RateLimit())
    raise_file_limit()
    # For the sandboxes that served environments and verifiers open by themselves.
    os.environ[TENANTS_VARIABLE] = "1"
    if options.workers > 1:
        ports = [options.port + i if options.port else 0 for i in range(options.workers)]
        workers = [ServerWorker(arguments, port, options.token) for port in ports]
        return Workers(
            workers,
            announce=lambda urls: print(ready_line(urls, options), flush=True),
            drain_s=lambda: read_options(arguments).drain_s,
        ).run()
    return asyncio.run(serve(options, arguments))


ON_RAY = ("ray", "replicas", "replica-queue", "roster", "host", "port", "token")
"""The options that the servers on a cluster are not given."""


def _on_ray(options: ServeOptions, arguments: Sequence[str]) -> int:
    """Run servers on a Ray cluster until SIGINT or SIGTERM."""
    try:
        from ludus.trainer.cluster.scaled import ScaledServers, Scaling, serve_scaled
    except ImportError as error:
        raise MissingExtra.of("ray-serve", needed_for="ludus serve --ray") from error
    token = options.token.reveal() or os.environ.get("LUDUS_TOKEN", "")
    if not token:
        raise ConfigError("servers on a cluster listen off loopback: set LUDUS_TOKEN, or --token")
    least, most = replicas_of(options)
    servers = ScaledServers(
        words=without(arguments, (*ON_RAY, *(name.replace("-", "_") for name in ON_RAY))),
        before=[part for name in imported for part in ("--import", name)],
        variables={"LUDUS_TOKEN": token},
        address=options.ray,
        roster=options.roster,
        drain_s=options.drain_s,
        scaling=Scaling(least=least, most=most, queue=options.replica_queue),
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    where = f"file:{options.roster.absolute()}"
    serve_scaled(
        servers,
        stop.is_set,
        lambda urls: print(f"{len(urls)} servers, at {where}: {', '.join(urls)}", flush=True),
    )
    return 0


async def serve(options: ServeOptions, arguments: Sequence[str]) -> int:
    """Run the server in this process until SIGINT or SIGTERM; returns 0."""
    # The variable is for this process alone, and not for those that it starts.
    address = os.environ.pop(WORKER_VARIABLE, "")
    server = build_server(options)
    forget_token(options.token)
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGHUP, partial(reload, server, options, arguments)
    )
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


def raise_file_limit() -> None:
    """Let this process open as many files as the system allows, for many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, MAX_FILES)), hard))


class RateLimit(logging.Filter):
    """Lets each kind of message through a few times in a while, and then says how many were not."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a message is written."""
        key = record.name, str(record.msg)[:200]
        since, count = self._counts.get(key, (record.created, 0))
        if record.created - since >= MESSAGES_S:
            if count > MAX_MESSAGES:
                record.msg = f"{record.msg} ({count - MAX_MESSAGES} like it were left out)"
            since, count = record.created, 0
        if len(self._counts) >= MAX_KINDS and key not in self._counts:
            self._counts.clear()
        self._counts[key] = since, count + 1
        return count < MAX_MESSAGES


def forget_token(token: Secret) -> None:
    """Take the server's token out of the environment, which the processes of user code inherit."""
    name = token.reference.removeprefix("env:")
    for variable in filter(None, ("LUDUS_TOKEN", name)):
        os.environ.pop(variable, None)


def build_server(options: ServeOptions) -> HttpServer:
    """Build the server that `options` describe, not started."""
    envs, verifiers = split_names([name for name in options.names if not is_sandbox(name)])
    services: list[Service] = []
    for name in filter(is_sandbox, options.names):
        from ludus.sandboxes.serving.server import sandbox_services

        services += sandbox_services(**parse_served(name)[1])
    if envs:
        env_service = EnvService(
            [ServedEnv.parse(env, thoughts=options.thoughts) for env in envs],
            limits=session_limits(options),
            workers=_workers(options, options.processes_per_env),
            threads=options.threads,
        )
        services.append(env_service)
        if options.ors:
            services.append(OrsService(env_service))
        else:
            services += [
                OpenEnvService(env_service),
                NemoGymService(env_service, model_url=options.nemo_gym_model),
            ]
    if verifiers:
        services.append(
            ScoreService(
                verifiers,
                thoughts=options.thoughts,
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
        socket_path=options.uds,
        tls=ServerTls(options.tls_cert, options.tls_key, client_authority=options.tls_client_ca)
        if options.tls_cert is not None
        else None,
        principals=Principals(
            options.token.reveal() or os.environ.get("LUDUS_TOKEN", ""), options.tokens
        ),
        max_body_bytes=math.ceil(options.max_body_mb * (1 << 20)),
        drain_s=options.drain_s,
        max_connections=connections_within(
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            len(envs) * options.processes_per_env + len(verifiers) * options.processes_per_verifier,
        ),
        chaos=Chaos.parse(options.chaos),
        access_log=AccessLog(options.access_log) if options.access_log else None,
        tracer=Tracer(options.otel) if options.otel else None,
    )


def session_limits(options: ServeOptions) -> SessionLimits:
    """Return the bounds on sessions that `options` give."""
    return SessionLimits(
        max_sessions=options.max_sessions,
        max_queue=options.max_queue,
        max_queue_per_env=options.max_queue,
        step_timeout_s=options.step_timeout_s,
        lease_s=options.lease_s,
        lifetime_s=options.lifetime_s,
        max_kept_bytes=int(options.max_kept_mb * (1 << 20)),
    )


def reload(server: HttpServer, started: ServeOptions, arguments: Sequence[str]) -> None:
    """Read tokens, certificate and limits again; a faulty setting keeps the old value.

    Args:
        server: the server, which runs.
        started: the options that it was started with.
        arguments: the command line that they came from, with the file that it names.
    """
    server.reload()
    if started.config is None:
        return
    try:
        options = read_options(arguments)
    except LudusError as error:
        logger.error("the limits stay as they are: %s", error)
        return
    server.limit(max_body_bytes=math.ceil(options.max_body_mb * (1 << 20)), drain_s=options.drain_s)
    for service in server.services:
        if isinstance(service, EnvService):
            service.limit(session_limits(options))
        elif isinstance(service, ScoreService):
            service.limit(timeout_s=options.score_timeout_s, max_queue=options.max_queue)
    fixed = [
        field.name
        for field in dataclasses.fields(ServeOptions)
        if field.name not in LIVE and getattr(options, field.name) != getattr(started, field.name)
    ]
    if fixed:
        logger.warning("%s: %s change at the next start", options.config, ", ".join(fixed))
    logger.info("%s was read again", options.config)


def _workers(options: ServeOptions, processes: int) -> WorkerLimits:
    return WorkerLimits(
        processes=processes,
        memory_bytes=options.worker_memory_mb << 20,
        max_reply_bytes=int(options.max_reply_mb * (1 << 20)),
    )


def split_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split served names into environments and verifiers.

    Raises:
        UnknownThing: a name is neither; the message has the closest name of either kind.
    """
    envs, verifiers = set(env_ids()), set(verifier_names())
    for name in names:
        bare = parse_served(name)[0]
        if bare not in envs | verifiers and not is_outside(bare):
            raise UnknownThing.near(bare, envs | verifiers | {SANDBOX}, hint=HINT)
    served = {name: is_env(parse_served(name)[0]) for name in names}
    return ([name for name in names if served[name]], [name for name in names if not served[name]])


def ready_line(urls: str, options: ServeOptions) -> str:
    """Write the line printed once clients may connect, which also tells a parent the address."""
    served = [parse_served(name) for name in options.names]
    names = [format_served(name, told_arguments(arguments)) for name, arguments in served]
    return f"serving {', '.join(names)} at {urls}"
