"""The local engine against the model itself."""

import asyncio
import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ludus.agent import Finish, Sampling, Segment, Turn
from ludus.errors import ConfigError
from ludus.trainer.config import TrainerConfig
from ludus.trainer.engines.cached_model import PrefixStore
from ludus.trainer.engines.kv_cache import KeptPrefix, KeptRow
from ludus.trainer.engines.local import EngineClosed, EngineLimits, LocalEngine
from ludus.trainer.engines.requests import sample
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.policy_model import MovingReference
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.models.mask_policy import MaskPolicy
from ludus.trainer.models.tiny import build_model
from ludus.trainer.models.weights import MemoryWeights
from ludus.trainer.recipes.recipe import VocabularySettings
from ludus.trainer.rollout.batch import as_row, pad

END = 2
PROMPTS = [[5, 6, 7, 8], [5, 6, 7, 8, 9, 10, 11], [30, 31], [5, 6, 7, 8]]


def engine(**options: Any) -> Any:
    return LocalEngine(build_model(60, hidden=32, layers=2, heads=2, max_length=128), **options)


def reference_logprobs(made: Any, ids: list[int], temperature: float = 1.0) -> Any:
    with torch.no_grad():
        logits = made.model(torch.tensor([ids])).logits[0].float() / temperature
    return torch.log_softmax(logits, -1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


async def test_logprobs_equal_those_of_a_full_forward_pass() -> None:
    made = engine()
    sampling = [Sampling(max_tokens=12, temperature=0.7, seed=i) for i in range(4)]
    got = await asyncio.gather(*map(made.generate, PROMPTS, sampling))
    for prompt, one in zip(PROMPTS, got, strict=True):
        expected = reference_logprobs(made, prompt + one.ids, 0.7)[len(prompt) - 1 :]
        assert torch.allclose(torch.tensor(one.logprobs), expected, atol=1e-5)
    await made.close()


def nucleus(logits: torch.Tensor, top_p: float) -> set[int]:
    """The likeliest tokens until their probabilities reach `top_p`, one after the other."""
    kept: set[int] = set()
    sum_of_kept = 0.0
    for token in sorted(range(len(logits)), key=lambda one: -float(logits.detach()[one])):
        if kept and sum_of_kept >= top_p:
            break
        kept.add(token)
        sum_of_kept += float(logits.detach().softmax(-1)[token])
    return kept


async def test_a_mask_leaves_the_likeliest_tokens_of_another_model() -> None:
    """Rows share prompts, join and leave at different times, and weights change on the way."""
    shape: dict[str, Any] = {"hidden": 32, "layers": 2, "heads": 2, "max_length": 128}
    mask = MaskPolicy(build_model(60, seed=1, **shape), top_p=0.6, every=2)
    made = engine(mask=mask)
    lengths = [12, 3, 7, 5]
    for weights in (None, build_model(60, seed=2, **shape)):
        if weights is not None:
            await made.set_weights(MemoryWeights.of(weights), 1)
        sampling = [
            Sampling(max_tokens=length, temperature=0.7, seed=n)
            for n, length in enumerate(lengths * 2)
        ]
        got = await asyncio.gather(*map(made.generate, PROMPTS * 2, sampling))
        for prompt, one in zip(PROMPTS * 2, got, strict=True):
            ids = torch.tensor([prompt + one.ids])
            with torch.no_grad():
                own, other = made.model(ids).logits[0], mask.model(ids).logits[0]
            for place, (token, logprob) in enumerate(
                zip(one.ids, one.logprobs, strict=True), len(prompt) - 1
            ):
                kept = nucleus(other[place], 0.6)
                assert token in kept
                assert len(kept) < 55
                held = own[place][sorted(kept)] / 0.7
                expected = torch.log_softmax(held, -1)[sorted(kept).index(token)]
                assert logprob == pytest.approx(float(expected), abs=1e-5)
    await made.close()


def test_a_learner_computes_over_the_likeliest_tokens_of_its_copy() -> None:
    """Scores and gradient against one row after the other, without slices or packing."""
    settings = TrainerConfig(lr=1e-2, tokens_per_pass=40)
    reading = ReadingOptions(
        temperature=0.7, vocabulary=VocabularySettings(top_p=0.6, every=2), logits_at_once=60 * 3
    )
    learner = Learner(build_model(60, hidden=32, layers=2, heads=2, max_length=128), settings)
    masked = Learner(copy.deepcopy(learner.model), settings, reading)
    segments = [
        Segment(prompt_ids=prompt, turns=[Turn(out_ids=[9 + n, 3, 40], logprobs=[-1.0] * 3)])
        for n, prompt in enumerate(PROMPTS)
    ]
    rows = [row for segment in segments if (row := as_row(segment)) is not None]
    batch = pad(rows)

    def loss(part: Any, predicted: Any) -> Any:
        return (predicted.logp * part.mask).sum(), part.mask.sum()

    every = torch.arange(len(rows))
    frozen = copy.deepcopy(masked.model)
    assert masked.mask is not None
    for step in range(1, 5):
        oracle = copy.deepcopy(masked.model)
        total, scores = torch.zeros(()), masked.score(batch)
        for number, (prompt, row) in enumerate(zip(PROMPTS, rows, strict=True)):
            ids = torch.tensor([row.ids])
            own, other = oracle(ids).logits[0], frozen(ids).logits[0].detach()
            for place in range(len(prompt), len(row.ids)):
                kept = sorted(nucleus(other[place - 1], 0.6) | {row.ids[place]})
                logp = torch.log_softmax(own[place - 1][kept] / 0.7, -1)
                value = logp[kept.index(row.ids[place])]
                assert float(scores[number, place]) == pytest.approx(
                    float(value.detach()), abs=1e-5
                )
                total = total + value
        (total / float(batch.mask.sum())).backward()
        norm = torch.nn.utils.get_total_norm([one.grad for one in oracle.parameters()])
        assert masked.update(batch, every, loss)["grad_norm"] == pytest.approx(
            float(norm), rel=1e-4
        )
        assert bool(masked.score_entropy(batch).isfinite().all())
        masked.mask.after_step()
        if step % 2 == 0:
            frozen = copy.deepcopy(masked.model)
    assert not torch.allclose(learner.score(batch), masked.score(batch), atol=0.1)


def test_a_reference_that_moves_is_not_masked() -> None:
    settings = TrainerConfig(reference_every=1)
    policy = build_model(60, hidden=32, layers=2, heads=2, max_length=128)
    plain = Learner(copy.deepcopy(policy), TrainerConfig())
    reading = ReadingOptions(vocabulary=VocabularySettings(top_p=0.6, every=2))
    learner = Learner(policy, settings, reading)
    reference = MovingReference(learner, plain)
    turn = Turn(out_ids=[9, 3, 40], logprobs=[-1.0] * 3)
    rows = [as_row(Segment(prompt_ids=prompt, turns=[turn])) for prompt in PROMPTS]
    batch = pad([row for row in rows if row is not None])
    expected, masked = plain.score(batch), learner.score(batch)
    assert not torch.allclose(expected, masked, atol=0.1)
    for _ in range(2):  # before and after the reference is set to the policy, which has not moved
        assert torch.allclose(reference.score(batch), expected, atol=1e-6)
        assert torch.equal(learner.score(batch), masked)
        reference.after_step()


@pytest.mark.parametrize("tokens", [1, 3, 8, 12])
async def test_prompts_computed_in_parts_sample_the_same(tokens: int) -> None:
    whole, parts = engine(), engine(limits=EngineLimits(prefill_tokens=tokens))
    sampling = [Sampling(max_tokens=9, seed=i) for i in range(4)]
    expected = await asyncio.gather(*map(whole.generate, PROMPTS, sampling))
    got = await asyncio.gather(*map(parts.generate, PROMPTS, sampling))
    assert [one.ids for one in got] == [one.ids for one in expected]
    for one, other in zip(got, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert parts.computed_prompt_tokens == whole.computed_prompt_tokens
    await whole.close()
    await parts.close()


async def test_greedy_is_the_argmax_at_every_step() -> None:
    made = engine()
    one = await made.generate([5, 6, 7], Sampling(max_tokens=8, temperature=0.0))
    ids = [5, 6, 7]
    for token in one.ids:
        with torch.no_grad():
            assert int(made.model(torch.tensor([ids])).logits[0, -1].argmax()) == token
        ids.append(token)
    await made.close()


async def test_what_a_request_samples_does_not_depend_on_its_neighbours() -> None:
    made = engine()
    alone = await made.generate(PROMPTS[1], Sampling(max_tokens=10, seed=3))
    crowd = await asyncio.gather(
        *(made.generate(PROMPTS[1], Sampling(max_tokens=10, seed=s)) for s in range(6)),
        *(made.generate(p, Sampling(max_tokens=17, seed=9)) for p in PROMPTS),
    )
    assert crowd[3].ids == alone.ids
    assert len({tuple(one.ids) for one in crowd[:6]}) > 1
    await made.close()


async def test_the_next_turn_computes_only_what_is_new_and_stays_exact() -> None:
    made = engine()
    first = await made.generate(PROMPTS[0], Sampling(max_tokens=6, seed=1))
    computed = made.computed_prompt_tokens
    prompt = [*PROMPTS[0], *first.ids, 40, 41, 42]
    second = await made.generate(prompt, Sampling(max_tokens=6, seed=2))
    # the last sampled token was never fed, so it is computed with the three new ones
    assert made.computed_prompt_tokens - computed == 4
    expected = reference_logprobs(made, prompt + second.ids)[len(prompt) - 1 :]
    assert torch.allclose(torch.tensor(second.logprobs), expected, atol=1e-5)
    await made.close()


async def test_rows_that_leave_in_any_order_stay_exact_over_their_turns() -> None:
    made = engine()
    prompts = [[5 + n, 6, *range(7, 7 + n)] for n in range(12)]
    for turn in range(3):
        sampling = [Sampling(max_tokens=1 + (5 * n + turn) % 7, seed=n) for n in range(12)]
        got = await asyncio.gather(*map(made.generate, prompts, sampling))
        for prompt, one in zip(prompts, got, strict=True):
            expected = reference_logprobs(made, prompt + one.ids)[len(prompt) - 1 :]
            assert torch.allclose(torch.tensor(one.logprobs), expected, atol=1e-5)
        prompts = [[*prompt, *one.ids, 40 + turn] for prompt, one in zip(prompts, got, strict=True)]
    await made.close()


async def test_a_shared_prompt_is_computed_once() -> None:
    made = engine()
    await asyncio.gather(
        *(made.generate([7] * 20, Sampling(max_tokens=2, seed=s)) for s in range(8))
    )
    # the first arrival may be alone in its batch; the others find its prompt kept but its
    # last token
    assert made.computed_prompt_tokens <= 20 + 7
    await made.close()


async def test_a_stop_token_ends_the_turn_and_is_kept() -> None:
    made = engine()
    every = tuple(range(60))
    one = await made.generate([5, 6], Sampling(max_tokens=10, seed=1, stop_token_ids=every))
    assert one.finish is Finish.STOP
    assert len(one.ids) == 1
    await made.close()


async def test_new_weights_change_the_version_and_drop_kept_prefixes() -> None:
    made = engine()
    before = await made.generate(PROMPTS[1], Sampling(max_tokens=5, temperature=0.0))
    other = build_model(60, hidden=32, layers=2, heads=2, max_length=128, seed=1)
    await made.set_weights(MemoryWeights.of(other), 7)
    after = await made.generate(PROMPTS[1], Sampling(max_tokens=5, temperature=0.0))
    assert (made.version, set(before.versions), set(after.versions)) == (7, {0}, {7})
    expected = reference_logprobs(made, PROMPTS[1] + after.ids)[len(PROMPTS[1]) - 1 :]
    assert torch.allclose(torch.tensor(after.logprobs), expected, atol=1e-5)
    await made.close()


async def test_abort_answers_everyone_with_what_there_is() -> None:
    made = engine()
    await made.pause()
    waiting = asyncio.create_task(made.generate([5, 6], Sampling(max_tokens=100)))
    await asyncio.sleep(0.05)
    await made.abort()
    assert (await asyncio.wait_for(waiting, 60)).finish is Finish.ABORT
    await made.close()


async def test_a_request_beyond_the_window_is_refused_with_the_numbers() -> None:
    made = engine()
    with pytest.raises(ConfigError, match=r"120 prompt tokens and 20 to sample exceed.*128"):
        await made.generate([5] * 120, Sampling(max_tokens=20))
    await made.close()


async def test_weights_of_another_model_are_refused() -> None:
    made = engine()
    with pytest.raises(ConfigError, match="does not have"):
        await made.set_weights(MemoryWeights({"nobody.weight": torch.zeros(1)}), 1)
    await made.close()


async def test_a_window_beyond_the_models_positions_is_cut_to_them() -> None:
    made = engine(limits=EngineLimits(max_length=4096))
    assert made.max_length == 128
    with pytest.raises(ConfigError, match="exceed the engine's 128"):
        await made.generate([5] * 120, Sampling(max_tokens=20))
    await made.close()
    smaller = engine(limits=EngineLimits(max_length=64))
    assert smaller.max_length == 64
    await smaller.close()


async def test_a_resumed_engine_counts_versions_from_where_it_left() -> None:
    made = engine(version=41)
    one = await made.generate([5, 6], Sampling(max_tokens=3, seed=1))
    assert (made.version, one.versions) == (41, [41, 41, 41])
    await made.close()


def before_the_forward_pass(made: Any, number: int, act: Callable[[], object]) -> None:
    """Let the model call `act` at the start of its forward pass `number`, counted from 1."""
    passes = 0

    def hook(*_: object) -> None:
        nonlocal passes
        passes += 1
        if passes == number:
            act()

    made.model.base_model.register_forward_pre_hook(hook)


def break_down() -> None:
    raise RuntimeError("out of memory, as if")


@pytest.mark.parametrize("number", [1, 2], ids=["prefill", "decode"])
async def test_a_forward_pass_that_raises_fails_its_requests_and_no_later_one(number: int) -> None:
    made = engine()
    before_the_forward_pass(made, number, break_down)
    await made.pause()
    asked = [made.generate(prompt, Sampling(max_tokens=4, seed=1)) for prompt in PROMPTS]
    together = asyncio.gather(*asked, return_exceptions=True)
    await asyncio.sleep(0.05)
    await made.resume()
    for answer in await asyncio.wait_for(together, 60):
        assert isinstance(answer, RuntimeError)
        assert "out of memory" in str(answer)
    later = await asyncio.wait_for(made.generate(PROMPTS[0], Sampling(max_tokens=4, seed=1)), 60)
    expected = reference_logprobs(made, PROMPTS[0] + later.ids)[len(PROMPTS[0]) - 1 :]
    assert torch.allclose(torch.tensor(later.logprobs), expected, atol=1e-5)
    await made.close()


class Gate:
    """Holds the engine's thread inside a forward pass."""

    def __init__(self, made: Any) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        before_the_forward_pass(made, 1, self._hold)

    def _hold(self) -> None:
        self.reached.set()
        self.opened.wait(20)

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, 5)


async def test_jobs_cancelled_while_they_queue_leave_the_engine_alive() -> None:
    made = engine()
    gate = Gate(made)
    running = asyncio.create_task(made.generate([5, 6], Sampling(max_tokens=3, seed=1)))
    await gate.wait()
    for job in (made.logprobs([5, 6, 7]), made.set_weights(MemoryWeights({}), 9), made.abort()):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(job, 0.02)
    gate.opened.set()
    one = await asyncio.wait_for(running, 60)
    # neither the cancelled abort nor the cancelled weights took effect
    assert (one.finish, one.versions, made.version) == (Finish.LENGTH, [0, 0, 0], 0)
    scored = await asyncio.wait_for(made.logprobs([5, 6, 7]), 60)
    assert torch.allclose(torch.tensor(scored[1:]), reference_logprobs(made, [5, 6, 7]), atol=1e-5)
    await made.close()


async def test_requests_cancelled_in_the_middle_leave_their_neighbours_alone() -> None:
    made = engine()
    gate = Gate(made)
    gone = asyncio.create_task(made.generate([5, 6], Sampling(max_tokens=100, seed=1)))
    await gate.wait()
    stays = asyncio.create_task(made.generate(PROMPTS[0], Sampling(max_tokens=5, seed=2)))
    gone.cancel()
    gate.opened.set()
    one = await asyncio.wait_for(stays, 60)
    expected = reference_logprobs(made, PROMPTS[0] + one.ids)[len(PROMPTS[0]) - 1 :]
    assert torch.allclose(torch.tensor(one.logprobs), expected, atol=1e-5)
    assert gone.cancelled()
    await made.close()


async def test_a_closed_engine_refuses_everything_at_once() -> None:
    made = engine()
    await made.close()
    await made.close()
    asked = [
        made.generate([5, 6], Sampling(max_tokens=2)),
        made.logprobs([5, 6]),
        made.set_weights(MemoryWeights({}), 1),
        made.abort(),
    ]
    for one in asked:
        with pytest.raises(EngineClosed, match="build a new one"):
            await asyncio.wait_for(one, 60)


async def test_closing_answers_requests_and_jobs_that_are_under_way() -> None:
    made = engine()
    gate = Gate(made)
    running = asyncio.create_task(made.generate([5, 6], Sampling(max_tokens=100, seed=1)))
    await gate.wait()
    queued = asyncio.create_task(made.generate([7, 8], Sampling(max_tokens=100, seed=1)))
    job = asyncio.create_task(made.logprobs([5, 6, 7]))
    await asyncio.sleep(0)  # both are queued now
    closing = asyncio.create_task(made.close())
    await asyncio.sleep(0)
    gate.opened.set()
    await asyncio.wait_for(closing, 60)
    assert [(await one).finish for one in (running, queued)] == [Finish.ABORT] * 2
    with pytest.raises(EngineClosed, match="before it began this call"):
        await asyncio.wait_for(job, 60)


async def test_closing_does_not_wait_for_a_pass_that_hangs() -> None:
    made = engine()
    gate = Gate(made)
    stuck = asyncio.create_task(made.generate([5, 6], Sampling(max_tokens=4)))
    await gate.wait()
    queued = asyncio.create_task(made.generate([7, 8], Sampling(max_tokens=4)))
    job = asyncio.create_task(made.logprobs([5, 6]))
    await asyncio.sleep(0)
    await asyncio.wait_for(made.close(wait_s=0.05), 60)
    for one in (stuck, queued, job):
        with pytest.raises(EngineClosed, match=r"did not stop in 0\.05 s"):
            await asyncio.wait_for(one, 60)
    gate.opened.set()
    await made.close()


async def test_closing_does_not_wait_for_a_job_that_hangs() -> None:
    made = engine()
    gate = Gate(made)
    stuck = asyncio.create_task(made.logprobs([5, 6]))
    await gate.wait()
    await asyncio.wait_for(made.close(wait_s=0.05), 60)
    with pytest.raises(EngineClosed, match="did not stop"):
        await asyncio.wait_for(stuck, 60)
    gate.opened.set()
    await made.close()


async def test_a_row_begun_under_older_weights_is_not_kept_for_the_next_turn() -> None:
    made = engine(keep_cache=True)
    gate = Gate(made)
    crossing = asyncio.create_task(made.generate(PROMPTS[1], Sampling(max_tokens=6, seed=1)))
    await gate.wait()
    other = build_model(60, hidden=32, layers=2, heads=2, max_length=128, seed=1)
    moving = asyncio.create_task(made.set_weights(MemoryWeights.of(other), 7))
    await asyncio.sleep(0)
    gate.opened.set()
    first = await asyncio.wait_for(crossing, 60)
    await asyncio.wait_for(moving, 60)
    assert (first.versions[0], first.versions[-1]) == (0, 7)
    prompt = [*PROMPTS[1], *first.ids, 40]
    computed = made.computed_prompt_tokens
    second = await made.generate(prompt, Sampling(max_tokens=6, seed=2))
    assert made.computed_prompt_tokens - computed == len(prompt)
    expected = reference_logprobs(made, prompt + second.ids)[len(prompt) - 1 :]
    assert torch.allclose(torch.tensor(second.logprobs), expected, atol=1e-5)
    await made.close()


def draw(probabilities: list[float], uniform: float, **options: Any) -> Any:
    logits = torch.tensor([probabilities]).log()
    settings = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, **options}
    token, logprob = sample(
        logits,
        temperature_B=torch.tensor([settings["temperature"]]),
        top_p_B=torch.tensor([settings["top_p"]]),
        top_k_B=torch.tensor([settings["top_k"]]),
        uniform_B=torch.tensor([uniform]),
    )
    return int(token), float(logprob.exp())


