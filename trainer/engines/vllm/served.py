"""What a server says of itself, and whether it can be trained with."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ludus.errors import ConfigError, RequestRejected, ServerFault

from .calls import version_of
from .client import Client
from .probe import TOLERANCE
from .server import required_arguments
from .worker import EXTENSION

SERVER_INFO_TIMEOUT_S = 120.0
"""The server looks over its machine when it is first asked."""


class ModelCard(msgspec.Struct):
    """A served model."""

    id: str
    max_model_len: int


class Models(msgspec.Struct):
    """Of `/v1/models`."""

    data: list[ModelCard]


class WeightInfo(msgspec.Struct):
    """Of `/weight_info`."""

    weight_version: str


class ModelSettings(msgspec.Struct):
    """The part of vLLM's `ModelConfig` that matters here."""

    dtype: str
    logprobs_mode: str


class ParallelSettings(msgspec.Struct):
    """The part of vLLM's `ParallelConfig` that matters here."""

    worker_extension_cls: str


class Settings(msgspec.Struct):
    """The part of vLLM's configuration that matters here."""

    model_config: ModelSettings
    parallel_config: ParallelSettings


class ServerInfo(msgspec.Struct):
    """Of `/server_info`."""

    vllm_config: Settings


@dataclass(frozen=True, slots=True)
class Served:
    """A server that can be trained with."""

    model: str
    max_model_len: int
    """In tokens, prompt and answer."""
    version: int
    """Of its weights; 0 before anything was published."""
    dtype: str
    """A key of `TOLERANCE`."""


async def inspect(client: Client) -> Served:
    """Ask a server what it serves and how it was started.

    Raises:
        ConfigError: it was started in a way that cannot be trained with.
        RemoteError: it does not answer.
    """
    try:
        info = await client.get(
            "/server_info?config_format=json", ServerInfo, timeout_s=SERVER_INFO_TIMEOUT_S
        )
        weights = await client.get("/weight_info", WeightInfo)
    except RequestRejected as error:
        raise ConfigError(_restart(client.url, "it has no routes to publish weights")) from error
    settings = info.vllm_config
    if settings.parallel_config.worker_extension_cls != EXTENSION:
        raise ConfigError(_restart(client.url, "its workers cannot load published weights"))
    if settings.model_config.logprobs_mode != "processed_logprobs":
        mode = settings.model_config.logprobs_mode
        raise ConfigError(_restart(client.url, f"it reports {mode}, at temperature 1"))
    card = await _card(client)
    dtype = settings.model_config.dtype.removeprefix("torch.")
    if dtype not in TOLERANCE:
        raise ConfigError(f"the vLLM server at {client.url} computes in {dtype!r}")
    return Served(card.id, card.max_model_len, version_of(weights.weight_version), dtype)


async def _card(client: Client) -> ModelCard:
    models = (await client.get("/v1/models", Models)).data
    if not models:
        raise ServerFault(f"{client.url} serves no model")
    return models[0]  # the others are adapters on it


def _restart(url: str, why: str) -> str:
    return (
        f"the vLLM server at {url} cannot be trained with: {why}. Start it with "
        "VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model MODEL "
        + " ".join(required_arguments())
    )
