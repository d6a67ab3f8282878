"""`tinker-cookbook`, unmodified, rolls out groups of a ludus environment; no service is asked."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ludus
from ludus.errors import UnknownTask

from . import games

rollouts: Any = pytest.importorskip(
    "tinker_cookbook.rl.rollouts", reason="make test-peers installs tinker-cookbook"
)
strategies: Any = pytest.importorskip("tinker_cookbook.rl.rollout_strategy")
completers: Any = pytest.importorskip("tinker_cookbook.completers")
renderers: Any = pytest.importorskip("tinker_cookbook.renderers")
train: Any = pytest.importorskip("tinker_cookbook.rl.train")
tokenizer_utils: Any = pytest.importorskip("tinker_cookbook.tokenizer_utils")
tinker: Any = pytest.importorskip("tinker")
transformers: Any = pytest.importorskip("transformers")
tokenizers: Any = pytest.importorskip("tokenizers")
from ludus.integrations.tinker import LudusDataset, LudusDatasetBuilder, LudusGroupBuilder  # noqa: E402

ENV = "peers/sums-v0"
CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'


class Locked(transformers.PreTrainedTokenizerFast):  # type: ignore[misc]
    """A tokenizer for several threads; that of transformers is for one."""

    lock = threading.Lock()

    def _encode_plus(self, *given: Any, **named: Any) -> Any:
        with self.lock:
            return super()._encode_plus(*given, **named)


def tokenizer() -> Any:
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={one: n for n, one in enumerate(sorted(alphabet))}, merges=[])
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    wrapped = Locked(tokenizer_object=made, eos_token="<|im_end|>")
    wrapped.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    return wrapped


class Scripted(completers.TokenCompleter):  # type: ignore[misc]
    """Each rollout takes the next script, and says its lines; keeps all prompts it was shown."""

    def __init__(self, tokens: Any, *scripts: list[str]) -> None:
        self.tokens = tokens
        self.scripts = iter(scripts)
        self.playing: dict[Any, Any] = {}
        self.seen: list[str] = []

    async def __call__(self, model_input: Any, stop: Any, **limits: Any) -> Any:
        self.seen.append(self.tokens.decode(model_input.to_ints()))
        task = asyncio.current_task()
        if task not in self.playing:
            self.playing[task] = iter(next(self.scripts))
        ids = self.tokens.encode(next(self.playing[task]) + "<|im_end|>", add_special_tokens=False)
        return completers.TokensWithLogprobs(tokens=ids, maybe_logprobs=[0.0] * len(ids))


def group(tokens: Any, size: int) -> LudusGroupBuilder:
    renderer = renderers.get_renderer("qwen3_instruct", tokens)
    return LudusGroupBuilder(ENV, "train/3", renderer, group_size=size)


def right_answer() -> str:
    question = ludus.make(games.Sums).reset(seed=0, options={"task": "train/3"})[0]
    return games.answer_to(str(question))


async def test_rewards_are_those_of_the_environment_and_calls_are_played() -> None:
    tokens, right = tokenizer(), right_answer()
    add, submit = (
        CALL % ("add", '{"first": 1, "second": 2}'),
        CALL % ("submit", f'{{"total": {right}}}'),
    )
    ask, broken = CALL % ("gold", "{}"), CALL % ("add", '{"first": "x"}')
    scripts = [[right], ["no idea"], [add, right], ["sleep 0", submit], [ask, broken, "1"]]
    policy = Scripted(tokenizer(), *scripts)
    made = await rollouts.do_group_rollout(group(tokens, 5), policy)
    assert sorted(made.get_total_rewards()) == [0.0, 0.0, 1.0, 1.0, 1.25]
    seen = "\n".join(policy.seen)
    assert "<tool_response>\n3\n</tool_response>" in seen
    assert "no tool" in seen
    assert '"name": "add"' in seen
    assert "demonstrate" not in seen
    assert games.SECRET not in seen
    assert made.rollout_errors == []


async def test_a_hundred_episodes_have_the_rewards_of_direct_play() -> None:
    tokens = tokenizer()
    renderer = renderers.get_renderer("qwen3_instruct", tokens)
    for script in games.scripts():
        made = LudusGroupBuilder(ENV, script.task, renderer, group_size=1)
        played = await rollouts.do_group_rollout(made, Scripted(tokens, script.lines))
        assert played.get_total_rewards() == [script.reward]


async def test_a_verdict_that_is_not_ok_fails_the_trajectory() -> None:
    tokens, right = tokenizer(), right_answer()
    with pytest.raises(ludus.RewardUnavailable):
        await rollouts.do_group_rollout(group(tokens, 2), Scripted(tokenizer(), ["break"], [right]))
    # a strategy that tolerates failures plays it again, and tells why
    policy = Scripted(tokenizer(), ["break"], [right], ["crash"], ["no idea"])
    tolerant = strategies.RetryOnFailure(max_retries=2)
    made = await rollouts.do_group_rollout(group(tokens, 2), policy, tolerant)
    assert sorted(made.get_total_rewards()) == [0.0, 1.0]
    assert {error.error_type for error in made.rollout_errors} == {"RewardUnavailable"}


async def test_a_data_set_has_the_tasks_in_batches() -> None:
    renderer = renderers.get_renderer("qwen3_instruct", tokenizer())
    data = LudusDataset(ENV, renderer, batch_size=3, group_size=2, count=10)
    assert len(data) == 3
    assert [one.task for one in data.get_batch(1)] == ["train/3", "train/4", "train/5"]
    again = pickle.loads(pickle.dumps(LudusGroupBuilder(ENV, "train/1", None, group_size=1)))
    assert (again.env, again.task, again.group_size) == (ENV, "train/1", 1)
    with pytest.raises(UnknownTask, match="dev"):
        LudusDataset(ENV, renderer, batch_size=1, group_size=1, count=1, split="dev")


class Service:
    """What the cookbook's training asks of Tinker's service, with a policy that knows its lines.

    The first answer to a question is wrong, the second cannot be scored, and all others are right.
    What would be trained on is kept, and nothing is learned from it.
    """

    def __init__(self) -> None:
        self.tokens = tokenizer()
        self.asked: dict[str, int] = {}
        self.trained: list[list[Any]] = []
        self.steps = 0

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    async def create_lora_training_client(self, *given: Any, **named: Any) -> Any:
        return self

    async def save_weights_and_get_sampling_client(self, **named: Any) -> Any:
        return self

    async def sample(self, prompt: Any, **given: Any) -> Any:
        shown = self.tokens.decode(prompt.to_ints())
        question = next(line for line in shown.splitlines() if " + " in line).split("<|im_end|>")[0]
        number = self.asked[question] = self.asked.get(question, 0) + 1
        said = {1: "no idea", 2: "break"}.get(number, games.answer_to(question))
        ids = self.tokens.encode(said + "<|im_end|>", add_special_tokens=False)
        drawn = {"tokens": ids, "logprobs": [-0.5] * len(ids), "stop_reason": "stop"}
        sequence = SimpleNamespace(sequence_id=f"{question}-{number}", **drawn)
        return SimpleNamespace(sequences=[sequence], prompt_cache_hit_tokens=0)

    async def forward_backward(self, data: list[Any], **given: Any) -> Any:
        self.trained.append(data)
        told = [{"logprobs": datum.loss_fn_inputs["logprobs"]} for datum in data]
        return SimpleNamespace(loss_fn_outputs=told)

    async def optim_step(self, *given: Any) -> Any:
        self.steps += 1
        return SimpleNamespace(metrics={})

    async def save_state(self, name: str, **given: Any) -> Any:
        return SimpleNamespace(path=f"tinker://none/{name}")

    save_weights_for_sampler = save_state


async def test_the_cookbooks_training_loop_trains_on_what_has_a_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rl.train.main`, unmodified; only its service is ours."""
    service = Service()

    def found(**given: Any) -> Service:
        return service

    monkeypatch.setattr(tinker, "ServiceClient", found)
    tokenizer_utils.register_tokenizer("peers/bytes", tokenizer)
    builder = LudusDatasetBuilder(
        env=ENV, model_name_for_tokenizer="peers/bytes", renderer_name="qwen3_instruct",
        batch_size=1, group_size=2, count=2, test_count=1,
    )  # fmt: skip
    await train.main(
        train.Config(
            learning_rate=1e-4,
            dataset_builder=builder,
            model_name="peers/bytes",
            recipe_name="peers",
            renderer_name="qwen3_instruct",
            max_tokens=64,
            log_path=str(tmp_path),
            eval_every=1,
            save_every=0,
            rollout_error_tolerance=True,
        )
    )
    assert service.steps == 2
    for data in service.trained:  # of a wrong answer, one without a reward, and a right one
        advantages = sorted(max(d.loss_fn_inputs["advantages"].data, key=abs) for d in data)
        assert advantages == [-0.5, 0.5]
    told = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]

    def logged(name: str) -> list[float]:
        return [one[name] for one in told if name in one]

    assert logged("env/all/reward/total") == [0.5, 0.5]
    # the first episode failed first; the last number is of the evaluation at the end
    assert logged("test/env/all/reward/total") == [0.0, 1.0, 1.0]
