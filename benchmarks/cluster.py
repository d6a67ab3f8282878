"""What the death of each part of a run on a Ray cluster costs, by killing it for real.

    python benchmarks/cluster.py                        # every row, about fifteen minutes
    python benchmarks/cluster.py engine --kills 3       # some rows, and how often a part is killed

A row is a training run on a simulated cluster (`ray.cluster_utils.Cluster`): it is left alone for
some steps, a part is killed with SIGKILL, and the run goes on, by itself or with `--run.resume`,
until the part does its work again and two further steps were made; then it is told to stop. Then
the accounts of the run are recomputed. The exit code is 1 if an ordinal was lost or doubled, if a
step is missing, if a rollout failed, or if one has another reward than the environment and the
verifier give: they never give 0.

`back_s` is the time from the death until the part does its work again. `cold_s` is that of a first
start: for servers and engines, of another one that is started while the same run goes on, so that
both want the same cores; for vLLM, of the run's own process until its health is good; for ranks,
of the run's own, from the driver's request to the first step. `noticed_s` is the time until the
driver knows of the death of a rank, or Ray of that of a node, and `joined_s` that until another
node is there.

With LUDUS_VLLM_PYTHON, an interpreter with vLLM, there is a row `vllm`.

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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROWS = ("environment", "reward", "engine", "learner", "rank", "node", "driver", "head")
BEFORE, AFTER = 2, 2
"""Steps before a death, and after the dead part does its work again."""
LIMIT_S = 900.0
INTERRUPTED = 130
LAWS = ("lost", "doubled", "failed", "wrong_rewards", "missing_steps")
"""What must be 0 in every row."""
RAY = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "0",
    "OMP_NUM_THREADS": "1",
}


@contextmanager
def cluster(folder: Path, nodes: int = 1, store: int = 100_000_000, cpus: int = 2) -> Iterator[Any]:
    """Start a cluster of this machine, with a node for the learner and `nodes - 1` more, whose
    object stores have `store` bytes.
    """
    (folder / "ray").mkdir(parents=True)
    os.environ.update(RAY, RAY_TMPDIR=str(folder))
    os.environ.pop("RAY_ADDRESS", None)
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": store}
    for attempt in range(4):
        try:
            started = Cluster(initialize_head=True, head_node_args=node)
            break
        except Exception as error:  # Ray gives a node 30 s, which a busy machine exceeds
            if attempt == 3 or "timed out during startup" not in str(error):
                raise
    for _ in range(nodes - 1):
        started.add_node(num_cpus=2, object_store_memory=store)
    try:
        ray.init(
            address=started.address, namespace="ludus", log_to_driver=False, configure_logging=False
        )
        yield started
    finally:
        ray.shutdown()
        started.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


ENV, VERIFIER = "me/parity-v0", "me/sure"
USER_CODE = f"""
import ludus

@ludus.register("{ENV}")
class Parity(ludus.TextEnv):
    max_turns = 1
    never_blocks = True
    def reset(self, *, seed=None, options=None):
        return "say anything", {{}}
    def step(self, action):
        return "", 1.0 + len(str(action)) % 2, True, False, {{}}

@ludus.verifier("{VERIFIER}")
def sure(sample):
    return 1.0
