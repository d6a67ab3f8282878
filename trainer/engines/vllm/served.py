"""A server's report, and the check that the server samples from the published weights.

A publish can answer 200 and leave a part of the model unchanged; the policy then drifts from the
learner and every ratio is wrong, without a single error. So the server's log-probabilities are
compared with the learner's on a few tokens, after the first publish and at intervals.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import msgspec
import torch

from ludus.agent import Engine, Sampling
from ludus.errors import ConfigError, RequestRejected, ServerFault, StaleWeights

from ...models.loading import CausalLM
from ...models.weights import SteadyWeights
from .calls import version_of
from .client import VllmClient
from .server import required_arguments
from .worker import EXTENSION

SERVER_INFO_TIMEOUT_S = 120.0
"""A long time limit, because the server inspects its machine on the first request."""


class ModelCard(msgspec.Struct):
    """A model that the server serves."""

    id: str
    max_model_len: int


class ServedModels(msgspec.Struct):
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
    models = (await client.get("/v1/models", ServedModels)).data
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


PROMPT_TOKENS = 48
SAMPLED_TOKENS = 32
TEMPERATURE = 0.7
"""A temperature other than 1, so that log-probabilities at a wrong temperature are detected too."""
TOLERANCE = {"float32": 2e-3, "bfloat16": 0.25, "float16": 0.05}
"""The mean difference in nats that rounding can explain, by the server's dtype. Weights that did
not arrive differ by more than 1.
"""

Scorer = Callable[[Sequence[int], float], list[float]]
"""Takes ids and a temperature, and returns the log-probability of each id; the first is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The learner, the tokens and the interval of a comparison."""

    learner: Scorer
    prompt: Sequence[int]
    tolerance: float
    """The largest accepted mean difference, in nats."""
    every: int = 10
    """How many publishes lie between two comparisons."""
    steady: SteadyWeights | None = None
    """Says whether the learner has the version that the engine was given. While the learner makes
    an update it has none, and an engine that was lost may come back at that time. With None,
    learner and engine are always taken to have the same version.
    """

    def due(self, publishes: int) -> bool:
        """Return whether to compare after this many publishes, counted from 1."""
        return (publishes - 1) % self.every == 0


async def compare(engine: Engine, probe: Probe) -> float | None:
    """Return the mean difference in nats between engine and learner; None where the learner has
    moved on from the version of the engine.

    The larger of two values counts: over sampled tokens at the probe's temperature, and over all
    tokens at temperature 1.

    Raises:
        StaleWeights: the difference is larger than rounding explains.
    """
    prompt = list(probe.prompt)
    sampling = Sampling(max_tokens=SAMPLED_TOKENS, temperature=TEMPERATURE)
    answer = await engine.generate(prompt, sampling)
    ids = prompt + answer.ids
    scored = await engine.logprobs(ids)
    learners = await asyncio.to_thread(_learners, probe, ids, engine.version)
    if learners is None:
        return None
    at_probe_temperature, at_one = learners
    sampled_off = mean_difference(answer.logprobs, at_probe_temperature[len(prompt) :])
    scored_off = mean_difference(scored[1:], at_one[1:])
    # `not (a <= b)` rather than `a > b`: a nan must not pass.
    if not (sampled_off <= probe.tolerance and scored_off <= probe.tolerance):
        raise StaleWeights(
            f"after publishing version {engine.version} the engine's log-probabilities differ "
            f"from the learner's by {scored_off:.2g} nats on given tokens and {sampled_off:.2g} on "
            f"sampled ones (mean; {probe.tolerance:g} would be rounding): it does not sample from "
            "the weights it was given"
        )
    return max(sampled_off, scored_off)


def _learners(
    probe: Probe, ids: Sequence[int], version: int
) -> tuple[list[float], list[float]] | None:
    """Return the learner's log-probabilities at the probe's temperature and at 1; None where the
    learner does not have this version.
    """
    with nullcontext(True) if probe.steady is None else probe.steady.held(version) as same:
        return (probe.learner(ids, TEMPERATURE), probe.learner(ids, 1.0)) if same else None


def mean_difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the mean absolute difference.

    >>> mean_difference([0.0, -1.0], [0.5, -1.0])
    0.25
    """
    return sum(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / max(1, len(ours))


def probe_prompt(vocabulary: int) -> list[int]:
    """Return random token ids, the same for each vocabulary size. A model is uncertain of such a
    text, so that a difference of weights shows in its log-probabilities.
    """
    rng = random.Random(0)
    return [rng.randrange(vocabulary) for _ in range(PROMPT_TOKENS)]


def scorer_of(model: CausalLM) -> Scorer:
    """Return a scorer for a transformers model, which reads the weights at the time of each
    call.
    """

    def score(ids: Sequence[int], temperature: float) -> list[float]:
        training = model.training
        model.eval()
        try:
            return _score(model, ids, temperature)
        finally:
            model.train(training)

    return score


@torch.no_grad()
def _score(model: CausalLM, ids: Sequence[int], temperature: float) -> list[float]:
    ids_BT = torch.tensor([list(ids)], device=model.device)
    logits_TV = model(input_ids=ids_BT, use_cache=False).logits[0, :-1].float() / temperature
    chosen_T = torch.log_softmax(logits_TV, dim=-1).gather(1, ids_BT[0, 1:].unsqueeze(1))
    return [0.0, *chosen_T.squeeze(1).tolist()]
