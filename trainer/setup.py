"""Assembles the parts of a training run from the settings, and checks each before anything is
spent.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ludus.agent import Engine, Episode, EpisodeLimits, Sampling, TokenPolicy
from ludus.agent.chat import ChatFormat
from ludus.agent.context import ContextManager, make_context
from ludus.agent.gateway import AgentLimits, AgentMaker, RolloutLimits, agent_of
from ludus.agent.rows import TokenWriter
from ludus.errors import ConfigError

from .config import TrainConfig
from .engines.policy_text import EngineText, hand_over
from .learning.credit import refuse_unmet
from .learning.learner import Learner, PolicyLearner
from .learning.texts import GivenTexts, texts_of
from .learning.update import Updater
from .models.checkpoint import load_state
from .models.checkpoint_folders import step_of
from .models.devices import chosen_precision, pick_device, settled_dtype, slow_precision
from .models.images import ImageReader
from .models.loading import load_images, load_tokenizer, open_chat
from .models.tiny import find_model
from .open_engine import EngineStart, check_context, open_engine
from .open_learner import open_learner, open_remote, open_updater, reading_options
from .ranks.control import Follower
from .ranks.launch import open_ranks, opening, restore_learner
from .ranks.updater import follow, obey
from .recipes.algorithm import Algorithm
from .recipes.effects import idle_settings
from .recipes.recipe import Recipe, load_policies, load_recipe, merge
from .recipes.resolution import UpdatePlan, corrected, plan_updates, resolve, uncorrected
from .recipes.schedules import Numbers
from .roles import RolePolicies, RolesStart, open_roles, refuse_learners
from .rollout.collect import Collector, Drawing, Group, PlayBounds, compared
from .rollout.controls import ControlScorer, read_control
from .rollout.hints import AskedMaker, Expert
from .rollout.mixture import MixedExperts, refuse_mixture, source_of
from .rollout.sampling import ChosenTasks, SamplingPolicy, idle_phrase, refuse_asking
from .rollout.scoring import EpisodeScorer, open_verifiers
from .rollout.source import EnvSource
from .rollout.stages import Stages
from .rollout.tasks import TaskPool, Tasks, TaskStream
from .rollout.tracker import SuccessTracker
from .rollout.trees import TreeMaker
from .run.changes import keep_recipe, refuse_changes
from .run.claim import RunClaim, finished_note, settled_resume
from .run.folder import RunFolder
from .run.judges import keep_judges, unmeasured
from .stream.accounts import FILE, Accounts
from .stream.plan import StreamPlan
from .stream.state import StreamState
from .stream.stream import RolloutStream
from .tinker.remote import refuse_local

MAX_REFILLS = 4
"""Largest number of batches by which a recipe with `sampling.refill` may replace what its filter
drops in a step.
"""


@dataclass
class Parts:
    """Everything that the main loop calls."""

    config: TrainConfig
    folder: RunFolder
    source: EnvSource
    tokenizer: Any
    engine: Engine
    evaluating_engine: Engine
    """The engine of evaluations: that of training, unless `eval.beside` asks for its own."""
    learner: PolicyLearner
    updater: Updater
    collector: Collector
    evaluator: Collector
    tasks: Tasks
    sampling: SamplingPolicy | None
    """What each task is given; None gives all the same."""
    roles: RolePolicies
    """Who plays roles besides the run's own policy."""
    numbers: Numbers
    """The numbers of the recipe that move."""
    first_step: int
    """Number of steps already done: 0, or the step of the checkpoint that the run continues from.
    """
    stream_state: StreamState | None
    """The state of the rollout stream in the checkpoint that the run continues from."""
    notes: tuple[str, ...]
    """What a user should know about the settings before the run, one line each."""
    closing: AsyncExitStack
    """Closes everything that was opened, in reverse order."""


