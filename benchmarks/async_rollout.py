"""What playing rollouts ahead of the learner gains, and what it costs.

    python benchmarks/async_rollout.py virtual             # deterministic, minutes of one core
    python benchmarks/async_rollout.py virtual --quick
    python benchmarks/async_rollout.py oracle              # a minute
    python benchmarks/async_rollout.py real --rounds 5     # two idle cores
    python benchmarks/async_rollout.py rewards --out FOLDER

`virtual` drives the trainer's own scheduling with scripted engines under a virtual clock
(`ludus.trainer.plan.simulation`): tokens of issued rollouts as a share of the bound
min(generation, training), the ages of the trained tokens, and for a hard bound of two versions the
loss and the bias of lengths.

`oracle` compares the trainer's schedule for the longest tail, over windows of steps and seeds, with
orders of play that pause rollouts at no cost or know their lengths (async_oracle.py).

`real` runs a real engine and learner on scripted lengths (async_real.py): asynchronous and
synchronous with one core a stage, and synchronous with both cores free to each stage, in turns; and
each stage alone, for the bound.

`rewards` trains the same small policies to the same number of tokens, synchronous and four versions
ahead, on three environments and three seeds (async_rewards.py).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from async_oracle import ORDERS, oracle
from async_rewards import compare_rewards

from ludus.trainer.plan.simulation import Measured, Schedule, simulate
from ludus.trainer.stream.plan import Late

SIGMAS = (0.3, 0.8, 1.2, 1.6)
LATE: tuple[Late, ...] = ("wait", "mask", "drop")
HERE = Path(__file__).parent


def virtual(*, quick: bool) -> None:
    """Print the share of the bound by spread of lengths and engines, and what deadlines cost."""
    print("tokens of issued rollouts / bound min(generation, training); eta = 4, no deadline\n")
    print("| sigma | engines | rollouts a step / slots | trained | sampled | mean age | oldest |")
    print("|---|---|---|---|---|---|---|")
    least = 1.0
    for sigma in SIGMAS:
        for engines in (1, 8) if quick else (1, 8, 64):
            steps = _window(sigma, engines)
            for batches in (2.0,) if quick or engines == 64 else (1.0, 2.0):
                simulated = simulate(
                    Schedule(
                        sigma=sigma,
                        engines=engines,
                        batches=batches,
                        steps=steps[0],
                        skipped=steps[1],
                    )
                )
                least = min(least, simulated.trained) if batches >= 2 else least
                print(
                    f"| {sigma} | {engines} | {batches:g} | {simulated.trained:.1%} | "
                    f"{simulated.sampled:.1%} | {simulated.age:.2f} | {simulated.oldest} |",
                    flush=True,
                )
    print(f"\nleast share with two slots' worth of rollouts a step: {least:.1%} (wanted: 95 %)\n")
    print("a hard bound of two versions (max_staleness = deadline = 2)\n")
    print("| sigma | late | trained | oldest | tokens lost | trained / issued length |")
    print("|---|---|---|---|---|---|")
    for sigma in SIGMAS:
        for late in LATE:
            print(_bounded(sigma, late), flush=True)


def _window(sigma: float, engines: int) -> tuple[int, int]:
    """Return the steps of a schedule, and those before the clock is read.

    With one engine and a long tail the longest rollouts take ten steps, and 50 steps show more of
    the draw than of the schedule. Many engines have many rollouts a step.
    """
    if engines >= 64:
        return 40, 22
    return (330, 30) if engines == 1 and sigma > 1 else (80, 30)


def compare_orders(seeds: int) -> None:
    """Print the share of the bound at sigma = 1.6 with one engine, beside that of other orders."""
    print("trained tokens / bound; sigma = 1.6, one engine, a step of 2 x its slots, eta = 4\n")
    print(f"| steps | seeds | trainer | {' | '.join(ORDERS)} |\n|---|---|---|---|---|---|")
    for steps, count in ((80, seeds), (330, max(1, seeds // 4))):
        shares: dict[str, list[float]] = {}
        for seed in range(count):
            schedule = Schedule(sigma=1.6, steps=steps, seed=seed)
            shares.setdefault("trainer", []).append(simulate(schedule).trained)
            for order in ORDERS:
                shares.setdefault(order, []).append(oracle(schedule, order))
        cells = (
            f"{statistics.fmean(by_seed):.1%} ({min(by_seed):.1%} to {max(by_seed):.1%})"
            for by_seed in shares.values()
        )
        print(f"| {steps - 30} | {count} | {' | '.join(cells)} |", flush=True)


def _bounded(sigma: float, late: Late) -> str:
    simulated: Measured = simulate(Schedule(sigma=sigma, max_staleness=2, deadline=2, late=late))
    return (
        f"| {sigma} | {late} | {simulated.trained:.1%} | {simulated.oldest} | "
        f"{simulated.lost:.1%} | {simulated.bias:.2f} |"
    )


def real(rounds: int, steps: int, more: Sequence[str]) -> None:
    """Print the medians of the ratios over rounds in which every mode is run once."""
    ratios: dict[str, list[float]] = {"sync": [], "free": [], "bound": []}
    for number in range(rounds):
        speeds = {mode: _run(mode, steps, more) for mode in ("async", "sync", "free", "bounds")}
        speed = speeds["async"]["tokens_per_s"]
        bound = min(speeds["bounds"]["generation"], speeds["bounds"]["training"])
        ratios["sync"].append(speed / speeds["sync"]["tokens_per_s"])
        ratios["free"].append(speed / speeds["free"]["tokens_per_s"])
        ratios["bound"].append(speed / bound)
        print(f"round {number}: {json.dumps(speeds)}", flush=True)
    for name, meaning, wanted in (
        ("sync", "x synchronous, one core a stage", "2.0"),
        ("free", "x synchronous, both cores free", "1.5"),
        ("bound", "of the bound min(generation, training)", "0.9"),
    ):
        by_round = ratios[name]
        print(
            f"{statistics.median(by_round):.2f} {meaning} (wanted: {wanted}; of {rounds} rounds "
            f"{min(by_round):.2f} to {max(by_round):.2f})"
        )


def _run(mode: str, steps: int, more: Sequence[str]) -> dict[str, float]:
    command = [sys.executable, str(HERE / "async_real.py"), mode, "--steps", str(steps), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise SystemExit(f"{mode} failed: {done.stderr[-2000:]}")
    numbers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def main() -> None:
    """Run the part that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("virtual", "oracle", "real", "rewards"))
    parser.add_argument("--quick", action="store_true", help="virtual: fewer engines")
    parser.add_argument("--rounds", type=int, default=5, help="real: rounds of all modes")
    parser.add_argument("--steps", type=int, default=12, help="real: measured steps")
    parser.add_argument("--out", type=Path, default=Path("runs/async-rewards"))
    parser.add_argument("--seeds", type=int, default=3, help="rewards, oracle x 4: seeds")
    given, more = parser.parse_known_args()
    if given.part == "virtual":
        virtual(quick=given.quick)
    elif given.part == "oracle":
        compare_orders(4 * given.seeds)
    elif given.part == "real":
        real(given.rounds, given.steps, more)
    else:
        compare_rewards(given.out, seeds=given.seeds)


if __name__ == "__main__":
    main()
