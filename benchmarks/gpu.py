"""The parts of `gpu.sh`: each measures one thing and writes a line of JSON.

    python benchmarks/gpu.py {machine,learner,engine,trl,table} --out FOLDER [--size 0.5B]
        [--cpu] [--tiny]

The shapes are those of Qwen2.5 0.5B and 1.5B with random weights, which take the time of trained
ones. Formulas, with P the weights in matrix products (a tied head counts, the embedding does not),
L layers of width H, and rows of T tokens:

    FLOPs a trained token = 6 P + 6 L H T        forward 2, backward 4; causal attention reads T / 2
    MFU                   = FLOPs a token x tokens/s / the GPU's peak in the specification
    of the product        = the same over the rate of a large matrix product, measured here
    bytes a sampled token = (weights + keys and values of all rows) / rows, over the bandwidth of a
                            copy measured here: no engine can be faster

Computing a layer again is not counted as work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ludus.agent import Sampling
from ludus.trainer.config import TrainerConfig
from ludus.trainer.engines.local import EngineLimits, LocalEngine
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.models.capacity import cached_bytes
from ludus.trainer.models.tiny import build_model
from ludus.trainer.rollout.batch import Row, pad
from ludus.trainer.sft import negative_log_likelihood

PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "A10G": 70e12}
"""Dense bfloat16 FLOP/s in the makers' specifications."""
SHAPES: dict[str, dict[str, int]] = {
    "0.5B": {"hidden": 896, "layers": 24, "heads": 14, "middle": 4864},
    "1.5B": {"hidden": 1536, "layers": 28, "heads": 12, "middle": 8960},
    "tiny": {"hidden": 32, "layers": 2, "heads": 2, "middle": 64},
}


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    vocabulary: int = 151_936
    step_tokens: int = 16_384
    row: int = 1024
    rounds: int = 4
    rows: int = 128
    prompt: int = 256
    sampled: int = 128
    product: int = 8192


TINY = Sizes(128, 512, 64, 2, 4, 16, 8, 256)


