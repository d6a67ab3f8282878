"""The engine of a run, as the settings ask for (in this process, in others, or behind vLLM), and
checks of what it can hold, before anything is spent.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from ludus.agent import Engine, TokenPolicy, opening_of
from ludus.agent.context import make_context
from ludus.agent.images import refuse_unseen
from ludus.errors import ConfigError

from .config import LoraConfig, TrainConfig
from .engines.local import EngineLimits, LocalEngine
from .engines.pool import EnginePool, PooledEngine, Publishing
from .engines.process import EngineSpec, ProcessEngine
from .engines.vllm import LearnerView, ServerSite, VLLMEngine, start_vllm
from .learning.learner import PolicyLearner
from .learning.policy_model import load_policy
from .models.devices import DTYPES, engine_gpus, pick_device
from .models.loading import load_shell, write_shell
from .models.model_paths import shards_alone
from .ranks.group import place_of
from .rollout.collect import Collector
from .run.folder import RunFolder
from .tinker.remote import RemoteEngine, RemoteLearner

T = TypeVar("T")

PLACED = "LUDUS_PLACED_ENGINES"
"""The variable that tells rank 0 of the engines that a cluster's driver has placed: the cluster's
address, the name of the run, and the number of engines, separated by slashes.
"""
TAIL_ROWS = 8
"""The most running answers that engine processes on one CPU pass on to one of them."""


@dataclass(frozen=True, kw_only=True)
class EngineStart:
    """What the engines of a run start from."""

    config: TrainConfig
    """The settings of the run."""
    path: str
    """The model's folder."""
    learner: PolicyLearner
    """Whose weights the engine samples from."""
    folder: RunFolder
    """The run's folder, for logs."""
    version: int
    """The version of the weights."""


async def open_engine(start: EngineStart, *, beside: bool = False) -> Engine:
    """Return an engine that has the learner's weights.

    Args:
        start: the settings, the model, the learner, and where logs are written.
        beside: whether the engine plays evaluations beside the one of training: it has one process.

    Raises:
        LudusError: an engine does not start, or cannot be used for training.
    """
    if beside:
        local = start.config.local
        local = replace(local, engines=min(1, local.engines))
        start = replace(start, config=replace(start.config, local=local))
    config = start.config
    if isinstance(start.learner, RemoteLearner):
        elsewhere = RemoteEngine(start.learner.client, start.version)
        await elsewhere.set_weights(start.learner.source(), start.version)
        return elsewhere
    placed = "" if beside and config.engine == "local" else os.environ.get(PLACED, "")
    if config.engine == "local" and not config.local.engines and not placed:
        return await local_engine(start)
    log = start.folder.path / ("evaluation" if beside else "engine")
    async with AsyncExitStack() as stack:
        if config.engine == "vllm":
            pool = await _servers(start, placed, stack)
        elif placed:
            pool = await _placed(start, log, placed, stack)
        else:
            pool = await _processes(start, log, stack)
        await pool.set_weights(start.learner.source(), start.version)
        # Everything has started: the pool owns the engines now, and its `close` ends them.
        stack.pop_all()
    return pool


def engine_numbers(engine: Engine) -> dict[str, float]:
    """Return what a run's metrics say about the engine."""
    numbers = engine.counters() if isinstance(engine, EnginePool) else {}
    probed = engine.probed if isinstance(engine, EnginePool | VLLMEngine) else None
    return numbers if probed is None else {**numbers, "engine/probe_gap": probed}


def sampled_here(engine: Engine) -> int:
    """Return the number of tokens that an engine of this process has sampled; 0 for others."""
    return engine.sampled_tokens if isinstance(engine, LocalEngine) else 0


async def local_engine(start: EngineStart) -> LocalEngine:
    """Return an engine in this process that has the learner's weights."""
    config = start.config
    lora = config.trainer.lora
    dtype, device = DTYPES[config.model.dtype], pick_device(config.model.device)
    # The weights of such a checkpoint are with the ranks, which give them to the engine.
    in_shards = shards_alone(Path(start.path))
    model = (
        load_shell(start.path, dtype=dtype, device=device)
        if in_shards
        else load_policy(
            start.path,
            lora if lora.publish == "adapter" else LoraConfig(),
            dtype=dtype,
            device=device,
            resumed=config.run.resume and bool(lora.rank) and lora.publish == "adapter",
        )
    )
    engine = LocalEngine(
        model,
        engine_limits(config),
        version=start.version,
        images=start.learner.images,
        keep_cache=config.local.keep_cache,
        float32_head=config.model.float32_head,
        mask=start.learner.mask,
    )
    if in_shards:
        await engine.set_weights(start.learner.source(), start.version)
    return engine


def engine_limits(config: TrainConfig) -> EngineLimits:
    """Return how much an engine of this process holds."""
    return EngineLimits(
        max_rows=config.rollout.concurrency,
        max_length=row_length(config),
        kept_tokens=config.local.kept_tokens,
        prefill_tokens=config.local.prefill_tokens,
    )


def _spec(start: EngineStart, shell: Path, device: str, threads: int) -> EngineSpec:
    config = start.config
    return EngineSpec(
        folder=str(shell),
        dtype=config.model.dtype,
        device=device,
        threads=threads,
        limits=engine_limits(config),
        keep_cache=config.local.keep_cache,
        float32_head=config.model.float32_head,
        max_image_pixels=config.model.max_image_pixels,
        version=start.version,
    )


