"""RLPR and SAR: numbers by transformers alone, on a folder's model and the policy's engine."""

import asyncio
import math

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ludus.agent import ChatFormat
from ludus.agent.parsing import tool_format
from ludus.errors import ConfigError
from ludus.messages import assistant, user
from ludus.rewards import Sample, make_verifier
from ludus.rewards.compose import Composition, Part, composed
from ludus.rewards.learned.text.probability import ProbabilityReward, SelfAlignedReward
from ludus.trainer.engines.local import LocalEngine
from ludus.trainer.engines.policy_text import EngineText, hand_over
from ludus.trainer.models.loading import load_model, load_tokenizer
from ludus.trainer.models.weights import MemoryWeights
from ludus.verdict import Status

EXACT = 1e-5
OPENING = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
THOUGHT = "two and two make <answer>"


def forced(folder, context: str, text: str) -> list[float]:
    """Log-probabilities of `text` after `context`, one token at a time."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = tokenizer.encode(context, add_special_tokens=False)
    found = []
    for token in tokenizer.encode(text, add_special_tokens=False):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
        found.append(float(logits.log_softmax(-1)[token]))
        ids.append(token)
    return found


@pytest.fixture
async def engine(causal_folder):
    made = LocalEngine(load_model(causal_folder))
    yield made
    await made.close()


@pytest.fixture
def policy(engine, causal_folder):
    return EngineText(engine, ChatFormat(load_tokenizer(causal_folder), tool_format("hermes")))


@pytest.fixture(params=["engine", "folder"])
async def verifier_of(request, policy, causal_folder):
    """Makes a verifier that scores with the policy's engine, or with a model of a folder."""
    made = []

    def make(name, **options):
        options |= {} if request.param == "engine" else {"model": str(causal_folder)}
        verifier = make_verifier(name, **options)
        hand_over(policy, [verifier])
        made.append(verifier)
        return verifier

    yield make
    for verifier in made:
        await verifier.close()


async def test_given_texts_have_their_teacher_forced_log_probabilities(
    policy, causal_folder
) -> None:
    texts = ["four", "4", "it is four, I am sure of it, since two and two have always made four"]
    context = policy.prompt([user("2+2?")])
    rows = [[*context, *policy.encode(text)] for text in texts]
    found = await asyncio.gather(*(policy.logprobs(row) for row in rows))
    for text, logprobs in zip(texts, found, strict=True):
        expected = forced(causal_folder, OPENING.format("2+2?"), text)
        assert logprobs[len(context) :] == pytest.approx(expected, abs=EXACT)


async def test_rows_that_wait_together_are_scored_together_and_a_bad_one_fails_alone(
    engine,
) -> None:
    good = [list(range(5, 5 + length)) for length in (3, 40, 7, 1)]
    alone = [await engine.logprobs(row) for row in good]
    asked = [*good, [5, 99_999], []]
    together = await asyncio.gather(
        *(engine.logprobs(row) for row in asked), return_exceptions=True
    )
    for one, other in zip(alone, together, strict=False):
        assert other == pytest.approx(one, abs=EXACT)
    assert [type(error) for error in together[4:]] == [ConfigError, ConfigError]
    assert "token 99999" in str(together[4])


async def test_rlpr_is_the_mean_probability_of_the_reference_less_that_without_reasoning(
    verifier_of, causal_folder
) -> None:
    verifier = verifier_of("probability-reward")
    sample = Sample(prompt="2+2?", response=f"{THOUGHT}5</answer>", gold="four")
    verdict = await verifier.score(sample)
    opening = OPENING.format("2+2?")
    after = [math.exp(p) for p in forced(causal_folder, opening + THOUGHT, "four")]
    before = [math.exp(p) for p in forced(causal_folder, f"{opening}<answer>", "four")]
    assert verdict.metrics["probability/after"] == pytest.approx(sum(after) / 4, abs=EXACT)
    assert verdict.metrics["probability/before"] == pytest.approx(sum(before) / 4, abs=EXACT)
    gain = (sum(after) - sum(before)) / 4
    assert verdict.reward == pytest.approx(min(1, max(0, gain)), abs=EXACT)


@pytest.mark.parametrize("mean", ["logprob", "product"])
async def test_other_means_are_of_the_same_probabilities(verifier_of, causal_folder, mean) -> None:
    verifier = verifier_of("probability-reward", mean=mean, debias=False)
    verdict = await verifier.score(
        Sample(prompt="2+2?", response=f"{THOUGHT}5</answer>", gold="four")
    )
    total = sum(forced(causal_folder, OPENING.format("2+2?") + THOUGHT, "four"))
    assert verdict.reward == pytest.approx(
        math.exp(total if mean == "product" else total / 4), rel=1e-4
    )


