"""The environment server of verifiers, driven as prime-rl's orchestrator drives it.

prime-rl is not in the package index. What it does with an environment is in verifiers: it starts
`serve_env`, loads the tasks itself, sends each rollout of a group by `EnvClient.run` with a client
that samples tokens, and trains on the traces without an error. Where its source is at hand, its own
orchestrator does it.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

import ludus

from . import games

vf: Any = pytest.importorskip("verifiers.v1", reason="make test-peers installs verifiers")
serve: Any = pytest.importorskip("verifiers.v1.serve")
renderers: Any = pytest.importorskip("renderers")
tokenizers: Any = pytest.importorskip("tokenizers")
transformers: Any = pytest.importorskip("transformers")

ENV = "peers/sums-v0"
LOGPROB = -0.5
SOURCE_VARIABLE = "LUDUS_PRIME_RL"
"""Names a checkout of prime-rl, for an interpreter that has what its orchestrator imports.
Played: that of 2026-08-21 (559b447) with verifiers 0.3.2.dev140; it does not read the traces of
verifiers 0.4.0.
"""
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
START = """
import json, sys
from verifiers.v1.serve import serve_env
if __name__ == "__main__":
    config = json.loads(sys.argv[2])
    serve_env(max_workers=2, elastic=False, address=sys.argv[1], config_data=config)
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a package as `ludus new env --for verifiers` writes it, and the tokenizer."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "served_sums.py").write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "import tests.peers.games\n"
        "from ludus.integrations.verifiers import verifiers_plugin\n"
        f"Taskset, Env = verifiers_plugin({ENV!r})\n"
        "__all__ = ['Env', 'Taskset']\n"
    )
    (folder / "start.py").write_text(START)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    bytes_alone = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={one: n for n, one in enumerate(alphabet)}, merges=[])
    )
    bytes_alone.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bytes_alone, eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder / "model")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


class Engine:
    """vLLM's `/inference/v1/generate` with a scripted policy, whose rollouts of a task differ."""

    def __init__(self, model: Path) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        self.begun: dict[str, int] = {}
        self.seen: list[str] = []

    def says(self, shown: str) -> str:
        """Answer the prompt: a call first; then wrong, a failure of ours and right, in turn."""
        if "<tool_response>" not in shown:
            return games.CALL
        question = next(line for line in shown.splitlines() if " + " in line).split("<|im_end|>")[0]
        number = self.begun[question] = self.begun.get(question, 0) + 1
        return ("no idea", "break", games.answer_to(question), "crash")[number % 4]

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["sampling_params"]["logprobs"] == 1
        shown = self.tokenizer.decode(body["token_ids"])
        self.seen.append(shown)
        said = self.says(shown) + "<|im_end|>"
        ids = self.tokenizer.encode(said, add_special_tokens=False)
        told = [{"token": f"token_id:{one}", "logprob": LOGPROB} for one in ids]
        choice = {"token_ids": ids, "logprobs": {"content": told}, "finish_reason": "stop"}
        return web.json_response({"request_id": "1", "choices": [choice]})

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        app = web.Application()
        app.router.add_post("/inference/v1/generate", self.generate)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()


@contextmanager
def env_server(folder: Path, config: Any) -> Generator[str]:
    """Start the server in a process of its own, as prime-rl's `env-server` does."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # it starts `uv`
        "PYTHONPATH": str(folder),
        "PEER_KEY": "none",
    }
    command = [sys.executable, str(folder / "start.py"), address]
    server = subprocess.Popen(
        [*command, json.dumps(serve.env_config_data(config))], env=environment, cwd=folder
    )
    try:
        yield address
    finally:
        server.terminate()
        server.wait(timeout=60)


def config_of(**settings: Any) -> Any:
    loaders = __import__("verifiers.v1.utils.loaders", fromlist=["environment_class"])
    made = loaders.environment_class("served_sums")
    config = loaders.concrete_type(made, vf.EnvConfig, origin=vf.Env)
    return config(taskset={"id": "served_sums", **settings})


def sampling_client(url: str, folder: Path) -> Any:
    """The client that prime-rl gives to a rollout: it samples tokens, and keeps them."""
    return vf.TrainClientConfig(
        base_url=url,
        api_key_var="PEER_KEY",
        renderer=renderers.DefaultRendererConfig(),
        renderer_model_name=str(folder / "model"),
    )


def excluding(episode: Any) -> Any:
    """Mark the traces of an episode that failed, as prime-rl's orchestrator does."""
    for trace in episode.traces:
        if not episode.ok and trace.ok:
            trace.errors = [*trace.errors, episode.last_error]
            trace.ok = False
    return episode


