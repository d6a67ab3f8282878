"""verl, unmodified: its reward manager asks a verifier, its agent loop plays an environment."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.errors import ConfigError
from ludus.integrations import verl as bridge

from . import games

loops: Any = pytest.importorskip(
    "verl.experimental.agent_loop.agent_loop", reason="make test-peers installs verl"
)
managers: Any = pytest.importorskip("verl.experimental.reward_loop.reward_manager.naive")
replica: Any = pytest.importorskip("verl.workers.rollout.replica")
protocol: Any = pytest.importorskip("verl.protocol")
omegaconf: Any = pytest.importorskip("omegaconf")
torch: Any = pytest.importorskip("torch")
numpy: Any = pytest.importorskip("numpy")
transformers: Any = pytest.importorskip("transformers")
tokenizers: Any = pytest.importorskip("tokenizers")

ENV = "peers/sums-v0"
TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={one: n for n, one in enumerate(alphabet)}, merges=[])
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    wrapped.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    wrapped.chat_template = TEMPLATE
    return wrapped


class ScriptedServer:
    """An inference server that says given lines, in order, and keeps what it was shown."""

    def __init__(self, tokenizer: Any, *lines: str) -> None:
        self.tokenizer = tokenizer
        self.lines = iter(lines)
        self.seen: list[list[int]] = []

    async def generate(self, *, prompt_ids: list[int], **given: Any) -> Any:
        self.seen.append(list(prompt_ids))
        ids = self.tokenizer.encode(next(self.lines) + "<|im_end|>", add_special_tokens=False)
        return replica.TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids))


async def played(
    tokenizer: Any, *lines: str, length: int = 4096, index: int = 3
) -> tuple[Any, ScriptedServer]:
    rollout = {"prompt_length": 4096, "response_length": length, "multi_turn": {}}
    config = omegaconf.OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})
    server = ScriptedServer(tokenizer, *lines)
    loop = bridge.LudusAgentLoop(
        loops.DictConfigWrap(config),
        server,
        tokenizer,
        None,
        None,
        loops.DictConfigWrap(omegaconf.OmegaConf.create({})),
    )
    (row,) = bridge.rows(ENV, 1, offset=index)
    return await loop.run({"temperature": 1.0}, **row), server


def right_answer() -> str:
    local = ludus.make(games.Sums)
    return games.answer_to(str(local.reset(seed=0, options={"task": "train/3"})[0]))


def test_verl_knows_the_loop_by_its_name() -> None:
    assert bridge.LudusAgentLoop.__name__ == "LudusAgentLoop"
    registered = loops._agent_loop_registry["ludus_agent"]
    assert registered["_target_"] == "ludus.integrations.verl.LudusAgentLoop"


async def test_rewards_are_those_of_the_environment_token_in_token_out(tokenizer: Any) -> None:
    for said, worth in ((right_answer(), 1.0), ("no idea", 0.0)):
        output, _ = await played(tokenizer, said)
        assert output.reward_score == worth
    output, server = await played(tokenizer, games.CALL, "sleep 0", right_answer())
    assert output.reward_score == 1.25
    whole = output.prompt_ids + output.response_ids
    assert (
        whole[: len(server.seen[2])] == server.seen[2]
    )  # what was sampled from is what is trained
    assert server.seen[2][: len(server.seen[1])] == server.seen[1]
    written = [
        one for one, own in zip(output.response_ids, output.response_mask, strict=True) if own
    ]
    assert (
        tokenizer.decode(written, skip_special_tokens=True)
        == games.CALL + "sleep 0" + right_answer()
    )
    logprobs = zip(output.response_logprobs, output.response_mask, strict=True)
    assert all((value == -0.5) == bool(own) for value, own in logprobs)
    read = tokenizer.decode(server.seen[2])
    assert "<|im_start|>tool\n3<|im_end|>" in read
    assert '"add"' in read
    assert "demonstrate" not in read
    assert games.SECRET not in tokenizer.decode(whole)


async def test_a_hundred_episodes_have_the_rewards_of_direct_play(tokenizer: Any) -> None:
    for index, script in enumerate(games.scripts()):
        output, server = await played(tokenizer, *script.lines, index=index)
        assert script.question in tokenizer.decode(server.seen[0])
        assert output.reward_score == script.reward


async def test_an_episode_without_a_reward_is_played_again_and_never_a_number(
    tokenizer: Any,
) -> None:
    output, server = await played(tokenizer, "break", "crash", "no idea")
    assert (output.reward_score, len(server.seen)) == (0.0, 3)
    with pytest.raises(ludus.RewardUnavailable):
        await played(tokenizer, "break", "crash", "break")


async def test_a_response_that_is_full_ends_the_rollout(tokenizer: Any) -> None:
    output, server = await played(tokenizer, games.CALL, "1", length=20)
    assert (len(output.response_ids), len(output.response_mask), len(server.seen)) == (20, 20, 1)
    assert output.reward_score == 0.0


async def test_verls_reward_manager_asks_the_verifier(tokenizer: Any) -> None:
    manager = managers.NaiveRewardManager(
        omegaconf.OmegaConf.create({}), tokenizer, bridge.compute_score
    )

    async def scored(said: str, gold: str, **extra: Any) -> Any:
        ids = torch.tensor([tokenizer.encode(said, add_special_tokens=False)])
        plain = {
            "data_source": numpy.array([extra.pop("source", "maths")], dtype=object),
            "reward_model": numpy.array([{"ground_truth": gold}], dtype=object),
            "extra_info": numpy.array([extra], dtype=object),
        }
        tensors = {"responses": ids, "attention_mask": torch.ones_like(ids)}
        return await manager.run_single(protocol.DataProto.from_dict(tensors, plain))

    assert (await scored("so 1/2", "0.5"))["reward_score"] == 1.0
    assert (await scored("so 3", "0.5"))["reward_score"] == 0.0
    exact = await scored("so 3", "so 3", source="openai/gsm8k", verifier="exact")
    assert exact["reward_score"] == 1.0
    with pytest.raises(ludus.RewardUnavailable):
        await scored("so 3", "\\nonsense{")


def old_base() -> Any:
    """`BaseInteraction` of a verl that still had interactions, from its wheel."""
    for wheel in sorted(Path("build/peers/verlold").glob("verl-0.[567]*.whl")):
        source = zipfile.ZipFile(wheel).read("verl/interactions/base.py").decode()
        spec = importlib.util.spec_from_loader("verl_interactions_base", loader=None)
        assert spec
        module = importlib.util.module_from_spec(spec)
        exec(compile(source, str(wheel), "exec"), module.__dict__)
        sys.modules[spec.name] = module
        return module.BaseInteraction
    pytest.skip("no wheel of a verl with interactions (make test-peers fetches one)")


async def test_an_interaction_has_the_methods_of_verls_own(tokenizer: Any) -> None:
    base = old_base()
    for name in (
        "start_interaction",
        "generate_response",
        "calculate_score",
        "finalize_interaction",
    ):
        assert callable(getattr(base, name))
    one = bridge.LudusInteraction({"name": "ludus", "env": ENV})
    name = await one.start_interaction(None, task="train/3")
    with pytest.raises(ConfigError, match="is open"):
        await one.start_interaction(name, task="train/3")
    opening = one.opening(name)

    async def say(text: str) -> Any:
        return await one.generate_response(name, [{"role": "assistant", "content": text}])

    over, told, reward, more = await say(games.CALL)
    assert (over, told, reward, more) == (False, "<tool_response>\n3\n</tool_response>", 0.0, {})
    assert (await say("sleep 0"))[2] == 0.25
    assert (await say(right_answer()))[::2] == (True, 1.0)
    assert await one.calculate_score(name) == 1.25
    await one.finalize_interaction(name)
    await one.finalize_interaction(name)
    assert games.SECRET not in json.dumps([opening, told])
    broken = await one.start_interaction(None, task="train/3")
    with pytest.raises(ludus.RewardUnavailable):
        await one.generate_response(broken, [{"role": "assistant", "content": "break"}])
    with pytest.raises(ConfigError, match="env='me/env-v0'"):
        await bridge.LudusInteraction({}).start_interaction()
