"""The mission as one run: examples/mission.toml, small, against what examples/mission.py serves."""

import asyncio
import importlib.util
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.agent.episodes import read_episodes
from ludus.cli.main import main
from ludus.metrics import read_metrics

ROOT = Path(__file__).resolve().parents[2]
MISSION = ROOT / "examples" / "mission.py"
WINDOW = 380
PARTS = {"mission/maths", "mission/code", "mission/judge", "mission/picture"}


def image_reward(folder: Path) -> Path:
    """A tiny ImageReward with seeded weights."""
    torch = pytest.importorskip("torch")
    place = ROOT / "tests" / "unit" / "rewards" / "learned" / "seeded_image_reward.py"
    spec = importlib.util.spec_from_file_location("seeded_image_reward", place)
    assert spec is not None
    assert spec.loader is not None
    seeded: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = seeded  # its dataclasses look their module up
    spec.loader.exec_module(seeded)
    folder.mkdir()
    seeded.write_vocabulary(folder / "vocab.txt")
    tensors = {k: torch.from_numpy(v) for k, v in seeded.seeded_checkpoint(seeded.TINY).items()}
    torch.save(tensors, folder / "ImageReward.pt")
    return folder


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of what the example's one command serves."""
    weights = image_reward(tmp_path_factory.mktemp("mission") / "weights")
    command = [sys.executable, str(MISSION), "--image-reward", str(weights), "--any-size"]
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        lines = iter(server.stdout.readline, "")
        address = next(word for line in lines for word in line.split() if word.startswith("http"))
        yield address.rstrip(".,;")
        server.send_signal(signal.SIGTERM)
        server.wait(60)


@pytest.mark.slow
async def test_the_expert_earns_every_part_from_the_server(url: str) -> None:
    async with ludus.connect(url) as server:
        session = server.make_async("mission/sign-v0")
        observation, _ = await session.reset(seed=3)
        letters = int(str(observation).rpartition(", ")[2].split()[0])
        goods = str(observation).split("of ")[1].split(":")[0]
        scene = str(observation).split(": ")[1].rpartition(",")[0]
        fee = int(str(observation).rpartition("fee of ")[2].split()[0])
        call = ludus.messages.ToolCall
        asked = ludus.messages.assistant("", [call(name="price_of", arguments={"goods": goods})])
        reply = (await session.step(asked))[0]
        price = int(reply[-1].text if isinstance(reply, list) else str(reply))
        painted = ludus.messages.assistant("", [call(name="paint", arguments={"prompt": scene})])
        await session.step(painted)
        cost = price * letters + fee
        answer = f"```python\ndef total(n):\n    return n * {price} + {fee}\n```\n\\boxed{{{cost}}}"
        closing, _, ended, _, info = await session.step(f"{answer}\nDear customer, it is {cost}.")
        assert ended
        images = [part for message in closing for part in message.images]
        sample = ludus.Sample(response=answer, gold=info["gold"], images=images, prompt="a sign")
        verdicts = await asyncio.gather(*(server.verifier(n).score(sample) for n in sorted(PARTS)))
        await session.close()
    rewards = dict(zip(sorted(PARTS), (one.reward for one in verdicts), strict=True))
    assert all(one.ok for one in verdicts), [one.detail for one in verdicts]
    assert (rewards["mission/maths"], rewards["mission/code"]) == (1.0, 1.0)
    assert all(0 <= (reward or 0) <= 1 for reward in rewards.values())


@pytest.mark.slow
def test_the_mission_runs_with_remote_verifiers_ahead_of_the_learner(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "examples" / "mission.toml").read_text()
    settings = tmp_path / "mission.toml"
    settings.write_text(text.replace("http://127.0.0.1:8765", url))
    assert set(PARTS) == {one["name"].partition("#")[2] for one in tomllib.loads(text)["reward"]}
    bounds = ["--context.summary-tokens=24", "--context.manager=summarize"]
    warm = [
        "sft", "--env=mission/sign-v0", "--model.path=tiny", "--steps=80", "--batch-size=8",
        "--trainer.lr=3e-3", f"--run.folder={tmp_path / 'warm'}", "--run.tensorboard=false",
        f"--window={WINDOW}", *bounds,
    ]  # fmt: skip
    assert main(["--import", str(MISSION), *warm]) == 0
    model = tmp_path / "warm" / "checkpoints" / "step-000080"
    small = [
        f"--model.path={model}", "--steps=3", "--rollout.tasks-per-step=2",
        "--rollout.group-size=3", "--rollout.max-tokens=64", f"--rollout.window={WINDOW}", *bounds,
        "--trainer.lr=1e-4", "--trainer.updates-per-step=1", "--eval.every=3", "--eval.tasks=2",
        "--run.tensorboard=false", "--run.episodes-every=1",
    ]  # fmt: skip
    folder = tmp_path / "run"
    assert main(["train", str(settings), *small, f"--run.folder={folder}"]) == 0
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "episode/count" in row]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert sum(row.get("episode/summaries", 0.0) for row in rows) > 0
    assert max(row.get("staleness/max", 0.0) for row in rows) >= 1
    episodes = read_episodes(folder / "episodes" / "step-000003.jsonl")
    verdicts = [episode.trajectories[0].verdict for episode in episodes]
    assert all(one.ok for one in verdicts), [one.detail for one in verdicts]
    assert all(
        set(one.parts) >= {name.partition("/")[2] for name in PARTS} or len(one.parts) >= 4
        for one in verdicts
    )
    assert (folder / "report.html").stat().st_size > 10_000