"""
"""An environment whose rewards are 1 and 2, and a verifier whose verdict is 1: a 0 is a failure."""
SMALL: dict[str, Any] = {"hidden": 16, "layers": 1, "heads": 2}


class Run:
    """A run on a cluster.

    Args:
        folder: of the run and its model.
        address: of the cluster; empty for a run without one.
        more: further settings.
        shape: of the model.
    """

    def __init__(
        self, folder: Path, address: str, *more: str, shape: dict[str, Any] = SMALL
    ) -> None:
        self.folder = folder / "run"
        model = folder / "model"
        if not model.exists():
            from ludus.trainer.models.tiny import write_tiny_policy

            write_tiny_policy(model, **shape)
        code = folder / "user_code.py"
        code.write_text(USER_CODE)
        self.words = [
            *(sys.executable, "-m", "ludus", "--import", str(code), "train", "grpo"),
            *(("--cluster", address) if address else ()),
            *("--env", ENV, "--steps=100000", "--model.path", str(model), "--model.device", "cpu"),
            *("--run.folder", str(self.folder), "--run.tensorboard=false", "--run.save-every=1"),
            *("--rollout.tasks-per-step=2", "--rollout.group-size=4", "--rollout.max-tokens=8"),
            *("--rollout.max-turns=2", "--eval.tasks=2"),
            *("--trainer.tokens-per-pass=512", *more),
        ]
        # What a row gives itself stands for what is given here.
        given = {word.partition("=")[0] for word in more}
        own = len(self.words) - len(more)
        self.words = [
            word
            for place, word in enumerate(self.words)
            if place >= own or word.partition("=")[0] not in given
        ]
        self.first_step = 0.0
        """When the first step was made."""
        self.begun = time.time()
        """When the command began."""
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

    def stop(self) -> None:
        """Tell the run to stop, and wait for its end."""
        self.process.send_signal(signal.SIGINT)
        said = self.process.communicate(timeout=LIMIT_S)[0]
        if self.process.returncode != INTERRUPTED:
            raise SystemExit(f"the run failed ({self.process.returncode}): {said[-2000:]}")

    def numbers(self) -> dict[str, Any]:
        """Return the metrics of the newest step."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return next(json.loads(line) for line in reversed(lines) if line.endswith("}"))

    def told_at(self, what: str, since: float = 0.0) -> float:
        """Return when the driver wrote that something is so, for the first time since then."""
        board = json.loads((self.folder.with_name("run.cluster") / "processes.json").read_text())
        events = [event for event in board["events"] if event["time"] >= since]
        return float(next(event["time"] for event in events if what in event["what"]))

    def restarts(self) -> dict[str, int]:
        """Return which processes were started again, as `ludus watch` shows it."""
        from ludus.agent.viewer.run import RunReader

        rows = RunReader(self.folder, "run", None).cluster()["processes"]
        return {entry["name"]: entry["restarts"] for entry in rows if entry["restarts"]}

    def wait_for_restart(self, name: str, before: int) -> None:
        """Wait until the driver has seen another restart of a process. It looks now and then, and
        may wait for the dead one's answer, while the process does its work again.
        """
        end = time.monotonic() + LIMIT_S
        while self.restarts().get(name, 0) <= before:
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the driver has not seen that {name} was started again")
            time.sleep(0.2)

    def accounts(self) -> dict[str, Any]:
        """Recompute what became of every rollout."""
        from ludus.trainer.stream.accounts import FILE, count_rollouts, read_rollouts

        counts, steps = count_rollouts(self.folder), self.steps()
        bonus = 0.5 if VERIFIER in " ".join(self.words) else 0.0
        rewards = [record.reward for record in read_rollouts(self.folder / FILE)]
        return {
            "issued": counts.issued,
            "lost": len(counts.missing),
            "doubled": len(counts.doubled),
            "failed": sum(
                count for why, count in counts.masked.items() if why.startswith("failed")
            ),
            "wrong_rewards": sum(reward not in (1.0 + bonus, 2.0 + bonus) for reward in rewards),
            "steps": len(steps),
            "missing_steps": len(set(range(1, max(steps) + 1)) - set(steps)),
        }


PROCESSES = {
    "environment": "environments-0",
    "reward": "rewards-0",
    "engine": "engines-0",
    "vllm": "engines-0",
    "learner": "rank-0",
    "rank": "rank-1",
    "node": "environments-0",
}
"""The process that a row kills, or that is on the node that it kills."""


def ready(run: Run, name: str, but: int = 0) -> tuple[int, float]:
    """Wait until a process of a run does its work; return its id, and when it did: for a rank, at
    the next step.

    Args:
        run: the run.
        name: of the process.
        but: the id of one that is no longer meant.
    """
    import ray

    end, steps, pid = time.monotonic() + LIMIT_S, 0, 0
    while time.monotonic() < end and run.process.poll() is None:
        with suppress(ValueError, ray.exceptions.RayError):
            actor = ray.get_actor(f"run-{name}", namespace="ludus")
            state = ray.get(actor.state.remote(), timeout=60)
            if state.pid not in (0, but, pid):
                pid, steps = state.pid, len(run.steps())
            is_working = len(run.steps()) > steps or not name.startswith("rank")
            if pid and state.pid == pid and state.ready and is_working:
                return pid, time.time()
        time.sleep(0.1)
    out = run.process.stdout if run.process.poll() is not None else None
    said = out.read()[-2000:] if out else ""
    raise SystemExit(f"{name} has not started within {LIMIT_S:g} s, or the run ended: {said}")


