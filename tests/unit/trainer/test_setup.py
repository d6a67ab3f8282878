"""What a run is made of: refused early, closed when something fails, rewards from servers."""

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.context import ContextSettings
from ludus.cli.main import main
from ludus.errors import ConfigError, UnknownVerifier
from ludus.rewards import GroupVerifier, Sample
from ludus.rewards.serving.client import RemoteGroupVerifier
from ludus.secret import Secret
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RewardConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
)
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.rollout.scoring import open_verifiers
from ludus.trainer.setup import assemble

RANKED = """
import ludus
from ludus.verdict import Verdict

@ludus.verifier("test/ranked")
class Ranked:
    def score(self, sample):
        return Verdict.of(0.0)

    def score_group(self, samples):
        best = max(len(str(sample.response)) for sample in samples)
        return [Verdict.of(float(len(str(sample.response)) == best)) for sample in samples]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=16, layers=1, heads=2)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A server of one verifier that judges answers alone and one that compares them."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "ranked.py").write_text(RANKED)
    command = [sys.executable, "-m", "ludus", "--import", "ranked.py", "serve", "exact"]
    process = subprocess.Popen(
        [*command, "test/ranked", "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=folder
    )
    assert process.stdout is not None
    yield process.stdout.readline().split()[-1]
    process.kill()
    process.wait(60)
    process.stdout.close()


def config(model: Path, folder: Path, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": "ludus/arithmetic-v0",
        "model": ModelConfig(path=str(model)),
        "run": RunConfig(folder=str(folder / "run"), tensorboard=False),
    }
    return TrainConfig(**{**settings, **changes})


async def test_a_served_verifier_that_compares_groups_does_so_in_a_run(url: str) -> None:
    rewards = [RewardConfig(f"{url}#exact"), RewardConfig(f"{url}#test/ranked", weight=0.5)]
    async with AsyncExitStack() as stack:
        exact, ranked = await open_verifiers(rewards, stack)
        assert not isinstance(exact.verifier, GroupVerifier)
        assert isinstance(ranked.verifier, RemoteGroupVerifier)
        samples = [Sample(prompt="", response=said) for said in ("a", "abc", "ab")]
        verdicts = await ranked.verifier.score_group(samples)
        assert [verdict.reward for verdict in verdicts] == [0.0, 1.0, 0.0]


def test_a_served_verifier_that_compares_groups_is_checked_on_groups(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", f"{url}#test/ranked"]) == 0
    assert "groups of 1, 2 and 5" in capsys.readouterr().out


async def test_an_unknown_served_verifier_is_named_before_anything_is_spent(
    url: str, model: Path, tmp_path: Path
) -> None:
    reward = [RewardConfig(f"{url}#exakt")]
    with pytest.raises(UnknownVerifier, match="did you mean 'exact'"):
        await assemble(config(model, tmp_path, reward=reward))


async def test_an_empty_split_is_refused_with_the_name_of_its_setting(
    model: Path, tmp_path: Path
) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"problem": "1+1", "answer": "2"}\n')
    env = f"ludus/maths-v0?source={problems}"
    with pytest.raises(ConfigError, match=r"holds no task; name another by --(eval\.)?split"):
        await assemble(config(model, tmp_path, env=env, eval=EvalConfig(split="validation")))


async def test_what_was_opened_is_closed_when_a_later_part_fails(
    model: Path, tmp_path: Path
) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with pytest.raises(ConfigError, match="no window would hold a step"):
        await assemble(
            config(
                model,
                tmp_path,
                rollout=RolloutConfig(window=150, max_tokens=8),
                context=ContextSettings(manager="summarize", summary_tokens=8),
            )
        )
    assert not (tmp_path / "run").exists()  # a refused run leaves no folder
    left = {thread.name for thread in threading.enumerate()} - before
    assert not [name for name in left if name.startswith("ludus-engine")]


def test_a_token_for_a_verifier_of_this_process_is_refused() -> None:
    with pytest.raises(ConfigError, match="change nothing"):
        RewardConfig("exact", token=Secret("secret"))


LOAD = """
import socket
from ludus.errors import ConfigError
from ludus.trainer.models.loading import load_model, load_tokenizer
asked = []
def connect(*arguments):
    asked.append(arguments)
    raise ConnectionRefusedError
socket.socket.connect = socket.socket.connect_ex = connect
for load in (load_model, load_tokenizer):
    asked.clear()
    try:
        load("nowhere")
    except ConfigError as error:
        print("no such folder" in str(error), len(asked) <= 1)  # a hub is not asked again
"""


@pytest.mark.slow
def test_a_model_that_is_nowhere_is_told_at_once(tmp_path: Path) -> None:
    cut_off = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    made = subprocess.run(
        [sys.executable, "-c", LOAD],
        env=os.environ | cut_off,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert made.stdout == "True True\n" * 2
    assert "Retry" not in made.stderr


def test_a_missing_checkpoint_is_told_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step-000020").mkdir(parents=True)
    wanted = tmp_path / "checkpoints" / "step-000100"
    with pytest.raises(ConfigError, match=r"no such folder \('.*checkpoints' has step-000020\)"):
        load_model(wanted)