async def assemble(config: TrainConfig) -> Parts:
    """Load, connect and check everything a run needs, before anything is spent.

    If a part fails, everything opened before that part is closed.

    Raises:
        ConfigError: something is missing or cannot work together.
    """
    asked = config.model.dtype
    config = replace(config, run=settled_resume(config.run, run_path(config)))
    config, algorithm = settle(config)
    async with AsyncExitStack() as stack:
        parts = await _open(config, algorithm, stack)
        parts.notes = (*parts.notes, *chosen_precision(asked, config.model.dtype))
        parts.closing = stack.pop_all()
    return parts


def settle(config: TrainConfig) -> tuple[TrainConfig, Algorithm]:
    """Return the settings, with the recipe's values as defaults, and the recipe.

    Raises:
        ConfigError: something is missing, or the settings and the recipe cannot work together.
    """
    config.require_complete()
    if config.control:
        read_control(config.control)
    # Load the recipe, and let the settings override the sampling options.
    given = {"group_size": config.rollout.group_size, "temperature": config.rollout.temperature}
    beside = load_policies(config.sampling, config.recipe)
    recipe = load_recipe(
        config.recipe,
        merge(beside, {"sampling": {name: value for name, value in given.items() if value}}),
    )
    if config.overlap.max_staleness and config.overlap.correction == "auto":
        recipe = corrected(recipe)
    algorithm = resolve(recipe, max_tokens=config.rollout.max_tokens)
    tracked = recipe.sampling.tracker is not None
    refuse_unmet(algorithm, values="values" in algorithm.needs, tracked=tracked)
    # Fill in the recipe's group size and temperature where the settings name none.
    sampling = algorithm.recipe.sampling
    rollout = replace(
        config.rollout, group_size=sampling.group_size, temperature=sampling.temperature
    )
    evaluation = config.eval
    if evaluation.beside == "auto":
        evaluation = replace(evaluation, beside="shared" if config.overlap.max_staleness else "no")
    dtype: Any = settled_dtype(config.model.dtype, pick_device(config.model.device))
    exact = config.model.float32_head or recipe.float32_head
    model = replace(config.model, dtype=dtype, float32_head=exact)
    config = replace(config, rollout=rollout, eval=evaluation, model=model)
    if config.learner:
        plan = plan_updates(
            algorithm, groups=rollout.tasks_per_step, wanted=config.trainer.updates_per_step
        )
        refuse_local(config, algorithm, plan.settings)
    if algorithm.compares and config.context.manager != "none":
        raise ConfigError(
            f"recipe {algorithm.recipe.name!r}: {algorithm.loss_fn.name} compares the rows "
            f"of a group, but context.manager = {config.context.manager!r} cuts rollouts into "
            "several rows"
        )
    if config.agent and "values" in algorithm.needs:
        raise ConfigError(
            f"recipe {algorithm.recipe.name!r} joins the rows of a rollout in time, and those of "
            f"agent = {config.agent!r} are a tree; take a recipe without a critic, such as grpo"
        )
    refuse_asking(config, algorithm.recipe)
    refuse_learners(config, algorithm.recipe)
    refuse_mixture(config.environment, env=config.env, agent=config.agent)
    if config.agent and config.context.manager != "none":
        raise ConfigError(
            f"agent = {config.agent!r} decides on its own context, and context.manager = "
            f"{config.context.manager!r} would too; leave it at 'none'"
        )
    return config, algorithm


async def _open(config: TrainConfig, algorithm: Algorithm, stack: AsyncExitStack) -> Parts:
    claim = RunClaim(run_path(config), resume=config.run.resume is True)
    stack.callback(claim.release)
    try:
        return await _open_claimed(claim, config, algorithm, stack)
    except ConfigError:
        # What a server or engine printed may be all that explains the refusal.
        claim.begins = any(claim.path.rglob("*.log"))
        raise