async def test_sar_is_the_gain_in_perplexity_that_the_question_brings(
    verifier_of, causal_folder
) -> None:
    verdict = await verifier_of("self-aligned-reward").score(
        Sample(prompt="2+2?", response="it is four")
    )
    given = forced(causal_folder, OPENING.format("2+2?"), "it is four")
    alone = forced(causal_folder, OPENING.format(""), "it is four")
    ppl_given = math.exp(-sum(given) / len(given))
    ppl_alone = math.exp(-sum(alone) / len(alone))
    expected = min(1, max(-1, (ppl_alone - ppl_given) / ppl_alone))
    assert verdict.reward == pytest.approx(expected, abs=1e-4)


async def test_the_last_turn_is_scored_after_all_that_came_before(
    verifier_of, causal_folder
) -> None:
    said = [assistant("hm"), user("well?"), assistant(f"{THOUGHT}5</answer>")]
    verdict = await verifier_of("probability-reward", debias=False).score(
        Sample(prompt="2+2?", response=said, gold="4")
    )
    context = OPENING.format("2+2?") + "hm<|im_end|>\n" + OPENING.format("well?") + THOUGHT
    (expected,) = forced(causal_folder, context, "4")
    assert verdict.reward == pytest.approx(math.exp(expected), abs=EXACT)


@pytest.mark.parametrize(
    "response", ["", "4", "<answer>4", "</answer>4<answer>", "\x00\ud800", "word " * 10_000]
)
async def test_a_response_without_an_answer_earns_nothing(verifier_of, response) -> None:
    verdict = await verifier_of("probability-reward").score(
        Sample(prompt="2+2?", response=response, gold="4")
    )
    assert (verdict.status, verdict.reward) == (Status.OK, 0.0)


@pytest.mark.parametrize("response", ["", "  ", "word " * 10_000])
async def test_sar_of_nothing_or_too_much_is_the_lowest(verifier_of, response) -> None:
    verdict = await verifier_of("self-aligned-reward").score(
        Sample(prompt="2+2?", response=response)
    )
    assert (verdict.status, verdict.reward) == (Status.OK, -1.0)


async def test_reasoning_that_is_too_long_earns_nothing(verifier_of) -> None:
    response = "word " * 1_000 + "<answer>4</answer>"
    verdict = await verifier_of("probability-reward").score(
        Sample(prompt="2+2?", response=response, gold="4")
    )
    assert (verdict.status, verdict.reward) == (Status.OK, 0.0)
    assert "too long" in verdict.detail


@pytest.mark.parametrize("gold", [None, 4, "", " ", ["4"]])
async def test_a_gold_that_is_no_text_is_invalid(verifier_of, gold) -> None:
    verdict = await verifier_of("probability-reward").score(
        Sample(prompt="2+2?", response="<answer>4</answer>", gold=gold)
    )
    assert (verdict.status, verdict.reward) == (Status.INVALID, None)


async def test_a_prompt_of_10_000_words_is_invalid(verifier_of) -> None:
    sample = Sample(prompt="word " * 10_000, response="<answer>4</answer>", gold="4")
    for name in ("probability-reward", "self-aligned-reward"):
        verdict = await verifier_of(name).score(sample)
        assert (verdict.status, verdict.reward) == (Status.INVALID, None)


async def test_without_a_policy_or_a_model_it_says_what_to_do() -> None:
    for made in (ProbabilityReward(), SelfAlignedReward()):
        name = made.verifier
        verdict = await made.score(Sample(prompt="?", response="x", gold="4"))
        assert verdict.status is Status.INVALID
        assert f"{name}?model=FOLDER" in verdict.detail


async def test_a_named_model_stays_and_new_weights_of_the_policy_are_used(
    policy, engine, causal_folder
) -> None:
    fixed = ProbabilityReward(model=str(causal_folder), debias=False)
    moving = ProbabilityReward(debias=False)
    hand_over(policy, [fixed, moving])
    sample = Sample(prompt="2+2?", response="<answer>5</answer>", gold="4")
    before = [(await one.score(sample)).unwrap() for one in (fixed, moving)]
    assert before[0] == pytest.approx(before[1], abs=EXACT)
    weights = {name: p * 1.5 for name, p in engine.model.named_parameters()}
    await engine.set_weights(MemoryWeights(weights), 1)
    after = [(await one.score(sample)).unwrap() for one in (fixed, moving)]
    assert after[0] == before[0]
    assert abs(after[1] - before[1]) > 1e-3
    await fixed.close()


async def test_a_composition_hands_the_policy_on(policy) -> None:
    made = composed(
        composition=Composition(parts=(Part(name="exact"), Part(name="self-aligned-reward")))
    )
    hand_over(policy, [made])
    verdict = await made.score(Sample(prompt="2+2?", response="4", gold="4"))
    assert verdict.ok
    assert set(verdict.parts) == {"exact", "self-aligned-reward"}
