"""`ludus eval`: play episodes with a policy, and report the results with intervals."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
import tyro
from rich.console import Console
from rich.table import Table

from ludus.agent import (
    ChatPolicy,
    Episode,
    EpisodeLimits,
    Policy,
    RandomPolicy,
    Sampling,
    ScriptedPolicy,
    Stop,
    TokenPolicy,
    opening_of,
)
from ludus.agent.context import ContextSettings, make_context
from ludus.agent.episodes import line_of, write_episodes
from ludus.agent.evaluation import Evaluation, evaluate, first_tasks, summarise
from ludus.agent.gateway import (
    AgentLimits,
    AgentMaker,
    AgentSandbox,
    RolloutLimits,
    TextWriter,
    agent_of,
)
from ludus.agent.images import refuse_unseen
from ludus.agent.loop import EpisodeMaker, PolicyMaker
from ludus.agent.rows import PolicyWriter, TokenWriter
from ludus.agent.scaling import Reviser
from ludus.envs import AddedTools, EnvSession, Tool
from ludus.envs.gym import Playable
from ludus.envs.serving.offload import OwnThreads
from ludus.envs.session import expert_action
from ludus.envs.tools.mcp_client import McpServer
from ludus.errors import ConfigError, MissingExtra
from ludus.llm.limits import TokenBudget
from ludus.messages import Message
from ludus.thoughts import AUTO

from .arguments import Flag, VerbHelp, parse
from .progress import progress_bar
from .scaling import ScalingSettings, measure_scaling, show_scaling, trained_summaries, verifier_of
from .sessions import named, opener
from .view import page_of_file, refuse_no_page, refuse_unwritable, write_page


@asynccontextmanager
async def open_model(options: EvalOptions) -> AsyncGenerator[ChatPolicy | TokenPolicy | None]:
    """Yield the model once the server has answered, or once the folder is loaded; None where the
    policy is not a model.
    """
    if options.policy == "openai":
        policy = _chat_policy(options)
        try:
            await policy.client.ensure_served()
            yield policy
        finally:
            await policy.close()
    elif options.policy == "local":
        async with _local_policy(options) as loaded:
            yield loaded
    else:
        yield None


@asynccontextmanager
async def _local_policy(options: EvalOptions) -> AsyncGenerator[TokenPolicy]:
    if not options.model:
        raise ConfigError(
            "--policy local needs --model: a transformers folder, a run (runs/NAME), a .gguf file, "
            "smollm2 or tiny"
        )
    for name in ("base_url", "sampling", "cache", "budget"):  # these would change nothing here
        if value := getattr(options, name):
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} {value}: is for --policy openai, not for local")
    if not options.send_reasoning or options.thoughts != AUTO:
        flag = "--thoughts" if options.send_reasoning else "--no-send-reasoning"
        raise ConfigError(
            f"{flag}: is for --policy openai; what a local model is shown of its thoughts, and how "
            "it marks them, is its chat template's (--template)"
        )
    try:
        from ludus.trainer.config import ModelConfig
        from ludus.trainer.engines.local_policy import local_policy
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="--policy local") from error
    context = make_context(options.context)
    try:
        async with local_policy(
            ModelConfig(
                path=options.model,
                tool_format=options.tool_format or "auto",
                template=options.template,
                device=options.device,
                dtype=options.dtype,
                max_image_pixels=options.max_image_pixels,
            ),
            Sampling(max_tokens=options.max_tokens, temperature=options.temperature),
            context=context,
            window=options.window or None,
            max_rows=options.concurrency,
        ) as policy:
            yield policy
    finally:
        await context.close()


def _chat_policy(options: EvalOptions) -> ChatPolicy:
    if not options.base_url or not options.model:
        raise ConfigError(
            "--policy openai needs --base-url and --model, such as "
            "--base-url http://127.0.0.1:8000/v1 --model MODEL"
        )
    # The fields of each request besides the conversation; a field that is null is not sent.
    sampling: dict[str, Any] = {
        "temperature": options.temperature, "max_tokens": options.max_tokens
    }  # fmt: skip
    try:
        sampling |= msgspec.json.decode(options.sampling or "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"--sampling {options.sampling!r} is not a JSON object: {error}"
        ) from None
    if sampling.get("seed") is not None:
        raise ConfigError("--sampling cannot set seed: each episode has its own; use --seed")
    if options.max_image_pixels:
        raise ConfigError(
            f"--max-image-pixels {options.max_image_pixels}: is for --policy local; a server "
            "resizes images by its own settings"
        )
    return ChatPolicy(
        options.base_url,
        options.model,
        send_seed=sampling.pop("seed", True) is not None,
        sampling=sampling,
        tool_format=options.tool_format,
        thoughts=options.thoughts,
        window=options.window or None,
        context=make_context(options.context),
        api_key=os.environ.get(options.api_key_env, ""),
        concurrency=options.concurrency,
        send_reasoning=options.send_reasoning,
        cache=options.cache or None,
        budget=TokenBudget(options.budget) if options.budget else None,
    )


THREADS = 32
"""The fewest threads that play environments of this process."""
GRACE_S = 5.0
"""Seconds after the end of an episode's time until the thread or process is given up."""


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """The options of `ludus eval`."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """The environment's id; constructor arguments as in 'ludus/maths-v0?source=problems.jsonl'."""
    policy: Literal["auto", "random", "expert", "openai", "local"] = "auto"
    """Who plays: random text, the environment's own expert, a model behind an OpenAI-compatible
    server, or a model that is sampled in this process, such as the checkpoint of a run. auto is
    openai with --base-url, local with --model alone, and else the expert.
    """
    base_url: Annotated[str, tyro.conf.arg(metavar="URL")] = ""
    """The address of the model's server, up to and with /v1."""
    agent: str = ""
    """An agent that plays with the model (--policy local or openai): a command or a function, as in
    'python agent.py' or agent.py:run; see docs/agents.md.
    """
    agent_sandbox: AgentSandbox = field(default_factory=AgentSandbox)
    """Where the agent's program runs, as agent_sandbox of a run's settings."""
    model: str = ""
    """The name of the model on its server; with --policy local its folder, a run or checkpoint, a
    .gguf file, the name of a released model, or tiny.
    """
    api_key_env: Annotated[str, tyro.conf.arg(metavar="NAME")] = "LUDUS_API_KEY"
    """The environment variable that holds the server's key."""
    temperature: float = 1.0
    """The temperature that the model samples at."""
    max_tokens: int = 4096
    """The most tokens of one answer of the model."""
    sampling: Annotated[str, tyro.conf.arg(metavar="JSON")] = ""
    """Further fields of each request, '{"top_p": 0.9}'; null leaves a field out, "seed" too."""
    tool_format: str = ""
    """How the model writes calls, such as hermes, where its server knows no tools; for a
    local model, by default the format that its chat template writes.
    """
    thoughts: str = AUTO
    """The marks around thoughts that a model's server leaves in the text: auto knows those of most
    models, none leaves thoughts in what is said; a local model's are its chat template's.
    """
    template: str = "auto"
    """The chat template of a local model, as model.template of a run."""
    max_image_pixels: int = 0
    """The largest number of pixels of an image as a local model sees it, as model.max_image_pixels
    of a run; 0 leaves the bound of the model's processor.
    """
    send_reasoning: bool = True
    """Whether the thoughts of a model behind a server are sent back to the server in later turns,
    which models that think between tool calls need.
    """
    device: str = "auto"
    """The device of a local model; auto takes CUDA where there is a CUDA device."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The type that a local model computes in."""
    window: int = 0
    """The model's working context in tokens, counted roughly; 0 leaves the limit to its server."""
    context: ContextSettings = field(default_factory=ContextSettings)
    """What happens when the window is full, as in [context] of a run's settings."""
    cache: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    """A folder that keeps the model's answers; a request made before is answered from there."""
    budget: int = 0
    """The most tokens that the model may use in all; 0 sets no bound."""
    url: Annotated[str, tyro.conf.arg(metavar="URL")] = ""
    """The server on which to play the environment; by default it runs in this process."""
    mcp: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SERVER")] = ()
    """MCP servers, by command or address, whose tools the policy has besides the environment's."""
    split: str = "test"
    """The split that the tasks are taken from."""
    tasks: int = 100
    """How many tasks to play: the first of the split, or all where the split has fewer."""
    samples: int = 1
    """The number of episodes per task."""
    passing: float = 1.0
    """The lowest return with which an episode passes."""
    verifier: Annotated[str, tyro.conf.arg(metavar="NAME")] = ""
    """A verifier that picks the best of k samples, without the gold: best-of-k, beside maj@k."""
    rounds: int = 1
    """How often a model answers one after another, each time shown its last answer; compared with
    as many tokens spent on samples at once.
    """
    concurrency: int = 16
    """The number of episodes played at the same time."""
    seed: int = 0
    """The seed of environment and policy."""
    max_turns: int = EpisodeLimits().max_turns
    """The most turns of an episode, summaries counted; 0 is the environment's own limit, or 256."""
    episode_timeout_s: float = EpisodeLimits().episode_timeout_s
    """Seconds that an episode may take; a late episode counts as failed."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """A file to write the episodes to, as JSON Lines; ludus view shows them."""
    html: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """A file to write a page to that shows the episodes."""
    json: Flag = False
    """Print the result as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Run `ludus eval`, and print the results; return 1 if every episode failed, else 0."""
    options = parse(
        EvalOptions,
        arguments,
        VerbHelp(
            verb="eval",
            about="Measure a policy: mean reward and pass@k with intervals, failures told apart.",
            example="ludus eval ludus/arithmetic-v0 --policy openai "
            "--base-url http://127.0.0.1:8000/v1 --model MODEL --tasks 100 --samples 4",
        ),
    )
    least = dict.fromkeys(("tasks", "samples", "concurrency", "rounds", "max_tokens"), 1)
    least |= dict.fromkeys(("window", "budget", "max_image_pixels"), 0)
    for name, bound in least.items():
        if (count := getattr(options, name)) < bound:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} must be at least {bound}, got {count}")
    if not math.isfinite(options.passing):
        raise ConfigError(f"--passing must be a number, got {options.passing}")
    if options.verifier:
        verifier_of(options.verifier)  # an unknown one is told before anything is played
    if options.html:
        refuse_no_page(Path(options.html))
    options = dataclasses.replace(options, policy=who_plays(options))
    if options.rounds > 1 and options.policy not in ("openai", "local"):
        raise ConfigError(f"--rounds {options.rounds}: is for a model, not for {options.policy}")
    name = named(options.env, options.url)
    episodes, chains = asyncio.run(_evaluate(options, name))
    result = summarise(episodes, passing=options.passing)
    more = measure_scaling(
        episodes,
        chains,
        ScalingSettings(options.passing, options.verifier, trained_summaries(options.model)),
    )
    if options.json:
        print(msgspec.json.encode(msgspec.to_builtins(result) | msgspec.to_builtins(more)).decode())
    else:
        _show(name, options, result)
        show_scaling(more, options.verifier)
    if options.html:
        title = f"{options.model or options.policy} on {name}, {options.split}"
        with tempfile.TemporaryDirectory() as folder:
            recorded = Path(options.out) if options.out else Path(folder) / "episodes.jsonl"
            if not options.out:
                write_episodes(recorded, episodes)
            page = page_of_file(recorded, episodes, title=title, passing=options.passing)
        write_page(page, Path(options.html))
        print(f"page  {options.html}", file=sys.stderr)
    return 1 if result.failed == result.episodes else 0


def who_plays(options: EvalOptions) -> Literal["auto", "random", "expert", "openai", "local"]:
    """Return the policy of the options; for `auto`, the policy that the other options ask for.

    Raises:
        ConfigError: a model is named, but the policy plays without one.
    """
    if options.policy == "auto":
        return "openai" if options.base_url else "local" if options.model else "expert"
    if options.model and options.policy in ("random", "expert"):
        raise ConfigError(
            f"--model {options.model}: --policy {options.policy} plays without a model; leave out "
            "one of the two"
        )
    return options.policy


def play(options: EvalOptions) -> list[Episode]:
    """Play an environment by the options of `ludus eval`, and return the episodes."""
    episodes, _ = asyncio.run(_evaluate(options, named(options.env, options.url)))
    return episodes


async def _evaluate(
    options: EvalOptions, name: str
) -> tuple[list[Episode], dict[str, list[list[Episode]]]]:
    """Play, and return the episodes and each task's chains of revisions."""
    # The episode gives up first, and its thread or process only after that.
    call_timeout_s = options.episode_timeout_s + GRACE_S
    # An expert is asked in the process of its environment, which is then this one.
    in_workers_s = 0.0 if options.policy == "expert" else call_timeout_s
    threads = OwnThreads(max(THREADS, options.concurrency), call_timeout_s=call_timeout_s)
    with ExitStack() as stack:
        progress = _Progress(options, stack)
        async with (
            opener(name, threads, call_timeout_s=in_workers_s) as open_session,
            open_model(options) as model,
            AsyncExitStack() as servers,  # of MCP, which run as long as the evaluation
        ):
            tools: list[Tool] = []
            for address in options.mcp:
                server = await servers.enter_async_context(McpServer(address))
                tools += await server.tools()
            open_with_tools = with_tools(open_session, tools)
            if model is not None:
                await _check_opening(open_with_tools, model, options)

            def policy_for(session: Playable) -> Policy:
                if model is not None:
                    return model
                return expert(session) if options.policy == "expert" else RandomPolicy()

            limits = EpisodeLimits(
                max_turns=options.max_turns, episode_timeout_s=options.episode_timeout_s
            )
            maker: EpisodeMaker | None = None
            if options.agent:
                maker = await servers.enter_async_context(_agent(options, model))
            play = partial(
                evaluate,
                open_with_tools,
                policy_for,
                split=options.split,
                tasks=options.tasks,
                concurrency=options.concurrency,
                seed=options.seed,
                limits=limits,
            )
            episodes = await play(
                samples=options.samples,
                maker=maker,
                on_start=progress.expect,
                on_episode=progress.add,
            )
            if options.rounds == 1 or model is None:
                return episodes, {}
            first = {(episode.task, episode.index): episode for episode in episodes}
            progress.expect(len(episodes) + (options.rounds - 1) * len({task for task, _ in first}))
            reviser = Reviser(
                maker or PolicyMaker(model, limits), options.rounds, first, on_episode=progress.add
            )
            await play(samples=1, maker=reviser)
            return episodes, reviser.chains


