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
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Annotated

import tyro

from ludus.envs.outside.sources import is_outside
from ludus.envs.registry import env_ids, is_env
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.envs.serving.worker_placement import THREADS
from ludus.errors import ConfigError
from ludus.integrations.nemo_gym import NemoGymService
from ludus.integrations.openenv.service import OpenEnvService
from ludus.isolation.group import WorkerLimits
from ludus.rewards import verifier_names
from ludus.rewards.serving.server import ScoreService
from ludus.sandboxes.settings import TENANTS_VARIABLE
from ludus.secret import NO_SECRET, Secret
from ludus.thoughts import AUTO
from ludus.wire.address import format_served, parse_served, told_arguments
from ludus.wire.admission import connections_within
from ludus.wire.chaos import Chaos
from ludus.wire.principals import Principals
from ludus.wire.routes import Service
from ludus.wire.server import DEFAULT_PORT, HttpServer
from ludus.wire.tls import ServerTls

from .arguments import Token, VerbHelp, parse
from .loading import imported
from .names import UnknownThing, from_file, take_options
from .signals import listening

logger = logging.getLogger(__name__)
READY_TIMEOUT_S = 600.0
"""Seconds that a worker may take at the start until it listens."""
CLOSE_S = 20.0
"""Seconds that a worker has, after its drain, to close environments and processes before it is
killed.
"""
RESTART_AFTER_S = 0.5
"""Seconds before the first restart of a worker; doubled each time it dies young again."""
MAX_RESTART_AFTER_S = 30.0
"""The longest wait before a restart, in seconds."""
STABLE_S = 60.0
"""Seconds after which a worker that dies has not died young, so the wait starts over."""
POLL_S = 0.2
"""Seconds between two looks at whether the workers are alive, or ready."""
MAX_FILES = 1 << 16
"""The most files that a server may open, where the system allows more."""
MAX_MESSAGES, MESSAGES_S, MAX_KINDS = 100, 10.0, 10_000
"""How many messages of a kind are logged within so many seconds, and how many kinds are counted."""
MAX_ADDRESS = 4096
"""The most bytes of an address; a worker writes it at once, and pipes take as much in one piece."""
WORKER_VARIABLE = "LUDUS_WORKER"
"""The environment variable set for worker processes: the descriptor to which a worker writes its
address once it listens. Such a process stops when its standard input closes, so no worker outlives
the process that started it.
"""