async def _open_claimed(
    claim: RunClaim, config: TrainConfig, algorithm: Algorithm, stack: AsyncExitStack
) -> Parts:
    start, first_step = claim.start, claim.first_step
    source = source_of(config)
    stack.push_async_callback(source.close)
    config = replace(config, env=await source.named())  # a run is known by what was really played
    folder, changed = _open_folder(claim, config, algorithm.recipe, stack)
    await refuse_empty(source, {config.split: "split", config.eval.split: "eval.split"})
    verifiers = await open_verifiers(config.reward, stack)
    keep_judges(folder.path, verifiers)
    scorer = training_scorer = EpisodeScorer(verifiers)
    if config.control:
        training_scorer = ControlScorer(verifiers, config.control, config.seed)
    model_path = find_model((config.learner and config.model.path) or start or config.model.path)
    tokenizer = load_tokenizer(model_path)
    images = load_images(model_path, tokenizer, max_pixels=config.model.max_image_pixels)
    chat = open_chat(config.model, model_path, tokenizer, folder.path, images=images)
    plan = plan_updates(
        algorithm, groups=config.rollout.tasks_per_step, wanted=config.trainer.updates_per_step
    )
    learning = await _open_learning(
        config, algorithm, plan, source, model_path, images, start=start, stack=stack
    )
    updater, sampling = learning.updater, learning.sampling
    learner = updater.learner
    learner.steady.version = first_step
    start_of_engines = EngineStart(
        config=config, path=model_path, learner=learner, folder=folder, version=first_step
    )
    engine, evaluating = await _open_engines(start_of_engines, stack)
    chat_format = chat.chat_format
    updater.texts = _texts(algorithm, chat_format)
    hand_over(EngineText(engine, chat_format), [weighted.verifier for weighted in verifiers])
    context = make_context(config.context)
    stack.push_async_callback(context.close)
    exploring = _policy(config, engine, chat_format, context, config.rollout.temperature)
    greedy = _policy(config, evaluating, chat_format, context, config.eval.temperature)
    collector = await _collector(config, source, exploring, training_scorer, stack)
    evaluator = await _collector(config, source, greedy, scorer.without_groups(), stack)
    roles = RolePolicies()
    if sampling is not None:
        start_of_roles = RolesStart(
            config=config,
            algorithm=algorithm,
            plan=plan,
            policy=exploring,
            folder=folder,
            version=first_step,
            checkpoint=start,
        )
        roles = await _open_asked(start_of_roles, collector, sampling, source, stack)
    await check_context(config, collector)
    return Parts(
        config=config,
        folder=folder,
        source=source,
        tokenizer=tokenizer,
        engine=engine,
        evaluating_engine=evaluating,
        learner=learner,
        updater=updater,
        collector=collector,
        evaluator=evaluator,
        tasks=learning.tasks,
        sampling=sampling,
        roles=roles,
        numbers=learning.numbers,
        first_step=first_step,
        stream_state=learning.stream_state,
        notes=(
            *(f"the run continues with another setting: {change}" for change in changed),
            *filter(None, [claim.note, finished_note(first_step, config.steps) if start else ""]),
            *filter(None, [idle_phrase(exploring, sampling) if sampling else ""]),
            *_notes_of_settings(config, algorithm, updates=plan.settings.count),
            *learner.notes(),
            *unmeasured(verifiers),
            *filter(None, [chat.report.notice()]),
        ),
        closing=stack,
    )


def _open_folder(
    claim: RunClaim, config: TrainConfig, recipe: Recipe, stack: AsyncExitStack
) -> tuple[RunFolder, list[str]]:
    """Return the folder of a run, and which settings differ from those of a resumed run."""
    changed = refuse_changes(claim.path, config, recipe) if config.run.resume else []
    folder = RunFolder(claim.path, config, claim=claim, settings=config.run)
    stack.callback(folder.close)
    keep_recipe(folder.path, recipe)
    return folder, changed


@dataclass(frozen=True)
class _Learning:
    """The updater and the tasks of a run, in the state of the checkpoint that is continued."""

    updater: Updater
    tasks: Tasks
    sampling: SamplingPolicy | None
    numbers: Numbers
    stream_state: StreamState | None


