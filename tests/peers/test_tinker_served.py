"""The official SDK and the loops of `tinker-cookbook`, unmodified, on `ludus serve learner`."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

tinker: Any = pytest.importorskip("tinker", reason="make test-peers installs tinker")
cookbook: Any = pytest.importorskip("tinker_cookbook")
pytest.importorskip("peft")
torch: Any = pytest.importorskip("torch")
from tinker_cookbook import renderers  # noqa: E402
from tinker_cookbook.rl import train as rl_train  # noqa: E402
from tinker_cookbook.supervised import data as sl_data, train as sl_train, types as sl_types  # noqa: E402

from ludus.integrations.tinker import LudusDatasetBuilder  # noqa: E402
from ludus.trainer.config import ModelConfig  # noqa: E402
from ludus.trainer.models.tiny import write_tiny_policy  # noqa: E402
from ludus.trainer.tinker.models import BaseModel, ModelHouse  # noqa: E402
from ludus.trainer.tinker.service import TinkerService  # noqa: E402
from ludus.trainer.tinker.store import CheckpointStore  # noqa: E402
from ludus.wire.server import BackgroundServer, HttpServer  # noqa: E402

from . import games  # noqa: E402, F401

ENV = "peers/sums-v0"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    # Clients find the tokenizer by the name of the model, which here is a folder for that reason.
    folder = tmp_path_factory.mktemp("model")
    return str(write_tiny_policy(folder, hidden=32, layers=2, heads=2, max_length=2048))


@pytest.fixture(scope="module")
def url(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    house = ModelHouse(BaseModel.load(ModelConfig(path=model, device="cpu"), model))
    store = CheckpointStore(tmp_path_factory.mktemp("served"))
    with BackgroundServer(HttpServer([TinkerService(house, store)])) as address:
        yield address


@pytest.fixture(autouse=True)
def _address(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    monkeypatch.setenv("TINKER_BASE_URL", url)


def datum(ids: list[int], **inputs: Any) -> Any:
    tensors = {"target_tokens": torch.tensor(ids[1:]), **inputs}
    return tinker.types.Datum(
        model_input=tinker.types.ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={k: tinker.types.TensorData.from_torch(v) for k, v in tensors.items()},
    )


def waited(value: Any) -> Any:
    return value.result() if hasattr(value, "result") else value


def test_the_sdk_trains_samples_saves_and_continues(model: str) -> None:
    service = tinker.ServiceClient()
    assert service.get_server_capabilities().supported_models[0].model_name == model
    client = waited(service.create_lora_training_client(base_model=model, rank=4))
    ids = client.get_tokenizer().encode("two and two are four")
    rows = [datum(ids, weights=torch.ones(len(ids) - 1)) for _ in range(3)]
    losses = []
    for _ in range(8):
        passed = client.forward_backward(rows, "cross_entropy")
        client.optim_step(tinker.types.AdamParams(learning_rate=2e-2)).result()
        losses.append(passed.result().metrics["loss:sum"])
    assert losses[-1] < 0.7 * losses[0]

    # A loss of the client's own: its gradient comes back as weights, negative and fractional.
    def squares(data: Any, logprobs: Any) -> Any:
        return sum((each**2).sum() for each in logprobs), {}

    client.forward_backward_custom(rows[:1], squares).result()
    client.optim_step(tinker.types.AdamParams(learning_rate=1e-3)).result()

    # More rows than fit into a chunk: the SDK sends the first one last.
    many = client.forward_backward([rows[0]] * 1500, "cross_entropy").result()
    one = client.forward(rows[:1], "cross_entropy").result()
    assert many.metrics["loss:sum"] == pytest.approx(1500 * one.metrics["loss:sum"], rel=1e-4)
    client.optim_step(tinker.types.AdamParams(learning_rate=0.0)).result()

    kept = client.save_state("kept", ttl_seconds=7200).result()
    named = client.save_weights_for_sampler("kept").result()
    prompt = tinker.types.ModelInput.from_ints(ids[:5])
    params = tinker.types.SamplingParams(max_tokens=8, seed=3)
    drawn = []
    for sampler in (
        waited(client.save_weights_and_get_sampling_client()),
        waited(service.create_sampling_client(model_path=named.path)),
    ):
        answer = sampler.sample(prompt=prompt, sampling_params=params, num_samples=2).result()
        drawn.append([(each.tokens, each.stop_reason) for each in answer.sequences])
        logprobs = sampler.compute_logprobs(tinker.types.ModelInput.from_ints(ids)).result()
        assert logprobs[0] is None
        passed = client.forward(rows[:1], "cross_entropy").result()
        assert logprobs[1:] == pytest.approx(
            list(passed.loss_fn_outputs[0]["logprobs"].data), abs=1e-4
        )
    assert drawn[0] == drawn[1]

    second = waited(service.create_training_client_from_state_with_optimizer(kept.path))
    for each in (client, second):
        each.forward_backward(rows, "cross_entropy")
        each.optim_step(tinker.types.AdamParams(learning_rate=1e-2)).result()
    sums = [
        each.forward(rows, "cross_entropy").result().metrics["loss:sum"]
        for each in (client, second)
    ]
    assert sums[0] == pytest.approx(sums[1], rel=1e-6)

    rest = service.create_rest_client()
    assert rest.get_weights_info_by_tinker_path(kept.path).result().lora_rank == 4
    assert rest.get_training_run_by_tinker_path(kept.path).result().base_model == model
    rest.delete_checkpoint_from_tinker_path(named.path).result()
    left = rest.list_checkpoints(client.model_id).result().checkpoints
    assert [each.checkpoint_id for each in left] == ["weights/kept"]
    with pytest.raises(tinker.RequestFailedError, match="its formula is not published"):
        client.forward_backward(rows, "stable_reinforce").result()
    service.close("success").result()


async def test_the_cookbooks_supervised_loop_learns(model: str, tmp_path: Path) -> None:
    lines = [
        {
            "messages": [
                {"role": "user", "content": f"say {word}"},
                {"role": "assistant", "content": word},
            ]
        }
        for word in ("one", "two", "six", "ten") * 8
    ]
    file = tmp_path / "talks.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    builder = sl_data.FromConversationFileBuilder(
        file_path=str(file),
        test_size=4,
        common_config=sl_types.ChatDatasetBuilderCommonConfig(
            model_name_for_tokenizer=model,
            renderer_name="role_colon",
            max_length=256,
            batch_size=4,
            train_on_what=renderers.TrainOnWhat.ALL_ASSISTANT_MESSAGES,
        ),
    )
    config = sl_train.Config(
        log_path=str(tmp_path / "run"),
        model_name=model,
        recipe_name="test",
        renderer_name="role_colon",
        dataset_builder=builder,
        learning_rate=5e-3,
        num_epochs=2,
        lora_rank=8,
        save_every=5,
        eval_every=5,
    )
    await sl_train.main(config)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    losses = [row["train_mean_nll"] for row in rows if "train_mean_nll" in row]
    assert len(losses) == 14
    assert losses[-1] < 0.7 * losses[0]
    kept = [json.loads(line) for line in (tmp_path / "run" / "checkpoints.jsonl").open()]
    assert kept[-1]["state_path"].startswith("tinker://")
    # The same command again finds its last checkpoint, and has nothing left to do.
    await sl_train.main(config)


@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo"])
async def test_the_cookbooks_rl_loop_plays_and_learns(
    model: str, tmp_path: Path, loss: str
) -> None:
    config = rl_train.Config(
        learning_rate=1e-3,
        dataset_builder=LudusDatasetBuilder(
            env=ENV,
            model_name_for_tokenizer=model,
            renderer_name="qwen3_instruct",
            batch_size=2,
            group_size=2,
            count=4,
        ),
        model_name=model,
        recipe_name="test",
        max_tokens=12,
        log_path=str(tmp_path / "run"),
        loss_fn=loss,
        lora_rank=4,
        eval_every=0,
        save_every=1,
        rollout_json_export=False,
    )
    await rl_train.main(config)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert [row["step"] for row in rows][:2] == [0, 1]
    if loss == "importance_sampling":
        # What the sampler said of its tokens is what the learner says.
        assert abs(rows[0]["optim/kl_sample_train_v1"]) < 1e-3


# --- recipes of the cookbook, with data of this file where theirs are on a hub --------------------


def logged(folder: Path, name: str) -> list[float]:
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row[name] for row in rows if name in row]


def test_the_cookbooks_dpo_prefers_what_it_is_shown(model: str, tmp_path: Path) -> None:
    from tinker_cookbook.preference import dpo_datasets, preference_datasets, train_dpo

    def said(role: str, content: str) -> list[dict[str, str]]:
        return [{"role": role, "content": content}]

    pairs = [
        {
            "prompt_conversation": said("user", f"say {number}"),
            "completion_A": said("assistant", f"yes {number}"),
            "completion_B": said("assistant", f"no, never {number}"),
        }
        for number in range(32)
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(json.dumps({"comparison": each, "label": "A"}) for each in pairs))
    builder = dpo_datasets.DPODatasetBuilderFromComparisons(
        common_config=sl_types.ChatDatasetBuilderCommonConfig(
            model_name_for_tokenizer=model, renderer_name="role_colon", max_length=256, batch_size=8
        ),
        comparison_builder=preference_datasets.ComparisonBuilderFromJsonl(train_path=str(file)),
    )
    train_dpo.main(
        train_dpo.Config(
            log_path=str(tmp_path / "run"),
            model_name=model,
            recipe_name="test",
            renderer_name="role_colon",
            reference_model_name=model,
            dataset_builder=builder,
            learning_rate=1e-3,
            num_epochs=2,
            lora_rank=4,
            save_every=4,
            eval_every=0,
        )
    )
    losses = logged(tmp_path / "run", "dpo_loss")
    assert losses[0] == pytest.approx(math.log(2), abs=1e-5)  # the policy is its reference
    assert losses[-1] < 0.5
    assert logged(tmp_path / "run", "accuracy")[-1] == 1.0


async def test_the_cookbooks_distillation_follows_its_teacher(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tinker_cookbook.distillation import datasets, train_on_policy

    prompts = [f"what is {number} and {number}?" for number in range(12)]
    monkeypatch.setattr(datasets, "load_deepmath_prompts", lambda split: prompts)
    builder = datasets.PromptOnlyDatasetBuilder(
        dataset_name="deepmath",
        groups_per_batch=3,
        group_size=2,
        model_name_for_tokenizer=model,
        renderer_name="role_colon",
    )
    data = datasets.DistillationDatasetConfig(
        dataset_builder=builder,
        teacher_config=datasets.TeacherConfig(base_model=model),
        groups_per_batch=3,
    )
    await train_on_policy.main(
        train_on_policy.Config(
            learning_rate=1e-3,
            dataset_configs=[data],
            model_name=model,
            recipe_name="test",
            renderer_name="role_colon",
            max_tokens=12,
            lora_rank=4,
            log_path=str(tmp_path),
            compute_post_kl=True,
            eval_every=0,
            save_every=2,
            max_steps=2,
        )
    )
    # The student begins as its teacher, and what it sampled is scored alike by both.
    assert logged(tmp_path, "teacher_kl")[0] == pytest.approx(0.0, abs=1e-4)
    assert len(logged(tmp_path, "kl_pre_post_v1")) == 2


async def test_the_cookbooks_guessing_game_is_played_by_a_served_model(
    model: str, tmp_path: Path
) -> None:
    import chz
    from tinker_cookbook.recipes.multiplayer_rl.guess_number import train as guess

    config = guess.build_config(
        guess.CLIConfig(
            model_name=model,
            renderer_name="role_colon",
            group_size=2,
            batch_size=2,
            max_tokens=8,
            eval_every=0,
            log_path=str(tmp_path),
            max_steps=2,
        )
    )
    # Its command has no option for the loss, whose default is not published.
    await rl_train.main(chz.replace(config, loss_fn="importance_sampling", lora_rank=4))
    assert len(logged(tmp_path, "env/all/reward/total")) == 2
    assert max(map(abs, logged(tmp_path, "optim/kl_sample_train_v1"))) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("loss_fn=ppo", "num_substeps=2", "compute_post_kl=True"),
        ("loss_fn=cispo", "max_steps_off_policy=2"),
        (
            "loss_fn=importance_sampling",
            "stream_minibatch_config.groups_per_batch=4",
            "stream_minibatch_config.num_minibatches=2",
        ),
    ],
    ids=["substeps", "off-policy", "streamed"],
)
def test_the_cookbooks_command_for_mathematics_trains(
    model: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    pytest.importorskip("math_verify", reason="make test-peers installs it")
    sizes = ("lora_rank=4", "group_size=4", "groups_per_batch=4", "max_steps=2", "max_tokens=5")
    command = [sys.executable, "-m", "tinker_cookbook.recipes.math_rl.train"]
    given = (f"model_name={model}", "renderer_name=role_colon", f"log_path={tmp_path / 'run'}")
    told = subprocess.run(
        [*command, *given, *sizes, "eval_every=0", *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    assert len(logged(tmp_path / "run", "env/all/reward/total")) == 2


# --- ranks of torchrun ---------------------------------------------------------------------------


@contextmanager
def served_by(command: list[str], model: str, folder: Path) -> Iterator[str]:
    """A server of the command line, whose address it tells."""
    log, kept = folder / "log", str(folder / "kept")
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "-m", "ludus", "serve", "learner", model, "--port", "0", "--folder", kept],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    try:
        until = time.monotonic() + 120
        while not (address := re.search(r"at (http://\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        yield address[1]
    finally:
        process.terminate()
        process.wait(timeout=60)


def played(url: str, model: str) -> tuple[list[float], list[list[int]], list[float]]:
    """Four updates with two losses by the SDK, then what the weights say and sample."""
    service = tinker.ServiceClient(base_url=url)
    client = waited(service.create_lora_training_client(base_model=model, rank=4, seed=7))
    draw = torch.Generator().manual_seed(1)
    rows = [torch.randint(1, 90, (size,), generator=draw).tolist() for size in (9, 5, 17, 12, 7)]
    weighted = [datum(ids, weights=torch.ones(len(ids) - 1)) for ids in rows]
    clipped = [
        datum(
            ids,
            logprobs=torch.full((len(ids) - 1,), -4.0),
            advantages=torch.linspace(-1, 1, len(ids) - 1),
        )
        for ids in rows
    ]
    for _ in range(4):
        client.forward_backward(weighted, "cross_entropy").result()
        client.forward_backward(clipped, "ppo").result()
        client.optim_step(tinker.types.AdamParams(learning_rate=1e-3)).result()
    passed = client.forward(weighted, "cross_entropy").result()
    logprobs = [value for each in passed.loss_fn_outputs for value in each["logprobs"].data]
    sampler = waited(client.save_weights_and_get_sampling_client())
    answer = sampler.sample(
        prompt=tinker.types.ModelInput.from_ints(rows[0]),
        sampling_params=tinker.types.SamplingParams(max_tokens=12, seed=3),
        num_samples=3,
    ).result()
    scored = sampler.compute_logprobs(tinker.types.ModelInput.from_ints(rows[2])).result()[1:]
    service.close("success").result()
    return logprobs, [each.tokens for each in answer.sequences], scored


@pytest.mark.slow
def test_ranks_of_torchrun_are_one_process_to_the_sdk(model: str, tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    results = []
    for name, command in (
        ("one", [sys.executable]),
        ("ranks", [*torchrun, "--nproc_per_node", "2"]),
    ):
        (tmp_path / name).mkdir()
        with served_by(command, model, tmp_path / name) as url:
            results.append(played(url, model))
    one, ranks = results
    assert ranks[1] == one[1]
    # Log-probabilities are about -5, where float32 has steps of 5e-7.
    assert ranks[0] == pytest.approx(one[0], rel=1e-6)
    assert ranks[2] == pytest.approx(one[2], rel=1e-6)
