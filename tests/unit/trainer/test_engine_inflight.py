"""New weights in the local engine while requests run: versions, kept and recomputed keys, sources
that break off, and answers that are continued elsewhere.
"""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any

import pytest
import torch

from ludus.agent import Finish, Generation, Sampling, TensorMeta
from ludus.errors import ConfigError, StaleWeights
from ludus.trainer.engines.local import EngineLimits, LocalEngine
from ludus.trainer.models.tiny import build_model
from ludus.trainer.models.weights import MemoryWeights

PROMPTS = [[5, 6, 7, 8], [5, 6, 7, 8, 9, 10, 11], [30, 31], [5, 6, 7, 8]]
SAMPLED = 24
EXACT = 1e-5


def model(seed: int = 0) -> Any:
    return build_model(60, hidden=32, layers=2, heads=2, max_length=128, seed=seed).eval()


class Halt:
    """Holds the engine's thread before a forward pass, counted from 1."""

    def __init__(self, made: LocalEngine, number: int) -> None:
        self.left = number
        self.reached, self.opened = threading.Event(), threading.Event()
        made.model.base_model.register_forward_pre_hook(self._hold)

    def _hold(self, *_: object) -> None:
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            self.opened.wait(20)


async def crossing(made: LocalEngine, source: Any, passes: int = 9) -> list[Generation]:
    """Sample the prompts, with new weights after `passes` forward passes."""
    halt = Halt(made, passes)
    await made.pause()
    asked = [
        asyncio.create_task(made.generate(prompt, Sampling(max_tokens=SAMPLED, seed=seed)))
        for seed, prompt in enumerate(PROMPTS)
    ]
    await asyncio.sleep(0)  # all wait, and are admitted together
    await made.resume()
    assert await asyncio.to_thread(halt.reached.wait, 10)
    moving = asyncio.create_task(made.set_weights(source, 7))
    await asyncio.sleep(0)
    halt.opened.set()
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*asked, return_exceptions=True)
        await moving
    return answers  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


def scored(made: Any, ids: list[int]) -> list[float]:
    with torch.no_grad():
        logits = made(torch.tensor([ids])).logits[0].float()
    targets = torch.tensor(ids[1:])[:, None]
    return [0.0, *torch.log_softmax(logits, -1)[:-1].gather(1, targets)[:, 0].tolist()]


def scored_with_old_keys(old: Any, new: Any, ids: list[int], fed: int) -> list[float]:
    """Score the ids after `fed` by `new`, which reads keys of the first `fed` ids from `old`."""
    with torch.no_grad():
        # transformers 5.24 renamed the argument and the field.
        name = "cache" if "cache" in signature(new.forward).parameters else "past_key_values"
        past = getattr(old(torch.tensor([ids[:fed]]), use_cache=True), name)
        logits = new(torch.tensor([ids[fed:]]), **{name: past}).logits[0].float()
    targets = torch.tensor(ids[fed + 1 :])[:, None]
    return torch.log_softmax(logits, -1)[:-1].gather(1, targets)[:, 0].tolist()


async def test_recomputed_keys_make_every_later_token_the_new_policys() -> None:
    old, new, made = model(), model(seed=1), LocalEngine(model())
    answers = await crossing(made, MemoryWeights.of(new))
    fresh = LocalEngine(model(seed=1))
    for seed, (prompt, answer) in enumerate(zip(PROMPTS, answers, strict=True)):
        cut = answer.versions.index(7)
        assert answer.versions == [0] * cut + [7] * (SAMPLED - cut)
        assert cut == 9  # one token of the prompt's pass, and eight more
        ids, start = [*prompt, *answer.ids], len(prompt)
        before, after = answer.logprobs[:cut], answer.logprobs[cut:]
        assert before == pytest.approx(scored(old, ids)[start : start + cut], abs=EXACT)
        assert after == pytest.approx(scored(new, ids)[start + cut :], abs=EXACT)
        # positive control: the two policies differ by far more than rounding
        assert after != pytest.approx(scored(old, ids)[start + cut :], abs=1e-2)
        rest = Sampling(max_tokens=SAMPLED - cut, seed=seed, drawn=cut)
        anew = await fresh.generate(ids[: start + cut], rest)
        assert anew.ids == answer.ids[cut:]
        assert anew.logprobs == pytest.approx(after, abs=EXACT)
    assert made.recomputed_tokens == sum(len(prompt) + 8 for prompt in PROMPTS)
    await fresh.close()
    await made.close()


async def test_kept_keys_are_the_old_policys_and_the_logprobs_say_so() -> None:
    old, new, made = model(), model(seed=1), LocalEngine(model(), keep_cache=True)
    answers = await crossing(made, MemoryWeights.of(new))
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        cut = answer.versions.index(7)
        ids, fed = [*prompt, *answer.ids], len(prompt) + cut - 1
        expected = scored_with_old_keys(old, new, ids, fed)
        assert answer.logprobs[cut:] == pytest.approx(expected, abs=EXACT)
        assert answer.logprobs[cut:] != pytest.approx(scored(new, ids)[fed + 1 :], abs=1e-2)
    assert made.recomputed_tokens == 0
    await made.close()