async def _open_learning(
    config: TrainConfig,
    algorithm: Algorithm,
    plan: UpdatePlan,
    source: EnvSource,
    model_path: str,
    images: ImageReader | None,
    *,
    start: Path | None,
    stack: AsyncExitStack,
) -> _Learning:
    """Open the learner, here or elsewhere, and restore the state of the checkpoint at `start`."""
    rules, size = algorithm.recipe.sampling.rules, config.rollout.group_size
    sampling = SamplingPolicy(rules, group_size=size, seed=config.seed) if rules else None
    tasks = _tasks(config, algorithm.recipe, source, sampling)
    numbers = Numbers(algorithm.recipe.schedules, step=0 if start is None else step_of(start))
    stream_state = None
    elsewhere = await open_remote(config, plan, stack) if config.learner else None
    with opening(model_path, start):
        learner = elsewhere or _learner_here(
            config,
            algorithm,
            model_path,
            images,
            updates=plan.settings.count,
            resumed=start is not None,
        )
        tracker = tasks.tracker if isinstance(tasks, TaskPool) else None
        updater = open_updater(config, algorithm, learner, tracker, plan)
        if start is not None:
            stream_state = _restore(start, updater, tasks, sampling, numbers)
        take_numbers(updater, sampling, numbers.values)
    return _Learning(updater, tasks, sampling, numbers, stream_state)


def _learner_here(
    config: TrainConfig,
    algorithm: Algorithm,
    model_path: str,
    images: ImageReader | None,
    *,
    updates: int,
    resumed: bool,
) -> Learner:
    """The learner of this machine, for a run that asks no server of gradients."""
    reading = reading_options(
        config,
        images,
        values="values" in algorithm.needs,
        vocabulary=algorithm.recipe.sampling.vocabulary,
    )
    return open_learner(config, model_path, reading, updates=updates, resumed=resumed)


async def _open_engines(start: EngineStart, stack: AsyncExitStack) -> tuple[Engine, Engine]:
    """The engine of the rollouts and that of the evaluations, often the same one."""
    engine = await open_engine(start)
    stack.push_async_callback(engine.close)
    if start.config.eval.beside != "own":
        return engine, engine
    evaluating = await open_engine(start, beside=True)
    stack.push_async_callback(evaluating.close)
    return engine, evaluating


def _notes_of_settings(config: TrainConfig, algorithm: Algorithm, updates: int) -> Iterator[str]:
    """Yield what settings do not do, or do otherwise than a user may think."""
    if config.control:
        yield f"a control run: rewards are {config.control} (control)"
    if config.overlap.max_staleness and (note := uncorrected(algorithm)):
        yield note
    yield from idle_settings(config, updates=updates)
    yield from slow_precision(config.model.dtype, pick_device(config.model.device))


def _policy(
    config: TrainConfig,
    engine: Engine,
    chat_format: ChatFormat,
    context: ContextManager,
    temperature: float,
) -> TokenPolicy:
    return TokenPolicy(
        engine,
        chat_format,
        Sampling(max_tokens=config.rollout.max_tokens, temperature=temperature),
        window=config.rollout.window or None,
        context=context,
    )


async def _open_asked(
    start: RolesStart,
    collector: Collector,
    sampling: SamplingPolicy,
    source: EnvSource,
    stack: AsyncExitStack,
) -> RolePolicies:
    """Give the collector what a sampling policy may ask for: policies of roles, experts, trees;
    return the policies of roles.
    """
    config, policy = start.config, start.policy
    roles = await open_roles(start, stack)
    expert: Expert | MixedExperts | None = None
    if sampling.needs_expert:
        several = config.environment
        expert = MixedExperts(several) if several else Expert(config.env)
        stack.push_async_callback(expert.close)
        await expert.check(config.split)
    collector.asked = AskedMaker(
        policy, collector.limits, expert, roles.playing, frozen=roles.frozen
    )
    collector.trees = TreeMaker(source, policy, collector.limits, collector.places)
    return roles