async def _placed(start: EngineStart, log: Path, placed: str, stack: AsyncExitStack) -> EnginePool:
    """Build engines in the actors that a cluster's driver has placed."""
    from .cluster.engines import placed_engines, stored  # needs Ray

    shell = log / "model"
    learner = start.learner
    await asyncio.to_thread(write_shell, shell, start.path, learner.model, learner.images)
    engines = await asyncio.to_thread(
        placed_engines, _spec(start, shell.absolute(), "cpu", 1), placed
    )
    pool = EnginePool(engines, publishing=Publishing(version=start.version, keep=stored))
    stack.push_async_callback(pool.close)
    await _all([engine.revive() for engine in engines])
    return pool


async def _processes(start: EngineStart, log: Path, stack: AsyncExitStack) -> EnginePool:
    """Start engine processes, and share this machine's cores among the engines and the learner."""
    config, learner, shell = start.config, start.learner, log / "model"
    await asyncio.to_thread(write_shell, shell, start.path, learner.model, learner.images)
    device = pick_device(config.model.device)
    count, cores = config.local.engines, len(os.sched_getaffinity(0))
    threads = config.local.threads or max(1, cores // (count + 1))
    if device == "cpu":
        # With more threads than cores, threads wait for each other, and learner and engines are all
        # slower.
        torch.set_num_threads(max(1, min(torch.get_num_threads(), cores - count * threads)))
    # A process computes on the learner's device, or on the next ones where there are several.
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    engines = [
        ProcessEngine(
            _spec(start, shell, f"cuda:{(index + 1) % gpus}" if gpus > 1 else device, threads),
            name=f"{log.name} process {index}",
            log=log / f"process-{index}.log",
        )
        for index in range(count)
    ]
    pool = EnginePool(
        engines,
        publishing=Publishing(version=start.version),
        repack_rows=TAIL_ROWS if device == "cpu" else 0,
    )
    stack.push_async_callback(pool.close)
    await _all([engine.revive() for engine in engines])
    return pool


async def _servers(start: EngineStart, placed: str, stack: AsyncExitStack) -> EnginePool:
    """Start a vLLM server, or the servers placed on a cluster, or connect to running servers."""
    config = start.config
    cpu = pick_device(config.model.device) == "cpu"
    place = place_of()
    count = 0 if cpu or placed else torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
    site = ServerSite(
        folder=start.path,
        dtype=config.model.dtype,
        cpu=cpu,
        log=start.folder.path / "vllm.log",
        gpus=engine_gpus(
            named.split(",") if count else [],
            place.local_world if place and place.world > 1 else 0,
            config.vllm.gpus,
        )
        if not config.vllm.url
        else "",
    )
    sites = [(url, site) for url in config.vllm.urls or ("",)]
    # Weights go by a file, which the servers of other nodes must see too.
    weights = config.vllm.weights_folder or (str(start.folder.path / "weights") if placed else "")
    if placed:
        from .cluster.engines import placed_actors, placed_server  # needs Ray

        actors = await asyncio.to_thread(placed_actors, placed)
        sites = [
            ("", replace(site, opened=partial(placed_server, actor=actor))) for actor in actors
        ]

    async def started(url: str, site: ServerSite) -> PooledEngine:
        engine = await start_vllm(
            replace(config.vllm, url=url, weights_folder=weights),
            site,
            start.learner.model,
            LearnerView(
                images=start.learner.images,
                steady=start.learner.steady,
                score=start.learner.score_ids,
            ),
        )
        stack.push_async_callback(engine.close)
        return engine

    engines = await _all([started(url, site) for url, site in sites])
    return EnginePool(
        engines,
        publishing=Publishing(
            version=start.version,
            timeout_s=2 * config.vllm.request_timeout_s,  # loading, then the probe
            folder=weights,
        ),
        patience_s=config.vllm.startup_timeout_s,
    )


async def _all(works: Sequence[Awaitable[T]]) -> list[T]:
    """Wait for all, and raise the first error once all have ended."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def row_length(config: TrainConfig) -> int | None:
    """Return the largest number of tokens in a row, or None for whatever the model takes.

    The length is the window; where summaries are written, there is room for a summary beyond the
    window.
    """
    window = config.rollout.window
    return window + make_context(config.context).overrun() if window else None


async def check_context(config: TrainConfig, collector: Collector) -> None:
    """Refuse a window that is longer than the model's, images that the model would not see, and a
    context manager that could not get past the first task's prompt.

    Raises:
        ConfigError: with what cannot be shown, or with the lengths, and what to change.
    """
    source, policy = collector.source, collector.policy
    assert isinstance(policy, TokenPolicy)
    longest = policy.engine.max_length
    if config.rollout.window > longest:
        bound = ", by vllm.max_model_len or" if config.engine == "vllm" else ", by"
        raise ConfigError(
            f"rollout.window is {config.rollout.window}, but the engine takes {longest} tokens"
            f"{bound} the positions of the model: lower it, or leave it at 0 for the engine's own"
        )
    task = (await source.tasks(config.split, [0]))[0]
    session = await source.open(task)
    try:
        observation, info = await session.reset(seed=0, options={"task": task.id})
    finally:
        await source.release(session)
    briefing, opening = info["briefing"], opening_of(info["briefing"], observation)
    refuse_unseen(
        policy.chat_format.images, source.id, declared=briefing.shows_images, opening=opening
    )
    if config.context.manager != "none":  # there a prompt that does not fit ends its episode
        policy.check(opening, briefing.tools)
