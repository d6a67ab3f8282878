"""Learning from trajectories: configurations and runs, recipes, engines, rollouts, updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.lazy import lazy_exports

if TYPE_CHECKING:
    from .config import (
        AsyncConfig,
        EvalConfig,
        LocalConfig,
        ModelConfig,
        RewardConfig,
        RolloutConfig,
        RunConfig,
        SFTConfig,
        TrainConfig,
        TrainerConfig,
        VLLMConfig,
    )
    from .engines.local import LocalEngine
    from .learning.experience import Experience, gather
    from .learning.learner import Learner
    from .learning.update import Updater
    from .models.checkpoint import load_state, save_checkpoint
    from .models.checkpoint_folders import newest_checkpoint
    from .models.loading import CausalLM, load_model, load_tokenizer
    from .models.tiny import write_tiny_policy
    from .recipes.algorithm import Algorithm
    from .recipes.inputs import Inputs
    from .recipes.recipe import Recipe, UnknownRecipe, load_recipe, recipe_names
    from .recipes.resolution import resolve
    from .rollout.batch import Batch
    from .rollout.collect import Collector, Group
    from .rollout.scoring import EpisodeScorer
    from .rollout.source import EnvSource, open_source
    from .run.folder import RunFolder
    from .setup import Parts, assemble
    from .sft import run_sft
    from .stage_runs import TrainResult
    from .train import Watcher, run_training

__all__ = [
    "Algorithm",
    "AsyncConfig",
    "Batch",
    "CausalLM",
    "Collector",
    "EnvSource",
    "EpisodeScorer",
    "EvalConfig",
    "Experience",
    "Group",
    "Inputs",
    "Learner",
    "LocalConfig",
    "LocalEngine",
    "ModelConfig",
    "Parts",
    "Recipe",
    "RewardConfig",
    "RolloutConfig",
    "RunConfig",
    "RunFolder",
    "SFTConfig",
    "TrainConfig",
    "TrainResult",
    "TrainerConfig",
    "UnknownRecipe",
    "Updater",
    "VLLMConfig",
    "Watcher",
    "assemble",
    "gather",
    "load_model",
    "load_recipe",
    "load_state",
    "load_tokenizer",
    "newest_checkpoint",
    "open_source",
    "recipe_names",
    "resolve",
    "run_sft",
    "run_training",
    "save_checkpoint",
    "write_tiny_policy",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".config": "AsyncConfig EvalConfig LocalConfig ModelConfig RewardConfig RolloutConfig "
        "RunConfig SFTConfig TrainConfig TrainerConfig VLLMConfig",
        ".engines.local": "LocalEngine",
        ".learning.experience": "Experience gather",
        ".learning.learner": "Learner",
        ".learning.update": "Updater",
        ".models.loading": "CausalLM load_model load_tokenizer",
        ".models.tiny": "write_tiny_policy",
        ".recipes.algorithm": "Algorithm",
        ".recipes.inputs": "Inputs",
        ".recipes.recipe": "Recipe UnknownRecipe load_recipe recipe_names",
        ".recipes.resolution": "resolve",
        ".rollout.batch": "Batch",
        ".rollout.collect": "Collector Group",
        ".rollout.scoring": "EpisodeScorer",
        ".rollout.source": "EnvSource open_source",
        ".models.checkpoint": "load_state save_checkpoint",
        ".models.checkpoint_folders": "newest_checkpoint",
        ".run.folder": "RunFolder",
        ".setup": "Parts assemble",
        ".sft": "run_sft",
        ".stage_runs": "TrainResult",
        ".train": "Watcher run_training",
    },
)
