"""Creation of a vLLM engine from settings: with a server started here, or with a running server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...config import VLLMConfig
from ...models.images import ImageReader
from ...models.loading import CausalLM
from ...models.weights import SteadyWeights
from .client import VllmClient
from .engine import Ignored, LearnerSide, VLLMEngine
from .probe import TOLERANCE, Probe, Scorer, probe_prompt, scorer_of
from .served import inspect
from .server import Launch, VllmServer
from .transfer import refuse_without_gpu


@dataclass(frozen=True, kw_only=True)
class ServerSite:
    """What a server is started with, besides the settings of the engine."""

    folder: str
    """The folder of the model; config and tokenizer are read."""
    dtype: str
    """The number format."""
    cpu: bool
    """Whether the server runs without a GPU."""
    log: Path
    """The file for the server's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerView:
    """How a server sees the learner, besides the shape of its model."""

    images: ImageReader | None = None
    """The learner's image reader; None for a model that reads no images."""
    steady: SteadyWeights | None = None
    """Says which version the learner has; None if it always has the engine's."""
    score: Scorer | None = None
    """Scores tokens with the learner's weights, with which the server is compared. None runs the
    model, which must hold whole weights.
    """


async def start_vllm(
    settings: VLLMConfig,
    site: ServerSite,
    model: CausalLM,
    view: LearnerView | None = None,
) -> VLLMEngine:
    """Return an engine that is ready except for weights: a server started here begins with random
    weights.

    Args:
        settings: the settings of the engine.
        site: what a server started here gets besides.
        model: the learner's.
        view: how the server sees the learner; by default the model is compared with it.

    Raises:
        LudusError: the server cannot be started, or cannot be used for training.
    """
    view = view or LearnerView()
    text_config = model.config.get_text_config()
    if settings.transfer != "file":
        refuse_without_gpu(settings.transfer)
    server = None
    if not settings.url:
        positions = int(text_config.max_position_embeddings)
        server = VllmServer(
            Launch(
                model=site.folder,
                dtype=site.dtype,
                max_model_len=min(settings.max_model_len, positions),
                log=site.log,
                cpu=site.cpu,
                gpu_memory_utilization=settings.gpu_memory_utilization,
                python=settings.python,
                arguments=settings.arguments,
                transfer=settings.transfer,
            )
        )
    client = VllmClient(
        settings.url if server is None else server.url,
        api_key=settings.api_key,
        hint=None if server is None else server.hint,
    )
    try:
        if server is not None:
            await server.ready(client, settings.startup_timeout_s)
        served = await inspect(client)
        # A run that was killed during a publish may have left the server paused.
        await client.post("/resume", {}, Ignored)
        probe = Probe(
            learner=view.score or scorer_of(model),
            prompt=probe_prompt(int(text_config.vocab_size)),
            tolerance=settings.probe_tolerance or TOLERANCE[served.dtype],
            every=settings.probe_every,
            steady=view.steady,
        )
        return VLLMEngine(
            client,
            served,
            settings,
            server=server,
            learner=LearnerSide(probe=probe, images=view.images),
        )
    except BaseException:
        await client.close()
        if server is not None:
            await server.close()
        raise
