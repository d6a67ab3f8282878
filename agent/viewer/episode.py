"""The facts that the page shows about an episode, a window and a turn; the layout is in
`episode.html.j2`.
"""

from __future__ import annotations

from statistics import fmean

import msgspec

from ludus.messages import ImagePart

from ..trajectory import Finish, Segment, Trajectory, Turn, TurnKind

MAX_IMAGE_BYTES = 1 << 20


def outcome(trajectory: Trajectory | None) -> str:
    """Return the colour class of an episode: `good`, `bad`, `between` or `lost`."""
    reward = trajectory.verdict.reward if trajectory else None
    if reward is None:
        return "lost"
    return "good" if reward >= 1 else "bad" if reward <= 0 else "between"


def verdict_facts(trajectory: Trajectory) -> dict[str, str]:
    """Return the verdict in numbers and words, with the metrics of episode and verifier."""
    verdict = trajectory.verdict
    facts = {"status": str(verdict.status), "return": f"{trajectory.ret:g}"}
    if verdict.reward is not None:
        facts["reward"] = f"{verdict.reward:g}"
    facts["loss"] = "excluded" if trajectory.exclude_from_loss else "counts"
    facts["baseline"] = "excluded" if trajectory.exclude_from_baseline else "counts"
    numbers = {**trajectory.metrics, **verdict.metrics}
    return facts | {name: f"{value:g}" for name, value in numbers.items()}


def window_facts(segment: Segment, index: int, count: int) -> str:
    """Return the heading of a window: its number, its tokens, and why it ended."""
    length, opening = len(segment.ids()), len(segment.prompt_ids)
    facts = [f"{length:,} tokens", f"opens with {opening:,}"] if length else []
    reason = segment.break_reason
    ending = f"ended by {reason}" if reason else "the last one"
    return " · ".join([f"window {index} of {count}", *facts, ending])


def turn_facts(turn: Turn) -> list[str]:
    """Return what is known of the sampled part of a turn."""
    facts = [] if turn.kind is TurnKind.ACT else [str(turn.kind)]
    if turn.reward:
        facts.append(f"reward {turn.reward:g}")
    if turn.finish is not Finish.STOP:
        facts.append(f"finish {turn.finish}")
    if turn.out_ids:
        facts.append(f"{len(turn.out_ids)} tokens")
    else:
        facts.append("no token ids: not trainable")
    if turn.logprobs:
        facts.append(f"mean logprob {fmean(turn.logprobs):.3f}")
    if turn.versions:
        low, high = min(turn.versions), max(turn.versions)
        facts.append(f"version {low}" if low == high else f"versions {low} to {high}")
    return facts if turn.trained else [*facts, "not trained"]


def kind_of(image: ImagePart) -> str:
    """Return the media type of an image inside a message."""
    if image.data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    return "image/webp" if image.data[8:12] == b"WEBP" else "image/png"


def as_text(value: object) -> str:
    """Return text unchanged, and anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)
