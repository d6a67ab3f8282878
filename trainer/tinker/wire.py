"""Messages of the Tinker API: JSON structs, and the three that travel as Protocol Buffers.

Since SDK 0.25 the bodies of `forward_backward` and the results of sampling and of passes are
Protocol Buffers; all else is JSON. Fields that a client sends and nobody here reads are ignored.
Field numbers are those of the compiled `tinker.proto` of SDK 0.38.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, Literal

import msgspec
import numpy as np

from ludus.wire.faults import Refused
from ludus.wire.protobuf import (
    ProtoWriter,
    Value,
    as_bytes,
    as_double,
    as_integer,
    as_integers,
    as_text,
    fields,
)

PROTOBUF = "application/x-protobuf"
OLDEST_SDK = (0, 25)
"""The first SDK with this wire."""
FLOAT32, INT64, INT32, BFLOAT16 = 1, 2, 3, 4
"""Number types of a tensor."""
_NUMPY = {FLOAT32: "<f4", INT64: "<i8", INT32: "<i4", BFLOAT16: "<u2"}
MAX_DENSE = 1 << 26
"""The most numbers of a tensor that is sent by its nonzero ones."""
STOP, LENGTH = 0, 1

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Datum:
    """A row with what the loss reads."""

    tokens: Array
    """[N] int: the input; position i predicts `inputs["target_tokens"][i]`."""
    inputs: Mapping[str, Array]
    """Tensors [N] or [N, K] by name."""


@dataclass(frozen=True, slots=True)
class ForwardBackward:
    """A request for a pass over some rows, with a loss by name."""

    model_id: str
    seq_id: int
    data: Sequence[Datum]
    loss_fn: str
    config: Mapping[str, float | str] = field(default_factory=dict[str, float | str])
    forward_only: bool = False


@dataclass(frozen=True, slots=True)
class Passed:
    """The result of a pass: the log-probability of every target, and sums."""

    logprobs: Sequence[Array]
    """[N] or [N, K] float32 for each datum, in nats."""
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SampledSequence:
    """A sampled sequence."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    stopped: bool
    """Whether it ended by a stop; else its length was used up."""


def read_forward_backward(data: bytes) -> ForwardBackward:
    """Read a request.

    Raises:
        Refused: the bytes are no such message, or a row shows images (400).
    """
    texts, seq_id, forward_only = {1: "", 4: ""}, 0, False
    rows, old, new = list[Datum](), dict[str, float | str](), dict[str, float | str]()
    for number, value in fields(data):
        if number in texts:
            texts[number] = as_text(value)
        elif number == 2:
            seq_id = as_integer(value)
        elif number == 3:
            rows.append(_read_datum(as_bytes(value)))
        elif number == 5:
            name, raw = _read_entry(value)
            old[name] = as_double(raw)
        elif number == 6:
            forward_only = bool(value)
        elif number == 7:
            name, raw = _read_entry(value)
            for kind, inner in fields(as_bytes(raw)):
                new[name] = as_double(inner) if kind == 1 else as_text(inner)
    return ForwardBackward(texts[1], seq_id, rows, texts[4], new or old, forward_only)


def write_forward_backward(request: ForwardBackward) -> bytes:
    """Write a request as the SDK does."""
    message = ProtoWriter().text(1, request.model_id).integer(2, request.seq_id)
    for datum in request.data:
        ids = datum.tokens.astype("<i4").tobytes()
        row = ProtoWriter().message(1, ProtoWriter().message(1, ProtoWriter().data(1, ids)))
        for name, values in datum.inputs.items():
            row.message(2, ProtoWriter().text(1, name).message(2, _tensor(values)))
        message.message(3, row)
    message.text(4, request.loss_fn)
    for name, setting in request.config.items():
        value = ProtoWriter()
        value = value.text(2, setting) if isinstance(setting, str) else value.double(1, setting)
        message.message(7, ProtoWriter().text(1, name).message(2, value))
    return message.integer(6, request.forward_only).done()


