"""Opens the learner of a run: here, over ranks or elsewhere, with its reference and its updater."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from ludus.errors import ConfigError

from .config import TrainConfig
from .learning.credit import Scores
from .learning.learner import Learner, PolicyLearner
from .learning.policy_model import BelowAdapter, MovingReference, load_policy
from .learning.reader import ReadingOptions
from .learning.update import Updater
from .models.devices import DTYPES, autocast_of, pick_device, refuse_unsupported
from .models.images import ImageReader
from .models.layer_files import layer_files
from .models.loading import load_shell
from .models.model_paths import shards_alone
from .ranks.launch import current_ranks, make_learner, make_updater
from .recipes.algorithm import Algorithm
from .recipes.recipe import VocabularySettings
from .recipes.resolution import UpdatePlan
from .rollout.tracker import SuccessTracker
from .tinker.remote import RemoteLearner


def open_learner(
    config: TrainConfig,
    path: str,
    options: ReadingOptions,
    *,
    updates: int = 1,
    resumed: bool = False,
) -> Learner:
    """Load a model, or this rank's share of the model, as the learner of this process.

    Args:
        config: the settings.
        path: the folder of the model.
        options: how it is read.
        updates: how many are planned for each step, by which the learning rate decays.
        resumed: whether the weights of a checkpoint follow.

    Raises:
        ConfigError: the device or its type of numbers is not to be had.
    """
    device = pick_device(config.model.device)
    refuse_unsupported(config.model.dtype, device)
    plain = not config.trainer.lora.rank and config.trainer.critic == "shared"
    files = layer_files(path, resumed=resumed) if current_ranks() and plain else None
    model = files.outline() if files else None
    by_layer = model is not None
    # ranks hold float32 shards, and put whole weights together in the type of computing
    dtype = DTYPES["float32" if current_ranks() else config.model.weights]
    if model is None and resumed and shards_alone(Path(path)):
        model = load_shell(path, dtype=dtype, device=device).requires_grad_(requires_grad=True)
    if model is None:
        model = load_policy(path, config.trainer.lora, dtype=dtype, device=device, resumed=resumed)
    return make_learner(
        model,
        config.trainer,
        options,
        offload=config.ranks.offload,
        files=files if by_layer else None,
        planned_updates=config.steps * updates,
    )


def reading_options(
    config: TrainConfig,
    images: ImageReader | None,
    *,
    values: bool = False,
    vocabulary: VocabularySettings | None = None,
) -> ReadingOptions:
    """Return how a learner reads rows; `values` adds those of a critic, and `vocabulary` a mask."""
    return ReadingOptions(
        temperature=config.rollout.temperature,
        values=values,
        autocast=autocast_of(config.model.dtype),
        float32_head=config.model.float32_head,
        engine_copy=config.engine == "local",
        images=images,
        vocabulary=vocabulary,
    )


async def open_remote(
    config: TrainConfig, plan: UpdatePlan, stack: AsyncExitStack
) -> RemoteLearner:
    """Open the learner elsewhere, which the end of the run closes."""
    learner = await RemoteLearner.open(config, planned_updates=config.steps * plan.settings.count)
    stack.push_async_callback(learner.close)
    return learner


def open_updater(
    config: TrainConfig,
    algorithm: Algorithm,
    learner: PolicyLearner,
    tracker: SuccessTracker | None,
    plan: UpdatePlan,
) -> Updater:
    """Make the updater of a recipe, with the reference model that its functions ask for.

    Raises:
        ConfigError: the reference is to be reset, and the recipe has none.
    """
    reference: Scores | None = None
    every = config.trainer.reference_every
    if every and "ref_logp" not in algorithm.needs:
        raise ConfigError(
            f"trainer.reference_every is {every}, and recipe {algorithm.recipe.name!r} compares "
            "with no reference: leave it at 0, or give the recipe a KL (algorithm.kl.place)"
        )
    if "ref_logp" in algorithm.needs:
        reference = (
            BelowAdapter(learner)
            if config.trainer.lora.rank and not config.model.reference
            else open_learner(
                config,
                config.model.reference or config.model.path,
                reading_options(config, learner.images),
            )
        )
    if every and reference is not None:
        assert isinstance(learner, Learner), "a learner elsewhere has refused"
        reference = MovingReference(learner, reference)
    return make_updater(
        algorithm,
        learner,
        reference=reference,
        tracker=tracker,
        updates=plan.settings,
        max_kl=config.trainer.max_kl,
    )
