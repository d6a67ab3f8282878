"""The options of `ludus serve`, from the command line and from a file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from ludus.config import draft, read_toml
from ludus.envs.serving.sessions import SessionLimits
from ludus.envs.serving.worker_placement import THREADS
from ludus.errors import ConfigError
from ludus.isolation.group import WorkerLimits
from ludus.secret import NO_SECRET
from ludus.thoughts import AUTO
from ludus.wire.access import STDOUT
from ludus.wire.address import parse_served
from ludus.wire.server import DEFAULT_PORT

from .arguments import Token, VerbHelp, parse
from .names import from_file, take_options

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

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = ()
    """What to serve: environments (-vN), verifiers, and 'sandbox'; arguments as in
    'me/echo-v0?length=3'.
    """
    config: Path | None = None
    """A TOML file with any of these options (names = ["maths"], max_sessions = 100); what the
    command line names wins. Paths in it start at its folder. SIGHUP reads its limits again.
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
    ray: Annotated[str, tyro.conf.arg(metavar="auto|local|HOST:PORT")] = ""
    """The Ray cluster on which servers run as an application of Ray Serve, which starts more of
    them as operations wait, and ends them as none do (needs the extra ray-serve).
    """
    replicas: str = "1..4"
    """The least and the most servers on Ray."""
    replica_queue: int = 16
    """Operations in flight that a server on Ray should have."""
    roster: Path = Path("ludus-servers")
    """The file with the addresses of the servers on Ray, in a folder that all nodes see; clients
    are given it as file:PATH.
    """
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
    max_kept_mb: float = 256.0
    """The last replies of all sessions that are kept for clients that have not got theirs, in MiB;
    beyond it the oldest are forgotten.
    """
    max_body_mb: float = 16.0
    """The largest request body, in MiB; a larger one is refused (413)."""
    ors: bool = False
    """Whether environments are served by the Open Reward Standard at the root, instead of the
    routes of OpenEnv and NeMo Gym.
    """
    nemo_gym_model: str = ""
    """The address of the model server for NeMo Gym's `/run`; empty leaves that route out."""
    access_log: str = ""
    """A file to which a line of JSON is appended for each request and operation, or - for the
    standard output; SIGHUP opens it again.
    """
    otel: str = ""
    """The address of an OpenTelemetry collector (OTLP over HTTP, http://127.0.0.1:4318), which is
    sent a span for each step and verdict; needs the extra `otel`.
    """
    chaos: str = ""
    """Faults to inject on purpose, to test a trainer: drop=0.1,delay=0.2:0.5,error=0.1."""


LIVE = (
    "max_sessions",
    "max_queue",
    "step_timeout_s",
    "score_timeout_s",
    "lease_s",
    "lifetime_s",
    "max_kept_mb",
    "max_body_mb",
    "drain_s",
)
"""The limits that a running server takes from its file again."""
PATHS = ("options", "tls_cert", "tls_key", "tls_client_ca", "tokens", "uds", "access_log", "roster")


def read_options(arguments: Sequence[str]) -> ServeOptions:
    """Read the words after `serve`, which override the file named by `--config`.

    Raises:
        ConfigError: an option or a key of the file is unknown or out of its bounds.
        SystemExit: the help was printed.
    """
    file = _config_in(arguments)
    options = parse(
        ServeOptions,
        take_options(arguments, ServeOptions),
        VerbHelp(
            verb="serve",
            about="Serve environments, verifiers and sandboxes over HTTP; protocol: docs/http.md.",
            example=EXAMPLE,
        ),
        default=None if file is None else options_in(file),
    )
    options = replace(options, names=tuple(from_file(options.names, options.options)), options=None)
    check(options)
    return options


def options_in(file: Path) -> ServeOptions:
    """Return the options that a file gives, not checked against each other.

    Raises:
        ConfigError: the file cannot be read, or has a key that is no option; the message names the
            nearest.
    """
    table = read_toml(file)
    for name in PATHS:
        if isinstance(path := table.get(name), str) and path not in ("", STDOUT):
            table[name] = str(file.absolute().parent / path)
    try:
        return draft(ServeOptions, table)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def _config_in(arguments: Sequence[str]) -> Path | None:
    for place, word in enumerate(arguments):
        flag, equals, value = word.partition("=")
        if flag == "--config" and (equals or place + 1 < len(arguments)):
            return Path(value if equals else arguments[place + 1])
    return None


def check(options: ServeOptions) -> None:
    """Check what no type says.

    Raises:
        ConfigError: an option is out of its bounds, or goes not with another.
    """
    if not options.names:
        raise ConfigError(
            "nothing to serve; name environments or verifiers (ludus list), or 'sandbox'"
        )
    if sum(map(is_sandbox, options.names)) > 1:
        raise ConfigError("one server has one sandbox; give 'sandbox' once")
    if options.workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {options.workers}")
    if options.ray and options.workers > 1:
        raise ConfigError("--workers are processes of this machine; on Ray there are --replicas")
    if replicas_of(options) == (0, 0):
        raise ConfigError(f"--replicas is LEAST..MOST, such as 1..4, got {options.replicas!r}")
    if options.replica_queue < 1:
        raise ConfigError(f"--replica-queue must be at least 1, got {options.replica_queue}")
    if options.uds and options.workers > 1:
        raise ConfigError("--uds binds one socket; give it without --workers")
    if options.tls_cert is None and (options.tls_key or options.tls_client_ca):
        raise ConfigError("--tls-key and --tls-client-ca go with --tls-cert")
    last = options.port + options.workers - 1
    if options.port < 0 or last > 65535:
        given = f"{options.port}" if last == options.port else f"{options.port} to {last}"
        raise ConfigError(f"--port {given}: ports are 0 to 65535, and 0 takes a free one")
    for name in (
        "max_sessions",
        "max_queue",
        "threads",
        "processes_per_env",
        "processes_per_verifier",
        "worker_memory_mb",
    ):
        if (bound := getattr(options, name)) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1, got {bound}")
    if options.model_memory_mb < 0:
        raise ConfigError(f"--model-memory-mb must be at least 0, got {options.model_memory_mb}")
    if not 0 <= options.drain_s < math.inf:
        raise ConfigError(f"--drain-s must be a number of at least 0, got {options.drain_s}")
    for name in (
        "step_timeout_s",
        "score_timeout_s",
        "lease_s",
        "lifetime_s",
        "max_body_mb",
        "max_kept_mb",
        "max_reply_mb",
    ):
        if not 0 < (bound := getattr(options, name)) < math.inf:
            raise ConfigError(
                f"--{name.replace('_', '-')} must be a number more than 0, got {bound}"
            )


def replicas_of(options: ServeOptions) -> tuple[int, int]:
    """Return the least and the most servers on Ray; (0, 0) where the option is no such range."""
    given = re.fullmatch(r"([1-9]\d{0,8})\.\.([1-9]\d{0,8})", options.replicas)
    least, most = (int(given[1]), int(given[2])) if given else (1, 0)
    return (least, most) if least <= most else (0, 0)


def is_sandbox(name: str) -> bool:
    """Say whether a served name is that of the sandbox."""
    return parse_served(name)[0] == SANDBOX