def write_passed(passed: Passed) -> bytes:
    """Write a result; rows with several targets for a position go in records of their own."""
    message = ProtoWriter().text(1, "ArrayRecord")
    for trailing, group in groupby(passed.logprobs, key=lambda each: each.shape[1:]):
        rows = [each.astype("<f4") for each in group]
        offsets = np.cumsum([0, *(each.nbytes for each in rows)]).astype("<i8")
        tensor = ProtoWriter().data(1, b"".join(each.tobytes() for each in rows), always=True)
        tensor.data(2, offsets.tobytes()).integer(3, FLOAT32).integers(4, trailing)
        entry = ProtoWriter().text(1, "logprobs").message(2, tensor)
        message.message(2, ProtoWriter().message(2, entry).integer(3, len(rows)))
    for name, value in passed.metrics.items():
        message.message(3, ProtoWriter().text(1, name).double(2, value))
    return message.done()


def read_passed(data: bytes) -> Passed:
    """Read a result.

    Raises:
        Refused: the bytes are no such message (400).
    """
    rows, metrics = list[Array](), dict[str, float]()
    for number, value in fields(data):
        if number == 2:
            for kind, inner in fields(as_bytes(value)):
                if kind == 2 and (entry := _read_entry(inner))[0] == "logprobs":
                    rows += _read_batched(as_bytes(entry[1]))
        elif number == 3:
            name, raw = _read_entry(value)
            metrics[name] = as_double(raw)
    return Passed(rows, metrics)


def write_samples(
    samples: Iterable[SampledSequence], prompt_logprobs: Sequence[float] | None
) -> bytes:
    """Write sampled sequences; NaN in `prompt_logprobs` is "not computed"."""
    message = ProtoWriter()
    for sample in samples:
        sequence = ProtoWriter().integer(1, STOP if sample.stopped else LENGTH)
        sequence.data(2, np.asarray(sample.tokens, "<i4").tobytes(), always=True)
        message.message(1, sequence.data(3, np.asarray(sample.logprobs, "<f4").tobytes()))
    if prompt_logprobs is not None:
        message.data(2, np.asarray(prompt_logprobs, "<f4").tobytes(), always=True)
    return message.done()


def read_samples(data: bytes) -> tuple[list[SampledSequence], list[float] | None]:
    """Read sampled sequences, and the log-probabilities of the prompt if there are any.

    Raises:
        Refused: the bytes are no such message (400).
    """
    samples, prompt = list[SampledSequence](), None
    for number, value in fields(data):
        if number == 1:
            parts = dict(fields(as_bytes(value)))
            tokens = _numbers(as_bytes(parts.get(2, b"")), INT32)
            logprobs = _numbers(as_bytes(parts.get(3, b"")), FLOAT32)
            samples.append(
                SampledSequence(tokens.tolist(), logprobs.tolist(), parts.get(1, 0) == STOP)
            )
        elif number == 2:
            prompt = _numbers(as_bytes(value), FLOAT32).tolist()
    return samples, prompt


def _read_datum(data: bytes) -> Datum:
    ids, inputs = list[Array](), dict[str, Array]()
    for number, value in fields(data):
        if number == 1:
            for kind, chunk in fields(as_bytes(value)):
                if kind != 1:
                    raise Refused("rows with images or audio are not trained here", "invalid")
                for part, raw in fields(as_bytes(chunk)):
                    if part == 1:
                        ids.append(_numbers(as_bytes(raw), INT32))
        elif number == 2:
            name, raw = _read_entry(value)
            inputs[name] = _read_tensor(as_bytes(raw))
    return Datum(np.concatenate(ids) if ids else np.zeros(0, "<i4"), inputs)


def _read_entry(value: Value) -> tuple[str, Value]:
    """Read an entry of a map; a missing value is empty."""
    parts = dict(fields(as_bytes(value)))
    return as_text(parts.get(1, b"")), parts.get(2, b"")