class ServerWorker:
    """A server process on a fixed port, through all restarts."""

    def __init__(self, options: ServeOptions, port: int) -> None:
        self.options = options
        self.port = port
        self.url = ""
        self.started = 0.0
        self.restarts = 0
        self.next_start = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        """The running process; None while a restart is due."""
        self._address: FileIO | None = None
        """The end of a pipe from which the address of the process is read, without blocking."""

    def start(self) -> None:
        """Start the process; `ready` waits until the server listens."""
        options = dataclasses.replace(self.options, workers=1, port=self.port)
        imports = [part for name in imported for part in ("--import", name)]
        # Without -P, `-m` would put the current folder on the import path, where a file of the user
        # may have the name of a module of the standard library.
        command = [sys.executable, "-P", "-m", "ludus", *imports, "serve", *as_arguments(options)]
        reading_end, writing_end = os.pipe()
        os.set_blocking(reading_end, False)
        self._address = FileIO(reading_end)
        environment = {**os.environ, WORKER_VARIABLE: str(writing_end)}
        if self.options.token:  # as a variable, since `ps` shows arguments to every user
            environment["LUDUS_TOKEN"] = self.options.token.reveal()
        self.started = time.monotonic()
        try:
            # The address has a pipe of its own, and what environments print goes to the log: a pipe
            # for stdout would fill up with it and block them, unless somebody read it all the time,
            # and on the stdout of this process it could cut the line with the addresses in two.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=sys.stderr,
                env=environment,
                pass_fds=[writing_end],
                process_group=0,  # Ctrl-C reaches this process alone, which then ends the workers
            )
        finally:
            os.close(writing_end)

    def ready(self) -> None:
        """Wait for the address, and keep it and the port: where the port was chosen by the system,
        a restart has to take the same one.

        Raises:
            ConfigError: the process ended or took too long; the reason is on stderr.
        """
        assert self.process is not None
        assert self._address is not None
        deadline = self.started + READY_TIMEOUT_S
        # The end of the pipe tells nothing, since processes forked by user code may hold it open.
        while not (url := self._address.read(MAX_ADDRESS)):
            if (code := self.process.poll()) is not None:
                raise ConfigError(f"a worker could not start (exit code {code}); its log is above")
            if time.monotonic() > deadline:
                self.process.kill()
                raise ConfigError(
                    f"a worker was not ready within {READY_TIMEOUT_S:g} s; its log above may say "
                    "what it waited for"
                )
            time.sleep(POLL_S)
        self.url = url.decode()
        self.port = int(self.url.rpartition(":")[2])

    def close_pipes(self) -> None:
        """Close the pipes to a process that has ended."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        if self._address is not None:
            self._address.close()

    def restart_after_s(self) -> float:
        """Count a restart, and return the seconds to wait before: doubled each time the worker dies
        young.
        """
        if time.monotonic() - self.started > STABLE_S:
            self.restarts = 0
        self.restarts += 1
        # The exponent is bounded, because a float overflows after some 1,000 doublings.
        return min(MAX_RESTART_AFTER_S, RESTART_AFTER_S * 2.0 ** min(self.restarts - 1, 16))


class Workers:
    """Starts the workers, and starts each again that dies, until told to stop.

    SIGUSR2 replaces the workers one at a time: each drains, and the next follows once it is back.
    """

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        ports = [options.port + i if options.port else 0 for i in range(options.workers)]
        self.workers = [ServerWorker(options, port) for port in ports]
        self._signals = 0
        self._replace = False

    def run(self) -> int:
        """Serve until SIGINT or SIGTERM; returns 0."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGUSR2, self._replace_all)
        signal.signal(signal.SIGHUP, self._reload)
        try:
            # All workers are started before the first is waited for, so that they load together.
            for worker in self.workers:
                worker.start()
            for worker in self.workers:
                worker.ready()

            urls = ",".join(worker.url for worker in self.workers)
            print(ready_line(urls, self.options), flush=True)
            while not self._signals:
                self._revive()
                if self._replace:
                    self._replace = False
                    self._replace_in_turns()
                time.sleep(POLL_S)
        finally:
            self._end([worker for worker in self.workers if worker.process is not None])
            for worker in self.workers:
                worker.close_pipes()
        return 0

    def _end(self, workers: Sequence[ServerWorker]) -> None:
        """Let workers drain and end; another signal makes that quick."""
        processes = [worker.process for worker in workers if worker.process is not None]
        signals, deadline = self._signals, time.monotonic() + self.options.drain_s + CLOSE_S
        for process in processes:
            process.terminate()
        while any(process.poll() is None for process in processes):
            if self._signals > signals:
                signals = self._signals
                for process in processes:
                    process.terminate()
            if time.monotonic() > deadline:
                for process in processes:
                    process.kill()
            time.sleep(POLL_S)

    def _replace_in_turns(self) -> None:
        for worker in self.workers:
            if self._signals or worker.process is None:
                continue
            self._end([worker])
            worker.close_pipes()
            worker.start()
            worker.ready()
            logger.info("worker %s was replaced", worker.url)

    def _reload(self, number: int, frame: FrameType | None) -> None:
        for worker in self.workers:
            if worker.process is not None:
                worker.process.send_signal(signal.SIGHUP)

    def _replace_all(self, number: int, frame: FrameType | None) -> None:
        self._replace = True

    def _revive(self) -> None:
        now = time.monotonic()
        for worker in self.workers:
            process = worker.process
            if process is not None and process.poll() is not None:
                after_s = worker.restart_after_s()
                logger.error(
                    "worker %s ended with code %s; starting it again in %g s",
                    worker.url,
                    process.returncode,
                    after_s,
                )
                worker.close_pipes()
                worker.process, worker.next_start = None, now + after_s
            elif process is None and now >= worker.next_start:
                worker.start()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1


