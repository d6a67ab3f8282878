"""The runs behind a row of `supo.py`: warm starts, and training and testing an arm."""

import asyncio
import statistics
import time
from dataclasses import replace
from pathlib import Path

from supo_setting import PHRASES, SHAPE, Setting, context_of


def warm_start(setting: Setting, folder: Path, seed: int, *, whole: bool) -> tuple[str, str, float]:
    """The checkpoint of every arm of window W, that of the arm without end, and their CPU seconds.

    Both come from one clean start. Then each is shown its own windows: the demonstrator's
    summaries, or longer and longer windows, the last of them whole episodes.
    """
    started = time.process_time()
    one_thread()
    clean = clean_start(setting, folder, seed)
    equal = sft(
        setting.varied,
        folder / "equal",
        clean,
        seed,
        setting.demo_steps,
        setting.window,
        demo=setting.demo,
        lr=setting.demo_lr,
        falls=True,
    )
    full = whole_warm_start(setting, folder, clean, seed) if whole else ""
    return str(equal), str(full), time.process_time() - started


def clean_start(
    setting: Setting, folder: Path, seed: int, phrases: tuple[str, ...] = PHRASES
) -> Path:
    """What the clean demonstrator teaches, from the first random weights that come to learn it, or
    from those that come closest.
    """
    from ludus.envs import make_async
    from ludus.trainer.models.tiny import briefing_phrases, write_tiny_policy
    from ludus.wire.address import parse_served

    name, arguments = parse_served(setting.env())
    phrases = [*briefing_phrases(make_async(name, **arguments).env.briefing()), *phrases]
    learned: dict[Path, float] = {}
    for attempt in range(setting.attempts):
        start = folder / f"from-{attempt}"
        weights = seed + 1_000_000 * attempt
        model = write_tiny_policy(
            start / "model", phrases=phrases, seed=weights, max_length=4096, **SHAPE
        )
        clean = learn_to_answer(setting, start, model, seed)
        learned[clean] = last_loss(start / "answers")
        if learned[clean] < setting.answered:
            break
    clean = min(learned, key=learned.__getitem__)
    steps, lr, settled = setting.settle_steps, setting.demo_lr, folder / "settled"
    return sft(setting.varied, settled, clean, seed, steps, setting.window, lr=lr, falls=True)


def learn_to_answer(setting: Setting, folder: Path, model: Path, seed: int) -> Path:
    """First copying: a summary asks for every register. Then answering, which is one token of an
    episode: from short episodes that ask for any write, many in each step.
    """
    window, stop, batch = setting.shown, setting.copied, setting.answer_batch
    copies = sft(setting, folder / "copies", model, seed, setting.copy_steps, window, stop=stop)
    short, steps, stop = setting.short, setting.answer_steps, setting.answered
    answers = folder / "answers"
    return sft(short, answers, copies, seed, steps, window, gap=1, batch=batch, stop=stop)


def last_loss(folder: Path) -> float:
    """The mean loss at a stage's end, over the updates that end one."""
    from ludus.metrics import read_metrics
    from ludus.trainer.sft import STOP_UPDATES

    rows = read_metrics(folder / "metrics.jsonl")[-STOP_UPDATES:]
    return statistics.fmean(row["loss"] for row in rows)


def whole_warm_start(setting: Setting, folder: Path, clean: Path, seed: int) -> Path:
    """The checkpoint of the arm that sees everything.

    A question answered over a hundred tokens is not learned from such questions alone: first come
    longer windows, then episodes of many lengths that ask for any write, the newest too.
    """
    longer = sft(setting, folder / "longer", clean, seed, setting.long_steps, setting.wider)
    steps, stop = setting.early_steps, setting.answered
    mixed = sft(setting.mixed, folder / "mixed", longer, seed, steps, 0, gap=1, stop=stop)
    steps, stop, lr = setting.whole_steps, setting.learned, setting.demo_lr
    return sft(setting, folder / "full", mixed, seed, steps, 0, lr=lr, falls=True, stop=stop)


