"""The demo: RL removes a fault from a small policy, against an environment in another process.

1. A small model is written from random weights and warmed up on demonstrations that are wrong more
   often than not.
2. `ludus serve` is started as another process, which holds the environment.
3. GRPO trains against that server over HTTP until the fault is gone.
"""

from __future__ import annotations

import asyncio
import math
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ludus.agent import Episode, Turn
from ludus.agent.episodes import read_episodes
from ludus.agent.viewer.page import write_report
from ludus.envs import make_async
from ludus.envs.families.arithmetic import MISTAKEN_FOR, OPERATORS
from ludus.errors import ConfigError

from ..config import (
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    SFTConfig,
    TrainConfig,
    TrainerConfig,
)
from ..models.tiny import briefing_phrases, write_tiny_policy
from ..run.journal import ProgressWatcher, sft_progress
from ..settings.demos import DemoConfig
from ..sft import run_sft
from ..train import run_training

ENV = "ludus/arithmetic-v0"
TASKS = "max_operations=2&max_number=9&operators=%2B*"
FAULT = "demo_fault=wrong-operator&demo_fault_rate=0.6"
FAULT_IN_WORDS = "calls the calculator with the first operator mistaken for another"
SERVER_START_S = 60.0
SERVER_STOP_S = 15.0
MARKER = ".ludus-demo"
"""File name that marks a folder written by the demo; only such a folder is overwritten."""
WRITTEN = ("model", "warm-start", "grpo", "server.log", "report.html")


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The measurements and files of a finished demo."""

    before: float
    """Greedy accuracy on held-out tasks after the warm start."""
    after: float
    fault_before: float
    """Share of held-out episodes that show the fault after the warm start."""
    fault_after: float
    report: Path


async def run_demo(config: DemoConfig, console: Console | None = None) -> DemoResult:
    """Run the whole demo and write the report.

    Raises:
        ConfigError: the folder holds files that no demo wrote, or no task is held out.
        CancelledError: the demo was interrupted; there is nothing to report.
    """
    if config.held_out_tasks < 1:
        raise ConfigError(f"held_out_tasks must be at least 1, got {config.held_out_tasks}")
    out = console or Console()
    folder = Path(config.folder)
    claim(folder)
    model = write_tiny_policy(
        folder / "model", phrases=briefing_phrases(make_async(ENV).env.briefing()), seed=config.seed
    )
    out.print(
        "[bold]1[/bold]  a policy from random weights learns from a demonstrator who "
        f"{FAULT_IN_WORDS}"
    )
    with sft_progress(out) as progress:
        warm = await run_sft(_sft(config, model), progress=progress)
    async with served(f"{ENV}?{TASKS}", folder / "server.log") as url:
        out.print(f"[bold]2[/bold]  GRPO against {ENV}?{TASKS}, served by another process at {url}")
        settings = _training(config, warm, url)
        with ProgressWatcher(config.steps, out) as watcher:
            result = await run_training(settings, watcher=watcher)
    # A cancelled `run_training` saves the run and returns. The cancellation is raised again here,
    # because nothing can be reported about an interrupted demo.
    if result.interrupted:
        raise asyncio.CancelledError
    return _conclude(folder, result.folder, out)


def claim(folder: Path, written: Sequence[str] = WRITTEN) -> None:
    """Prepare `folder` for a demo: remove what an earlier demo has `written`, and keep everything
    else.

    Raises:
        ConfigError: the folder is neither missing, empty, nor of an earlier demo.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / MARKER).is_file() and any(folder.iterdir()):
            raise ConfigError(
                f"{str(folder)!r} holds files that no demo wrote; choose a missing or empty folder "
                "with --folder"
            )
        (folder / MARKER).touch()
        for path in (folder / name for name in written):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot write the demo's folder {str(folder)!r}: {error.strerror}; choose another "
            "with --folder"
        ) from None


@asynccontextmanager
async def served(env: str, log: Path) -> AsyncGenerator[str]:
    """Run `ludus serve ENV` as a process on the loopback address, and yield the server's URL.

    Raises:
        ConfigError: the server did not start; the message shows the end of its log.
    """
    command = [sys.executable, "-P", "-m", "ludus", "serve", env, "--port", "0"]
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    try:
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), SERVER_START_S)
        except TimeoutError:
            line = b""
        words = [word for word in line.decode().split() if word.startswith("http://")]
        if not words:
            log_text = await asyncio.to_thread(log.read_text, "utf-8", errors="replace")
            raise ConfigError(
                f"the environment server did not print its address within {SERVER_START_S:g} s, or "
                f"ended before; its log {str(log)!r} ends: {log_text[-300:]!r}"
            )
        yield words[0].rstrip(",;")
    finally:
        await stop(process)


