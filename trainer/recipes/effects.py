"""What each part of a recipe can do in a run, and settings that have no effect, with the reason.

Each rule is a function of the settings and the number of updates in a step. It yields a sentence
for each setting of its topic that changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from ..config import TrainConfig
from .algorithm import Algorithm
from .conflicts import compares_groups
from .resolution import UpdatePlan, clip_rests


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the effect of a recipe's parts depends on, besides the recipe."""

    updates: UpdatePlan
    stale: bool
    """Whether rollouts may be trained under newer weights than those that sampled them."""
    exact: bool
    """Whether engine and learner compute in the same type, so that they differ by rounding
    alone.
    """


def recipe_effects(algorithm: Algorithm, run: Circumstances) -> list[tuple[str, str]]:
    """Return (part of the recipe, what the part can do in this run)."""
    return [line for part in PARTS for line in part(algorithm, run)]


def _advantage(algorithm: Algorithm, run: Circumstances) -> Iterator[tuple[str, str]]:
    name, size = algorithm.advantage_fn.name, algorithm.recipe.sampling.group_size
    bound = algorithm.advantage_fn
    if compares_groups(algorithm.recipe.algorithm.advantage):
        yield name, f"compares {size} rollouts of a task; a group whose rewards are equal adds 0"
    elif ":" in name and "groups" in bound.required + bound.optional:
        yield name, f"is given the groups: {size} rollouts of a task"
    else:
        yield name, f"takes each rollout by itself ({size} a task)"


def _clip(algorithm: Algorithm, run: Circumstances) -> Iterator[tuple[str, str]]:
    settings, count = algorithm.recipe.algorithm, run.updates.settings.count
    name = algorithm.loss_fn.name
    if clip_rests(algorithm, run.updates.settings):
        yield f"clip of {name}", "never acts: with one update a step every ratio is 1"
    elif settings.ratio_to == "sampler":
        yield f"clip of {name}", "can act from the first update: ratios are to the sampler"
    elif count > 1:
        yield f"clip of {name}", f"can act from the second of {count} updates of a step"
    dual = settings.loss_options.get("dual_clip")
    if dual:
        yield "dual clip", f"bounds the loss of failures from a ratio of {dual} on"


def _filter(algorithm: Algorithm, run: Circumstances) -> Iterator[tuple[str, str]]:
    sampling = algorithm.recipe.sampling
    if sampling.filter:
        then = (
            "further groups replace what it drops"
            if sampling.refill
            else "a step trains fewer groups by as many as it drops"
        )
        yield f"group filter {sampling.filter}", f"reads {sampling.filter_by} rewards; {then}"
    if sampling.drop_solved_at:
        yield "drop_solved_at", f"retires tasks solved in {sampling.drop_solved_at:.0%} of rollouts"
    if (mask := sampling.vocabulary) is not None:
        yield (
            "mask of the vocabulary",
            f"the likeliest tokens up to {mask.top_p:g} under a copy of the policy, of every "
            f"{mask.every} steps; needs the weights of the copy",
        )
    if sampling.tracker is not None:
        first = sampling.tracker.pool * sampling.tracker.prior_rollouts
        yield "success tracker", f"plays up to {first:,} rollouts before the first step"


def _corrections(algorithm: Algorithm, run: Circumstances) -> Iterator[tuple[str, str]]:
    corrections = algorithm.recipe.algorithm.corrections
    if run.stale:
        can = "can act: rollouts may be older than the weights that train on them"
    elif run.exact:
        can = "hardly acts: sampler and learner have the same weights and differ by rounding alone"
    else:
        can = "can act: sampler and learner compute in different types or programs"
    for name in [corrections.weights, *(each.name for each in corrections.filters)]:
        if name:
            yield f"correction {name}", can
    if run.stale and not corrections.weights and not corrections.filters:
        yield "correction", "none in the recipe, although rollouts may be stale"


def _penalties(algorithm: Algorithm, run: Circumstances) -> Iterator[tuple[str, str]]:
    settings = algorithm.recipe.algorithm
    if settings.kl.place != "none":
        yield (
            f"KL in the {settings.kl.place}",
            f"coefficient {settings.kl.coefficient:g}; 0 at the first update, and needs the "
            "weights of the reference",
        )
    bonus = settings.entropy
    if bonus.counts:
        moved = f", moved by {bonus.change:g} a step to keep {bonus.target:g} nats per token"
        yield "entropy bonus", f"coefficient {bonus.coefficient:g}{moved if bonus.target else ''}"
    if settings.value is not None:
        yield "value head", f"coefficient {settings.value.coefficient:g}; starts at 0 everywhere"
    if not settings.overlong.in_loss:
        counts = "count" if settings.overlong.in_statistics else "do not count"
        yield (
            "overlong mask",
            f"rollouts that a limit cut are not trained, and {counts} in the means of their group",
        )
    for step, bound in algorithm.shaping:
        yield f"shaping {bound.name}", f"{step.combine}s, weight {step.weight:g}"


