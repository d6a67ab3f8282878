"""Run the demo on several seeds and print what it reaches.

python benchmarks/demo_seeds.py --seeds 3
"""

import argparse
import asyncio
import json
import resource
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ludus.trainer.demos.calculator import run_demo
from ludus.trainer.settings.demos import DemoConfig


def main() -> None:
    """Print a table, and write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = [measure(seed) for seed in range(options.seeds)]
    table = Table("seed", "greedy before", "greedy after", "fault", "wall s", "CPU s")
    for row in rows:
        fault = f"{row['fault_before']:.0%} -> {row['fault_after']:.0%}"
        numbers = [f"{row[name]:.3f}" for name in ("before", "after")]
        times = [f"{row[name]:.0f}" for name in ("wall_s", "cpu_s")]
        table.add_row(str(row["seed"]), *numbers, fault, *times)
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def measure(seed: int) -> dict[str, float]:
    """One demo: its result, wall time, and CPU time with that of its server."""
    started, used = time.perf_counter(), cpu_seconds()
    result = asyncio.run(run_demo(DemoConfig(folder=f"runs/demo-seed-{seed}", seed=seed)))
    return {
        "seed": seed,
        "before": result.before,
        "after": result.after,
        "fault_before": result.fault_before,
        "fault_after": result.fault_after,
        "wall_s": time.perf_counter() - started,
        "cpu_s": cpu_seconds() - used,
    }


def cpu_seconds() -> float:
    """User and system time of this process and the children it has waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


if __name__ == "__main__":
    main()