@pytest.mark.parametrize("tokens", [1, 5, 1000])
async def test_recomputing_in_parts_changes_nothing(tokens: int) -> None:
    made = LocalEngine(model(), EngineLimits(prefill_tokens=tokens))
    answers = await crossing(made, MemoryWeights.of(model(seed=1)), passes=20)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        cut = answer.versions.index(7)
        expected = scored(model(seed=1), [*prompt, *answer.ids])[len(prompt) + cut :]
        assert answer.logprobs[cut:] == pytest.approx(expected, abs=EXACT)
    await made.close()


async def test_a_recomputed_row_serves_the_next_turn() -> None:
    made = LocalEngine(model())
    answers = await crossing(made, MemoryWeights.of(model(seed=1)))
    computed = made.computed_prompt_tokens
    prompt = [*PROMPTS[1], *answers[1].ids, 40]
    again = await made.generate(prompt, Sampling(max_tokens=4))
    assert made.computed_prompt_tokens - computed == 2
    expected = scored(model(seed=1), [*prompt, *again.ids])[len(prompt) :]
    assert again.logprobs == pytest.approx(expected, abs=EXACT)
    await made.close()


async def test_several_publishes_in_a_row_are_told_apart_token_by_token() -> None:
    made = LocalEngine(model(), EngineLimits(max_length=128))
    models = [model(seed=seed) for seed in range(4)]
    asked = asyncio.create_task(made.generate([5, 6], Sampling(max_tokens=120)))
    for version in (1, 2, 3):
        sampled = made.sampled_tokens
        while made.sampled_tokens < sampled + 3 and not asked.done():
            await asyncio.sleep(0.001)
        await made.set_weights(MemoryWeights.of(models[version]), version)
    answer = await asked
    assert answer.versions == sorted(answer.versions)
    assert set(answer.versions) == {0, 1, 2, 3}
    by_version = [scored(one, [5, 6, *answer.ids])[2:] for one in models]
    expected = [by_version[version][n] for n, version in enumerate(answer.versions)]
    assert answer.logprobs == pytest.approx(expected, abs=EXACT)
    await made.close()


async def test_an_aborted_answer_continues_as_if_nothing_had_happened() -> None:
    made, other = LocalEngine(model()), LocalEngine(model())
    sampling = Sampling(max_tokens=100, temperature=0.9, seed=5)
    whole = await made.generate([5, 6, 7], sampling)
    asked = asyncio.create_task(made.generate([5, 6, 7], sampling))
    sampled = made.sampled_tokens
    while made.sampled_tokens < sampled + 5:
        await asyncio.sleep(0.001)
    await made.abort()
    part = await asked
    got = len(part.ids)
    assert part.finish is Finish.ABORT
    assert 5 <= got < 100
    assert part.ids == whole.ids[:got]
    rest = Sampling(max_tokens=100 - got, temperature=0.9, seed=5, drawn=got)
    assert (await other.generate([5, 6, 7, *part.ids], rest)).ids == whole.ids[got:]
    await made.close()
    await other.close()


class BreaksOff:
    """A source that raises after a few of its tensors."""

    def __init__(self, whole: MemoryWeights) -> None:
        self.whole = whole

    def metadata(self) -> list[TensorMeta]:
        return self.whole.metadata()

    def pieces(self) -> Iterator[Mapping[str, object]]:
        for name, tensor in list(self.whole.tensors.items())[:3]:
            yield {name: tensor}
        raise OSError("the gather broke off, as if")


async def test_a_publish_that_breaks_off_leaves_no_engine_that_samples_from_a_mixture() -> None:
    made, new = LocalEngine(model()), MemoryWeights.of(model(seed=1))
    halt = Halt(made, 4)
    running = asyncio.create_task(made.generate([5, 6], Sampling(max_tokens=100)))
    assert await asyncio.to_thread(halt.reached.wait, 10)
    moving = asyncio.create_task(made.set_weights(BreaksOff(new), 1))
    await asyncio.sleep(0)
    halt.opened.set()
    async with asyncio.timeout(60):
        with pytest.raises(OSError, match="broke off"):
            await moving
        for broken in (running, made.generate([5], Sampling(max_tokens=1)), made.logprobs([5, 6])):
            with pytest.raises(StaleWeights, match="publishing version 1 broke off"):
                await broken
        assert made.version == 0
        await made.set_weights(new, 1)
        answer = await made.generate([5, 6], Sampling(max_tokens=4))
    assert answer.logprobs == pytest.approx(
        scored(model(seed=1), [5, 6, *answer.ids])[2:], abs=EXACT
    )
    await made.close()


async def test_weights_of_another_model_change_nothing() -> None:
    made = LocalEngine(model())
    before = await made.logprobs([5, 6, 7])
    for broken in ({"nobody.weight": torch.zeros(1)}, {}):
        with pytest.raises(ConfigError, match=r"does not have|not among"):
            await made.set_weights(MemoryWeights(broken), 1)
    assert (await made.logprobs([5, 6, 7]), made.version) == (before, 0)
    await made.close()


async def test_a_text_longer_than_the_model_is_refused_with_both_numbers() -> None:
    made = LocalEngine(model())
    assert len(await made.logprobs([5] * 128)) == 128
    with pytest.raises(ConfigError, match="129 tokens exceed the engine's 128"):
        await made.logprobs([5] * 129)
    with pytest.raises(ConfigError, match=r"200 prompt tokens and 1 to sample exceed .* 128"):
        await made.generate([5] * 200, Sampling(max_tokens=1))
    await made.close()
