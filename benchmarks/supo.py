"""SUPO against truncation at equal working context, on ludus/ledger-v0.

    python benchmarks/supo.py --seeds 3 --json supo.json     # the main table
    python benchmarks/supo.py --tiers                        # SUPO and keep_last_k, tier by tier
    python benchmarks/supo.py --ablations                    # Eq. 4 statistics; no overlong mask

One warm start a seed for every arm of window W (a clean demonstrator first, then the recency-biased
one), another from the same clean stage for the arm that sees everything. Arms differ in the context
manager alone; recipe, learning rate and steps are the same. W is in tokens: a turn of this
environment takes TURN_TOKENS in the tiny model's chat format, and no register that is asked for was
written within the last W / TURN_TOKENS turns, so truncating arms cannot pass 0.10 (proof in
envs/ledger/env.py).
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from supo_rows import ABLATION, ABLATIONS, TIERS, rows_table, write_recipes
from supo_setting import ARMS, PHRASES, SHAPE, Setting, context_of


def warm_start(setting: Setting, folder: Path, seed: int, *, whole: bool) -> tuple[str, str, float]:
    """The checkpoint of every arm of window W, that of the arm without end, and their CPU seconds.

    Both come from one clean start. Then each is shown its own windows: the demonstrator's
    summaries, or longer and longer windows, the last of them whole episodes.
    """
    started = time.process_time()
    one_thread()
    clean = clean_start(setting, folder, seed)
    equal = sft(
        setting,
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


def clean_start(setting: Setting, folder: Path, seed: int) -> Path:
    """What the clean demonstrator teaches, from the first random weights that come to learn it."""
    from ludus.envs import make_async
    from ludus.trainer.tiny import briefing_phrases, write_tiny_policy
    from ludus.wire.arguments import parse_served

    name, arguments = parse_served(setting.env())
    phrases = [*briefing_phrases(make_async(name, **arguments).env.briefing()), *PHRASES]
    for attempt in range(setting.attempts):
        start = folder / f"from-{attempt}"
        weights = seed + 1_000_000 * attempt
        model = write_tiny_policy(
            start / "model", phrases=phrases, seed=weights, max_length=4096, **SHAPE
        )
        clean = learn_to_answer(setting, start, model, seed)
        if has_learned(start / "answers", setting.answered):
            break
    steps, lr, settled = setting.settle_steps, setting.demo_lr, folder / "settled"
    return sft(setting, settled, clean, seed, steps, setting.window, lr=lr, falls=True)


def learn_to_answer(setting: Setting, folder: Path, model: Path, seed: int) -> Path:
    """First copying: a summary asks for every register. Then answering, which is one token of an
    episode: from episodes of many lengths that ask for any write, many in each step.
    """
    window, stop, batch = setting.shown, setting.copied, setting.answer_batch
    copies = sft(setting, folder / "copies", model, seed, setting.copy_steps, window, stop=stop)
    many, steps, stop = setting.mixed, setting.answer_steps, setting.answered
    answers = folder / "answers"
    return sft(many, answers, copies, seed, steps, window, gap=1, batch=batch, stop=stop)


def has_learned(folder: Path, loss: float) -> bool:
    """Whether a stage ended with so low a loss."""
    from ludus.metrics import read_metrics
    from ludus.trainer.sft import STOP_UPDATES

    rows = read_metrics(folder / "metrics.jsonl")[-STOP_UPDATES:]
    return statistics.fmean(row["loss"] for row in rows) < loss


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
    digits in each. The learning rate stays or falls to 0.
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
        context=context_of(setting, "supo" if window else "full"),
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
    from ludus.trainer.train import train

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
            tasks_per_step=setting.tasks,
            group_size=setting.group,
            max_tokens=setting.action_tokens,
            window=window,
            max_turns=4096,
            concurrency=setting.tasks * setting.group,
        ),
        context=context_of(setting, arm),
        trainer=TrainerConfig(lr=setting.lr, warmup_steps=setting.rise, lr_decay="linear"),
        eval=EvalConfig(tasks=setting.eval_tasks),
        run=RunConfig(folder=str(folder), tensorboard=False, save_every=0, episodes_every=0),
    )
    result = asyncio.run(train(config))
    rows = read_metrics(folder / "metrics.jsonl")
    evals = [row["eval/mean"] for row in rows if "eval/mean" in row]
    sampled = [row["reward/mean"] for row in rows if "reward/mean" in row]
    overlong = [row["context/overlong"] for row in rows if "context/overlong" in row]
    made = {
        "arm": arm,
        "seed": seed,
        "before": evals[0],
        "after": evals[-1],
        "evals": evals,
        "sampled_before": sampled[0],
        "sampled": statistics.fmean(sampled[-3:]),
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
        made["longer"] = longer
    return made


async def test(config, checkpoint: Path, env: str, turns: int) -> float:
    """Greedy success of a checkpoint on longer episodes, with as many summaries as it takes."""
    from ludus.trainer.evaluate import evaluate
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
        return (await evaluate(parts.evaluator, "test", config.eval.tasks)).mean
    finally:
        await parts.closing.aclose()


def longest_row(folder: Path) -> int:
    """Most tokens a held-out episode had in one row."""
    from ludus.trainer.run_folder import read_episodes

    files = sorted((folder / "episodes").glob("eval-*.jsonl"))
    episodes = read_episodes(files[-1])
    return max(len(s.ids()) for e in episodes for s in e.trajectories[0].segments)


def one_thread() -> None:
    """Tiny models are faster on one."""
    import torch

    torch.set_num_threads(1)


@dataclass(frozen=True)
class Job:
    """One run of the table, done in a process of its own."""

    setting: Setting
    folder: Path
    arm: str
    seed: int
    recipe: str = "supo"
    warm: str = ""
    warm_cpu_s: float = 0.0
    row: str = ""
    """Of the tables by tier and by ablation."""


def prepare(job: Job) -> tuple[str, str, float]:
    """The warm starts of a seed; that of whole episodes only if the job asks for it."""
    return warm_start(job.setting, job.folder / "warm", job.seed, whole=job.arm == "full")


def execute(job: Job) -> dict:
    """Train and test."""
    folder = job.folder / f"{job.row}-{job.arm}".lstrip("-")
    made = run_arm(job.setting, folder, job.warm, job.arm, job.seed, job.recipe)
    made |= {"warm_cpu_s": job.warm_cpu_s, "row": job.row, "bound": job.setting.bound(job.arm)}
    print(json.dumps(made), flush=True)
    return made


def run_table(jobs: list[Job], processes: int) -> list[dict]:
    """Every warm start once, each arm as soon as its own is there, `processes` at a time."""
    spawn = multiprocessing.get_context("spawn")
    starts = {job.folder: job for job in sorted(jobs, key=lambda job: job.arm == "full")}
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        warming = {pool.submit(prepare, job): folder for folder, job in starts.items()}
        running: dict[Job, Future[dict]] = {}
        for done in as_completed(warming):
            equal, full, cpu_s = done.result()
            for job in jobs:
                if job.folder == warming[done]:
                    warm = full if job.arm == "full" else equal
                    running[job] = pool.submit(execute, replace(job, warm=warm, warm_cpu_s=cpu_s))
        return [running[job].result() for job in jobs]


def table(rows: list[dict], setting: Setting) -> str:
    """Means over seeds, lowest and highest in brackets."""
    lines = [
        f"{'arm':<12} {'greedy before':>14} {'greedy after':>22} {'sampled':>8} "
        f"{f'{setting.longer}T':>22} {'row':>5} {'CPU s':>6}"
    ]
    for arm in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == arm]

        def spread(name: str, mine: list[dict] = mine) -> str:
            values = [row[name] for row in mine if name in row]
            if not values:
                return "-"
            return f"{statistics.fmean(values):.3f} [{min(values):.3f}, {max(values):.3f}]"

        lines.append(
            f"{arm:<12} {statistics.fmean(r['before'] for r in mine):>14.3f} {spread('after'):>22} "
            f"{statistics.fmean(r['sampled'] for r in mine):>8.3f} {spread('longer'):>22} "
            f"{max(r['row_tokens'] for r in mine):>5} "
            f"{statistics.fmean(r['cpu_s'] for r in mine):>6.0f}"
        )
    return "\n".join(lines)


def targets(rows: list[dict]) -> dict[str, bool]:
    """Whether every seed is where it should be; only of the arms that were run."""
    found = {(row["arm"], row["seed"]): row for row in rows}
    seeds = sorted({row["seed"] for row in rows})

    def pairs(arm: str, other: str, name: str = "after") -> list[tuple[float, float]]:
        """(SUPO or what it is held against, the other) of each seed that has both."""
        both = [(found.get((arm, seed)), found.get((other, seed))) for seed in seeds]
        return [(one["after"], two[name]) for one, two in both if one and two and name in two]

    cut = [row["after"] for row in rows if row["arm"] in ("keep_last_k", "discard", "none")]
    held = {
        "supo >= 0.9": [one >= 0.9 for one, _ in pairs("supo", "supo")],
        "truncation <= 0.15": [one <= 0.15 for one in cut],
        "masked at least 0.4 below": [a - b >= 0.4 for a, b in pairs("supo", "masked")],
        "full >= supo": [b >= a for a, b in pairs("supo", "full")],
        "longer >= 0.9 of supo": [b >= 0.9 * a for a, b in pairs("supo", "supo", "longer")],
    }
    return {name: all(seeds) for name, seeds in held.items() if seeds}


def jobs_of(options: dict, setting: Setting, folder: Path) -> list[Job]:
    """The runs asked for; those of one folder share a warm start."""
    seeds = range(options["first_seed"], options["first_seed"] + options["seeds"])
    recipe = options["recipe"]
    if options["tiers"]:
        return [
            Job(
                changed(setting, TIERS[row]),
                folder / row / f"seed-{seed}",
                arm,
                seed,
                recipe,
                row=row,
            )
            for row in TIERS
            for seed in seeds
            for arm in ("supo", "keep_last_k")
        ]
    if options["ablations"]:
        tight, recipes = changed(setting, ABLATION), write_recipes(folder / "recipes")
        return [
            Job(tight, folder / f"seed-{seed}", "supo", seed, recipes[row], row=row)
            for row in ABLATIONS
            for seed in seeds
        ]
    arms = options["arms"].split(",")
    return [Job(setting, folder / f"seed-{s}", arm, s, recipe) for s in seeds for arm in arms]


def changed(setting: Setting, changes: dict) -> Setting:
    """A setting of the tables by row: no test on longer episodes, and sizes given by hand stay."""
    plain = asdict(Setting())
    free = {k: v for k, v in changes.items() if getattr(setting, k) == plain[k]}
    return replace(setting, longer=0, **free)


def main() -> int:
    """Run the table, print it, and say whether the targets hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--recipe", default="supo")
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument("--tiers", action="store_true", help="SUPO and keep_last_k on each tier")
    tables.add_argument("--ablations", action="store_true", help="SUPO, Eq. 4, no overlong mask")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one thread each")
    parser.add_argument("--keep", default="", help="folder to keep the runs in")
    for name, value in asdict(Setting()).items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, dest=name, type=type(value), default=value)
    options = vars(parser.parse_args())
    setting = Setting(**{name: options[name] for name in asdict(Setting())})
    os.environ["OMP_NUM_THREADS"] = "1"
    started = time.perf_counter()
    folder = Path(options["keep"] or tempfile.mkdtemp(prefix="ludus-supo-"))
    jobs = jobs_of(options, setting, folder)
    for seed_folder in {job.folder for job in jobs}:
        shutil.rmtree(seed_folder, ignore_errors=True)
    try:
        rows = run_table(jobs, options["jobs"])
    finally:
        if not options["keep"]:
            shutil.rmtree(folder, ignore_errors=True)
    if options["tiers"] or options["ablations"]:
        print(rows_table(rows))
    else:
        print(table(rows, setting))
        for target, holds in targets(rows).items():
            print(f"{'holds' if holds else 'FAILS':<6} {target}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = {"wall_s": time.perf_counter() - started, "cpu_s": used.ru_utime + used.ru_stime}
    print(json.dumps(spent))
    if options["json"]:
        made = {"setting": asdict(setting), "gap": setting.gap, "rows": rows, **spent}
        options["json"].write_text(json.dumps(made, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
