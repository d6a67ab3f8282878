"""What a server reports about itself, and whether the server can be used for training."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ludus.errors import ConfigError, RequestRejected, ServerFault

from .calls import version_of
from .client import VllmClient
from .probe import TOLERANCE
from .server import required_arguments
from .worker import EXTENSION

SERVER_INFO_TIMEOUT_S = 120.0
"""A long time limit, because the server inspects its machine on the first request."""


class ModelCard(msgspec.Struct):
    """A model that the server serves."""

    id: str
    max_model_len: int


class Models(msgspec.Struct):
    """The reply of `/v1/models`: the served models."""

    data: list[ModelCard]


class WeightInfo(msgspec.Struct):
    """The reply of `/weight_info`: the weights' version."""

    weight_version: str


class ModelSettings(msgspec.Struct):
    """The part of vLLM's `ModelConfig` that ludus reads."""

    dtype: str
    logprobs_mode: str


class ParallelSettings(msgspec.Struct):
    """The part of vLLM's `ParallelConfig` that ludus reads."""

    worker_extension_cls: str


class ServedSettings(msgspec.Struct):
    """The part of vLLM's configuration that ludus reads."""

    model_config: ModelSettings
    parallel_config: ParallelSettings


class ServerInfo(msgspec.Struct):
    """The reply of `/server_info`: the server's configuration."""

    vllm_config: ServedSettings


@dataclass(frozen=True, slots=True)
class Served:
    """A server that can be used for training."""

    model: str
    max_model_len: int
    """The most tokens of prompt and answer together."""
    version: int
    """The version of the server's weights; 0 before the first publish."""
    dtype: str
    """The number format, a key of `TOLERANCE`."""


async def inspect(client: VllmClient) -> Served:
    """Ask a server for the served model and the start-up settings.

    Raises:
        ConfigError: the server was started with arguments that rule out training.
        RemoteError: the server does not answer.
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
    # An engine's log-probabilities are those of the distribution that the token was drawn from.
    if settings.model_config.logprobs_mode != "processed_logprobs":
        mode = settings.model_config.logprobs_mode
        raise ConfigError(
            _restart(
                client.url,
                f"it reports {mode}, not processed_logprobs, which are at the sampling temperature",
            )
        )
    models = (await client.get("/v1/models", Models)).data
    if not models:
        raise ServerFault(f"{client.url} serves no model")
    card = models[0]
    dtype = settings.model_config.dtype.removeprefix("torch.")
    if dtype not in TOLERANCE:
        raise ConfigError(
            f"the vLLM server at {client.url} computes in {dtype!r}; start it with --dtype "
            f"{' or '.join(TOLERANCE)}"
        )
    return Served(card.id, card.max_model_len, version_of(weights.weight_version), dtype)


def _restart(url: str, why: str) -> str:
    return (
        f"the vLLM server at {url} cannot be trained with: {why}. Start it with "
        "VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model MODEL "
        + " ".join(required_arguments())
    )
