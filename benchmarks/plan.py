"""The memory that a plan says beside the peaks of real updates, on 1, 2 and 4 ranks over gloo.

    python benchmarks/plan.py                                  # nine cells, minutes of two cores
    python benchmarks/plan.py --shapes deep --ranks 2          # one cell
    python benchmarks/plan.py --shapes words --ranks 1 --more checkpoint
    python benchmarks/plan.py --shapes grouped vocabulary thin --seed 7

Each cell is a run of `plan_rank.py`: two updates of several passes with the real learner. Blocks of
8 KB and more go back to the system at once, so that what a process has is what is held, not what
the allocator kept: with blocks of 64 KB, shards of narrow layers are in pages that others share.
`held` is the share of the gradient that a rank holds between passes. The exit code is 1 if a plan
is off by more than 10 %, or if, without `--more`, W ranks hold more than 1/W of the gradient and
5 %.
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
    "grouped": ("4096", "384", "8", "6", "1024", "keys=2"),
    "vocabulary": ("65536", "192", "4", "6", "512", "untied"),
    "thin": ("3000", "128", "32", "2", "1536", "keys=1"),
}
"""Vocabulary, hidden size, layers, heads, tokens of a pass, and a kind of model. `images` has the
vocabulary of its tokenizer, of which the first words are drawn, without an image.
"""
NINE = ("words", "deep", "broad")
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "8192", "MALLOC_TRIM_THRESHOLD_": "8192"}
LIMIT_S = 900
WANTED = 0.10
HELD_MORE = 0.05
"""How much more than 1/W of the gradient W ranks may hold between passes, in parts of the whole."""


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
    parser.add_argument(
        "--more", nargs="*", default=(), help="checkpoint, lora, bfloat16, float32_head"
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights and ids")
    given = parser.parse_args()
    more = (*given.more, f"seed={given.seed}")
    worst, held_too_much = 0.0, False
    print("| shape | ranks | plan, MB | measured, MB | plan / measured | held |")
    print("|---|---|---|---|---|---|")
    for shape in given.shapes:
        for ranks in given.ranks:
            cells = measure(shape, ranks, more)
            peak = max(cell["measured"] for cell in cells)
            ratio = cells[0]["estimated"] / peak
            worst = max(worst, abs(ratio - 1))
            plan = cells[0]["estimated"] / 1e6
            held = max(cell["held"] for cell in cells)
            # Other pages than the gradient's stay too, more of them with the options of `--more`
            # (0.555 on two ranks with bfloat16 and layers computed again): it is shown alone.
            held_too_much |= not given.more and held > 1 / ranks + HELD_MORE
            numbers = f"{plan:.0f} | {peak / 1e6:.0f} | {ratio:.3f} | {held:.3f}"
            print(f"| {shape} | {ranks} | {numbers} |", flush=True)
    print(f"\nlargest distance {worst:.1%} (wanted: {WANTED:.0%})")
    if held_too_much:
        print(f"between passes, ranks hold more than 1/W + {HELD_MORE:.0%} of the gradient")
    return int(worst > WANTED or held_too_much)


if __name__ == "__main__":
    sys.exit(main())