def test_inverse_cdf_by_hand() -> None:
    # cumulative .5 .8 1.0
    assert draw([0.5, 0.3, 0.2], 0.0) == (0, pytest.approx(0.5))
    assert draw([0.5, 0.3, 0.2], 0.6) == (1, pytest.approx(0.3))
    assert draw([0.5, 0.3, 0.2], 0.999999) == (2, pytest.approx(0.2))


def test_top_k_and_top_p_cut_the_draw_but_not_the_logprob() -> None:
    assert draw([0.2, 0.5, 0.3], 0.99, top_k=2) == (2, pytest.approx(0.3))
    assert draw([0.2, 0.5, 0.3], 0.99, top_p=0.45) == (1, pytest.approx(0.5))


def test_temperature_reshapes_the_distribution() -> None:
    # squares of .8 and .2 are .64 and .04: at T = 1/2 the second has .04 / .68
    assert draw([0.8, 0.2], 0.99, temperature=0.5) == (1, pytest.approx(0.04 / 0.68))


def kept(length: int) -> KeptPrefix:
    return KeptPrefix(KeptRow(torch.zeros(1, 2, 1, length, 1)), length)


def test_the_prefix_store_forgets_the_least_recently_used() -> None:
    store = PrefixStore(max_tokens=5)
    store.put([1, 2], first := kept(2))
    store.put([3, 4], kept(2))
    assert store.longest([1, 2, 9]) is first
    store.put([5, 6], kept(2))
    assert store.longest([3, 4, 9]) is None
    assert store.longest([1, 2, 9]) is first
    assert store.tokens == 4
    store.put([1, 2, 9], KeptPrefix(first.row, 3))  # shares the row
    assert store.tokens == 4


async def test_engine_and_learner_give_the_same_logprobs() -> None:
    made = engine()
    learner = Learner(
        build_model(60, hidden=32, layers=2, heads=2, max_length=128),
        TrainerConfig(),
        ReadingOptions(temperature=0.7),
    )
    for prompt in PROMPTS:
        one = await made.generate(prompt, Sampling(max_tokens=20, temperature=0.7, seed=4))
        row = as_row(Segment(prompt_ids=prompt, turns=[Turn(out_ids=one.ids)]))
        assert row is not None
        logp = learner.score(pad([row]))[0, len(prompt) :]
        assert torch.allclose(logp, torch.tensor(one.logprobs), atol=1e-5)
    await made.close()
