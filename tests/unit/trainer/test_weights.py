"""The laws of weight sources: what is announced is what comes, in pieces that are small, bit for
bit.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ludus.agent import Sampling, TensorMeta, WeightSource
from ludus.errors import ConfigError
from ludus.trainer.config import TrainerConfig
from ludus.trainer.engines.local import LocalEngine
from ludus.trainer.learning.learner import Learner
from ludus.trainer.models.tiny import build_model
from ludus.trainer.models.weight_files import FileWeights, write_weights
from ludus.trainer.models.weights import (
    PIECE_BYTES,
    MemoryWeights,
    WeightsRefused,
    checked,
    in_pieces,
    refuse_foreign,
)


def model(seed: int = 0) -> Any:
    return build_model(60, hidden=32, layers=2, heads=2, max_length=128, seed=seed)


MIXED = {
    "odd": torch.arange(3, dtype=torch.float32).to(torch.bfloat16),
    "transposed": torch.arange(6, dtype=torch.float64).reshape(2, 3).T,
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 4),
    "flags": torch.tensor([True, False, True]),
    "counts": torch.arange(5, dtype=torch.int16),
    "half": torch.full((3, 1, 2), 0.1, dtype=torch.float16),
}


@pytest.fixture(params=["memory", "file", "learner"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> WeightSource:
    if request.param == "memory":
        return MemoryWeights(MIXED)
    if request.param == "file":
        return write_weights(MemoryWeights(MIXED), folder=str(tmp_path))
    return Learner(model(), TrainerConfig()).source()


def everything(source: WeightSource) -> list[tuple[str, Any]]:
    return [pair for piece in source.pieces() for pair in piece.items()]


def test_the_metadata_is_what_the_pieces_bring_in_the_same_order(source: WeightSource) -> None:
    for _ in range(2):  # each call begins anew
        found = [
            TensorMeta(name, str(one.dtype).removeprefix("torch."), tuple(one.shape))
            for name, one in everything(source)
        ]
        assert found == list(source.metadata())
        assert len(found) > 5


def test_no_piece_exceeds_64_mb_unless_it_is_a_single_tensor() -> None:
    # in units of 1 MB: three together would be 66
    sizes = [20, 44, 22, 22, 22, 100, 1]
    named = {
        str(i): torch.empty(size * 1_000_000, dtype=torch.int8) for i, size in enumerate(sizes)
    }
    pieces = [list(piece) for piece in MemoryWeights(named).pieces()]
    assert pieces == [["0", "1"], ["2", "3"], ["4"], ["5"], ["6"]]
    assert PIECE_BYTES == 64_000_000


def test_pieces_are_made_one_at_a_time() -> None:
    made: list[str] = []

    def named() -> Iterator[tuple[str, torch.Tensor]]:
        for name in "abcd":
            made.append(name)
            yield name, torch.zeros(10)

    pieces = in_pieces(named(), limit=40)
    assert list(next(pieces)) == ["a"]
    assert made == ["a", "b"]  # b is known to belong to the next piece


def test_a_learner_hands_over_the_plain_models_names_and_tied_weights_once() -> None:
    made = model()
    assert made.lm_head.weight is made.model.embed_tokens.weight
    names = [meta.name for meta in Learner(made, TrainerConfig()).source().metadata()]
    assert names == [name for name, _ in model().named_parameters()]
    assert "lm_head.weight" not in names


def test_a_learners_source_copies_nothing() -> None:
    made = model()
    addresses = {one.data_ptr() for _, one in everything(Learner(made, TrainerConfig()).source())}
    assert addresses == {one.data_ptr() for one in made.parameters()}


def test_a_file_holds_the_same_bits_and_others_can_read_the_file(tmp_path: Path) -> None:
    file = write_weights(MemoryWeights(MIXED), folder=str(tmp_path))
    theirs = load_file(file.path)
    for name, expected in MIXED.items():
        for found in (dict(everything(file))[name], theirs[name]):
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert torch.equal(found, expected)
    assert list(tmp_path.iterdir()) == [file.path]
    file.remove()
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_other_software_is_a_source_too(tmp_path: Path) -> None:
    save_file({"b": torch.ones(2), "a": torch.zeros(3, dtype=torch.int8)}, tmp_path / "x")
    source = FileWeights(tmp_path / "x")
    assert {meta.name: (meta.dtype, meta.shape) for meta in source.metadata()} == {
        "a": ("int8", (3,)),
        "b": ("float32", (2,)),
    }
    assert len(dict(checked(source))) == 2


class Lying:
    """A source whose pieces are not what the metadata announces."""

    def __init__(self, announced: Mapping[str, Any], brought: Mapping[str, Any]) -> None:
        self.announced, self.brought = MemoryWeights(announced), brought

    def metadata(self) -> list[TensorMeta]:
        return self.announced.metadata()

    def pieces(self) -> Iterator[Mapping[str, object]]:
        yield self.brought


A, B = torch.ones(2), torch.zeros(3)


@pytest.mark.parametrize(
    ("brought", "said"),
    [
        ({"b": B, "a": A}, r"brings b \(float32 \[3\]\) where .* announces a"),
        ({"a": A}, r"ends before b \(float32 \[3\]\)"),
        ({"a": A, "b": B, "c": B}, "brings c .* announces nothing"),
        ({"a": A, "b": torch.zeros(4)}, r"brings b \(float32 \[4\]\)"),
        ({"a": A, "b": B.half()}, r"brings b \(float16"),
        ({"a": A, "b": [0.0]}, "'b' is a list"),
    ],
    ids=["order", "short", "long", "shape", "type", "no tensor"],
)
def test_a_source_that_contradicts_itself_is_refused_and_leaves_no_file(
    brought: Mapping[str, Any], said: str, tmp_path: Path
) -> None:
    assert len(list(checked(Lying({"a": A, "b": B}, {"a": A, "b": B})))) == 2
    with pytest.raises(WeightsRefused, match=said):
        write_weights(Lying({"a": A, "b": B}, brought), folder=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_tensor_is_refused_at_once() -> None:
    with pytest.raises(WeightsRefused, match="'a' is a list"):
        MemoryWeights({"a": [1.0]})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]


def test_types_that_no_file_holds_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsRefused, match="'z' is of type complex64"):
        write_weights(MemoryWeights({"z": torch.zeros(1, dtype=torch.complex64)}))
    path = write_weights(MemoryWeights({"a": A}), folder=str(tmp_path)).path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="cannot read weights"):
        FileWeights(path)
    with pytest.raises(ConfigError, match="cannot read weights"):
        FileWeights(tmp_path / "nowhere")


def test_weights_of_another_model_are_refused_by_name_and_shape() -> None:
    mine = dict(model().named_parameters())
    first = next(iter(mine))
    cases = {
        "does not have": {**mine, "nobody.weight": torch.zeros(1)},
        "not among the new ones": {name: one for name, one in mine.items() if name != first},
        "in the engine's model it is": {**mine, first: torch.zeros(1, 2)},
    }
    refuse_foreign(MemoryWeights(mine), model())
    for said, tensors in cases.items():
        with pytest.raises(WeightsRefused, match=said):
            refuse_foreign(MemoryWeights(tensors), model())


def test_a_header_says_where_each_tensor_lies_without_gaps(tmp_path: Path) -> None:
    raw = write_weights(MemoryWeights(MIXED), folder=str(tmp_path)).path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert length % 8 == 0
    assert list(header) == ["__metadata__", *MIXED]
    parts = sorted(tuple(one["data_offsets"]) for name, one in header.items() if name in MIXED)
    assert [begin for begin, _ in parts] == [0, *(end for _, end in parts[:-1])]
    assert parts[-1][1] == len(raw) - 8 - length


async def test_an_engine_has_the_bits_that_a_learner_or_a_file_brings(tmp_path: Path) -> None:
    made = LocalEngine(model())
    learner = Learner(model(seed=1), TrainerConfig())
    sources = (learner.source(), write_weights(MemoryWeights.of(model(seed=2))))
    for version, source in enumerate(sources, start=1):
        await asyncio.wait_for(made.set_weights(source, version), 60)
        for name, expected in everything(source):
            assert torch.equal(dict(made.model.named_parameters())[name], expected)
        answer = await made.generate([5, 6], Sampling(max_tokens=2))
        assert answer.versions == [version, version]
    sources[1].remove()
    await made.close()
