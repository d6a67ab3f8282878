"""What the death of each part of a run on a Ray cluster costs, by killing it for real.

    python benchmarks/cluster.py                        # every row, about ten minutes
    python benchmarks/cluster.py environment learner    # some rows

A row is a training run on a simulated cluster (`ray.cluster_utils.Cluster`): it is left alone for
some steps, a part is killed with SIGKILL, and the run goes on, by itself or with `--run.resume`.
Then the accounts of the run are recomputed: `lost` and `doubled` are ordinals, and the exit code is
1 if there is one, or if a step is missing. `two_steps_s` is how long the two steps after the death
took; for a run that ended by it, how long the command took to end or to start again.

`driver` and `head` end the run: it is continued by the same command with `--run.resume`. `node` is
the one with the servers of environments; another joins after it died.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROWS = ("environment", "reward", "engine", "learner", "rank", "node", "driver", "head")
STEPS, BEFORE = 8, 2
LIMIT_S = 600.0
RAY = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "4",
    "RAY_health_check_initial_delay_ms": "0",
    "OMP_NUM_THREADS": "1",
}


@contextmanager
def cluster(folder: Path, nodes: int = 1) -> Iterator[Any]:
    """Start a cluster of this machine, with a node for the learner and `nodes - 1` more."""
    (folder / "ray").mkdir(parents=True)
    os.environ.update(RAY, RAY_TMPDIR=str(folder))
    os.environ.pop("RAY_ADDRESS", None)
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 100_000_000}
    made = Cluster(initialize_head=True, head_node_args=node)
    for _ in range(nodes - 1):
        made.add_node(num_cpus=2, object_store_memory=100_000_000)
    try:
        ray.init(
            address=made.address, namespace="ludus", log_to_driver=False, configure_logging=False
        )
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


class Run:
    """A run on a cluster.

    Args:
        folder: of the run and its model.
        address: of the cluster.
        more: further settings.
    """

    def __init__(self, folder: Path, address: str, *more: str) -> None:
        self.folder = folder / "run"
        model = folder / "model"
        if not model.exists():
            from ludus.trainer.models.tiny import write_tiny_policy

            write_tiny_policy(model, hidden=16, layers=1, heads=2)
        self.words = [
            *(sys.executable, "-m", "ludus", "train", "grpo", "--cluster", address),
            *("--env", "ludus/arithmetic-v0", "--model.path", str(model), "--model.device", "cpu"),
            *("--run.folder", str(self.folder), "--run.tensorboard=false", "--run.save-every=1"),
            *("--rollout.tasks-per-step=2", "--rollout.group-size=4", "--rollout.max-tokens=8"),
            *("--rollout.max-turns=2", f"--steps={STEPS}", "--eval.tasks=2"),
            *("--trainer.tokens-per-pass=512", *more),
        ]
        self.process = self.start()

    def start(self, *more: str) -> subprocess.Popen[str]:
        """Start the driver."""
        self.process = subprocess.Popen(
            [*self.words, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return self.process

    def wait_for(self, count: int) -> None:
        """Wait until steps have been made."""
        end = time.monotonic() + LIMIT_S
        while len(self.steps()) < count:
            if self.process.poll() is not None or time.monotonic() > end:
                said = self.process.stdout.read() if self.process.stdout else ""
                raise SystemExit(f"the run ended or stood still: {said[-2000:]}")
            time.sleep(0.2)

    def steps(self) -> list[int]:
        """Return the steps whose metrics are written, each once."""
        file = self.folder / "metrics.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        steps = {json.loads(line).get("step", 0) for line in lines if line.endswith("}")}
        return sorted(step for step in steps if step > 0)

    def end(self) -> str:
        """Wait for the end of the run; return what it has said."""
        said = self.process.communicate(timeout=LIMIT_S)[0]
        if self.process.returncode:
            raise SystemExit(f"the run failed ({self.process.returncode}): {said[-2000:]}")
        return said

    def accounts(self) -> dict[str, Any]:
        """Recompute what became of every rollout."""
        from ludus.trainer.stream.accounts import count_rollouts

        found = count_rollouts(self.folder)
        return {
            "issued": found.issued,
            "lost": len(found.missing),
            "doubled": len(found.doubled),
            "masked": sum(found.masked.values()),
            "steps": len(self.steps()),
        }


def pid_of(name: str) -> int:
    """Return the process that an actor of the run watches."""
    import ray

    number: int = ray.get(ray.get_actor(f"run-{name}", namespace="ludus").pid.remote(), timeout=60)
    return number


def row(name: str) -> dict[str, Any]:
    """Kill a part of a run, and return what that cost."""
    folder = Path(tempfile.mkdtemp(prefix="lc", dir="/tmp"))
    more = ["--cluster.environments=2"]
    if name == "reward":
        more += ["--cluster.rewards=1", "--reward", '[{name = "exact", weight = 0.5}]']
        more += ["--cluster.cpus-of-rank=0.5"]
    if name == "engine":
        more += ["--cluster.engines=2", "--cluster.cpus-of-engine=0.25"]
        more += ["--cluster.cpus-of-rank=0.5"]
    if name == "rank":
        more += ["--cluster.learner-ranks=2", "--cluster.cpus-of-rank=0.5"]
    more += ["--cluster.cpus-of-server=0.5"] if name != "node" else []
    try:
        with cluster(folder / "r", nodes=2 if name == "node" else 1) as made:
            if name == "node":
                more += ["--cluster.cpus-of-rank=1.5"]
            run = Run(folder, made.address, *more)
            run.wait_for(BEFORE)
            before = time.monotonic()
            _kill(name, made, run)
            if name not in ("driver", "head"):
                run.wait_for(BEFORE + 2)
            stood = time.monotonic() - before
            if name != "head":
                run.end()
        if name == "head":
            run.process.wait(timeout=LIMIT_S)
            with cluster(folder / "s") as made:
                run.words[run.words.index("--cluster") + 1] = made.address
                run.start("--run.resume")
                run.end()
        return {"row": name, "two_steps_s": round(stood, 1), **run.accounts()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _kill(name: str, made: Any, run: Run) -> None:
    match name:
        case "environment":
            os.kill(pid_of("environments-0"), signal.SIGKILL)
        case "reward":
            os.kill(pid_of("rewards-0"), signal.SIGKILL)
        case "engine":
            os.kill(pid_of("engines-0"), signal.SIGKILL)
        case "learner":
            os.kill(pid_of("rank-0"), signal.SIGKILL)
        case "rank":
            os.kill(pid_of("rank-1"), signal.SIGKILL)
        case "node":
            made.remove_node(made.worker_nodes.copy().pop(), allow_graceful=False)
            made.add_node(num_cpus=2, object_store_memory=100_000_000)
        case "driver":
            run.process.kill()
            run.process.wait(timeout=60)
            run.start("--run.resume")
        case "head":
            os.kill(made.head_node.all_processes["gcs_server"][0].process.pid, signal.SIGKILL)


def main() -> int:
    """Print a line for each row; return 1 if one lost or doubled something."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], default=list(ROWS))
    worst = 0
    for name in parser.parse_args().rows:
        found = row(name)
        print(json.dumps(found), flush=True)
        worst |= int(bool(found["lost"] or found["doubled"] or found["steps"] != STEPS))
    return worst


if __name__ == "__main__":
    sys.exit(main())