def _agent(options: EvalOptions, model: ChatPolicy | TokenPolicy | None) -> AgentMaker:
    """Return the maker of episodes in which the agent plays with the model."""
    writer: PolicyWriter
    if isinstance(model, TokenPolicy):
        writer = TokenWriter(model.chat_format, model.engine, model.sampling)
    elif isinstance(model, ChatPolicy):
        writer = TextWriter(model)
    else:
        raise ConfigError(
            f"--agent {options.agent!r} needs a model to call: --policy local or --policy openai, "
            f"not {options.policy}"
        )
    bounds = RolloutLimits(
        max_calls=options.max_turns or RolloutLimits().max_calls, window=options.window or None
    )
    limits = AgentLimits(timeout_s=options.episode_timeout_s, rollout=bounds)
    return AgentMaker(
        agent_of(options.agent),
        writer,
        limits,
        sandbox=options.agent_sandbox,
        agents=options.concurrency,
    )


class _Progress:
    """Shows a progress bar while episodes are played, and writes finished episodes to `--out`."""

    def __init__(self, options: EvalOptions, stack: ExitStack) -> None:
        self._path = Path(options.out) if options.out else None
        self._out: BinaryIO | None = None
        self._stack = stack
        if self._path is not None:
            refuse_unwritable(self._path, "--out")
        self._bars = stack.enter_context(progress_bar())
        self._bar = self._bars.add_task(options.policy, total=None)

    def expect(self, total: int) -> None:
        """Set the length of the bar to `total` episodes."""
        self._bars.update(self._bar, total=total)

    def add(self, episode: Episode) -> None:
        """Advance the bar, and append the finished episode to the file."""
        self._bars.update(self._bar, advance=1)
        if self._path is not None:
            if self._out is None:  # earlier episodes stay until there is one in their place
                self._out = self._stack.enter_context(self._path.open("wb"))
            self._out.write(line_of(episode, self._path))
            self._out.flush()