def as_arguments(options: ServeOptions) -> list[str]:
    """Write the command line that gives `options`, without the token, which the environment
    carries.
    """
    arguments = list(options.names)
    for option in dataclasses.fields(options):
        if option.name not in ("names", "token", "options"):
            value = getattr(options, option.name)
            if value is not None:
                arguments.append(f"--{option.name.replace('_', '-')}={value}")
    return arguments


SANDBOX, LEARNER = "sandbox", "learner"

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
    uds: str = ""
    """The path of a Unix socket to bind instead of host and port; clients connect to unix:PATH."""
    tls_cert: Path | None = None
    """A PEM file with the server's certificate; SIGHUP reads it again."""
    tls_key: Path | None = None
    """A PEM file with its key, where the certificate's file has none."""
    tls_client_ca: Path | None = None
    """A PEM file with the authority of client certificates, which are then required."""
    tokens: Path | None = None
    """A TOML file with a table for each principal: token or sha256, scopes, rate, sessions,
    bytes_in_flight, weight; SIGHUP reads it again.
    """
    workers: int = 1
    """The number of server processes, each with a port; clients spread sessions over them."""
    drain_s: float = 30.0
    """Seconds for which a server that is told to stop goes on with the episodes that it has, and
    begins nothing new; a second signal ends them at once.
    """
    max_sessions: int = SessionLimits().max_sessions
    """The most sessions per worker; a further one is refused (429)."""
    max_queue: int = SessionLimits().max_queue
    """The most operations in flight per worker; a further one is refused (429)."""
    step_timeout_s: float = SessionLimits().step_timeout_s
    """Seconds that a reset or step may take."""
    score_timeout_s: float = 60.0
    """Seconds that a verdict may take."""
    thoughts: str = AUTO
    """The marks around thoughts in answers that come as text: `auto` knows those of most models,
    `none` leaves thoughts in the text. Environments and verifiers get what was said.
    """
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
    if arguments and arguments[0] == LEARNER:
        from .learner import main as serve_learner

        return serve_learner(arguments[1:])
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
    for handler in logging.getLogger().handlers:
        handler.addFilter(RateLimit())
    raise_file_limit()
    # For the sandboxes that served environments and verifiers open by themselves.
    os.environ[TENANTS_VARIABLE] = "1"
    if options.workers > 1:
        return Workers(options).run()
    return asyncio.run(serve(options))


async def serve(options: ServeOptions) -> int:
    """Run the server in this process until SIGINT or SIGTERM; returns 0."""
    # The variable is for this process alone, and not for those that it starts.
    address = os.environ.pop(WORKER_VARIABLE, "")
    server = build_server(options)
    forget_token(options.token)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.reload)
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
    """Let this process open as many files as the system allows it, for its connections."""
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
        limits = SessionLimits(
            max_sessions=options.max_sessions,
            max_queue=options.max_queue,
            max_queue_per_env=options.max_queue,
            step_timeout_s=options.step_timeout_s,
            lease_s=options.lease_s,
            lifetime_s=options.lifetime_s,
        )
        env_service = EnvService(
            [ServedEnv.parse(env, thoughts=options.thoughts) for env in envs],
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
        max_body_bytes=int(options.max_body_mb * (1 << 20)),
        drain_s=options.drain_s,
        max_connections=connections_within(
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            len(envs) * options.processes_per_env + len(verifiers) * options.processes_per_verifier,
        ),
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
    return ([name for name in names if served[name]], [name for name in names if not served[name]])


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
    if options.uds and options.workers > 1:
        raise ConfigError("--uds binds one socket; give it without --workers")
    if options.tls_cert is None and (options.tls_key or options.tls_client_ca):
        raise ConfigError("--tls-key and --tls-client-ca go with --tls-cert")
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
    if not 0 <= options.drain_s < math.inf:
        raise ConfigError(f"--drain-s must be a number of at least 0, got {options.drain_s}")
    for name in ("step_timeout_s", "score_timeout_s", "lease_s", "lifetime_s", "max_body_mb"):
        if not 0 < getattr(options, name) < math.inf:
            raise ConfigError(f"--{name.replace('_', '-')} must be a number more than 0")
    build_server(options)  # a token off loopback, chaos