def _tensor(values: Array) -> ProtoWriter:
    kind = INT64 if values.dtype.kind == "i" else FLOAT32
    dense = values.astype(_NUMPY[kind]).tobytes()
    return ProtoWriter().data(1, dense, always=True).integer(3, kind).integers(4, values.shape)


def _read_tensor(data: bytes) -> Array:
    dense, sparse, kind, shape = b"", None, FLOAT32, list[int]()
    for number, value in fields(data):
        if number == 1:
            dense = as_bytes(value)
        elif number == 2:
            sparse = {part: as_bytes(raw) for part, raw in fields(as_bytes(value))}
        elif number == 3:
            kind = as_integer(value)
        elif number == 4:
            shape += as_integers(value)
    if sparse is not None:
        return _dense(sparse, kind, shape)
    values = _numbers(dense, kind)
    return _shaped(values, shape) if shape else values


def _dense(sparse: Mapping[int, bytes], kind: int, shape: Sequence[int]) -> Array:
    """Return the tensor of a compressed sparse row matrix."""
    values = _numbers(sparse.get(1, b""), kind)
    rows, columns = (_numbers(sparse.get(part, b""), INT64) for part in (2, 3))
    whole = len(shape) == 2 and len(rows) == shape[0] + 1 and min(shape) >= 0
    if not whole or max(1, shape[0]) * max(1, shape[1]) > MAX_DENSE or len(columns) != len(values):
        raise Refused(f"a sparse tensor of shape {list(shape)} does not add up", "malformed")
    inside = not len(columns) or (columns.min() >= 0 and columns.max() < shape[1])
    # The numbers themselves are compared, since their differences could exceed 64 bits, and NumPy
    # writes past the end of its memory for counts of which it takes a wrong sum.
    rising = rows[0] == 0 and rows[-1] == len(values) and (rows[:-1] <= rows[1:]).all()
    if not rising or not inside:
        raise Refused(f"a sparse tensor of shape {list(shape)} does not add up", "malformed")
    matrix = np.zeros(shape, values.dtype)
    matrix[np.repeat(np.arange(shape[0]), np.diff(rows)), columns] = values
    return matrix


def _numbers(data: bytes, kind: int) -> Array:
    if kind not in _NUMPY:
        raise Refused(f"a tensor has the unknown number type {kind}", "malformed")
    if len(data) % np.dtype(_NUMPY[kind]).itemsize:
        raise Refused("a tensor ends within a number", "malformed")
    values: Array = np.frombuffer(data, _NUMPY[kind])
    if kind == BFLOAT16:  # the upper half of a float32
        return (values.astype("<u4") << 16).view("<f4")
    return values


def _shaped(values: Array, shape: Sequence[int]) -> Array:
    try:
        if min(shape) < 0:  # which NumPy would choose by itself
            raise ValueError
        return values.reshape(shape)
    except ValueError:
        raise Refused(
            f"a tensor of shape {list(shape)} has {len(values)} numbers", "malformed"
        ) from None