@pytest.mark.slow
async def test_groups_of_rollouts_are_trained_without_those_that_failed(plugin: Path) -> None:
    config, engine, size = config_of(), Engine(plugin / "model"), 4
    tasks = list(islice(vf.load_taskset(config.taskset), 2))  # an endless stream of tasks
    with env_server(plugin, config) as address:
        client = serve.EnvClient(address)
        await client.wait_for_server_startup(timeout=120)
        async with engine.serving() as url:
            sampled = sampling_client(url, plugin)
            runs = [
                client.run(
                    task_data=task.data.model_dump(mode="json"),
                    client=sampled,
                    model="policy",
                    sampling=vf.SamplingConfig(temperature=1.0, max_tokens=64),
                )
                for task in tasks
                for _ in range(size)
            ]
            episodes = [excluding(one) for one in await asyncio.gather(*runs)]
        await client.close()

    for index, task in enumerate(tasks):
        group = episodes[index * size : (index + 1) * size]
        failed = [one for one in group if not one.ok]
        assert len(failed) == 2
        assert {"the judge is away" in str(one.errors) for one in failed} == {True, False}
        trained = [trace for one in group for trace in one.traces if not trace.has_error]
        assert sorted(trace.reward for trace in trained) == [0.0, 1.0]
        local = ludus.make(games.Sums)
        question = local.reset(seed=0, options={"task": task.data.task})[0]
        for trace in trained:
            (branch,) = trace.branches
            answer = engine.tokenizer.decode(
                [one for node in branch.nodes[-1:] for one in node.token_ids]
            )
            right = games.answer_to(str(question)) in answer
            assert trace.reward == float(right)
            sampled_ids = [
                one
                for node in branch.nodes
                for one, trainable in zip(node.token_ids, node.mask, strict=True)
                if trainable
            ]
            assert games.CALL in engine.tokenizer.decode(sampled_ids)
            logprobs = [one for node in branch.nodes for one in node.logprobs]
            assert set(logprobs) <= {0.0, LOGPROB}
        for trace in (trace for one in failed for trace in one.traces):
            assert trace.has_error
            assert trace.rewards == {}
    assert not [shown for shown in engine.seen if games.SECRET in shown]


@pytest.fixture
def prime_rl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make prime-rl importable from its source; skip the test where it is not at hand."""
    place = os.environ.get(SOURCE_VARIABLE, "")
    if not place:
        pytest.skip(f"prime-rl is not in the package index; {SOURCE_VARIABLE} names its source")
    for folder in ("src", "packages/prime-rl-configs/src"):
        monkeypatch.syspath_prepend(str(Path(place) / folder))


@pytest.mark.slow
@pytest.mark.usefixtures("prime_rl")
async def test_prime_rl_itself_learns_from_what_has_a_reward(plugin: Path) -> None:
    """Its dispatcher, its sources of tasks, GRPO and its train sink, up to a batch for the trainer.

    Of four rollouts two have no reward, so the advantages are those of a group of two.
    """
    configs: Any = importlib.import_module("prime_rl.configs.orchestrator")
    module = {
        name: cast("Any", importlib.import_module(f"prime_rl.orchestrator.{name}"))
        for name in ("dispatcher", "envs", "train_sink", "train_source", "types")
    }
    config, engine, size = config_of(), Engine(plugin / "model"), 4
    with env_server(plugin, config) as address:
        source = {
            "env": {"taskset": {"id": "served_sums"}},
            "serve": {"address": address},
            "group_size": size,
        }
        settings = configs.OrchestratorConfig(train={"source": [source]}, batch_size=2)
        async with engine.serving() as url:
            sampled = sampling_client(url, plugin)
            pool = SimpleNamespace(train_client=sampled, model_name="policy")
            envs = module["envs"].TrainEnvs(
                settings.train.source, settings.env_addresses, policy_pool=pool
            )
            await envs.start()
            tasks = module["train_source"].TrainSource(envs)
            progress = module["types"].Progress()
            dispatcher = module["dispatcher"].Dispatcher(
                train_envs=envs, eval_envs=None, train_source=tasks, eval_source=None,
                policy_pool=pool, policy=module["types"].Policy(model_name="policy"),
                progress=progress, initial_max_inflight=size, max_inflight_ceiling=size,
                tasks_per_minute=None, max_off_policy_steps=4, run_id="r", run_name="r",
            )  # fmt: skip
            sink = module["train_sink"].TrainSink(
                settings, tokenizer=engine.tokenizer, train_envs=envs,
                mm_token_type_ids_mapping=None, progress=progress, batch_size=2,
                token_batch_size=None, on_result=tasks.on_result,
            )  # fmt: skip
            running = asyncio.create_task(dispatcher.start())
            batch: Any = None
            while batch is None:
                episode = await asyncio.wait_for(dispatcher.out_q.get(), 240)
                batch = await sink.add(episode)
            await dispatcher.stop()
            await running

    credited = dict[float, str]()
    for sample in batch.samples:
        trained = [n for n, trainable in enumerate(sample.mask) if trainable]
        (advantage,) = {sample.advantages[n] for n in trained}
        credited[advantage] = engine.tokenizer.decode([sample.token_ids[n] for n in trained])
        assert {sample.logprobs[n] for n in trained} == {LOGPROB}
    assert set(credited) == {-0.5, 0.5}  # with two zeros more they would be -0.25 and 0.75
    assert "no idea" in credited[-0.5]
    assert all(games.CALL in text for text in credited.values())
    assert not [text for text in credited.values() if "break" in text or "crash" in text]
