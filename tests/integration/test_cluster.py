"""Runs on a Ray cluster: what is refused, and a run whose server and learner are killed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ludus.cli.main import main
from ludus.errors import ConfigError
from ludus.trainer.config import ClusterConfig

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cluster.py"
HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="needs ray (pip install 'ludus-rl[ray]')")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"address": "ray://head:10001"}, "ray job submit -- ludus train FILE.toml --cluster auto"),
        ({"address": "head"}, "give auto, local, or the HOST:PORT"),
        ({"learner_ranks": 0}, "a run needs a learner of at least one rank"),
        ({"environments": -1}, "must not be negative"),
        ({"engines": -1}, "cluster.engines must not be negative"),
    ],
)
def test_settings_that_no_cluster_can_run_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ClusterConfig(**settings)


def test_the_option_is_short_for_the_setting(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--env", "ludus/arithmetic-v0", "--model.path", "nowhere"]
    assert main(["train", "grpo", *given, "--cluster", "ray://a:1"]) == 2
    assert "ray job submit" in capsys.readouterr().err
    assert main(["train", "grpo", *given, "--cluster"]) == 2
    assert "--cluster needs auto, local" in capsys.readouterr().err


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_without_ray_the_extra_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--env", "ludus/arithmetic-v0", "--model.path", "nowhere"]
    assert main(["train", "grpo", *given, "--cluster", "auto"]) == 2
    assert "pip install 'ludus-rl[ray]'" in capsys.readouterr().err


REFUSALS = """
import json, os, subprocess, sys
from ludus.errors import LudusError
from ludus.trainer.config import ClusterConfig
from ludus.trainer.cluster.resources import joined, reserved
import ray

told = {}
def refused(name, work):
    try:
        work()
    except LudusError as error:
        told[name] = str(error)

def enter(config, name="mine"):
    with reserved(config, name):
        pass

os.environ["RAY_ADDRESS"] = "127.0.0.1:1"  # a stranger's
with joined(ClusterConfig(address="local", cpus_of_rank=1.0)):
    there = ray.cluster_resources()["CPU"]
    told["own"] = ray.util.get_node_ip_address() and "joined no stranger"
    refused("lacks", lambda: enter(ClusterConfig(learner_ranks=int(there) + 3, gpus_of_rank=1.0)))
    refused("waits", lambda: enter(ClusterConfig(learner_ranks=int(there) + 3, wait_s=1.0)))

    @ray.remote
    class Rank:
        def here(self):
            return True

    from ludus.trainer.cluster.engines import StoredWeights
    from ludus.trainer.models.weights import MemoryWeights
    import torch

    # The disk behind the store counts as full (RAY_local_fs_capacity_threshold).
    large = {str(n): torch.zeros(10_000_000) for n in range(12)}
    refused("full", lambda: StoredWeights.put(MemoryWeights(large)))

    rank = Rank.options(name="mine-rank-0", namespace="ludus").remote()
    ray.get(rank.here.remote())
    refused("twice", lambda: enter(ClusterConfig()))
    # A cluster of another version of Ray, as it says so itself.
    from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

    key = (b"CLUSTER_METADATA", b"cluster")
    metadata = json.loads(_internal_kv_get(key[0], namespace=key[1]))
    metadata["ray_version"] = "2.0.0"
    _internal_kv_put(key[0], json.dumps(metadata).encode(), overwrite=True, namespace=key[1])
    address = ray.get_runtime_context().gcs_address
    joining = (
        "from ludus.trainer.cluster.resources import connect; import sys; connect(sys.argv[1])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", joining, address], capture_output=True, text=True, timeout=200
    )
    told["version"] = ran.stderr[-1500:]
    with open(sys.argv[1], "w") as file:
        json.dump(told, file)
del os.environ["RAY_ADDRESS"]
def join():
    with joined(ClusterConfig(address="127.0.0.1:9")):
        pass
refused("nobody", join)
with open(sys.argv[1], "w") as file:
    json.dump(told, file)
"""


@pytest.mark.slow
@pytest.mark.ray
@needs_ray
def test_a_cluster_that_cannot_give_what_was_asked_says_at_once_what_is_missing(
    tmp_path: Path,
) -> None:
    folder = tmp_path.parents[1] / "lq"  # sockets: a short path
    folder.mkdir(exist_ok=True)
    (folder / "ray").mkdir(exist_ok=True)
    out = tmp_path / "told.json"
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "disabled",
        "RAY_TMPDIR": str(folder),
        "RAY_local_fs_capacity_threshold": "0.01",
    }
    done = subprocess.run(
        [sys.executable, "-c", REFUSALS, str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(out.read_text())
    assert told["own"] == "joined no stranger"
    assert "the cluster lacks 3 CPU (" in told["lacks"]
    assert "GPU (" in told["lacks"]
    assert "after 1 s" in told["waits"]
    assert "a run named 'mine' is on the cluster already" in told["twice"]
    assert "cannot join a Ray cluster at 127.0.0.1:9" in told["nobody"]
    assert "object store is full, and so is the disk behind it: 480 MB" in told["full"]
    assert "cannot join a Ray cluster at" in told["version"]
    assert "2.0.0" in told["version"]


@pytest.mark.slow
@pytest.mark.ray
@needs_ray
@pytest.mark.parametrize(
    ("killed", "again"),
    [
        ("environment", {"environments-0": 1}),
        ("engine", {"engines-0": 1}),
        ("learner", {"rank-0": 1}),
        ("node", {"environments-0": 1, "environments-1": 1}),  # one that goes, and one that comes
    ],
    ids=["environment", "engine", "learner", "node"],
)
def test_a_killed_process_costs_no_rollout(killed: str, again: dict[str, int]) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), killed],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["lost"], found["doubled"], found["missing_steps"]) == (0, 0, 0)
    assert (found["failed"], found["wrong_rewards"]) == (0, 0)  # none of its rewards is 0
    assert found["issued"] >= found["steps"] * 8
    assert found["restarts"] == again  # as `ludus watch` shows it


@pytest.mark.large
@pytest.mark.ray
@needs_ray
def test_servers_on_ray_follow_their_queues_and_cost_no_episode() -> None:
    pytest.importorskip("fastapi", reason="needs Ray Serve (pip install 'ludus-rl[ray-serve]')")
    done = subprocess.run(
        [sys.executable, str(SCRIPT.with_name("cluster_costs.py")), "scaled"],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["episodes"] > 24
    assert found["wrong"] == 0
