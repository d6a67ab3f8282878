"""How much of a fixed true rubric's gain do evolving rubrics give?

    python benchmarks/rubrics.py                                three seeds, all arms
    python benchmarks/rubrics.py --seeds 0 --arms true evolving --folder runs/rubrics

A tiny policy writes reports about a fictional world (`ludus/research-v0`). The world's facts are
known, so the *true* score of a report is exact. The policy begins from a warm start on a
demonstrator that leaves out three facts in ten and states three in ten wrongly; then GRPO trains it
under one of four rewards:

| arm | reward |
|---|---|
| true | a judge with the world's facts as a fixed rubric |
| evolving | evolving rubrics; generator and judge see reports, retrieved passages and criteria |
| shuffled | a judge with the facts of another topic of the same kind |
| length | a judge with "at least N words" for eight N |

Judge and generator are the mock, which goes by words. The table tells the true score of reports on
topics of the training realm, sampled at the temperature of training: after the warm start, after
training, the gain, and the gain as a share of that of the arm "true".
"""

import argparse
import asyncio
import json
import statistics
from collections.abc import Callable
from pathlib import Path

from rubrics_arms import ARMS, GROUP, MAX_TOKENS, TASKS, Setting, run_arm, truth
from rubrics_warm import BATCH, FAULTS, SHAPE, STEPS, warm_start


def main() -> None:
    """Run what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--steps", type=int, default=Setting.steps)
    parser.add_argument("--lr", type=float, default=Setting.lr)
    parser.add_argument("--folder", type=Path, default=Path("runs/rubrics"))
    options = parser.parse_args()
    setting = Setting(steps=options.steps, lr=options.lr)
    for seed in options.seeds:
        run_seed(options.folder / f"seed-{seed}", seed, options.arms, setting)
    print_table(options.folder, setting)


def run_seed(folder: Path, seed: int, arms: list[str], setting: Setting) -> None:
    """The warm start and every arm of a seed; what is in the folder already is not run again."""
    checkpoints = sorted((folder / "warm" / "checkpoints").glob(f"step-{STEPS:06d}"))
    warm = str(checkpoints[0] if checkpoints else warm_start(folder, seed))
    keep(folder / "before.json", lambda: asyncio.run(truth(warm, folder / "test", setting.tested)))
    for arm in arms:
        keep(folder / f"{arm}.json", lambda arm=arm: trained(arm, folder, warm, seed, setting))


def trained(arm: str, folder: Path, warm: str, seed: int, setting: Setting) -> dict:
    """What came of one arm, judged by a mock of its own."""
    from ludus.rewards.judge.mock import MockJudge

    async def run() -> dict:
        async with MockJudge() as mock:
            numbers = await run_arm(arm, folder / arm, warm, seed, setting, mock.url)
            return {**numbers, "judgements": mock.requests}

    return asyncio.run(run())


def keep(path: Path, make: Callable[[], dict]) -> None:
    """Write what `make` gives, unless it is there."""
    if not path.exists():
        numbers = make()
        path.write_text(json.dumps(numbers))
        print(f"{path.parent.name} {path.stem}: {numbers}", flush=True)


def print_table(folder: Path, setting: Setting) -> None:
    """Every seed and arm that was run, and means over seeds."""
    print(
        f"\nwarm start: {STEPS} updates on {BATCH} demonstrations each, {FAULTS:.0%} of facts "
        f"missing or wrong, {SHAPE['layers']} layers of {SHAPE['hidden']}; training: "
        f"{setting.steps} steps of {TASKS} topics x {GROUP} reports, at most {MAX_TOKENS} tokens a "
        f"turn, lr {setting.lr:g}"
    )
    print(
        "| arm | seed | true score before | after | gain | share of 'true' | words | judgements |"
    )
    print("|---|---|---|---|---|---|---|---|")
    shares: dict[str, list[float]] = {}
    for place in sorted(folder.glob("seed-*")):
        results = {path.stem: json.loads(path.read_text()) for path in place.glob("*.json")}
        before = results["before"]["truth"]
        full = results["true"]["truth"] - before if "true" in results else float("nan")
        for arm in (arm for arm in ARMS if arm in results):
            row = results[arm]
            gain = row["truth"] - before
            shares.setdefault(arm, []).append(gain / full)
            print(
                f"| {arm} | {row['seed']} | {before:.3f} | {row['truth']:.3f} | {gain:+.3f} | "
                f"{gain / full:.2f} | {row['words']:.0f} | {row['judgements']} |"
            )
    for arm, share in shares.items():
        print(f"{arm}: {statistics.fmean(share):.2f} of the gain, lowest {min(share):.2f}")


if __name__ == "__main__":
    main()