def age(pid: int) -> float:
    """Return how many seconds a process has lived."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def cold(run: Run, kind: str) -> float:
    """Return how long the first start of a part takes, from the request, while the run goes on."""
    import ray

    from ludus.trainer.cluster.engines import EngineHost
    from ludus.trainer.cluster.hosts import ServerHost
    from ludus.trainer.engines.process import EngineSpec

    begun = time.time()
    if kind == "engine":
        actor = ray.remote(EngineHost).options(num_cpus=0).remote(1, "cpu")
        ray.get(actor.build.remote("one", EngineSpec(folder=str(run.folder / "engine" / "model"))))
    else:
        before = run.words[run.words.index("--import") :][:2]
        names = [VERIFIER if kind == "reward" else ENV]
        log, token = str(run.folder.with_name("cold.log")), {"LUDUS_TOKEN": "a-token-of-this-run"}
        actor = ray.remote(ServerHost).options(num_cpus=0).remote(names, token, log, before)
        while not ray.get(actor.state.remote(), timeout=LIMIT_S).ready:
            time.sleep(0.1)
    seconds = time.time() - begun
    ray.kill(actor)
    return seconds


def _options(name: str) -> list[str]:
    """Return what the run of a row is asked for."""
    more = ["--cluster.environments=2"] + (["--cluster.cpus-of-server=0.5"] * (name != "node"))
    more += [f"--cluster.cpus-of-rank={3 if name == 'node' else 0.5}"]
    match name:
        case "reward":
            more += ["--cluster.rewards=1", "--reward", f'[{{name = "{VERIFIER}", weight = 0.5}}]']
        case "engine":
            more += ["--cluster.engines=2", "--cluster.cpus-of-engine=0.25"]
        case "vllm":
            more += ["--engine=vllm", "--vllm.python", os.environ["LUDUS_VLLM_PYTHON"]]
            more += ["--vllm.max-model-len=512", "--vllm.startup-timeout-s=1200"]
            more += ["--cluster.engines=1", "--cluster.cpus-of-engine=0.25"]
        case "rank":
            more += ["--cluster.learner-ranks=2"]
    return more


def row(name: str, kills: int = 1) -> dict[str, Any]:
    """Kill a part of a run, and return what that cost."""
    folder = Path(tempfile.mkdtemp(prefix="lc", dir="/tmp"))
    shape = {"hidden": 128, "layers": 2, "heads": 4} if name == "vllm" else SMALL
    try:
        # The head of the node row has room for the rank alone, which fits on no other node.
        shape_of = {"nodes": 2, "cpus": 3} if name == "node" else {}
        with cluster(folder / "r", **shape_of) as ray_cluster:
            run = Run(folder, ray_cluster.address, *_options(name), shape=shape)
            cold_s = age(ready(run, PROCESSES[name])[0]) if name == "vllm" else 0.0
            run.wait_for(1)
            run.first_step = time.time()
            run.wait_for(BEFORE)
            seconds = [_death(name, ray_cluster, run) for _ in range(kills)]
            if name != "head":
                run.wait_for(len(run.steps()) + AFTER)
                run.stop()
        if name == "head":
            run.process.wait(timeout=LIMIT_S)
            with cluster(folder / "s") as ray_cluster:
                run.words[run.words.index("--cluster") + 1] = ray_cluster.address
                run.start("--run.resume")
                run.wait_for(len(run.steps()) + AFTER)
                run.stop()
        costs = {
            key: [round(death[key], 1) for death in seconds]
            if kills > 1
            else round(seconds[0][key], 1)
            for key in seconds[0]
        }
        if cold_s:
            costs["cold_s"] = round(cold_s, 1)
        return {"row": name, **costs, "restarts": run.restarts(), **run.accounts()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _death(name: str, ray_cluster: Any, run: Run) -> dict[str, float]:
    """Kill a part, wait until it does its work again, and return the seconds of that."""
    import ray

    process, seconds, died = PROCESSES.get(name, ""), dict[str, float](), time.time()
    pid = ready(run, process)[0] if process else 0
    again = [process, *(["environments-1"] if name == "node" else [])] if process else []
    before = run.restarts()
    match name:
        case "node":
            other = ready(run, "environments-1")[0]
            node = ray_cluster.worker_nodes.copy().pop()
            died = time.time()
            ray_cluster.remove_node(node, allow_graceful=False)
            while any(entry["NodeID"] == node.node_id and entry["Alive"] for entry in ray.nodes()):
                time.sleep(0.05)
            seconds["noticed_s"] = time.time() - died
            ray_cluster.add_node(num_cpus=2, object_store_memory=100_000_000)
            seconds["joined_s"] = time.time() - died
            ready(run, "environments-1", other)
        case "driver":
            run.process.kill()
            run.process.wait(timeout=60)
            steps = len(run.steps())
            died = time.time()
            run.start("--run.resume")
            run.wait_for(steps + 1)
            seconds["back_s"] = time.time() - died
        case "head":
            ray.shutdown()  # Ray ends every driver whose head is gone for a minute
            os.kill(
                ray_cluster.head_node.all_processes["gcs_server"][0].process.pid, signal.SIGKILL
            )
            run.process.wait(timeout=LIMIT_S)
            seconds["ended_s"] = time.time() - died
        case _:
            died = time.time()
            os.kill(pid, signal.SIGKILL)
    if process:
        seconds["back_s"] = ready(run, process, pid)[1] - died
    for restarted in again:
        run.wait_for_restart(restarted, before.get(restarted, 0))
    if name in ("learner", "rank"):
        seconds["noticed_s"] = run.told_at("was lost; the learner starts again", died) - died
        seconds["cold_s"] = run.first_step - run.told_at("starting the learner")
    if name == "driver":
        seconds["cold_s"] = run.first_step - run.begun
    if name in ("environment", "reward", "engine", "node"):
        seconds["cold_s"] = cold(run, name)
    if name == "engine":
        while run.numbers()["engine/serving"] < 2:
            time.sleep(0.2)
    return seconds


def main() -> int:
    """Print a line for each row; return 1 if one lost or doubled something."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [*ROWS, *(["vllm"] if "LUDUS_VLLM_PYTHON" in os.environ else [])]
    parser.add_argument("rows", nargs="*", choices=[*every, []], default=every)
    parser.add_argument("--kills", type=int, default=1, help="how often a row kills its part")
    worst, given = 0, parser.parse_args()
    for name in given.rows:
        figures = row(name, given.kills)
        print(json.dumps(figures), flush=True)
        worst |= any(figures[law] for law in LAWS)
    return int(worst)


if __name__ == "__main__":
    sys.exit(main())
