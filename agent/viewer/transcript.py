"""An episode as plain data for the page: windows, turns with tokens, messages, images."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

import msgspec

from ludus.messages import ImagePart, Message

from ..trajectory import Episode, Segment, Trajectory, Turn
from .tokens import class_of, pieces

MAX_IMAGE_BYTES = 1 << 20
MAX_CHARS = 2_000_000
"""Most characters of a message that are sent; a longer one is cut in the middle, with a note."""


def trajectory_data(
    trajectory: Trajectory, role: int, windows: Mapping[Any, Any], decode: Any
) -> Any:
    """Return the actions of a role, as the page shows them.

    Args:
        trajectory: the role's part of an episode.
        role: its index in the episode.
        windows: what the learner found, by role and window.
        decode: makes text of token ids; None where there is no tokenizer.
    """
    verdict = trajectory.verdict
    excluded = trajectory.exclude_from_loss
    return {
        "role": trajectory.role,
        "status": str(verdict.status),
        "reward": verdict.reward,
        "return": trajectory.ret,
        "detail": _cut(verdict.detail),
        "parts": [
            {"name": name, "value": value, "weight": weight}
            for name, (value, weight) in verdict.parts.items()
        ],
        "numbers": {**trajectory.metrics, **verdict.metrics},
        "stop": str(trajectory.stop),
        "excluded": excluded,
        "baseline": not trajectory.exclude_from_baseline,
        "gold": None if trajectory.gold is None else _as_text(trajectory.gold),
        "closing": [message_data(message) for message in trajectory.closing],
        "windows": [
            _window(segment, windows.get((role, number), {}), excluded, decode)
            for number, segment in enumerate(trajectory.segments)
        ],
    }


def _window(segment: Segment, learned: Mapping[str, Any], excluded: bool, decode: Any) -> Any:
    spans: list[dict[str, Any]] = [{"kind": "shown", "name": "prompt", "ids": segment.prompt_ids}]
    for turn in segment.turns:
        spans.append({"kind": "shown", "name": "observation", "ids": turn.obs_ids})
        spans.append(
            {
                "kind": class_of(turn, excluded=excluded),
                "name": str(turn.kind),
                "ids": turn.out_ids,
                "logp": [round(value, 4) for value in turn.logprobs],
                "versions": turn.versions,
                "trained": turn.trained,
            }
        )
    for span in spans:
        if decode is not None:
            span["pieces"] = pieces(span["ids"], decode)
    return {
        "spans": [span for span in spans if span["ids"]],
        "turns": [_turn(turn, excluded) for turn in segment.turns],
        "discarded": [_turn(turn, True) for turn in segment.discarded],
        "ended": segment.break_reason,
        "cause": segment.cause,
        "parent": segment.parent,
        "learned": {name: learned.get(name, []) for name in ("advantage", "logp", "entropy")},
    }


def _turn(turn: Turn, excluded: bool) -> dict[str, Any]:
    return {
        "kind": str(turn.kind),
        "class": class_of(turn, excluded=excluded),
        "reward": turn.reward,
        "finish": str(turn.finish),
        "tokens": len(turn.out_ids),
        "logp": round(fmean(turn.logprobs), 4) if turn.logprobs else None,
        "versions": sorted(set(turn.versions)),
        "observation": [message_data(message) for message in turn.observation],
        "message": message_data(turn.message) if turn.message is not None else None,
    }


def spoken(segment: Segment) -> Iterator[tuple[Message, Turn | None]]:
    """Yield the messages of a window in order, what the policy said with its turn."""
    for turn in segment.turns:
        for message in turn.observation:
            yield message, None
        if turn.message is not None:
            yield turn.message, turn


def message_data(message: Message) -> dict[str, Any]:
    """Return a message as the page shows it: texts that may be cut, calls, and images."""
    return {
        "role": str(message.role),
        "name": message.name,
        "text": _cut(message.text),
        "reasoning": _cut(message.reasoning),
        "calls": [
            {
                "name": call.name,
                "id": call.id,
                "error": call.error,
                "arguments": {name: _as_text(value) for name, value in call.arguments.items()},
            }
            for call in message.tool_calls
        ],
        "images": [_image(image) for image in message.images],
    }


def _image(image: ImagePart) -> dict[str, str]:
    """Return an image as a data URL; one at an address is named, never fetched."""
    if not image.data:
        return {"named": image.url[:200]}
    if len(image.data) > MAX_IMAGE_BYTES:
        return {"named": f"an image of {len(image.data):,} bytes, too large to show"}
    kind = "image/jpeg" if image.data.startswith(b"\xff\xd8\xff") else "image/png"
    kind = "image/webp" if image.data[8:12] == b"WEBP" else kind
    return {"data": f"data:{kind};base64,{base64.b64encode(image.data).decode()}"}


def _cut(text: str) -> str:
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    return f"{text[:half]}\n[... {len(text) - MAX_CHARS:,} characters left out ...]\n{text[-half:]}"


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return _cut(value)
    try:
        return _cut(msgspec.json.encode(value).decode())
    except (TypeError, ValueError):
        return _cut(repr(value))


def first_difference(episode: Episode, other: Episode) -> int | None:
    """Return how many sampled tokens two episodes share at their start; None if all."""
    first, second = (
        [
            token
            for trajectory in each.trajectories
            for turn in trajectory.turns
            for token in turn.out_ids
        ]
        for each in (episode, other)
    )
    for place, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return place
    return None if len(first) == len(second) else min(len(first), len(second))