PARTS = (_advantage, _clip, _filter, _corrections, _penalties)


def idle_settings(config: TrainConfig, *, updates: int) -> list[str]:
    """Return a sentence for each setting that was changed and will have no effect.

    Args:
        config: the settings of a run.
        updates: number of optimizer updates in a step.

    >>> from ..config import LocalConfig
    >>> idle_settings(TrainConfig(engine="vllm", local=LocalConfig(kept_tokens=9)), updates=1)
    ["local.kept_tokens is set, but the engine is 'vllm': local.* changes nothing"]
    """
    return [text for rule in RULES for text in rule(config, updates)]


def _of_parts_that_are_off(config: TrainConfig, updates: int) -> Iterator[str]:
    for section in {"local", "vllm"} - {config.engine}:
        for name in _changed(getattr(config, section)):
            yield (
                f"{section}.{name} is set, but the engine is {config.engine!r}: {section}.* "
                "changes nothing"
            )
    if config.engine == "vllm" and config.model.float32_head and config.model.dtype != "float32":
        yield (
            "the head's product is in float32 in the learner alone: vLLM computes it in "
            f"{config.model.dtype}, and the correction of the recipe sees the difference"
        )
    if config.vllm.weights_folder and config.vllm.transfer != "file":
        yield (
            f"vllm.weights_folder is set, but vllm.transfer is {config.vllm.transfer!r}: no file "
            "is written"
        )
    if config.context.manager == "none":
        for name in _changed(config.context):
            yield f"context.{name} is set, but context.manager is 'none': it changes nothing"
    if not config.trainer.lora.rank:
        for name in _changed(config.trainer.lora):
            yield (
                f"trainer.lora.{name} is set, but trainer.lora.rank is 0: all weights are trained, "
                "and it changes nothing"
            )
    if "ema_use" in _changed(config.trainer) and not config.trainer.ema_decay:
        yield "trainer.ema_use is set, but trainer.ema_decay is 0: no average is kept"
    if config.run.resume_changed and not config.run.resume:
        yield "run.resume_changed is set, but run.resume is not: it changes nothing"
    if config.env_token and not config.env_url:
        yield "env_token is set, but env_url is empty: the environment is played without a server"


def _of_the_learning_rate(config: TrainConfig, updates: int) -> Iterator[str]:
    total, warmup = config.steps * updates, config.trainer.warmup_steps
    if warmup >= total:
        yield (
            f"trainer.warmup_steps is {warmup}, but the run makes {total} updates: the learning "
            f"rate never reaches trainer.lr = {config.trainer.lr:g}"
        )
        if config.trainer.lr_decay != "constant":
            yield (
                f"trainer.lr_decay is {config.trainer.lr_decay!r}, but the warm-up takes the whole "
                "run: the learning rate never falls"
            )


def _of_evaluations_and_files(config: TrainConfig, updates: int) -> Iterator[str]:
    defaults = type(config.run)()
    for name, output in (("save_every", "checkpoint"), ("episodes_every", "file of episodes")):
        every = getattr(config.run, name)
        if every >= config.steps and every != getattr(defaults, name) and config.steps > 1:
            yield (
                f"run.{name} is {every}, but the run has {config.steps} steps: no {output} is "
                "written before the end"
            )
    if config.eval.every >= config.steps > 1:
        yield (
            f"eval.every is {config.eval.every}, but the run has {config.steps} steps: held-out "
            "tasks are played only before and after the run"
        )
    # The evaluations between those at the start and the end of the run.
    inner_count = (config.steps - 1) // config.eval.every if config.eval.every else 0
    if config.eval.patience > inner_count > 0:
        yield (
            f"eval.patience is {config.eval.patience}, but only {inner_count} evaluations are made "
            "before the last: it cannot end the run early"
        )
    if config.eval.samples == 1 and "passing" in _changed(config.eval):
        yield (
            f"eval.passing is {config.eval.passing:g}, but eval.samples is 1: pass@k is not "
            "measured"
        )


def _of_overlap(config: TrainConfig, updates: int) -> Iterator[str]:
    if config.overlap.max_staleness:
        return
    if config.overlap.correction == "none":
        yield (
            "overlap.correction is 'none', but overlap.max_staleness is 0: no rollout is stale, "
            "and nothing would be added"
        )
    if getattr(config, config.engine).keep_cache and config.eval.beside != "shared":
        yield (
            f"{config.engine}.keep_cache is set, but nothing is sampled while new weights arrive "
            "(overlap.max_staleness is 0): it changes nothing"
        )


def _changed(section: object) -> list[str]:
    """Return the fields of a section whose values are not the defaults."""
    defaults = type(section)()
    return [
        field.name
        for field in fields(section)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        if getattr(section, field.name) != getattr(defaults, field.name)
    ]


RULES: tuple[Callable[[TrainConfig, int], Iterator[str]], ...] = (
    _of_parts_that_are_off,
    _of_the_learning_rate,
    _of_evaluations_and_files,
    _of_overlap,
)
