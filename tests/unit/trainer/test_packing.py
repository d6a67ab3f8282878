"""Packed rows and shared beginnings: less to compute, the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.envs import Task
from ludus.trainer.config import TrainerConfig
from ludus.trainer.engines.cached_model import CachedModel, PromptRow
from ludus.trainer.learning.attention import (
    node_by_node,
    packed_attention,
    packed_hidden,
    unequal_rows,
    why_unpackable,
)
from ludus.trainer.learning.experience import Experience, gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.packing import pack_rows, packed_size, packs
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.grouped_heads import by_group, grouped_attention, share_keys
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.recipe import load_recipe, recipe_names
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.batch import Batch, Row, pad
from ludus.trainer.rollout.collect import Group
from ludus.trainer.rollout.tracker import SuccessTracker
from ludus.trainer.sft import negative_log_likelihood
from ludus.verdict import Verdict

WORDS = 40
SHAPE: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
MODELS: dict[str, Any] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=16)),
}


def family(lengths: list[int], shared: int, *, seed: int = 0) -> list[Row]:
    """Rows of one prompt of `shared` tokens."""
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(3, WORDS, (shared,), generator=generator).tolist()
    made: list[Row] = []
    for length in lengths:
        answer = torch.randint(3, WORDS, (length,), generator=generator).tolist()
        mask = [*([0] * shared), *([1] * length)]
        made.append(Row([*prompt, *answer], mask, [0.0] * len(mask)))
    return made


def forest() -> Batch:
    """Two prompts, a row that is the beginning of others, two equal rows, one of another length."""
    rows = [*family([30, 7, 19, 44], 25), *family([5, 5, 60], 33, seed=1), *family([9], 0, seed=2)]
    deep = rows[0].ids[:45]  # a longer common beginning than the prompt, as of a second window
    rows.append(Row([*deep, 4, 5, 6], [*([0] * 45), 1, 1, 1], [0.0] * 48))
    rows.append(Row(deep, [*([0] * 25), *([1] * 20)], [0.0] * 45))
    rows.append(rows[1])
    return pad(rows)


def gradients(made: Learner) -> dict[str, torch.Tensor]:
    return {name: one.grad for name, one in made.model.named_parameters() if one.grad is not None}


def gap(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    """The largest difference over the largest entry of the gradient."""
    assert set(found) == set(wanted)
    largest = max(float(one.abs().max()) for one in wanted.values())
    return max(float((found[name] - one).abs().max()) for name, one in wanted.items()) / largest


def learner(name: str, packing: Any, **more: Any) -> Learner:
    torch.manual_seed(0)
    return Learner(
        MODELS[name](), TrainerConfig(lr=1e-4, packing=packing, **more), ReadingOptions(values=True)
    )


@pytest.mark.parametrize("packing", ["rows", "shared"])
@pytest.mark.parametrize("name", MODELS)
def test_packed_rows_have_the_numbers_of_padded_rows(name: str, packing: Any) -> None:
    batch = forest()
    padded, packed = learner(name, "none"), learner(name, packing)
    assert (padded.unpacked, packed.unpacked) == ("trainer.packing is none", "")
    for score in ("score", "score_entropy", "score_norms", "score_values"):
        one, other = getattr(padded, score)(batch), getattr(packed, score)(batch)
        assert torch.allclose(one, other, atol=1e-5), score
    every = torch.arange(len(batch))
    for tokens in (100_000, 60, 1):
        packed = learner(name, packing, tokens_per_pass=tokens)
        padded = learner(name, "none")
        first = padded.update(batch, every, negative_log_likelihood)
        second = packed.update(batch, every, negative_log_likelihood)
        assert second == pytest.approx(first, rel=1e-5)
        assert gap(gradients(packed), gradients(padded)) < 1e-6


def test_a_token_that_reads_another_row_would_be_seen() -> None:
    """The positive control: the same check with attention over everything before a token."""
    batch = forest()
    rows = pack_rows(batch.ids, batch.lengths)
    wrong = [one._replace(start=0, end=len(rows.ids), below=len(rows.ids)) for one in rows.spans]
    made = learner("qwen2", "shared")
    with torch.no_grad():
        right = packed_hidden(made.model, rows)
        mixed = made.model.base_model(
            input_ids=rows.ids.unsqueeze(0),
            position_ids=rows.positions.unsqueeze(0),
            attention_mask=torch.zeros(1, 1, 1, 1, dtype=torch.bool),
            use_cache=False,
            spans=(wrong[0],),
        ).last_hidden_state[0]
    assert float((right - mixed).abs().max()) > 0.1


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
def test_three_ways_to_attend_agree_with_a_mask(heads: tuple[int, int]) -> None:
    batch = forest()
    rows = pack_rows(batch.ids, batch.lengths)
    generator = torch.Generator().manual_seed(0)
    size = len(rows.ids)
    q, k, v = (
        torch.randn(1, count, size, 8, generator=generator, dtype=torch.float64)
        for count in (heads[0], heads[1], heads[1])
    )
    mask = torch.zeros(size, size, dtype=torch.bool)
    for row, length in enumerate(batch.lengths.tolist()):
        places = rows.places[row, :length]
        assert torch.equal(rows.ids[places], batch.ids[row, :length])
        assert torch.equal(rows.positions[places], torch.arange(length))
        mask[places.unsqueeze(1), places.unsqueeze(0)] |= torch.ones(length, length).tril().bool()
    worth = torch.randn(1, heads[0], size, 8, generator=generator, dtype=torch.float64)

    def results(attend: Any) -> list[torch.Tensor]:
        given = [one.clone().requires_grad_(True) for one in (q, k, v)]
        out = attend(*given)
        (out * worth).sum().backward()
        return [out.detach(), *(one.grad for one in given if one.grad is not None)]

    def plain(*some: torch.Tensor) -> torch.Tensor:
        wide = [one.repeat_interleave(heads[0] // one.shape[1], 1) for one in some]
        return torch.nn.functional.scaled_dot_product_attention(*wide, attn_mask=mask)

    def fused(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        found, _ = packed_attention(torch.nn.Identity(), a, b, c, None, spans=rows.spans)
        return found.transpose(1, 2)

    def each(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return node_by_node(a, b, c, rows.spans, None)

    expected = results(plain)
    for attend in (fused, each):
        for one, other in zip(results(attend), expected, strict=True):
            assert torch.allclose(one, other, atol=1e-10), attend


def test_the_index_of_unequal_rows_has_what_each_node_reads_and_is_made_once_a_pass() -> None:
    """CUDA's kernel for rows of unequal lengths is this index with a causal end for each row."""
    batch = forest()
    rows = pack_rows(batch.ids, batch.lengths)
    device = torch.device("cpu")
    index, ends_q, ends_k, most_q, most_k = unequal_rows(rows.spans, device)
    sizes_q, sizes_k = ends_q.diff().tolist(), ends_k.diff().tolist()
    assert (most_q, most_k) == (max(sizes_q), max(sizes_k))
    read: dict[int, list[int]] = {}  # of each token: its row's tokens up to itself
    for row, length in enumerate(batch.lengths.tolist()):
        places = rows.places[row, :length].tolist()
        read |= {place: places[: n + 1] for n, place in enumerate(places)}
    keys = index.split(sizes_k)
    queries = torch.arange(len(rows.ids)).split(sizes_q)
    for query, key in zip(queries, keys, strict=True):
        before = len(key) - len(query)
        for n, place in enumerate(query.tolist()):
            assert key[: before + n + 1].tolist() == read[place]
    assert unequal_rows(tuple(rows.spans), device)[0] is index  # as each layer of a pass asks for


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_keys_that_heads_share_are_kept_once_for_the_gradient(groups: int) -> None:
    rows = pack_rows(torch.arange(96).reshape(1, 96) % WORDS, torch.tensor([96]))
    q, k, v = (
        torch.randn(1, count, 96, 8, requires_grad=True) * 1.0 for count in (4, groups, groups)
    )
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        packed_attention(torch.nn.Identity(), q, k, v, None, spans=rows.spans)
    # queries, keys, values, the result, and a sum for each query
    assert sum(kept.values()) == 4 * 96 * (4 * 8 + 2 * groups * 8 + 4 * 8 + 4)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_groups_of_heads_attend_under_a_mask_without_a_copy_of_their_keys(data: Any) -> None:
    rows, groups, share = (data.draw(st.integers(1, high)) for high in (3, 3, 4))
    total = data.draw(st.integers(2, 40))
    new, masks = data.draw(st.integers(2, total)), data.draw(st.sampled_from([1, rows]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    heads = groups * share
    sizes = ((heads, new), (groups, total), (groups, total))
    inputs = [torch.randn(rows, *size, 8, generator=generator) for size in sizes]
    mask = torch.rand(masks, 1, new, total, generator=generator) < 0.5
    mask[..., 0] = True
    # The oracle: one softmax written out, in float64, over keys that are repeated.
    exact = [tensor.double().requires_grad_() for tensor in inputs]
    query, key, value = (
        tensor.repeat_interleave(share, 1) if tensor.shape[1] != heads else tensor
        for tensor in exact
    )
    scores = (query @ key.transpose(2, 3) * 0.3).masked_fill(~mask, float("-inf"))
    expected = scores.softmax(-1) @ value
    direction = torch.randn(expected.shape, generator=generator)
    gradients = torch.autograd.grad(expected, exact, direction.double())
    layer = torch.nn.Module()
    layer.num_key_value_groups = share  # pyright: ignore[reportArgumentType]
    for attend in (
        lambda *qkv: grouped_attention(layer, *qkv, mask, scaling=0.3)[0].transpose(1, 2),
        lambda *qkv: by_group(*qkv, mask, 0.0, 0.3),
    ):
        own = [tensor.clone().requires_grad_() for tensor in inputs]
        attended = attend(*own)
        assert torch.allclose(attended.double(), expected, atol=1e-5)
        got = torch.autograd.grad(attended, own, direction)
        for one, other in zip(got, gradients, strict=True):
            assert torch.allclose(one.double(), other, atol=1e-4)


class LargestTensor(TorchDispatchMode):
    """Remembers how many numbers the largest tensor has that any operation made."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor._base is None:
                self.numbers = max(self.numbers, tensor.numel())
        return out


@torch.no_grad()
@pytest.mark.parametrize("shared", [False, True])
def test_prompts_of_an_engine_hold_the_keys_of_a_group_once(shared: bool) -> None:
    shape = SHAPE | {"hidden_size": 128, "num_attention_heads": 16, "max_position_embeddings": 512}
    made: Any = LlamaForCausalLM(LlamaConfig(**shape, attn_implementation="sdpa"))
    model = CachedModel(share_keys(made) if shared else made, 1000)
    tokens = [*range(3, 35)] * 10
    model.prompt_logits([PromptRow(tuple(tokens[:300]))], 0)
    repeated = 16 * 310 * 8
    with LargestTensor() as largest:
        model.prompt_logits([PromptRow(tuple(tokens[:310]), base=300)], 0)
    # The positive control is transformers' own attention.
    assert (largest.numbers < repeated) == shared, largest.numbers


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=14), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(1, 40),
)
def test_any_rows_come_back_from_their_places(
    rows: list[list[int]], min_shared: int, tokens: int
) -> None:
    batch = pad([Row(one, [1] * len(one), [0.0] * len(one)) for one in rows])
    packed = pack_rows(batch.ids, batch.lengths, min_shared=min_shared)
    for row, ids in enumerate(rows):
        places = packed.places[row, : len(ids)]
        assert packed.ids[places].tolist() == ids
        assert packed.positions[places].tolist() == list(range(len(ids)))
        seen: set[int] = set()  # what the last token attends to is its row and nothing else
        for one in packed.spans:
            if one.start <= int(places[-1]) < one.end:
                seen = {n for low, high in one.above for n in range(low, high)}
                seen |= set(range(one.start, int(places[-1]) + 1))
        assert seen == set(places.tolist())
    parts = list(packs(batch, torch.arange(len(rows)), tokens))
    assert sorted(torch.cat(parts).tolist()) == list(range(len(rows)))
    for part in parts:
        assert len(part) == 1 or packed_size(batch.ids, batch.lengths, part) <= tokens


def test_rows_that_stay_together_share_a_pass() -> None:
    batch = forest()
    together = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 0, 0, 2])
    parts = list(packs(batch, torch.arange(11), 150, together))
    assert sorted(torch.cat(parts).tolist()) == list(range(11))
    for unit in range(3):
        held = [bool((together[part] == unit).any()) for part in parts]
        assert sum(held) == 1


def test_a_shared_prompt_is_computed_once() -> None:
    batch = pad(family([8] * 8, 100))
    made = learner("qwen2", "shared")
    tokens: list[int] = []

    def count(_: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        tokens.append(inputs[0].shape[0] * inputs[0].shape[1])

    made.model.base_model.layers[0].mlp.register_forward_pre_hook(count)
    made.update(batch, torch.arange(8), negative_log_likelihood)
    assert tokens == [100 + 8 * 8]


SLIDING: dict[str, Any] = {**SHAPE, "sliding_window": 8}


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: MistralForCausalLM(MistralConfig(**SLIDING)), "sliding window"),
        (
            lambda: Qwen2ForCausalLM(
                Qwen2Config(**SLIDING, use_sliding_window=True, max_window_layers=1)
            ),
            "layers of the kind sliding_attention",
        ),
    ],
)
def test_a_model_that_cannot_be_packed_is_padded_and_told(model: Any, reason: str) -> None:
    torch.manual_seed(0)
    made = Learner(model(), TrainerConfig(lr=1e-4))
    assert reason in made.unpacked
    batch = forest()
    torch.manual_seed(0)
    plain = Learner(model(), TrainerConfig(lr=1e-4, packing="none"))
    assert torch.equal(made.score(batch), plain.score(batch))
    assert why_unpackable(learner("llama", "none").model) == ""  # the positive control


def experience() -> Experience:
    """Four groups of rollouts that begin with the group's prompt, some in two segments."""
    generator = torch.Generator().manual_seed(3)

    def ids(count: int) -> list[int]:
        return torch.randint(3, WORDS, (count,), generator=generator).tolist()

    def turn(count: int, **more: Any) -> Turn:
        logprobs = (-3 - torch.rand(count, generator=generator)).tolist()
        return Turn(out_ids=ids(count), logprobs=logprobs, **more)

    groups: list[Group] = []
    for task in range(4):
        prompt, episodes = ids(20 + task), list[Episode]()
        for index in range(4):
            first = Segment(prompt_ids=prompt, turns=[turn(3 + 4 * index), turn(5, obs_ids=ids(2))])
            segments = [first]
            if index == 3:
                segments.append(Segment(prompt_ids=[*prompt, *ids(6)], turns=[turn(4)]))
            reward = Verdict.of(float((index + task) % 3 == 0))
            one = Trajectory(verdict=reward, segments=segments)
            episodes.append(Episode(task=f"t/{task}", index=index, trajectories=[one]))
        groups.append(Group(Task(id=f"t/{task}", split="train"), episodes, task))
    made = gather(groups)
    assert made is not None
    return made


@pytest.mark.slow
@pytest.mark.parametrize("recipe", recipe_names())
def test_every_recipe_has_one_gradient_however_rows_are_packed(recipe: str) -> None:
    found: dict[Any, dict[str, torch.Tensor]] = {}
    given = experience()
    algorithm = resolve(load_recipe(recipe), max_tokens=32)
    ways: Any = (("none", 10_000), ("rows", 70), ("shared", 10_000), ("shared", 90))
    for packing, tokens in ways:
        # in float32 even padded gradients are 2e-6 from the true ones: advantages cancel
        model = build_model(WORDS, hidden=32, layers=2, heads=4, max_length=64).double()
        pupil = Learner(
            model,
            TrainerConfig(lr=1e-4, packing=packing, tokens_per_pass=tokens, max_grad_norm=1e6),
            ReadingOptions(values="values" in algorithm.needs),
        )
        settings = algorithm.recipe.sampling.tracker
        tracker = None if settings is None else SuccessTracker(settings)
        made = Updater(algorithm, pupil, tracker=tracker)
        numbers = made.step(given, generator=torch.Generator().manual_seed(0))
        assert numbers["updates"] == 1
        found[packing, tokens] = gradients(pupil)
    wanted = found.pop(("none", 10_000))
    for way, one in found.items():
        assert gap(one, wanted) < 1e-6, way