def with_tools(
    open_session: Callable[[], Playable], tools: Sequence[Tool]
) -> Callable[[], Playable]:
    """Wrap `open_session` so that the policy may also call `tools`.

    Raises:
        ConfigError: two tools have the same name, or a session is remote; raised as a session
            opens.
    """
    if not tools:
        return open_session

    def open_extended() -> Playable:
        session = open_session()
        if not isinstance(session, EnvSession):
            raise ConfigError("tools can be added to local environments alone; leave out --url")
        return EnvSession(AddedTools(session.env, tools), session.id)

    return open_extended


async def _check_opening(
    open_session: Callable[[], Playable], policy: ChatPolicy | TokenPolicy, options: EvalOptions
) -> None:
    """Refuse, before any episode is paid for, images that a local model does not see, and a window
    that is too small to play in.

    Raises:
        ConfigError: the model would not see the images, or the opening of the split's first task
            leaves no room for a step.
    """
    if not (options.window or isinstance(policy, TokenPolicy)):
        return
    session = open_session()
    try:
        (task,) = await first_tasks(session, options.split, 1)
        observation, info = await session.reset(options={"task": task.id, "split": options.split})
        briefing = info["briefing"]
        opening = opening_of(briefing, observation)
        if isinstance(policy, TokenPolicy):
            images = policy.chat_format.images
            refuse_unseen(images, session.id, declared=briefing.shows_images, opening=opening)
        if options.window:
            policy.check(opening, briefing.tools)
    finally:
        await session.close()


