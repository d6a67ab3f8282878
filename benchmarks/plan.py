"""The memory that a plan says beside the peaks of real updates, on 1, 2 and 4 ranks over gloo.

    python benchmarks/plan.py                                  # nine cells, minutes of two cores
    python benchmarks/plan.py --shapes deep --ranks 2          # one cell
    python benchmarks/plan.py --shapes small --ranks 1 --more checkpoint

Each cell is a run of `plan_rank.py`: two updates of several passes with the real learner. Blocks of
64 KB and more go back to the system at once, so that the peak of a process is what was held, not
what the allocator kept. The exit code is 1 if a cell is off by more than 10 %.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "plan_rank.py"
SHAPES = {
    "words": ("8192", "256", "8", "4", "1024"),
    "deep": ("2048", "256", "16", "4", "1024"),
    "broad": ("4096", "640", "4", "10", "1024"),
    "smollm2": ("49152", "576", "30", "9", "512"),
    "experts": ("2048", "256", "6", "4", "1024", "experts"),
    "images": ("200", "256", "8", "4", "1024", "images"),
}
"""Vocabulary, hidden size, layers, heads, tokens of a pass, and a kind of model. `images` has the
vocabulary of its tokenizer, of which the first words are drawn, without an image.
"""
NINE = ("words", "deep", "broad")
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
LIMIT_S = 900
WANTED = 0.10


def measure(shape: str, ranks: int, more: tuple[str, ...] = ()) -> list[dict[str, float]]:
    """Return what each rank of a cell measured, and what the plan says."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    processes = []
    for rank in range(ranks):
        environment = {**os.environ, **ALLOCATOR, "OMP_NUM_THREADS": "1"}
        if ranks > 1:
            environment |= {
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
        command = [sys.executable, str(SCRIPT), *SHAPES[shape], *more]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        )
    outputs = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"a rank of {shape} x {ranks} failed")
    return [json.loads(output) for output in outputs]


def main() -> int:
    """Print a line for each cell; return 1 if one is off by more than was wanted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=tuple(SHAPES), default=NINE)
    parser.add_argument("--ranks", nargs="+", type=int, default=(1, 2, 4))
    parser.add_argument("--more", nargs="*", default=(), help="checkpoint, lora, bfloat16")
    given = parser.parse_args()
    worst = 0.0
    print("| shape | ranks | plan, MB | measured, MB | plan / measured |\n|---|---|---|---|---|")
    for shape in given.shapes:
        for ranks in given.ranks:
            cells = measure(shape, ranks, tuple(given.more))
            peak = max(cell["measured"] for cell in cells)
            ratio = cells[0]["estimated"] / peak
            worst = max(worst, abs(ratio - 1))
            plan = cells[0]["estimated"] / 1e6
            print(
                f"| {shape} | {ranks} | {plan:.0f} | {peak / 1e6:.0f} | {ratio:.3f} |", flush=True
            )
    print(f"\nlargest distance {worst:.1%} (wanted: {WANTED:.0%})")
    return int(worst > WANTED)


if __name__ == "__main__":
    sys.exit(main())
