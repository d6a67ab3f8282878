"""The best split of GPUs between generation and training, by simulation: `ludus plan`.

The schedule is that of the trainer under a virtual clock (`simulation.py`); memory is that of
`ludus train --dry-run` (`memory.py`); how fast a GPU is, is predicted from its data sheet
(`gpus.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from ludus.errors import ConfigError

from ..learning.credit import Asked
from ..models.loading import outline_model
from ..models.tiny import find_model
from ..recipes.recipe import load_recipe
from ..recipes.resolution import plan_updates, resolve
from ..settings.plan import PlanConfig
from .dry_run import Lines, RunPlan, cluster_lines, sized
from .gpus import GB, MOST_ROWS, EngineRate, ModelRates
from .memory import MemoryEstimate, ModelSize, estimate_memory, pass_tokens
from .simulation import Schedule, simulate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TRIED = 2
"""Number of splits of each number of GPUs that are simulated: those with the highest bound."""
ENGINES, ROLLOUTS = 4, 96
"""Fewest engines, and rollouts of a step, to which a large run is scaled down in a simulation."""
STEPS, SKIPPED = 12, 4
AHEAD = 2
"""The staleness that is tried where the settings have none."""


@dataclass(frozen=True, slots=True)
class Split:
    """Ranks of the learner and engines."""

    ranks: int
    engines: int
    engine: EngineRate
    shared: bool
    """Whether learner and engine are on the same GPU, and work in turns."""
    free: int
    """Bytes that a rank may take."""
    tokens_per_pass: int
    training: float
    """Tokens a second of the learner alone."""
    trained: float = 0.0
    """Tokens a second of the simulated run."""

    @property
    def generation(self) -> float:
        """Tokens a second of all engines with every slot taken."""
        engine = self.engine
        return self.engines * engine.slots / (engine.base_s + engine.row_s * engine.slots)

    @property
    def bound(self) -> float:
        """Tokens a second of the slower stage."""
        return min(self.training, self.generation)


class Splits:
    """The splits of a run over GPUs.

    Args:
        config: the settings of the plan.

    Raises:
        ConfigError: no model is named, or its configuration cannot be read.
    """

    def __init__(self, config: PlanConfig) -> None:
        if not config.model.path:
            raise ConfigError(
                "no model named; add --model.path with a folder (of which a plan needs config.json "
                "alone), a released model or tiny"
            )
        size = config.rollout.group_size
        chosen = load_recipe(config.recipe, {"sampling": {"group_size": size} if size else {}})
        self.algorithm = resolve(chosen, max_tokens=config.rollout.max_tokens)
        dtype = "bfloat16" if config.model.dtype == "auto" else config.model.dtype
        recipe = self.algorithm.recipe
        exact = config.model.float32_head or recipe.float32_head
        model = replace(config.model, dtype=dtype, device="auto", float32_head=exact)
        rollout = replace(config.rollout, group_size=recipe.sampling.group_size)
        self.config = replace(config, model=model, rollout=rollout, engine="vllm")
        trainer, tasks = config.trainer, rollout.tasks_per_step
        plan = plan_updates(self.algorithm, groups=tasks, wanted=trainer.updates_per_step)
        self.updates = plan.settings
        asked = Asked.of(self.algorithm, self.updates, tracked=recipe.sampling.tracker is not None)
        self.scored = sum(
            (
                "ref_logp" in self.algorithm.needs,
                *(asked.old, asked.entropy, asked.proxies, asked.proxy, asked.values),
            )
        )
        """Number of passes without gradient over the tokens of a step."""
        self.outline: PreTrainedModel = outline_model(find_model(config.model.path))
        self.rates = ModelRates.of(self.outline, self.config)

    def memory(self, ranks: int, free: int) -> MemoryEstimate:
        """Return what rank 0 holds, on a GPU; see `estimate_memory`."""
        return estimate_memory(
            self.config,
            self.outline,
            reference="ref_logp" in self.algorithm.needs,
            ranks=ranks,
            free=free,
            device="cuda",
        )

    def best(self, gpus: int) -> Split | None:
        """Return the split with which most tokens are trained; None where the run does not fit."""
        splits = iter(sorted(self.every(gpus), key=lambda split: -split.bound))
        fitting = (split for split in splits if self.memory(split.ranks, split.free).fits)
        tried = [replace(split, trained=self.simulated(split)) for split in islice(fitting, TRIED)]
        return max(tried, key=lambda split: split.trained, default=None)

    def every(self, gpus: int) -> Iterator[Split]:
        """Yield splits: 1, 2, 3, 4, 6, 8, 12, ... ranks, and engines on what they leave. On one GPU
        learner and engine have the memory that the other leaves.
        """
        if gpus == 1:
            share = self.config.vllm.gpu_memory_utilization
            room = share * self.rates.free - 2 * self.rates.total
            slots = min(MOST_ROWS, int(room / (self.rates.cached * self.rates.row)))
            if slots > 0:
                engine = self.rates.sampling(1, slots)
                yield self._split(1, 1, engine, int((1 - share) * self.rates.free), shared=True)
            return
        engine = self.rates.engine()
        counts = {base << power for base in (1, 3) for power in range(10)}
        for ranks in sorted(count for count in counts if count <= gpus - engine.gpus):
            yield self._split(ranks, (gpus - ranks) // engine.gpus, engine, self.rates.free)

    def simulated(self, split: Split, *, max_staleness: int | None = None) -> float:
        """Return the tokens a second of a simulated run.

        A large run is scaled down: engines or their slots, rollouts of a step and the learner's
        speed by the same factor, which leaves their proportions.
        """
        config, engine = self.config, split.engine
        eta = config.overlap.max_staleness if max_staleness is None else max_staleness
        rollouts = config.rollout.tasks_per_step * config.rollout.group_size
        factor = max(1.0, rollouts / ROLLOUTS)
        engines = max(min(ENGINES, split.engines), round(split.engines / factor))
        slots = max(1, round(engine.slots * split.engines / engines / factor))
        row_s = engine.row_s * engine.slots / slots
        rate = engines * slots / (engine.base_s + row_s * slots)
        schedule = Schedule(
            sigma=config.spread,
            engines=engines,
            slots=slots,
            group_size=config.rollout.group_size,
            groups_of_step=max(1, round(config.rollout.tasks_per_step / factor)),
            max_staleness=0 if split.shared else eta,
            steps=STEPS,
            skipped=SKIPPED,
            mean=self.rates.answer,
            longest=max(config.rollout.max_tokens, self.rates.answer),
            base_s=engine.base_s,
            row_s=row_s,
            publish_s=2 * self.rates.total / (self.config.node_gb_s * GB),
            training=split.training * rate / split.generation,
            concurrency=max(1, round(config.rollout.concurrency / factor)),
        )
        return simulate(schedule).trained * schedule.bound * split.generation / rate

    def _split(
        self, ranks: int, engines: int, engine: EngineRate, free: int, *, shared: bool = False
    ) -> Split:
        tokens = pass_tokens(self.config, self.outline, ranks=ranks, free=free, device="cuda")
        rollouts = self.config.rollout.tasks_per_step * self.config.rollout.group_size
        # A rank has no more in a pass than its share of an update.
        each = max(1, rollouts * self.rates.row // (ranks * self.updates.splits))
        training = self.rates.training(
            ranks, min(tokens, each), scored=self.scored, epochs=self.updates.epochs
        )
        return Split(ranks, engines, engine, shared, free, tokens, training)


def split_plan(config: PlanConfig) -> RunPlan:
    """Return the plan of a run on 1, 2, 4, ... GPUs up to `config.gpus`.

    Raises:
        ConfigError: the run does not fit on any of these numbers of GPUs.
    """
    splits = Splits(config)
    numbers = sorted(
        {*(1 << power for power in range(11) if 1 << power < config.gpus), config.gpus}
    )
    best = {gpus: splits.best(gpus) for gpus in numbers}
    last = best[config.gpus]
    if last is None:
        ranks = max(1, config.gpus - 1)
        memory = splits.memory(ranks, splits.rates.free)
        raise ConfigError(
            f"the run does not fit on {config.gpus} x {config.gpu}: a rank of {ranks} needs "
            f"{sized(memory.total)} and has {sized(memory.free)}, beside at least one GPU for an "
            "engine; add --trainer.checkpoint-layers, --trainer.tokens-per-pass, "
            "--trainer.lora.rank, or GPUs (--gpus)"
        )
    memory = splits.memory(last.ranks, last.free)
    parts = [(name, sized(count)) for name, count in memory.rows()]
    peak = ("at the peak", f"{sized(memory.total)} of {sized(memory.free)}")
    return RunPlan(
        {
            "model": _model_lines(splits),
            f"memory of a rank, {last.ranks} of them (GPU: predicted)": [*parts, peak],
            f"tokens a second on {config.gpus} GPUs (predicted)": _rate_lines(splits, last),
            "the best split (simulated)": [
                (f"{gpus} GPUs" if gpus > 1 else "1 GPU", _summary(splits, split))
                for gpus, split in best.items()
            ],
            f"[cluster] on {config.gpus} GPUs (ludus train --cluster)": _cluster_lines(
                config, last
            ),
        },
        _notes(splits, last),
    )


def _cluster_lines(config: PlanConfig, split: Split) -> Lines:
    """Return the table of a cluster with this split, and as many servers as the settings say."""
    engines = 0 if split.shared else split.engines
    gpus = float(split.engine.gpus) if engines else 0.0
    return cluster_lines(
        replace(
            config.cluster,
            learner_ranks=split.ranks,
            gpus_of_rank=1.0,
            engines=engines,
            gpus_of_engine=gpus,
        )
    )


def _model_lines(splits: Splits) -> Lines:
    config, size = splits.config, ModelSize.of(splits.outline, splits.config)
    active = splits.rates.active
    chosen = "" if active == splits.rates.total else f", {active:,} of them for a token"
    return [
        ("path", config.model.path),
        ("parameters", f"{size.total:,}{chosen}; {size.trained:,} trained"),
        ("recipe", splits.algorithm.recipe.name),
        ("rows", f"{config.prompt_tokens:,} tokens of prompt, {splits.rates.answer:,} sampled"),
    ]


def _rate_lines(splits: Splits, split: Split) -> Lines:
    engine, config = split.engine, splits.config
    tensor = f", {engine.gpus} GPUs each" if engine.gpus > 1 else ""
    rollouts = config.rollout.tasks_per_step * config.rollout.group_size
    step_s = rollouts * splits.rates.answer / max(split.trained, 1e-9)
    return [
        (
            "generation",
            f"{split.generation:,.0f} by {split.engines} engines of {engine.slots} rows{tensor}",
        ),
        (
            "training",
            f"{split.training:,.0f} by {split.ranks} ranks, passes of {split.tokens_per_pass:,}",
        ),
        ("together", f"{split.trained:,.0f}, a step of {rollouts:,} rollouts in {step_s:,.0f} s"),
    ]


def _summary(splits: Splits, split: Split | None) -> str:
    if split is None:
        return "does not fit"
    if split.shared:
        where = "learner and engine in turns"
    else:
        tensor = f" of {split.engine.gpus} GPUs" if split.engine.gpus > 1 else ""
        where = f"{split.ranks} learner + {split.engines} engines{tensor}"
    share = min(1.0, split.trained / split.bound)
    return (
        f"{where}: {split.trained:,.0f} tokens/s, {share:.0%} of the slower stage, "
        f"{sized(splits.memory(split.ranks, split.free).total)} a rank"
    )


def _notes(splits: Splits, split: Split) -> list[str]:
    config = splits.config
    notes = [
        f"speeds are predicted from the data sheet of {config.gpu}, at {config.training_share:.0%} "
        f"of its FLOP/s and {config.decode_share:.0%} of its bandwidth; benchmarks/gpu.sh measures "
        "both, for --training-share and --decode-share",
        "memory of a GPU is predicted by what the pass holds on a CPU; an allocator keeps more",
    ]
    if not config.overlap.max_staleness and not split.shared:
        ahead = splits.simulated(split, max_staleness=AHEAD)
        notes.append(
            f"generation and training take turns: overlap.max_staleness = {AHEAD} would train "
            f"{ahead:,.0f} tokens/s instead of {split.trained:,.0f}"
        )
    slots = split.engines * split.engine.slots
    if config.rollout.concurrency < slots:
        notes.append(
            f"rollout.concurrency is {config.rollout.concurrency}, and the engines have room for "
            f"{slots:,} rows"
        )
    outstanding = (
        (config.overlap.max_staleness + 1)
        * config.rollout.tasks_per_step
        * config.rollout.group_size
    )
    if outstanding < slots and not split.shared:
        notes.append(
            f"at most {outstanding:,} rollouts are outstanding, fewer than the engines' {slots:,} "
            "rows: more tasks_per_step, or fewer GPUs"
        )
    return notes
