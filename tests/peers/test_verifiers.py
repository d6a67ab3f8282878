"""verifiers, unmodified, runs episodes of a ludus environment against a model's server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import ludus

from . import games

vf: Any = pytest.importorskip("verifiers.v1", reason="make test-peers installs verifiers")

ENV = "peers/sums-v0"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package as `ludus new env --for verifiers` writes it, found by its name."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "peers_sums.py").write_text(
        "from ludus.integrations.verifiers import verifiers_plugin\n"
        f"Taskset, Env = verifiers_plugin({ENV!r})\n"
        "__all__ = ['Env', 'Taskset']\n"
    )
    sys.path.insert(0, str(folder))
    old = os.environ["PATH"]
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{old}"  # verifiers starts `uv`
    yield "peers_sums"
    os.environ["PATH"] = old
    sys.path.remove(str(folder))


@asynccontextmanager
async def model_that_says(says: Callable[[Any], str]) -> AsyncGenerator[tuple[str, list[str]]]:
    """A server in OpenAI's dialect that streams what `says` answers to messages; keeps what it was
    shown.
    """
    seen = list[str]()

    async def chat(request: web.Request) -> web.StreamResponse:
        seen.append(await request.text())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        delta = {"role": "assistant", "content": says(json.loads(seen[-1])["messages"])}
        choices: list[Any] = [
            {"index": 0, "delta": delta, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": "stop"},
        ]
        for choice in choices:
            chunk = json.dumps({**head, "choices": [choice]})
            await response.write(f"data: {chunk}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}/v1", seen
    finally:
        await runner.cleanup()


def environment(plugin: str, **settings: Any) -> Any:
    from_loaders = __import__("verifiers.v1.utils.loaders", fromlist=["environment_class"])
    made = from_loaders.environment_class(plugin)
    config = from_loaders.concrete_type(made, vf.EnvConfig, origin=vf.Env)
    return vf.load_environment(config(taskset={"id": plugin, "count": 8, **settings}))


def test_the_tasks_are_those_of_the_split(plugin: str) -> None:
    tasks = list(environment(plugin, split="test").taskset)
    assert [task.data.task for task in tasks] == [f"test/{number}" for number in range(8)]
    shown = tasks[0].data.model_dump_json()
    assert "Add the numbers." in shown
    assert '\\"add\\"' in shown
    assert games.SECRET not in shown
    assert "demonstrate" not in shown


async def test_rewards_are_ours_and_failures_fail_the_episode(plugin: str) -> None:
    env = environment(plugin)
    tasks = list(env.taskset)
    local = ludus.make(games.Sums)
    right = games.answer_to(str(local.reset(seed=0, options={"task": "train/0"})[0]))
    scripts: list[tuple[list[str], float | None]] = [
        ([games.CALL, "sleep 0", right], 1.25),
        (["no idea"], 0.0),
        (["break"], None),
    ]
    lines = iter([line for lines, _ in scripts for line in lines])
    async with model_that_says(lambda _: next(lines)) as (url, seen):
        os.environ["PEER_KEY"] = "none"
        client = vf.EvalClientConfig(base_url=url, api_key_var="PEER_KEY")
        context = vf.ModelContext(model="m", client=client)
        async with env.serving():
            for index, (_, worth) in enumerate(scripts):
                episode = await env.run_episode(tasks[0 if index == 0 else index], context)
                if worth is None:
                    assert not episode.ok
                    assert "RewardUnavailable" in str(episode.errors)
                    assert all(trace.rewards == {} for trace in episode.traces)
                else:
                    assert episode.ok, episode.errors
                    assert [trace.reward for trace in episode.traces] == [worth]
    assert "<tool_response>" in seen[1]
    assert not [text for text in seen if games.SECRET in text]


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_hundred_episodes_of_its_command_have_the_rewards_of_direct_play(
    tmp_path: Path,
) -> None:
    """`vf-eval NAME`, as a user runs it; a taskset with an end needs no `-n`. Of one task more the
    answer cannot be scored.
    """
    (tmp_path / "evaluated_sums.py").write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "import tests.peers.games\n"
        "from ludus.integrations.verifiers import verifiers_plugin\n"
        f"Taskset, Env = verifiers_plugin({ENV!r})\n"
        "__all__ = ['Env', 'Taskset']\n"
    )
    scripts = games.scripts("test")
    by_question = {script.question: script for script in scripts}

    def says(messages: Any) -> str:
        question, *rest = [one["content"] for one in messages if one["role"] == "user"]
        script = by_question.get(question)
        return script.lines[len(rest)] if script else "break"

    beside = Path(sys.executable).parent
    async with model_that_says(says) as (url, seen):
        command = [str(beside / "vf-eval"), "evaluated_sums", "-m", "m", "-c", "8", "--no-push"]
        command += ["--client.base-url", url, "--client.api-key-var", "PEER_KEY", "--no-rich"]
        command += [
            "--env.taskset.count",
            str(games.EPISODES + 1),
            "--env.taskset.split",
            "test",
            "-o",
            "out",
        ]
        ran = await asyncio.create_subprocess_exec(
            *command,
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(tmp_path),
                "PATH": f"{beside}:{os.environ['PATH']}",
                "PEER_KEY": "none",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        told, _ = await asyncio.wait_for(ran.communicate(), 600)
    assert len(seen) == sum(len(script.lines) for script in scripts) + 1, told.decode()[-2000:]
    (kept,) = tmp_path.glob("out/*/traces.jsonl")
    text = kept.read_text()
    traces = [trace for line in text.splitlines() for trace in json.loads(line)["traces"]]
    rewards = {trace["task"]["data"]["task"]: trace["rewards"] for trace in traces}
    assert rewards.pop(f"test/{games.EPISODES}") == {}
    scores = {task: told["ludus"]["score"] for task, told in rewards.items()}
    assert scores == {script.task: script.reward for script in scripts}
    assert games.SECRET not in text


def test_a_package_of_ludus_new_is_found_by_verifiers(tmp_path: Path) -> None:
    made = [sys.executable, "-m", "ludus", "new", "env", "peers/spell-v0", "--for", "verifiers"]
    told = subprocess.run(
        [*made, "--into", str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert "vf-eval peers_spell" in told.stdout
    folder = tmp_path / "peers-spell"
    path = {**os.environ, "PYTHONPATH": f"{folder / 'src'}"}
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    ran = subprocess.run(tests, cwd=folder, env=path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert "skipped" not in ran.stdout
    assert "4 passed" in ran.stdout