def expert(session: Playable) -> Policy:
    """Return the expert of the environment that `session` plays.

    Raises:
        ConfigError: the session is remote: experts live in the environment's process.
    """
    if not isinstance(session, EnvSession):
        raise ConfigError(
            "the expert lives in the environment's own process; leave out --url, or name another "
            "--policy"
        )

    def act(_: Sequence[Message]) -> str | Message:
        return expert_action(session)

    return ScriptedPolicy(act)


def _show(name: str, options: EvalOptions, result: Evaluation) -> None:
    table = Table("", "", "95% interval", box=None)
    if result.reward:
        table.add_row("mean reward", *result.reward.cells())
    for k, estimate in result.pass_at.items():
        table.add_row(f"pass@{k}", *estimate.cells())
    table.add_row("turns", f"{result.turns:.2f}", "")
    table.add_row("episodes", str(result.episodes - result.failed), f"of {result.tasks} tasks")
    for stop, count in result.stops.items():
        if stop != Stop.TERMINATED:  # a crash of an agent or a limit, which also counts as reward
            table.add_row(f"ended by {stop}", str(count), "")
    console = Console(highlight=False)
    console.print(f"{options.policy} on {name}, {options.split}", soft_wrap=True, markup=False)
    console.print(table)
    if result.pass_at:
        none = "" if result.pass_at[max(result.pass_at)].value else "; none did"
        console.print(
            f"an episode passes with a return of at least {result.passing:g} (--passing){none}"
        )
    if result.failed:
        console.print(f"{result.failed} episodes failed and are in no number above:", markup=False)
        for reason, count in result.failures.items():
            console.print(f"  {count} x {reason}", markup=False)
