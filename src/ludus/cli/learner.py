"""`ludus serve learner`: the Tinker API over a model of this machine; protocol: docs/tinker.md."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ludus.errors import ConfigError, MissingExtra
from ludus.secret import NO_SECRET
from ludus.wire.chaos import Chaos
from ludus.wire.principals import Principals
from ludus.wire.server import DEFAULT_PORT, HttpServer, refuse_strangers
from ludus.wire.tls import ServerTls

from .arguments import Token, VerbHelp, parse
from .signals import listening

if TYPE_CHECKING:
    from ludus.trainer.config import ModelConfig
    from ludus.trainer.ranks.group import Ranks
    from ludus.trainer.tinker.service import TinkerService

EXAMPLE = """\
ludus serve learner runs/sft/checkpoints/step-000100 --name demo
  torchrun --standalone --nproc_per_node 2 -m ludus serve learner runs/sft/checkpoints/step-000100
  LUDUS_TOKEN=tml-secret ludus serve learner smollm2 --host 0.0.0.0 --tls-cert cert.pem"""
KEY_PREFIX = "tml-"
"""What the SDK's keys begin with; it refuses others itself."""


@dataclass(frozen=True, kw_only=True)
class LearnerOptions:
    """The options of `ludus serve learner`: the model, the address, and the bounds."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The base model: a folder, a checkpoint, a .gguf file, or smollm2."""
    name: str = ""
    """What clients call it (`base_model`); by default MODEL as it is written."""
    folder: Path = Path("runs/served")
    """Where checkpoints are written."""
    host: str = "127.0.0.1"
    """The address to bind. Off loopback a token is required."""
    port: int = DEFAULT_PORT
    """The port to bind; 0 picks a free one."""
    token: Token = NO_SECRET
    """The key that clients must send (X-API-Key, or a bearer token), best given as LUDUS_TOKEN or
    env:NAME. The SDK takes keys that begin with tml- alone.
    """
    tokens: Path | None = None
    """A TOML file with a table for each principal; scopes are train:NAME. See ludus serve."""
    tls_cert: Path | None = None
    """A PEM file with the server's certificate."""
    tls_key: Path | None = None
    """A PEM file with its key, where the certificate's file has none."""
    models: int = 8
    """The most models in training at a time; a further one is refused (429)."""
    engines: int = 8
    """The most sets of weights that are sampled from at a time; of snapshots without a name the
    oldest are dropped.
    """
    rows: int = 64
    """The most answers that an engine samples together."""
    device: str = "auto"
    """The model's device; auto takes CUDA where there is a CUDA device."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """The type that passes compute in; weights are float32."""
    max_body_mb: float = 16.0
    """The largest request body, in MiB; the SDK cuts passes into pieces of 5 MB."""
    chaos: str = ""
    """Faults to inject on purpose, to test a client: drop=0.1,delay=0.2:0.5,error=0.1."""


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM; returns 0."""
    options = parse(
        LearnerOptions,
        arguments,
        VerbHelp(
            verb="serve learner",
            about="Serve a learner and its samplers: the Tinker API; see docs/tinker.md.",
            example=EXAMPLE,
        ),
    )
    _check(options)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    principals = Principals(
        options.token.reveal() or os.environ.get("LUDUS_TOKEN", ""), options.tokens
    )
    refuse_strangers(options.host, principals)  # before the model is loaded
    try:
        from ludus.trainer.ranks.launch import follows, open_group
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus serve learner") from error
    same = {"model": options.model, "dtype": options.dtype, "folder": str(options.folder)}
    with open_group(options.device, {"serve learner": same}) as ranks:
        if ranks is not None and follows():
            from ludus.trainer.tinker.shared import follow_served

            follow_served(ranks, *_base(options))
            return 0
        return asyncio.run(serve(options, principals, ranks))


def _check(options: LearnerOptions) -> None:
    """Refuse options before the model is loaded, which may take minutes.

    Raises:
        ConfigError: an option is out of its bounds, or does nothing.
    """
    for bound in ("models", "engines", "rows", "max_body_mb"):
        if not 0 < (given := getattr(options, bound)) < math.inf:
            flag = bound.replace("_", "-")
            raise ConfigError(f"--{flag} must be a number more than 0, got {given}")
    if options.tls_key and options.tls_cert is None:
        raise ConfigError("--tls-key goes with --tls-cert")
    if not 0 <= options.port <= 65535:
        raise ConfigError(f"--port {options.port}: ports are 0 to 65535, and 0 takes a free one")
    Chaos.parse(options.chaos)


async def serve(options: LearnerOptions, principals: Principals, ranks: Ranks | None = None) -> int:
    """Load the model, and serve in this process until SIGINT or SIGTERM; returns 0.

    Args:
        options: the options of the server.
        principals: the tokens, and what each allows.
        ranks: the group that shares the weights of what is trained; None trains in this process.

    Raises:
        RankLost: a rank is lost.
    """
    from ludus.trainer.ranks.launch import ending_with_ranks

    tls = None if options.tls_cert is None else ServerTls(options.tls_cert, options.tls_key)
    server = HttpServer(
        [build_service(options, ranks)],
        host=options.host,
        port=options.port,
        tls=tls,
        principals=principals,
        max_body_bytes=math.ceil(options.max_body_mb * (1 << 20)),
        chaos=Chaos.parse(options.chaos),
    )
    with ending_with_ranks():
        async with listening(server, options.host, options.port) as stop:
            print(f"serving learner {options.name or options.model} at {server.url}", flush=True)
            await stop.wait()
            print("stopping", flush=True)
        return 0


def _base(options: LearnerOptions) -> tuple[ModelConfig, str]:
    """Return the settings of the base model, and the model's name for clients."""
    from ludus.trainer.config import ModelConfig

    settings = ModelConfig(path=options.model, device=options.device, dtype=options.dtype)
    return settings, options.name or options.model


def build_service(options: LearnerOptions, ranks: Ranks | None = None) -> TinkerService:
    """Load the model, and build the service.

    Args:
        options: the options of the server.
        ranks: the group that shares the weights of what is trained; None trains in this process.

    Raises:
        MissingExtra: torch is not installed.
        ConfigError: the model cannot be loaded.
    """
    try:
        from ludus.trainer.tinker.models import BaseModel, ModelHouse, ServedLimits
        from ludus.trainer.tinker.service import TinkerService
        from ludus.trainer.tinker.store import CheckpointStore
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus serve learner") from error
    limits = ServedLimits(models=options.models, engines=options.engines, rows=options.rows)
    base = BaseModel.load(*_base(options))
    house = ModelHouse(base, limits)
    if ranks is not None:
        from ludus.trainer.tinker.shared import SharedHouse  # torch's sharding is slow to import

        house = SharedHouse(base, limits, ranks=ranks)
    return TinkerService(house, CheckpointStore(options.folder))
