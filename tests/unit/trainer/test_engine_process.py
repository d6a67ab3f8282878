"""The engine in a process of its own: the same samples, and faults that are made for real."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.agent import Finish, Sampling
from ludus.errors import ConfigError, EngineLost
from ludus.trainer.engines.local import EngineClosed, LocalEngine
from ludus.trainer.engines.process import EngineSpec, ProcessEngine
from ludus.trainer.models.loading import load_model, load_shell, write_shell
from ludus.trainer.models.tiny import build_model, write_tiny_policy
from ludus.trainer.models.weight_files import as_file
from ludus.trainer.models.weights import MemoryWeights, WeightsRefused

pytestmark = pytest.mark.slow  # a process takes seconds to import torch

LONG = Sampling(max_tokens=120, seed=3)


def model(seed: int = 0) -> Any:
    return build_model(60, hidden=32, layers=2, heads=2, max_length=128, seed=seed).eval()


def shell(folder: Path) -> EngineSpec:
    write_shell(folder, "", model())
    return EngineSpec(folder=str(folder), version=0)


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncGenerator[ProcessEngine]:
    made = ProcessEngine(shell(folder), name="engine 0", log=folder / "engine.log")
    try:
        await made.revive()
        await made.set_weights(MemoryWeights.of(model()), 1)
        yield made
    finally:
        await made.close()


async def until(condition: Any, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/status")
        return not status.exists() or "State:\tZ" not in status.read_text()
    return False


def test_a_shell_is_the_model_but_for_its_weights(tmp_path: Path) -> None:
    folder = write_tiny_policy(tmp_path / "model", hidden=32, layers=2, heads=2)
    plain = load_model(folder)
    write_shell(tmp_path / "shell", folder, plain)
    made = load_shell(tmp_path / "shell", dtype=torch.float32, device="cpu")
    mine = dict(made.named_parameters())
    assert list(mine) == [name for name, _ in plain.named_parameters()]
    with torch.no_grad():
        for name, one in plain.named_parameters():
            mine[name].copy_(one)
        ids = torch.tensor([[5, 6, 7]])
        assert torch.equal(made(ids).logits, plain(ids).logits)
    assert [path.name for path in (tmp_path / "shell").iterdir()] == ["config.json"]


async def test_a_process_samples_what_a_local_engine_samples_over_publishes(tmp_path: Path) -> None:
    local = LocalEngine(model())
    async with running(tmp_path) as made:
        assert made.max_length == local.max_length == 128
        for version, seed in ((1, 0), (2, 1)):
            source = MemoryWeights.of(model(seed))
            await local.set_weights(source, version)
            await made.set_weights(source, version)
            for prompt in ([5, 6, 7], [9]):
                sampling = Sampling(max_tokens=9, temperature=0.8, seed=4, stop_token_ids=(3,))
                mine, theirs = await asyncio.gather(
                    local.generate(prompt, sampling), made.generate(prompt, sampling)
                )
                assert (theirs.ids, theirs.versions) == (mine.ids, mine.versions)
                assert theirs.logprobs == pytest.approx(mine.logprobs, abs=1e-5)
                assert await made.logprobs(prompt) == pytest.approx(
                    await local.logprobs(prompt), abs=1e-5
                )
        # errors keep their type and text
        with pytest.raises(
            ConfigError, match="200 prompt tokens and 1 to sample exceed the engine"
        ):
            await made.generate([5] * 200, Sampling(max_tokens=1))
        with pytest.raises(WeightsRefused, match="does not have"):
            await made.set_weights(MemoryWeights({"nobody": torch.zeros(1)}), 3)
        assert made.version == 2
        # pausing, cancelling and aborting reach the process
        await made.pause()
        gone = asyncio.create_task(made.generate([5, 6], LONG))
        stays = asyncio.create_task(made.generate([7, 8], LONG))
        await asyncio.sleep(0.05)
        gone.cancel()
        await made.abort()
        assert (await asyncio.wait_for(stays, 60)).finish is Finish.ABORT
        assert gone.cancelled() or gone.cancelling()
        await made.resume()
        # new weights arrive in the middle of answers
        asked = [asyncio.create_task(made.generate([5, 6, n], LONG)) for n in range(8)]
        for version in range(2, 6):
            await made.set_weights(MemoryWeights.of(model(version)), version)
        for answer in await asyncio.gather(*asked):
            assert answer.versions == sorted(answer.versions)
            assert len(answer.versions) == len(answer.ids) == len(answer.logprobs) == 120
        assert made.version == 5
        # closing answers everyone and leaves no process
        pid = made.pid
        await made.pause()
        waiting = asyncio.create_task(made.generate([5], LONG))
        await asyncio.sleep(0.05)
    assert not is_alive(pid)
    with pytest.raises(EngineLost, match="was closed"):
        await waiting
    for refused in (made.generate([5], LONG), made.revive()):
        with pytest.raises(EngineClosed):
            await refused
    await local.close()


async def test_a_killed_process_fails_its_callers_at_once_and_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path) as made:
        before = await made.generate([5, 6, 7], LONG)
        await made.pause()
        waiting = [asyncio.create_task(made.generate([5, 6, n], LONG)) for n in range(4)]
        await made.resume()
        pid = made.pid
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*waiting, return_exceptions=True)
        lost = [one for one in answers if isinstance(one, EngineLost)]
        assert lost, "nothing was under way"
        assert lost[0].retryable
        assert "engine 0 was killed by SIGKILL" in str(lost[0])
        for call in (made.generate([5], LONG), made.check(), made.abort()):
            with pytest.raises(EngineLost):
                await call
        await made.revive()
        assert made.pid != pid
        await made.check()
        await made.set_weights(MemoryWeights.of(model()), 1)
        assert (await made.generate([5, 6, 7], LONG)).ids == before.ids
        # a publish that is interrupted by the end is told as such
        os.kill(made.pid, signal.SIGKILL)
        with pytest.raises(EngineLost):
            await made.set_weights(MemoryWeights.of(model()), 2)
        assert made.version == 1


async def test_a_process_that_hangs_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.trainer.engines.process.life.BEAT_S", 0.05)
    monkeypatch.setattr("ludus.trainer.engines.process.life.SILENT_BEATS", 40)
    async with running(tmp_path) as made:
        await asyncio.sleep(0.3)
        await made.check()
        pid = made.pid
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EngineLost, match=r"has said nothing for 2 s and was killed"):
            await asyncio.wait_for(made.generate([5], LONG), 60)
        await until(lambda: not is_alive(pid))


PARENT = """
import asyncio, sys
from pathlib import Path
from ludus.trainer.engines.process import EngineSpec, ProcessEngine
async def main():
    made = ProcessEngine(EngineSpec(folder=sys.argv[1]), log=Path(sys.argv[1]) / "log")
    await made.revive()
    print(made.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_a_killed_trainer_takes_its_engine_along(tmp_path: Path) -> None:
    shell(tmp_path)
    parent = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(await asyncio.to_thread(parent.stdout.readline))
    assert is_alive(pid)
    parent.kill()
    await asyncio.to_thread(parent.wait)
    await until(lambda: not is_alive(pid))
    parent.stdout.close()


async def test_a_folder_that_is_no_model_is_told(tmp_path: Path) -> None:
    made = ProcessEngine(EngineSpec(folder=str(tmp_path)), log=tmp_path / "log")
    with pytest.raises(ConfigError, match="cannot build a model from"):
        await made.revive()
    with pytest.raises(EngineLost, match="was not started"):
        await made.generate([5], LONG)
    await made.close()


async def test_a_file_that_is_written_for_a_cancelled_publish_is_removed(tmp_path: Path) -> None:
    source = MemoryWeights.of(model())

    async def publish() -> None:
        async with as_file(source, folder=str(tmp_path)):
            pass

    for delay in (0.0, 0.001, 0.005):
        task = asyncio.create_task(publish())
        await asyncio.sleep(delay)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await until(lambda: not list(tmp_path.iterdir()))
    async with as_file(source, folder=str(tmp_path)) as file:
        assert list(tmp_path.iterdir()) == [file.path]
        async with as_file(file) as same:
            assert same is file
        assert file.path.exists()
    assert list(tmp_path.iterdir()) == []