async def stop(process: asyncio.subprocess.Process, *, patience_s: float = SERVER_STOP_S) -> None:
    """Ask a process to end, and kill the process after `patience_s` seconds."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), patience_s)
    except TimeoutError:
        process.kill()
        await process.wait()


def fault_rate(episodes: Sequence[Episode]) -> float:
    """Return the share of episodes whose first call is the expression with the first operator
    mistaken.

    Episodes without a turn were lost and are not counted. NaN if no episode is left.
    """
    first_turns = (
        next((turn for trajectory in episode.trajectories for turn in trajectory.turns), None)
        for episode in episodes
    )
    shown = [_shows_fault(turn) for turn in first_turns if turn is not None]
    return sum(shown) / len(shown) if shown else math.nan


def _shows_fault(first: Turn) -> bool:
    if first.message is None or not first.message.tool_calls or not first.observation:
        return False
    asked = first.observation[-1].text
    called = str(first.message.tool_calls[0].arguments.get("expression", ""))
    position = next((i for i, character in enumerate(asked) if character in OPERATORS), len(asked))
    mistaken = (
        asked[:position]
        + MISTAKEN_FOR.get(asked[position : position + 1], "")
        + asked[position + 1 :]
    )
    return called == mistaken and called != asked


def _sft(config: DemoConfig, model: Path) -> SFTConfig:
    return SFTConfig(
        env=f"{ENV}?{TASKS}&{FAULT}",
        steps=config.warm_start_steps,
        batch_size=32,
        seed=config.seed,
        model=ModelConfig(path=str(model)),
        trainer=TrainerConfig(lr=2e-3, warmup_steps=10, lr_decay="linear"),
        run=RunConfig(folder=str(Path(config.folder) / "warm-start")),
    )


def _training(config: DemoConfig, warm: Path, url: str) -> TrainConfig:
    return TrainConfig(
        env=ENV,
        env_url=url,
        recipe="grpo",
        steps=config.steps,
        seed=config.seed,
        model=ModelConfig(path=str(warm)),
        rollout=RolloutConfig(
            tasks_per_step=config.tasks_per_step, group_size=config.group_size, max_tokens=32
        ),
        trainer=TrainerConfig(lr=3e-4),
        eval=EvalConfig(tasks=config.held_out_tasks),
        run=RunConfig(folder=str(Path(config.folder) / "grpo")),
    )


def _conclude(folder: Path, run: Path, out: Console) -> DemoResult:
    files = sorted((run / "episodes").glob("eval-*.jsonl"))
    first, last = read_episodes(files[0]), read_episodes(files[-1])
    before, after = accuracy(first), accuracy(last)
    fault_before, fault_after = fault_rate(first), fault_rate(last)
    lead = (
        f"The demonstrator, and so the warm start, {FAULT_IN_WORDS}. GRPO over HTTP took it from "
        f"{fault_before:.0%} of held-out episodes to {fault_after:.0%}, on {ENV}?{TASKS}."
    )
    facts = {"fault before": f"{fault_before:.0%}", "fault after": f"{fault_after:.0%}"}
    written = write_report(run, title="ludus demo", lead=lead, facts=facts)
    report = folder / "report.html"
    report.write_bytes(written.read_bytes())
    out.print(
        f"[bold]3[/bold]  greedy accuracy on {len(last)} unseen tasks: {before:.3f} -> "
        f"[bold]{after:.3f}[/bold]"
    )
    out.print(
        f"   the fault RL removed: the policy {FAULT_IN_WORDS}: {fault_before:.0%} -> "
        f"{fault_after:.0%}"
    )
    out.print(f"   report: {report}")
    out.print("   next:", markup=False)
    for command in next_commands(run):
        out.print(f"     {command}", markup=False, soft_wrap=True)
    return DemoResult(before, after, fault_before, fault_after, report)


def next_commands(run: Path) -> list[str]:
    """Return commands for a finished run, as a shell reads them.

    >>> next_commands(Path("my demo/grpo"))[0]
    "ludus explain 'my demo/grpo'"
    """
    best = ["--policy", "local", "--model", f"{run}/checkpoints/best"]
    verbs = (["explain", str(run)], ["watch", str(run)], ["eval", f"{ENV}?{TASKS}", *best])
    return [shlex.join(["ludus", *words]) for words in verbs]


def accuracy(episodes: Sequence[Episode]) -> float:
    """Return the mean reward of the episodes that have a reward; NaN if none has."""
    verdicts = [trajectory.verdict for episode in episodes for trajectory in episode.trajectories]
    rewards = [verdict.reward for verdict in verdicts if verdict.reward is not None]
    return sum(rewards) / len(rewards) if rewards else math.nan