def open_follower(config: TrainConfig, model_path: str, start: Path | None) -> Updater:
    """Make the learner and the updater of a rank that follows, as `assemble` makes those of rank 0.

    Args:
        config: the settings.
        model_path: the folder that rank 0 loads the model from.
        start: the checkpoint that the run continues from, if any.
    """
    config, algorithm = settle(config)
    images = load_images(
        model_path, load_tokenizer(model_path), max_pixels=config.model.max_image_pixels
    )
    plan = plan_updates(
        algorithm, groups=config.rollout.tasks_per_step, wanted=config.trainer.updates_per_step
    )
    learner = open_learner(
        config,
        model_path,
        reading_options(config, images, values="values" in algorithm.needs),
        updates=plan.settings.count,
        resumed=start is not None,
    )
    tracking = algorithm.recipe.sampling.tracker
    tracker = None if tracking is None else SuccessTracker(tracking)
    updater = open_updater(config, algorithm, learner, tracker, plan)
    if start is not None:  # after the updater, as rank 0 does: both are made by all ranks together
        restore_learner(learner, load_state(start)["learner"], start)
    return updater


async def refuse_empty(source: EnvSource, splits: Mapping[str, str]) -> None:
    """Refuse splits without a task; the error names the settings of the empty splits."""
    for split, setting in splits.items():
        if await source.size(split) == 0:
            raise ConfigError(
                f"split {split!r} of {source.id} holds no task; name another by --{setting}"
            )
        await source.tasks(split, [0])


def take_numbers(
    updater: Updater, sampling: SamplingPolicy | None, values: Mapping[str, float]
) -> None:
    """Give the numbers of the next step to all readers."""
    updater.adopt(values)
    if sampling is not None and values:
        sampling.adopt(updater.algorithm.recipe.sampling.rules)


def _tasks(
    config: TrainConfig, recipe: Recipe, source: EnvSource, policy: SamplingPolicy | None
) -> Tasks:
    """Choose the task source: a fixed order, a pool that draws by what a success tracker knows, or
    the tasks that a sampling policy prefers.
    """
    sampling = recipe.sampling
    if sampling.tracker is None:
        stream = TaskStream(source, config.split, config.seed)
        return (
            stream if policy is None or "pool" not in policy.rules else ChosenTasks(stream, policy)
        )
    tracker = SuccessTracker(sampling.tracker)
    return TaskPool(source, config.split, config.seed, tracker, prioritise=sampling.prioritise)


def _restore(
    start: Path, updater: Updater, tasks: Tasks, sampling: SamplingPolicy | None, numbers: Numbers
) -> StreamState:
    """Restore learner, entropy bonus, tasks, memory and numbers from the state that a checkpoint
    keeps beside the model, and return the state of the rollout stream.
    """
    state = load_state(start)
    if not {"learner", "stream"} <= set(state):
        raise ConfigError(
            f"{str(start)!r} was not written by ludus train; start from it with "
            "--model.path instead"
        )
    stream = StreamState.of_plain(state["stream"])
    if set(stream.tasks) != set(tasks.state()):
        raise ConfigError(
            f"{str(start)!r} was written by a recipe that orders its tasks in another way; start "
            "from it with --model.path instead"
        )
    if isinstance(updater.learner, Learner):
        restore_learner(updater.learner, state["learner"], start)
    else:
        updater.learner.restore(state["learner"])
    # a checkpoint of an older version has none
    updater.entropy.coefficient = state.get("entropy_coefficient", updater.entropy.coefficient)
    tasks.restore(stream.tasks)
    if sampling is not None and "sampling" in state:
        sampling.restore(state["sampling"])
    if "numbers" in state:
        numbers.restore(state["numbers"])
    return stream


def run_path(config: TrainConfig) -> Path:
    """Return the path of the run folder."""
    if config.run.folder:
        return Path(config.run.folder)
    env = config.env.partition("?")[0].replace("/", "-")
    env = env or "-".join(each.title for each in config.environment)
    return Path("runs") / f"{env}-{Path(config.recipe).stem}"


def _texts(algorithm: Algorithm, chat_format: ChatFormat) -> GivenTexts | None:
    """Return what makes the texts that a recipe wants scored; None for a recipe without texts."""
    wanted = texts_of(algorithm.needs)
    if not wanted:
        return None
    return GivenTexts(
        wanted,
        encode=chat_format.encode_text,
        decode=chat_format.tokenizer.decode,
        marker=algorithm.recipe.algorithm.answer_marker,
        ends=frozenset(chat_format.stop_token_ids),
    )


