"""Whole runs under ranks: how a run ends when a rank does, and what is refused at its start."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ludus.trainer.models.tiny import build_model, write_tiny_policy

ENV = "ludus/arithmetic-v0"
HERE = Path(__file__).parent


def arguments(tmp_path: Path, folder: str, **more: object) -> list[str]:
    given = {
        "env": ENV,
        "model.path": tmp_path / "model",
        "model.device": "cpu",
        "run.folder": tmp_path / folder,
        "run.tensorboard": "false",
        "rollout.tasks-per-step": 2,
        "rollout.group-size": 4,
        "rollout.max-tokens": 8,
        "rollout.max-turns": 2,
        "trainer.lr": "1e-3",
        "trainer.tokens-per-pass": 512,
        "eval.tasks": 2,
        **more,
    }
    return ["train", "ppo", *(f"--{name}={value}" for name, value in given.items())]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_policy(tmp_path / "model", hidden=16, layers=1, heads=2)


def wait_for(path: Path, timeout_s: float = 120) -> None:
    end = time.monotonic() + timeout_s
    while not (path.exists() and path.read_text().count("\n") > 2):
        assert time.monotonic() < end, "the run has not begun"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_that_is_killed_ends_the_others_with_its_name(
    killed: int, start: Any, tmp_path: Path, model: Path
) -> None:
    ranks = start("ludus", 2, *arguments(tmp_path, "run", steps=10_000))
    wait_for(tmp_path / "run" / "metrics.jsonl")
    os.kill(ranks[killed].pid, signal.SIGKILL)
    said = ranks[1 - killed].communicate(timeout=60)[0]
    assert ranks[1 - killed].returncode not in (0, None)
    assert re.search(rf"rank {killed} \(host \S+, pid {ranks[killed].pid}\) died", said), said


@pytest.mark.slow
def test_ranks_with_unequal_settings_are_refused_at_the_start(
    start: Any, tmp_path: Path, model: Path
) -> None:
    given = arguments(tmp_path, "run", steps=2)
    ranks = start("ludus", 2, *given, seeds=["--trainer.beta2=0.99", "--trainer.beta2=0.95"])
    for rank in ranks:
        said = rank.communicate(timeout=120)[0]
        assert rank.returncode not in (0, None)
        assert "trainer.beta2 is 0.99 on rank 0" in said, said
        assert "and 0.95 on rank 1" in said, said


@pytest.mark.slow
def test_a_server_that_a_rank_starts_meets_nobody_at_the_rendezvous_of_torchrun(
    tmp_path: Path,
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "stub_vllm.py"} "$@"\n')
    python.chmod(0o755)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launcher, "--nproc_per_node=2", HERE / "server.py", python, tmp_path / "log"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    log = (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""
    assert ended.returncode == 0, ended.stderr[-2000:] + log
    assert "the server answers" in ended.stdout


@pytest.mark.slow
def test_a_model_of_twice_a_ranks_share_is_loaded_where_a_whole_copy_does_not_fit(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Blocks of 64 KB and more go back to the system at once: the limit is of what is held.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    model = build_model(1000, hidden=512, layers=14, heads=8)  # 240 MB in float32
    model.save_pretrained(tmp_path / "model")
    ranks = start("loads.py", 2, tmp_path / "model", tmp_path / "out.json")
    said = [rank.communicate(timeout=200)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)
    for found in json.loads((tmp_path / "out.json").read_text()):
        assert found["same"]
        assert found["packed"]
        assert found["whole"] != "loaded"  # the limit is one that a whole copy breaks


@pytest.mark.slow
def test_ranks_agree_on_smaller_passes_where_one_has_less_memory(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    ranks = start("memory.py", 2, tmp_path / "out.json")
    said = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["bounds"] in ([2048, 2048], [1024, 1024])
    assert found["shortages"][0] >= 1
    assert found["shortages"][1] == 0
    assert found["losses"] < 1e-6
    assert found["weights"] < 1e-5
    assert found["scores"] < 1e-4


HOSTS = ("10.213.7.1", "10.213.7.2")
"""Addresses of two network namespaces, which are hosts of their own to what runs in them."""


@pytest.fixture
def two_hosts() -> Iterator[tuple[str, str]]:
    """Names of two network namespaces that are connected by a cable, and by nothing else."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("needs root and ip (iproute2)")
    names = (f"ludus-a{os.getpid()}", f"ludus-b{os.getpid()}")
    ends = (f"la{os.getpid()}", f"lb{os.getpid()}")
    lines = [f"netns add {name}" for name in names]
    lines.append(f"link add {ends[0]} type veth peer name {ends[1]}")
    for name, end, host in zip(names, ends, HOSTS, strict=True):
        lines.append(f"link set {end} netns {name} name cable")
        lines += [f"-n {name} addr add {host}/24 dev cable", f"-n {name} link set cable up"]
        lines.append(f"-n {name} link set lo up")
    for line in lines:
        done = subprocess.run(["ip", *line.split()], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"network namespaces cannot be made: {done.stderr.strip()}")
    yield names
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.mark.slow
@pytest.mark.root
def test_a_run_over_two_hosts_is_that_of_one_process(
    two_hosts: tuple[str, str], tmp_path: Path, model: Path
) -> None:
    given = arguments(tmp_path, "two", steps=2)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "cable"}
    nodes = [
        subprocess.Popen(
            [
                *("ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run"),
                *("--nnodes=2", "--nproc_per_node=1", f"--node_rank={number}"),
                *(f"--master_addr={HOSTS[0]}", "--master_port=29533", "-m", "ludus", *given),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, host in enumerate(two_hosts)
    ]
    try:
        said = [node.communicate(timeout=400)[0] for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    assert [node.returncode for node in nodes] == [0, 0], "\n".join(said)
    alone = [sys.executable, "-m", "ludus", *arguments(tmp_path, "one", steps=2)]
    subprocess.run(alone, env=environment, capture_output=True, timeout=400, check=True)
    two, one = (
        load_file(tmp_path / name / "checkpoints" / "step-000002" / "model.safetensors")
        for name in ("two", "one")
    )
    assert two.keys() == one.keys()
    assert all(torch.allclose(two[name], one[name], atol=1e-5) for name in one)


LETTERS = """
import ludus

@ludus.register("me/letters-v0")
class Letters(ludus.TextEnv):
    max_turns = 1

    def reset(self, *, seed=None, options=None):
        return f"Write letters, such as {self.rng.choice('abc')}.", {}

    def step(self, action):
        return "", len(set(action)) / 20, True, False, {}
"""
AGENT = """
import httpx

def run(task):
    messages = [{"role": "user", "content": task.prompt}]
    with httpx.Client(base_url=task.base_url, timeout=100) as http:
        for again in ("and?", "others"):
            reply = http.post("/chat/completions", json={"messages": messages},
                              headers={"Authorization": f"Bearer {task.key}"})
            messages += [reply.json()["choices"][0]["message"], {"role": "user", "content": again}]
"""


@pytest.mark.slow
def test_what_an_agent_plays_trains_two_ranks_as_it_trains_one(
    start: Any, tmp_path: Path, model: Path
) -> None:
    agent, letters = tmp_path / "agent.py", tmp_path / "letters.py"
    agent.write_text(AGENT)
    letters.write_text(LETTERS)
    rows = list[list[dict[str, Any]]]()
    for world in (1, 2):
        more = {"env": "me/letters-v0", "agent": f"{agent}:run", "eval.every": 0}
        _, _, *given = arguments(tmp_path, f"run{world}", steps=2, **more)
        ranks = start("ludus", world, "--import", letters, "train", "grpo", *given)
        said = [rank.communicate(timeout=300)[0] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * world, said
        lines = (tmp_path / f"run{world}" / "metrics.jsonl").read_text().splitlines()
        rows.append([row for row in map(json.loads, lines) if "update/loss" in row])
    for one, two in zip(*rows, strict=True):
        assert one["episode/trained_share"] == one["episode/segments"] == 1.0
        assert one["update/grad_norm"] > 0
        for name in ("reward/mean", "episode/tokens", "update/loss", "update/grad_norm"):
            assert two[name] == pytest.approx(one[name], rel=1e-4, abs=1e-7), name
