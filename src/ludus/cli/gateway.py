"""`ludus gateway`: serve a policy to agents that ludus does not run."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import quote

import httpx
import msgspec
import tyro

from ludus.agent import ChatPolicy, Sampling
from ludus.agent.gateway import Gateway, TextWriter
from ludus.agent.gateway.service import LEASE_S, refuse_open_door
from ludus.agent.rows import PolicyWriter, TokenWriter
from ludus.errors import ConfigError, MissingExtra
from ludus.secret import NO_SECRET, Secret

from .arguments import Token, VerbHelp, parse
from .signals import listening

EXAMPLE = """\
ludus gateway --model smollm2 --port 8010
  curl -X POST -H "Authorization: Bearer $KEY" http://127.0.0.1:8010/rollouts
  OPENAI_BASE_URL=http://127.0.0.1:8010/v1 OPENAI_API_KEY=sk-ludus-... python my_agent.py
  ludus gateway inspect ro_1f... --url http://127.0.0.1:8010"""


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """The options of `ludus gateway`: the model and the address."""

    model: str = ""
    """The model that answers: a folder, a run or checkpoint, a .gguf file, smollm2 or tiny; with
    --base-url its name on the server.
    """
    base_url: Annotated[str, tyro.conf.arg(metavar="URL")] = ""
    """An OpenAI-compatible server of the model, up to and with /v1, for evaluation: it returns text
    and no ids, so its rollouts cannot be trained.
    """
    api_key_env: Annotated[str, tyro.conf.arg(metavar="NAME")] = "LUDUS_API_KEY"
    """The environment variable that holds the server's key."""
    host: str = "127.0.0.1"
    """The address to bind. Off loopback an operator's key is required."""
    port: int = 8010
    """The port to bind; 0 picks a free one."""
    key: Token = NO_SECRET
    """The operator's key, which opens, rewards and ends rollouts; best given as LUDUS_TOKEN or
    env:NAME. By default a new one is printed.
    """
    lease_s: float = LEASE_S
    """Seconds without a call after which a rollout ends by itself."""
    max_tokens: int = 1024
    """The most tokens of one answer."""
    temperature: float = 1.0
    """The temperature that the policy samples at, whatever its clients ask for."""
    device: str = "auto"
    """The model's device; auto takes CUDA where there is a CUDA device."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The type that the model computes in."""


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """The options of `ludus gateway inspect`."""

    rollout: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROLLOUT")]
    """The rollout's id."""
    url: Annotated[str, tyro.conf.arg(metavar="URL")] = "http://127.0.0.1:8010"
    """The gateway."""
    key: Token = NO_SECRET
    """The operator's key, which the gateway printed; best given as LUDUS_TOKEN or env:NAME."""


class _InspectedRollout(msgspec.Struct):
    sampled_tokens: int
    untrained_tokens: dict[str, int]
    tree: list[str]


class _ErrorText(msgspec.Struct):
    message: str


class _GatewayError(msgspec.Struct):
    error: _ErrorText


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM, or print a rollout; returns 0."""
    if arguments and arguments[0] == "inspect":
        return look(arguments[1:])
    options = parse(
        GatewayOptions,
        arguments,
        VerbHelp(
            verb="gateway",
            about="Serve a policy to agents: OpenAI chat and responses, Anthropic messages.",
            example=EXAMPLE,
        ),
    )
    if not options.model:
        raise ConfigError("--model is missing: a folder, a run, a .gguf file, smollm2 or tiny")
    refuse_unusable(options)
    refuse_open_door(options.host, operator_key(options.key))  # before a model is loaded
    return asyncio.run(serve(options))


def refuse_unusable(options: GatewayOptions) -> None:
    """Refuse numbers that no policy or port can have.

    Raises:
        ConfigError: the message names the option.
    """
    if not 0 <= options.port <= 65535:
        raise ConfigError(f"--port {options.port}: ports are 0 to 65535, and 0 takes a free one")
    if options.max_tokens < 1:
        raise ConfigError(f"--max-tokens must be at least 1, got {options.max_tokens}")
    if not 0 <= options.temperature < math.inf:
        raise ConfigError(f"--temperature must be 0 or a number above, got {options.temperature}")
    if not options.lease_s > 0:
        raise ConfigError(f"--lease-s must be more than 0, got {options.lease_s}")


def operator_key(key: Secret) -> str:
    """Return the operator's key that was given; "" if none was."""
    return key.reveal() or Secret(os.environ.get("LUDUS_TOKEN", "")).reveal()


def look(arguments: Sequence[str]) -> int:
    """Print a rollout's calls, each with a span of tokens, and what is not trained."""
    options = parse(
        InspectOptions,
        arguments,
        VerbHelp(
            verb="gateway inspect",
            about="Print a rollout of a gateway: its tree of calls, with spans of tokens.",
            example="ludus gateway inspect ro_1f... --url http://127.0.0.1:8010",
        ),
    )
    key = operator_key(options.key)
    if not key:
        raise ConfigError("--key is missing: the operator's key, which the gateway printed")
    if not key.isascii():
        raise ConfigError("--key holds characters that no key of a gateway has")
    address = f"{options.url.rstrip('/')}/rollouts/{quote(options.rollout, safe='')}"
    headers = {"Authorization": f"Bearer {key}"}
    try:
        reply = httpx.get(address, headers=headers, timeout=30)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"--url {options.url}: no gateway answers there ({error})") from None
    try:
        if reply.status_code != 200:
            refusal = msgspec.json.decode(reply.content, type=_GatewayError).error.message
            raise ConfigError(f"{options.rollout}: {refusal}")
        rollout = msgspec.json.decode(reply.content, type=_InspectedRollout)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ConfigError(
            f"--url {options.url}: what answers there is no gateway (status {reply.status_code})"
        ) from None
    for line in rollout.tree:
        print(line)
    reasons = ", ".join(f"{count} {why}" for why, count in rollout.untrained_tokens.items())
    print(f"{rollout.sampled_tokens} tokens sampled; not trained: {reasons or 'none'}")
    return 0


async def serve(options: GatewayOptions) -> int:
    """Open the model, and serve in this process until SIGINT or SIGTERM; returns 0."""
    async with opened(options) as writer:
        gateway = Gateway(
            writer,
            host=options.host,
            port=options.port,
            key=operator_key(options.key),
            lease_s=options.lease_s,
        )
        async with listening(gateway, options.host, options.port) as stop:
            print(f"serving {options.model} at {gateway.url}/v1", flush=True)
            if not operator_key(options.key):
                print(f"operator's key: {gateway.operator_key}", file=sys.stderr, flush=True)
            await stop.wait()
    return 0


@asynccontextmanager
async def opened(options: GatewayOptions) -> AsyncGenerator[PolicyWriter]:
    """Load the model, or ask the server whether the model is served."""
    sampling = Sampling(max_tokens=options.max_tokens, temperature=options.temperature)
    if options.base_url:
        served = ChatPolicy(
            options.base_url,
            options.model,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            api_key=os.environ.get(options.api_key_env, ""),
        )
        try:
            await served.client.ensure_served()
            yield TextWriter(served)
        finally:
            await served.close()
        return
    try:
        from ludus.trainer.config import ModelConfig
        from ludus.trainer.engines.local_policy import local_policy
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus gateway") from error
    model = ModelConfig(path=options.model, device=options.device, dtype=options.dtype)
    async with local_policy(model, sampling) as policy:
        yield TokenWriter(policy.chat_format, policy.engine, policy.sampling)