async def _agent(config: TrainConfig, policy: TokenPolicy, stack: AsyncExitStack) -> AgentMaker:
    """Start the gateway through which the agent calls `policy`."""
    rollout = config.rollout
    bounds = RolloutLimits(
        max_calls=rollout.max_turns or RolloutLimits().max_calls, window=rollout.window or None
    )
    limits = AgentLimits(timeout_s=rollout.episode_timeout_s, rollout=bounds)
    writer = TokenWriter(policy.chat_format, policy.engine, policy.sampling)
    maker = AgentMaker(
        agent_of(config.agent),
        writer,
        limits,
        sandbox=config.agent_sandbox,
        agents=rollout.concurrency,
    )
    return await stack.enter_async_context(maker)


async def _collector(
    config: TrainConfig,
    source: EnvSource,
    policy: TokenPolicy,
    scorer: EpisodeScorer,
    stack: AsyncExitStack,
) -> Collector:
    """Return what plays with `policy`, and start the agent of the settings, if there is one."""
    rollout = config.rollout
    maker = await _agent(config, policy, stack) if config.agent else None
    return Collector(
        source,
        policy,
        scorer=scorer,
        bounds=PlayBounds(
            episode=EpisodeLimits(
                max_turns=rollout.max_turns, episode_timeout_s=rollout.episode_timeout_s
            ),
            concurrency=rollout.concurrency,
            retries=rollout.retries,
        ),
        maker=maker,
    )


def follow_training(config: TrainConfig) -> None:
    """Do the part of a training run of a rank that follows.

    Interruptions are left to rank 0, which saves first and then ends the run.

    Raises:
        ConfigError: the settings cannot work.
        RankLost: a rank died or failed.
    """
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    with open_ranks(config) as ranks:
        assert ranks is not None, "torchrun has started more than one process"
        control = ranks.control
        assert isinstance(control, Follower), "not rank 0"
        order = control.receive()
        if order is None:
            return  # rank 0 has ended before there was anything to train
        ranks.broadcast(None)  # each order comes with a payload; that of "open" is empty
        start = order.arguments["start"]
        updater = open_follower(config, order.arguments["model"], Path(start) if start else None)
        follow(ranks, partial(obey, updater))


def open_stream(
    parts: Parts, *, stages: Stages, done: Callable[[Episode], None] | None
) -> RolloutStream:
    """Open the stream of a run, from where the checkpoint left off.

    Args:
        parts: the parts of the run.
        stages: is told where each rollout stands.
        done: called with each finished episode.
    """
    config, collector, updater = parts.config, parts.collector, parts.updater
    rollout, overlap, sampling = config.rollout, config.overlap, parts.sampling
    most = rollout.group_size if sampling is None else sampling.most
    plan = StreamPlan(
        groups=rollout.tasks_per_step,
        group_size=most,
        steps=config.steps,
        max_staleness=overlap.max_staleness,
        deadline=overlap.deadline,
        deadline_s=overlap.deadline_s,
        late=overlap.late,
        min_group=overlap.min_group,
        concurrency=rollout.concurrency,
        refills=MAX_REFILLS,
        outage_s=overlap.outage_s,
    )

    def passes(group: Group) -> bool:
        return bool(updater.passing(compared([group])))

    stream = RolloutStream(
        partial(
            collector.play, drawing=Drawing(group_size=most, seed=config.seed, policy=sampling)
        ),
        parts.tasks,
        plan,
        Accounts(parts.folder.lines(FILE), most, varies=sampling is not None),
        version=parts.first_step,
        passes=passes if updater.algorithm.recipe.sampling.refill else None,
        stages=stages,
        done=done,
        issue=None if sampling is None else sampling.issue,
    )
    if parts.stream_state is not None:
        stream.restore(parts.stream_state)
    return stream