def main() -> None:
    """Measure one part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["machine", "learner", "engine", "trl", "table"])
    parser.add_argument("--size", default="0.5B", choices=["0.5B", "1.5B"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true", help="without a GPU, to try the code")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the code")
    given = parser.parse_args()
    if not given.cpu and not torch.cuda.is_available():
        raise SystemExit("gpu.py: torch sees no CUDA device; --cpu --tiny tries the code without")
    device = "cpu" if given.cpu else "cuda"
    sizes = TINY if given.tiny else Sizes()
    if given.part == "table":
        print(table(given.out, measured=device == "cuda"))
        return
    shape = "tiny" if given.tiny else given.size
    parts = {"machine": machine, "learner": learner, "engine": engine, "trl": trl}
    figures = parts[given.part](device, shape, sizes)
    name = given.part if given.part == "machine" else f"{given.part}-{given.size}"
    (given.out / f"{name}.json").write_text(json.dumps(figures) + "\n", encoding="utf-8")
    print(name, json.dumps(figures), flush=True)


def machine(device: str, shape: str, sizes: Sizes) -> dict[str, Any]:
    """Measure a large matrix product and a copy, which bound everything else."""
    side = sizes.product
    square = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    seconds = timed(lambda: square @ square, device, rounds=10)
    block = torch.empty(side * side * 4, dtype=torch.uint8, device=device)
    other = torch.empty_like(block)
    copied = timed(lambda: other.copy_(block), device, rounds=10)
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    peak = next((rate for part, rate in PEAKS.items() if part in name), None)
    return {
        "device": name,
        "torch": torch.__version__,
        "peak_flops": peak,
        "product_flops": 2 * side**3 / seconds,
        "copy_bytes": 2 * block.numel() / copied,
    }


def learner(device: str, shape: str, sizes: Sizes) -> dict[str, Any]:
    """Measure updates of packed rows, with layers computed again."""
    model = made(shape, sizes).to(device)
    settings = TrainerConfig(tokens_per_pass=sizes.step_tokens, checkpoint_layers=True)
    trained = Learner(model, settings, ReadingOptions(autocast=torch.bfloat16))
    rows = [random_row(length, sizes) for length in lengths(sizes)]
    batch = pad(rows)
    count = sum(len(row.ids) for row in rows)
    trained.update(batch, torch.arange(len(rows)), negative_log_likelihood)
    seconds = timed(
        lambda: trained.update(batch, torch.arange(len(rows)), negative_log_likelihood),
        device,
        rounds=sizes.rounds,
    )
    mean = sum(len(row.ids) ** 2 for row in rows) / count  # the length that a token's row has
    text = model.config
    flops = 6 * matrix_weights(model) + 6 * text.num_hidden_layers * text.hidden_size * mean
    return {
        "weights": sum(weight.numel() for weight in model.parameters()),
        "tokens_a_step": count,
        "tokens_s": count / seconds,
        "flops_a_token": flops,
        "peak_memory": torch.cuda.max_memory_allocated() if device == "cuda" else None,
        **asdict(sizes),
    }


def engine(device: str, shape: str, sizes: Sizes) -> dict[str, Any]:
    """Measure sampling of many rows with the local engine."""
    model = made(shape, sizes).to(torch.bfloat16 if device == "cuda" else torch.float32).to(device)
    model.generation_config.eos_token_id = None
    seconds = asyncio.run(sampling_seconds(model, sizes))
    each = cached_bytes(model.config, model.dtype)
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    length = sizes.prompt + sizes.sampled / 2
    return {
        "tokens_s": sizes.rows * sizes.sampled / seconds,
        "bytes_a_token": (weights + sizes.rows * length * each) / sizes.rows,
        "rows": sizes.rows,
    }


async def sampling_seconds(model: Any, sizes: Sizes) -> float:
    """Return the seconds in which all rows are sampled, after a first round."""
    made_engine = LocalEngine(model, EngineLimits(max_rows=sizes.rows, kept_tokens=0))
    sampling = Sampling(max_tokens=sizes.sampled, temperature=1.0)
    try:
        seconds = 0.0
        for _ in range(2):
            started = time.perf_counter()
            prompts = [random_row(sizes.prompt, sizes).ids for _ in range(sizes.rows)]
            async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
                for ids in prompts:
                    tasks.create_task(made_engine.generate(ids, sampling))
            seconds = time.perf_counter() - started
        return seconds
    finally:
        await made_engine.close()


def trl(device: str, shape: str, sizes: Sizes) -> dict[str, Any]:
    """Measure TRL's supervised loss on the same rows, where TRL is installed: its trainer's model,
    loss and optimizer, without its data loading.
    """
    if find_spec("trl") is None:
        return {"skipped": "TRL is not installed"}
    from trl.trainer.utils import selective_log_softmax  # pyright: ignore

    model = made(shape, sizes).to(device).train()
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    batch = pad([random_row(length, sizes) for length in lengths(sizes)])
    ids, mask = batch.ids.to(device), batch.mask.to(device)
    rows_at_once = max(1, sizes.step_tokens // ids.shape[1] // 4)

    def update() -> None:
        for part, kept in zip(ids.split(rows_at_once), mask.split(rows_at_once), strict=True):
            with torch.autocast(device, dtype=torch.bfloat16):
                logits = model(input_ids=part, use_cache=False).logits[:, :-1]
            logp = selective_log_softmax(logits, part[:, 1:])
            (-(logp * kept[:, 1:]).sum() / mask.sum()).backward()
        optimizer.step()
        optimizer.zero_grad()

    update()
    seconds = timed(update, device, rounds=sizes.rounds)
    return {"tokens_s": float(batch.lengths.sum()) / seconds}


def table(out: Path, *, measured: bool) -> str:
    """Return what was measured as lines of text."""
    parts = {path.stem: json.loads(path.read_text()) for path in sorted(out.glob("*.json"))}
    box: dict[str, Any] = parts.get("machine", {})
    lines = [
        f"device {box.get('device', '?')}, torch {box.get('torch', '?')}"
        + ("" if measured else "  (no GPU: the figures mean nothing)")
    ]
    for name, figures in parts.items():
        if name == "machine":
            product, copy = box["product_flops"], box["copy_bytes"]
            lines.append(f"matrix product {product / 1e12:.1f} TFLOP/s, copy {copy / 1e9:.0f} GB/s")
            continue
        if "tokens_s" not in figures:
            lines.append(f"{name}: {figures.get('skipped', 'no figure')}")
            continue
        cells = [f"{name}: {figures['tokens_s']:,.0f} tokens/s"]
        if "flops_a_token" in figures:
            rate = figures["flops_a_token"] * figures["tokens_s"]
            cells.append(f"{figures['tokens_a_step']:,} tokens a step")
            if box.get("peak_flops"):
                cells.append(f"MFU {rate / box['peak_flops']:.1%}")
            if box.get("product_flops"):
                cells.append(f"{rate / box['product_flops']:.1%} of the matrix product")
            if figures["peak_memory"]:
                cells.append(f"{figures['peak_memory'] / 2**30:.1f} GiB at the peak")
        if "bytes_a_token" in figures and box.get("copy_bytes"):
            bound = box["copy_bytes"] / figures["bytes_a_token"]
            cells.append(
                f"{figures['tokens_s'] / bound:.1%} of what the memory allows ({bound:,.0f})"
            )
        lines.append(", ".join(cells))
    return "\n".join(lines)


def made(shape: str, sizes: Sizes) -> Any:
    """Make a model of a shape with random weights."""
    given = SHAPES[shape]
    return build_model(
        sizes.vocabulary,
        hidden=given["hidden"],
        layers=given["layers"],
        heads=given["heads"],
        max_length=4096,
        intermediate_size=given["middle"],
        num_key_value_heads=2,
        initializer_range=0.02,
    )


def matrix_weights(model: Any) -> int:
    """Return the number of weights in matrix products, a tied head included once."""
    inside = sum(weight.numel() for weight in model.model.layers.parameters() if weight.dim() == 2)
    return inside + model.lm_head.weight.numel()


def lengths(sizes: Sizes) -> list[int]:
    """Return lengths between a half and one and a half of `row` that fill a step or more."""
    draw = torch.Generator().manual_seed(0)
    drawn: list[int] = []
    while sum(drawn) < sizes.step_tokens:
        drawn.append(int(torch.randint(sizes.row // 2, 3 * sizes.row // 2, (1,), generator=draw)))
    return drawn


def random_row(length: int, sizes: Sizes) -> Row:
    """Return a row of random ids, of which all but the first are trained."""
    ids = torch.randint(3, sizes.vocabulary, (length,)).tolist()
    return Row(ids, [0] + [1] * (length - 1), [0.0] * length)


def timed(work: Any, device: str, *, rounds: int) -> float:
    """Return the median seconds of a call."""
    seconds: list[float] = []
    for _ in range(rounds):
        if device == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return sorted(seconds)[len(seconds) // 2]


if __name__ == "__main__":
    main()
