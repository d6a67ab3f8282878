"""The plan of a run: what it would do, what it takes, and what would have no effect.

Everything that a run checks before it spends anything is checked here as well, without a model's
weights, an engine, or a file in the run folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from ludus.agent import Sampling, TokenPolicy
from ludus.agent.context import make_context

from ..config import TrainConfig
from ..engines import load_images, load_tokenizer
from ..models.chat_template import open_chat
from ..models.devices import pick_device, slow_precision
from ..models.loading import outline_model
from ..models.model_paths import locate_model
from ..ranks.group import place_of
from ..recipes import plan_updates
from ..recipes.resolve import told_correction
from ..rollout import Collector, open_source
from ..rollout.context_check import check_context, row_length
from ..rollout.verifiers import open_verifiers
from ..run.changes import refuse_changes
from ..run.checkpoint import checkpoints, step_of
from ..run.claim import refuse_folder
from ..run.judges import unmeasured
from ..setup import refuse_empty, run_path, settle
from .effects import Circumstances, recipe_effects
from .facts import PlanFacts, expected_tokens, first_prompt
from .idle import idle_settings
from .lines import (
    Lines,
    memory_lines,
    model_lines,
    run_lines,
    step_lines,
    whole_lines,
    worries,
)
from .memory import require_fit
from .no_engine import PlannedEngine
from .size import ModelSize


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A plan, as lines under headings."""

    sections: Mapping[str, Lines]
    notes: list[str]
    """What will have no effect or may go wrong, one sentence each."""

    def __str__(self) -> str:
        """Return the plan as text."""
        text: list[str] = []
        wide = max(len(name) for lines in self.sections.values() for name, _ in lines)
        for heading, lines in self.sections.items():
            text += [heading, *(f"  {name:<{wide}}  {value}" for name, value in lines), ""]
        if self.notes:
            text += ["notes", *(f"  - {note}" for note in self.notes), ""]
        return "\n".join(text)


async def make_plan(config: TrainConfig) -> RunPlan:
    """Return the plan of a run; neither its folder nor an engine is touched.

    Raises:
        ConfigError: the run cannot work; the message is that of the run itself.
    """
    config, algorithm = settle(config)
    path = run_path(config)
    refuse_folder(path, resume=config.run.resume)
    found = checkpoints(path / "checkpoints") if config.run.resume else []
    start = found[-1] if found else None
    async with AsyncExitStack() as stack:
        source = open_source(config.env, url=config.env_url, token=config.env_token)
        stack.push_async_callback(source.close)
        config = replace(config, env=await source.named())
        changed = refuse_changes(path, config, algorithm.recipe) if config.run.resume else []
        await refuse_empty(source, {config.split: "split", config.eval.split: "eval.split"})
        verifiers = await open_verifiers(config.reward, stack)
        model_path = locate_model(start or config.model.path)
        tokenizer = load_tokenizer(model_path)
        images = load_images(model_path, tokenizer, max_pixels=config.model.max_image_pixels)
        chat = open_chat(config.model, model_path, tokenizer, images=images)
        outline = outline_model(model_path)
        context = make_context(config.context)
        stack.push_async_callback(context.close)
        policy = TokenPolicy(
            PlannedEngine(_longest_row(config, outline)),
            chat.chat_format,
            Sampling(max_tokens=config.rollout.max_tokens, temperature=config.rollout.temperature),
            window=config.rollout.window or None,
            context=context,
        )
        await check_context(config, Collector(source, policy))
        opening = await first_prompt(config, source, chat.chat_format)
        updates = plan_updates(
            algorithm,
            groups=config.rollout.tasks_per_step,
            wanted=config.trainer.updates_per_step,
        )
        size = ModelSize.of(outline, config)
        facts = PlanFacts(
            config=config,
            algorithm=algorithm,
            updates=updates,
            first_step=step_of(start) if start else 0,
            window=policy.window,
            opening=opening,
            expected=await expected_tokens(config, path, chat.chat_format),
            tasks=await source.size(config.split),
            held_out=await source.size(config.eval.split),
            size=size,
            memory=require_fit(
                config,
                outline,
                reference="ref_logp" in algorithm.needs,
                ranks=place.world if (place := place_of()) else 1,
            ),
        )
        circumstances = Circumstances(
            updates=updates,
            stale=config.overlap.max_staleness > 0,
            exact=config.engine == "local" and config.model.dtype == "float32",
        )
        sections = {
            "run": run_lines(facts, path),
            "model": model_lines(facts, model_path),
            "a step": step_lines(facts),
            "the recipe": recipe_effects(algorithm, circumstances),
            "the whole run": whole_lines(facts),
            "memory (estimate)": memory_lines(facts),
        }
        notes = [
            *(f"the run continues with another setting: {one}" for one in changed),
            *updates.notes,
            *([told_correction(algorithm)] if config.overlap.max_staleness else []),
            *idle_settings(config, updates=updates.settings.count),
            *slow_precision(config.model.dtype, pick_device(config.model.device)),
            *unmeasured(verifiers),
            *filter(None, [chat.report.notice()]),
            *worries(facts, path),
        ]
    return RunPlan(sections, notes)


def _longest_row(config: TrainConfig, outline: Any) -> int:
    """Return the most tokens of prompt and answer that the engine would take."""
    longest = int(outline.config.get_text_config().max_position_embeddings)
    if config.engine == "vllm":
        longest = min(longest, config.vllm.max_model_len)
    return min(row_length(config) or longest, longest)
