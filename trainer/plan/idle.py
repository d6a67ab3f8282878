"""Finds settings that will have no effect, each with the reason. A run prints them at its start, a
dry run in its plan: what a person has asked for should never be ignored in silence.

Each rule is a function of the settings and the number of updates in a step. It yields a sentence
for each setting of its topic that changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields

from ..config import TrainConfig


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