def sft(
    setting: Setting,
    folder: Path,
    model: Path,
    seed: int,
    steps: int,
    window: int,
    *,
    demo: str = "clean",
    gap: int | None = None,
    batch: int = 0,
    lr: float = 3e-3,
    falls: bool = False,
    stop: float = 0.0,
) -> Path:
    """One stage of the warm start, in a window of its own; 0 is whole episodes, longer and fewer
    digits in each. The learning rate stays or falls to 0. Demonstrations have as many summaries as
    they need.
    """
    from ludus.trainer.config import ModelConfig, RunConfig, SFTConfig, TrainerConfig
    from ludus.trainer.sft import run_sft

    config = SFTConfig(
        env=setting.env(demo=demo, gap=gap),
        steps=steps,
        stop_loss=stop,
        batch_size=batch or (16 if window else 32),
        seed=seed,
        window=window,
        context=context_of(replace(setting, max_summaries=0), "supo" if window else "full"),
        model=ModelConfig(path=str(model), device="cpu"),
        trainer=TrainerConfig(lr=lr, warmup_steps=20, lr_decay="linear" if falls else "constant"),
        run=RunConfig(folder=str(folder), tensorboard=False),
    )
    return asyncio.run(run_sft(config))


def run_arm(setting: Setting, folder: Path, warm: str, arm: str, seed: int, recipe: str) -> dict:
    """Train one arm and test it."""
    from ludus.metrics import read_metrics
    from ludus.trainer.config import (
        EvalConfig,
        ModelConfig,
        RolloutConfig,
        RunConfig,
        TrainConfig,
        TrainerConfig,
    )
    from ludus.trainer.train import run_training

    started = time.process_time()
    one_thread()
    window = setting.longest if arm == "full" else setting.window
    config = TrainConfig(
        env=setting.env(),
        recipe=recipe,
        steps=setting.steps,
        seed=seed,
        model=ModelConfig(path=warm, device="cpu"),
        rollout=RolloutConfig(
            tasks_per_step=setting.tasks_a_step,
            group_size=setting.group,
            max_tokens=setting.action_tokens,
            window=window,
            max_turns=4096,
            concurrency=setting.tasks_a_step * setting.group,
        ),
        context=context_of(setting, arm),
        # one update a step, of every arm: what differs between them is the window alone
        trainer=TrainerConfig(
            lr=setting.lr, warmup_steps=setting.rise, lr_decay="linear", updates_per_step=1
        ),
        eval=EvalConfig(tasks=setting.eval_tasks),
        run=RunConfig(folder=str(folder), tensorboard=False, save_every=0, episodes_every=0),
    )
    result = asyncio.run(run_training(config))
    rows = read_metrics(folder / "metrics.jsonl")
    evals = [row["eval/mean"] for row in rows if "eval/mean" in row]
    sampled = [row["reward/mean"] for row in rows if "reward/mean" in row]
    overlong = [row["context/overlong"] for row in rows if "context/overlong" in row]
    summary = {
        "arm": arm,
        "seed": seed,
        "before": evals[0],
        "after": evals[-1],
        "evals": evals,
        "sampled_before": sampled[0],
        "sampled": statistics.fmean(sampled[-3:]),
        "overlong_before": overlong[0] if overlong else None,
        "overlong": statistics.fmean(overlong) if overlong else None,
        "row_tokens": longest_row(folder),
        "cpu_s": time.process_time() - started,
        "step_s": statistics.median(
            row["time/generate_s"] + row["time/update_s"] for row in rows if "reward/mean" in row
        ),
    }
    if setting.longer and arm == "supo":
        turns = setting.turns * setting.longer
        longer = asyncio.run(test(config, result.checkpoint, setting.env(turns=turns), turns))
        summary["longer"] = longer
    return summary


async def test(config, checkpoint: Path, env: str, turns: int) -> float:
    """Greedy success of a checkpoint on longer episodes, with as many summaries as it takes."""
    from ludus.trainer.rollout.evaluate import evaluate
    from ludus.trainer.setup import assemble

    folder = Path(config.run.folder) / "longer"
    parts = await assemble(
        replace(
            config,
            env=env,
            model=replace(config.model, path=str(checkpoint)),
            context=replace(config.context, max_summaries=turns),
            run=replace(config.run, folder=str(folder)),
        )
    )
    try:
        return (await evaluate(parts.evaluator, config.eval)).mean
    finally:
        await parts.closing.aclose()


def longest_row(folder: Path) -> int:
    """Most tokens a held-out episode had in one row."""
    from ludus.agent.episodes import read_episodes

    files = sorted((folder / "episodes").glob("eval-*.jsonl"))
    episodes = read_episodes(files[-1])
    return max(len(s.ids()) for e in episodes for s in e.trajectories[0].segments)


def one_thread() -> None:
    """Tiny models are faster on one."""
    import torch

    torch.set_num_threads(1)
