"""Process rewards: scores of steps by transformers itself, and where they arrive."""

import asyncio
import math

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    AutoTokenizer,
    Qwen2ForCausalLM,
    Qwen2ForTokenClassification,
)

from ludus.errors import ConfigError
from ludus.messages import assistant, user
from ludus.rewards import Sample, make_verifier
from ludus.rewards.compose import Composition, Part, composed
from ludus.rewards.learned.text.process_reward import contributions
from ludus.verdict import Status, Verdict

SCORES = [0.9, 0.2, 0.6]


@pytest.mark.parametrize(
    ("whole", "reward", "first"),
    [
        ("min", 0.2, 0.0),
        ("mean", 1.7 / 3, 0.3),
        ("last", 0.6, 0.0),
        ("product", 0.108, 0.9),
        ("sum", 1.7, 0.9),
    ],
)
def test_what_steps_add_sums_to_the_reward(whole, reward, first) -> None:
    added = contributions(SCORES, whole)
    assert math.fsum(added) == pytest.approx(reward)
    assert added[0] == pytest.approx(first)


def step_scores(folder, ids, places):
    """The probability of the second label at each place, by transformers alone."""
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0]
    return logits[places].softmax(-1)[:, 1].tolist()


def written(folder, conversation):
    """Ids of text and step ends as a person would write them: STEP marks the end of a step."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids, places = [], []
    for part in conversation.split("STEP"):
        ids += tokenizer.encode(part, add_special_tokens=False)
        places.append(len(ids) - 1)
    return ids, places[:-1] if not conversation.endswith("STEP") else places[
        : conversation.count("STEP")
    ]


async def scored(verifier, *samples):
    try:
        return await asyncio.gather(*(verifier.score(sample) for sample in samples))
    finally:
        await verifier.close()


async def test_each_step_is_read_at_its_end(step_folder) -> None:
    verifier = make_verifier("process-reward", model=str(step_folder), whole="sum", max_wait_ms=50)
    long = Sample(prompt="2+2?", response="two and two\n\nmake four\n\n\n\n4")
    short = Sample(prompt="2+2?", response="4")
    one, two = await scored(verifier, long, short)
    opening = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    ids, places = written(step_folder, f"{opening}two and two\n\nSTEPmake four\n\nSTEP4\n\nSTEP")
    expected = step_scores(step_folder, ids, places)
    assert one.reward == pytest.approx(sum(expected), abs=1e-5)
    assert one.turn_rewards == pytest.approx([one.reward])
    assert one.metrics["process_reward/steps"] == 3
    assert two.metrics["process_reward/steps"] == 1
    assert two.reward != pytest.approx(one.reward / 3, abs=1e-4)


async def test_steps_are_credited_to_the_turns_that_took_them(step_folder) -> None:
    sample = Sample(
        prompt="2+2?", response=[assistant("I think\n\nit is 5"), user("No."), assistant("4")]
    )
    verifier = make_verifier("process-reward", model=str(step_folder), whole="sum")
    (verdict,) = await scored(verifier, sample)
    ids, places = written(
        step_folder,
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\nI think\n\nSTEPit is 5\n\nSTEP"
        "<|im_end|>\n<|im_start|>user\nNo.<|im_end|>\n<|im_start|>assistant\n4\n\nSTEP",
    )
    first, second, third = step_scores(step_folder, ids, places)
    assert verdict.turn_rewards == pytest.approx([first + second, third], abs=1e-5)
    assert verdict.reward == pytest.approx(first + second + third, abs=1e-5)


async def test_marks_are_read_as_math_shepherd_does(write, tmp_path) -> None:
    """The share of "+" against "-" as the token after each mark."""
    folder = write(tmp_path / "lm", Qwen2ForCausalLM, phrases=("ки",))
    verifier = make_verifier("process-reward", model=str(folder), kind="mark", whole="last")
    (verdict,) = await scored(verifier, Sample(prompt="2+2?", response="first\n\nthen 4"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\nfirstкиthen 4ки"
    ids = tokenizer.encode(text, add_special_tokens=False)
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
    good, bad = (tokenizer.convert_tokens_to_ids(sign) for sign in "+-")
    assert verdict.reward == pytest.approx(float(logits[[good, bad]].softmax(-1)[0]), abs=1e-5)


async def test_one_label_is_read_by_its_sigmoid(write, tmp_path) -> None:
    folder = write(tmp_path / "one", Qwen2ForTokenClassification, labels=1)
    verifier = make_verifier("process-reward", model=str(folder), whole="last")
    (verdict,) = await scored(verifier, Sample(prompt="2+2?", response="4"))
    ids, places = written(
        folder, "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n4\n\nSTEP"
    )
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logit = model(input_ids=torch.tensor([ids])).logits[0, places[0], 0]
    assert verdict.reward == pytest.approx(float(logit.sigmoid()), abs=1e-5)


@pytest.mark.parametrize(
    ("response", "why"), [("", "says nothing"), ("word " * 10_000, "too long")]
)
async def test_a_response_without_a_readable_step_earns_nothing(step_folder, response, why) -> None:
    verifier = make_verifier("process-reward", model=str(step_folder))
    (verdict,) = await scored(verifier, Sample(prompt="2+2?", response=response))
    assert (verdict.status, verdict.reward) == (Status.OK, 0.0)
    assert why in verdict.detail


async def test_a_prompt_that_is_too_long_is_invalid(step_folder) -> None:
    verifier = make_verifier("process-reward", model=str(step_folder))
    (verdict,) = await scored(verifier, Sample(prompt="word " * 10_000, response="4"))
    assert (verdict.status, verdict.reward) == (Status.INVALID, None)


def test_wrong_heads_and_marks_are_refused(write, tmp_path, causal_folder, reward_folder) -> None:
    three = write(tmp_path / "three", Qwen2ForTokenClassification, labels=3)
    with pytest.raises(ConfigError, match=r"num_labels=3; num_labels=1 or num_labels=2 is needed"):
        make_verifier("process-reward", model=str(three))
    two = write(tmp_path / "two", Qwen2ForCausalLM, labels=2)
    with pytest.raises(ConfigError, match=r"weights lack score"):
        make_verifier("process-reward", model=str(two))
    with pytest.raises(ConfigError, match=r"is 4 tokens of this model"):
        make_verifier("process-reward", model=str(causal_folder), kind="mark")
    with pytest.raises(ConfigError, match="whole must be one of min, mean, last"):
        make_verifier("process-reward", model=str(causal_folder), whole="max")
    with pytest.raises(ConfigError, match="needs weights"):
        make_verifier("process-reward")


class Turned:
    """Gives fixed rewards of turns."""

    never_blocks = True

    def __init__(self, rewards, reward=None) -> None:
        self.rewards = rewards
        self.reward = sum(rewards) if reward is None else reward

    def score(self, sample: Sample) -> Verdict:
        return Verdict.of(self.reward, turn_rewards=self.rewards)


async def composite(parts, **verifiers):
    made = composed(composition=Composition(parts=parts), verifiers=verifiers)
    return await made.score(Sample(response="4", gold="4"))


async def test_a_composition_weighs_the_turns_of_its_parts() -> None:
    verdict = await composite(
        (Part(name="a", weight=2.0), Part(name="b", weight=-1.0), Part(name="exact", weight=1.0)),
        a=Turned([0.5, 0.25]),
        b=Turned([0.0, 1.0]),
    )
    assert verdict.turn_rewards == [1.0, -0.5]
    assert verdict.reward == 2 * 0.75 - 1.0 + 1.0  # what is no turn's is of the end


async def test_a_part_that_was_bounded_is_of_the_whole() -> None:
    verdict = await composite(
        (Part(name="a", high=0.5), Part(name="b")), a=Turned([0.5, 0.5]), b=Turned([0.1, 0.2])
    )
    assert verdict.turn_rewards == pytest.approx([0.1, 0.2])
    assert verdict.reward == pytest.approx(0.8)


def test_rewards_of_turns_are_finite_and_of_an_ok_verdict() -> None:
    with pytest.raises(ValueError, match="finite"):
        Verdict.of(1.0, turn_rewards=[math.inf])
    with pytest.raises(ValueError, match="belong to an ok verdict"):
        Verdict(status=Status.ERROR, turn_rewards=[1.0])
