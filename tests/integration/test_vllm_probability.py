"""The probability reward on a vLLM server, beside transformers token by token.

Needs vLLM, in this environment or in that of the interpreter that LUDUS_VLLM_PYTHON names.
"""

import importlib.util
import math
import os

import pytest
import torch

from ludus.agent import ChatFormat
from ludus.agent.parsing import tool_format
from ludus.rewards import Sample
from ludus.rewards.learned.text.probability import ProbabilityReward, SelfAlignedReward
from ludus.trainer.config import VLLMConfig
from ludus.trainer.engines.policy_text import EngineText, hand_over
from ludus.trainer.engines.vllm import ServerSite, start_vllm
from ludus.trainer.models.loading import load_model, load_tokenizer
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.models.weights import MemoryWeights

PYTHON = os.environ.get("LUDUS_VLLM_PYTHON", "")
INSTALLED = bool(PYTHON) or importlib.util.find_spec("vllm") is not None
EXACT = 1e-5

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(not INSTALLED, reason="vLLM is not installed; see LUDUS_VLLM_PYTHON"),
]


async def test_the_probability_reward_is_the_teacher_forced_one(tmp_path) -> None:
    # The CPU attention of vLLM 0.32 knows no heads below 32 channels.
    folder = write_tiny_policy(tmp_path / "model", hidden=128, layers=2, heads=4)
    model, tokenizer = load_model(folder), load_tokenizer(folder)

    def forced(context: str, text: str) -> list[float]:
        ids, found = tokenizer.encode(context, add_special_tokens=False), []
        for token in tokenizer.encode(text, add_special_tokens=False):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
            found.append(float(logits.log_softmax(-1)[token]))
            ids.append(token)
        return found

    engine = await start_vllm(
        VLLMConfig(python=PYTHON),
        ServerSite(folder=str(folder), dtype="float32", cpu=True, log=tmp_path / "vllm.log"),
        model,
    )
    try:
        await engine.set_weights(MemoryWeights.of(model), 0)
        policy = EngineText(engine, ChatFormat(tokenizer, tool_format("hermes")))
        opening = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
        thought = "two and two make <answer>"
        expected = forced(opening + thought, "four")
        rows = [*tokenizer.encode(opening + thought, add_special_tokens=False)]
        found = await policy.logprobs([*rows, *policy.encode("four")])
        worst = max(abs(a - b) for a, b in zip(found[len(rows) :], expected, strict=True))
        print(f"largest difference: {worst:.2g} nats")
        assert worst < EXACT
        reward, aligned = ProbabilityReward(), SelfAlignedReward()
        hand_over(policy, [reward, aligned])
        sample = Sample(prompt="2+2?", response=f"{thought}5</answer>", gold="four")
        verdict = await reward.score(sample)
        after = sum(map(math.exp, expected)) / 4
        before = sum(map(math.exp, forced(f"{opening}<answer>", "four"))) / 4
        assert verdict.metrics["probability/after"] == pytest.approx(after, abs=EXACT)
        assert verdict.metrics["probability/before"] == pytest.approx(before, abs=EXACT)
        assert (await aligned.score(sample)).ok
    finally:
        await engine.close()
