"""`ludus eval`: measure a policy on an environment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ludus.agent import ChatPolicy, Episode, Limits, Policy, RandomPolicy, ScriptedPolicy
from ludus.agent.estimates import Estimate
from ludus.agent.evaluation import Evaluation, evaluate, summarise
from ludus.envs import EnvSession
from ludus.envs.gym import Playable
from ludus.errors import ConfigError
from ludus.llm import TokenBudget
from ludus.messages import Message

from .arguments import Flag, parse
from .sessions import named, opener


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Which environment; constructor arguments as in 'ludus/maths-v0?source=problems.jsonl'."""
    policy: Literal["random", "expert", "openai"] = "expert"
    """random text, the environment's own expert, or a model behind an OpenAI-compatible server."""
    base_url: Annotated[str, tyro.conf.arg(metavar="URL")] = ""
    """Of the model's server, up to and with /v1."""
    model: str = ""
    """As its server calls it."""
    api_key_env: Annotated[str, tyro.conf.arg(metavar="NAME")] = "LUDUS_API_KEY"
    """The environment variable that holds the server's key."""
    temperature: float = 1.0
    """Of the model's sampling."""
    max_tokens: int = 4096
    """Of one answer of the model."""
    cache: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    """Keep the model's answers here, and read them from here."""
    budget: int = 0
    """Tokens the model may use in all; 0 sets no bound."""
    url: Annotated[str, tyro.conf.arg(metavar="URL")] = ""
    """Play the environment on this server."""
    split: str = "test"
    """Of the tasks."""
    tasks: int = 100
    """The first so many tasks of the split, or all."""
    samples: int = 1
    """Episodes per task."""
    passing: float = 1.0
    """The return from which an episode passes."""
    concurrency: int = 16
    """Episodes at once."""
    seed: int = 0
    """Of environment and policy."""
    max_turns: int = Limits().max_turns
    """Turns of an episode, besides the environment's own limit."""
    episode_timeout_s: float = Limits().episode_timeout_s
    """Seconds an episode may take; a late one counts as failed."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """Write the episodes here, one JSON object a line."""
    json: Flag = False
    """Print the result as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Evaluate, print what was measured; 1 if every episode failed."""
    options = parse(
        Options,
        arguments,
        verb="eval",
        about="Measure a policy: mean reward and pass@k with intervals, failures told apart.",
        example="ludus eval ludus/arithmetic-v0 --policy openai "
        "--base-url http://127.0.0.1:8000/v1 --model MODEL --tasks 100 --samples 4",
    )
    if min(options.tasks, options.samples, options.concurrency) < 1:
        raise ConfigError("--tasks, --samples and --concurrency must be at least 1")
    name = named(options.env, options.url)
    result = asyncio.run(_evaluate(options, name))
    if options.json:
        print(msgspec.json.encode(result).decode())
    else:
        _show(name, options, result)
    return 1 if result.failed == result.episodes else 0


async def _evaluate(options: Options, name: str) -> Evaluation:
    with ExitStack() as stack:
        out = stack.enter_context(_opened(options.out)) if options.out else None
        progress = stack.enter_context(_progress())
        bar = progress.add_task(options.policy, total=None)

        def note(episode: Episode) -> None:
            progress.update(bar, advance=1)
            if out:
                out.write(msgspec.json.encode(episode) + b"\n")
                out.flush()

        async with opener(name) as open_session:
            policy = _chat_policy(options) if options.policy == "openai" else None
            try:
                if policy:
                    await policy.client.ensure_served()
                episodes = await evaluate(
                    open_session,
                    _policies(options, policy),
                    split=options.split,
                    tasks=options.tasks,
                    samples=options.samples,
                    concurrency=options.concurrency,
                    seed=options.seed,
                    limits=Limits(
                        max_turns=options.max_turns, episode_timeout_s=options.episode_timeout_s
                    ),
                    on_start=lambda total: progress.update(bar, total=total),
                    on_episode=note,
                )
            finally:
                if policy:
                    await policy.close()
    return summarise(episodes, passing=options.passing)


def _opened(path: str) -> BinaryIO:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return Path(path).open("wb")
    except OSError as error:
        raise ConfigError(f"cannot write --out {path!r}: {error.strerror}") from None


def _policies(options: Options, chat: ChatPolicy | None) -> Callable[[Playable], Policy]:
    if chat is not None:
        return lambda _: chat
    return expert if options.policy == "expert" else lambda _: RandomPolicy()


def expert(session: Playable) -> Policy:
    """The expert of the environment a session plays.

    Raises:
        ConfigError: the session is remote: experts live where the environment does.
    """
    if not isinstance(session, EnvSession):
        raise ConfigError("the expert lives in the environment's own process; leave out --url")
    env = session.env

    def act(_: Sequence[Message]) -> str | Message:
        action = env.demonstrate()
        if action is None:
            raise ConfigError(f"{session.id} has no expert: its demonstrate() gives None")
        return action

    return ScriptedPolicy(act)


def _chat_policy(options: Options) -> ChatPolicy:
    if not options.base_url or not options.model:
        raise ConfigError(
            "--policy openai needs --base-url and --model, such as "
            "--base-url http://127.0.0.1:8000/v1 --model MODEL"
        )
    return ChatPolicy(
        options.base_url,
        options.model,
        temperature=options.temperature,
        max_tokens=options.max_tokens,
        api_key=os.environ.get(options.api_key_env, ""),
        concurrency=options.concurrency,
        cache=options.cache or None,
        budget=TokenBudget(options.budget) if options.budget else None,
    )


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    )


def _show(name: str, options: Options, result: Evaluation) -> None:
    table = Table(
        "", "", "95% interval", title=f"{options.policy} on {name}, {options.split}",
        title_justify="left", box=None,
    )  # fmt: skip
    if result.reward:
        table.add_row("mean reward", *_cells(result.reward))
    for k, estimate in result.pass_at.items():
        table.add_row(f"pass@{k}", *_cells(estimate))
    table.add_row("turns", f"{result.turns:.2f}", "")
    table.add_row("episodes", str(result.episodes - result.failed), f"of {result.tasks} tasks")
    console = Console(highlight=False)
    console.print(table)
    if result.failed:
        console.print(f"{result.failed} episodes failed and are in no number above:", markup=False)
        for reason, count in result.failures.items():
            console.print(f"  {count} x {reason}", markup=False)


def _cells(estimate: Estimate) -> tuple[str, str]:
    return f"{estimate.value:.3f}", f"{estimate.low:.3f} to {estimate.high:.3f}"