def _read_batched(data: bytes) -> list[Array]:
    joined, offsets, kind, trailing = b"", b"", FLOAT32, list[int]()
    for number, value in fields(data):
        if number == 1:
            joined = as_bytes(value)
        elif number == 2:
            offsets = as_bytes(value)
        elif number == 3:
            kind = as_integer(value)
        elif number == 4:
            trailing += as_integers(value)
    width = math.prod(trailing)
    if width < 1:
        raise Refused(f"rows of shape {trailing} hold no numbers", "malformed")
    rows = [
        _numbers(joined[start:end], kind)
        for start, end in pairwise(_numbers(offsets, INT64).tolist())
    ]
    return [_shaped(row, [len(row) // width, *trailing]) for row in rows]


# --- JSON ---------------------------------------------------------------------------------------


class ApiMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The base of JSON messages, which may hold fields that nobody here reads."""


class AskConfig(ApiMessage, frozen=True):
    """Asks for settings of the server; the first request of a client."""

    sdk_version: str = ""


class CreateSession(ApiMessage, frozen=True):
    """Opens a session, which owns models and samplers."""

    sdk_version: str = ""
    tags: list[str] = []
    user_metadata: dict[str, Any] | None = None


class NamesSession(ApiMessage, frozen=True):
    """Names a session."""

    session_id: str


class LoraSpec(ApiMessage, frozen=True):
    """The adapter of a model."""

    rank: int
    seed: int | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class OptimizerSpec(ApiMessage, frozen=True):
    """The optimizer of a model."""

    type: str = "adamw"


class CreateModel(ApiMessage, frozen=True):
    """Makes a model to train; without `lora_config` all weights are trained."""

    session_id: str
    model_seq_id: int
    base_model: str
    lora_config: LoraSpec | None = None
    optimizer_config: OptimizerSpec = OptimizerSpec()
    user_metadata: dict[str, Any] | None = None


class NamesModel(ApiMessage, frozen=True):
    """Names a model."""

    model_id: str


class AdamParams(ApiMessage, frozen=True):
    """Settings of an update; the defaults are Tinker's."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0
    """The largest norm of the gradient; 0 clips nothing."""


class OptimStep(ApiMessage, frozen=True):
    """Asks for an update with the gradient so far."""

    model_id: str
    seq_id: int
    adam_params: AdamParams | None = None
    optimizer_params: dict[str, Any] | None = None


class SaveWeights(ApiMessage, frozen=True):
    """Writes a checkpoint to continue from, or one to sample from."""

    model_id: str
    seq_id: int
    path: str | None = None
    ttl_seconds: int | None = None
    overwrite: bool = False
    user_metadata: dict[str, str] | None = None
    sampling_session_seq_id: int | None = None
    kind: Literal["snapshot", "inflight"] = "snapshot"


class LoadWeights(ApiMessage, frozen=True):
    """Loads a checkpoint into a model, or makes a model of a checkpoint."""

    path: str
    optimizer: bool
    model_id: str | None = None
    seq_id: int | None = None
    session_id: str | None = None
    model_seq_id: int | None = None
    base_model: str | None = None
    user_metadata: dict[str, Any] | None = None


class CreateSampler(ApiMessage, frozen=True):
    """Opens a sampling session of the base model or of a checkpoint."""

    session_id: str
    sampling_session_seq_id: int
    base_model: str | None = None
    model_path: str | None = None


class InputChunk(ApiMessage, frozen=True):
    """A part of a prompt."""

    type: str = "encoded_text"
    tokens: list[int] = []


class PromptInput(ApiMessage, frozen=True):
    """A prompt in parts."""

    chunks: list[InputChunk]


class DrawSettings(ApiMessage, frozen=True):
    """How tokens are drawn."""

    max_tokens: int | None = None
    seed: int | None = None
    stop: str | list[str | int] | None = None
    """None stops at the model's own ends, [] never, anything else only at what it names."""
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0


class AskSamples(ApiMessage, frozen=True):
    """Asks for samples."""

    prompt: PromptInput
    sampling_params: DrawSettings
    sampling_session_id: str = ""
    seq_id: int = 0
    num_samples: int = 1
    prompt_logprobs: bool | None = None
    prompt_logprobs_last_n: int | None = None
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    prompt_alt_tokens_k: int = 0
    target_prompt_logprobs: dict[str, Any] | None = None
    record_stability_info: bool | None = None


class RetrieveFuture(ApiMessage, frozen=True):
    """Asks for the result of a promise."""

    request_id: str
    allow_metadata_only: bool = False


class AskWeights(ApiMessage, frozen=True):
    """Asks what a checkpoint is of."""

    tinker_path: str


class SetTtl(ApiMessage, frozen=True):
    """Sets how long a checkpoint lives; None for ever."""

    ttl_seconds: int | None = None
