"""An episode as HTML: a foldable line with the verdict, windows and turns of each role."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import msgspec

from ludus.messages import ImagePart, Message, ToolCall
from ludus.verdict import Verdict

from ..trajectory import Episode, Finish, Segment, Trajectory, Turn, TurnKind
from .text import excerpt, markup
from .tokens import Detokenizer, class_of, strip, token_row

MAX_IMAGE_BYTES = 1 << 20


def outcome(trajectory: Trajectory) -> str:
    """Return the colour class of an episode: `good`, `bad`, `between` or `lost`."""
    reward = trajectory.verdict.reward
    if reward is None:
        return "lost"
    return "good" if reward >= 1 else "bad" if reward <= 0 else "between"


def episode_html(episode: Episode, number: int, decode: Detokenizer | None) -> str:
    """Return the whole episode as HTML, folded."""
    first = episode.trajectories[0] if episode.trajectories else None
    kind = outcome(first) if first else "lost"
    roles = "".join(_trajectory(one, decode) for one in episode.trajectories)
    facts = {
        "split": episode.split,
        "group": episode.group,
        "seed": episode.seed,
        "wall": f"{episode.wall_s:.2f} s",
    }
    return (
        f'<details class="episode {kind}" id="e{number}" data-kind={kind}><summary>'
        f"<b>{markup(episode.task or 'no task')}</b> <i>#{episode.index}</i> "
        f"{' '.join(map(_chips, episode.trajectories))}</summary>"
        f"{_facts(facts)}{roles}</details>"
    )


def _chips(trajectory: Trajectory) -> str:
    verdict = trajectory.verdict
    score = f"reward {verdict.reward:g}" if verdict.reward is not None else str(verdict.status)
    turns = len(trajectory.turns)
    said = [
        f"<span class='chip {outcome(trajectory)}'>{markup(score)}</span>",
        f"<span class=chip>{markup(str(trajectory.stop))}</span>",
        f"<span class=chip>{turns} turn{'s' if turns != 1 else ''}</span>",
    ]
    if len(trajectory.segments) > 1:
        said.append(f"<span class=chip>{len(trajectory.segments)} windows</span>")
    if trajectory.sampled_tokens:
        said.append(f"<span class=chip>{trajectory.sampled_tokens:,} tokens sampled</span>")
    role = f"{markup(trajectory.role)}: " if trajectory.role != "policy" else ""
    return role + " ".join(said)


def _trajectory(trajectory: Trajectory, decode: Detokenizer | None) -> str:
    count, excluded = len(trajectory.segments), trajectory.exclude_from_loss
    windows = "".join(
        _Window(segment, f"window {index} of {count}", excluded, decode).html()
        for index, segment in enumerate(trajectory.segments, start=1)
    )
    return (
        f"<section class=role><h3>{markup(trajectory.role)}</h3>"
        f"{_verdict(trajectory)}{windows or '<p class=dim>nothing was said</p>'}</section>"
    )


def _verdict(trajectory: Trajectory) -> str:
    verdict = trajectory.verdict
    facts: dict[str, Any] = {"status": verdict.status, "return": f"{trajectory.ret:g}"}
    if verdict.reward is not None:
        facts["reward"] = f"{verdict.reward:g}"
    facts["loss"] = "excluded" if trajectory.exclude_from_loss else "counts"
    facts["baseline"] = "excluded" if trajectory.exclude_from_baseline else "counts"
    numbers = {**trajectory.metrics, **verdict.metrics}
    facts |= {name: f"{value:g}" for name, value in numbers.items()}
    detail = f"<p>{markup(verdict.detail)}</p>" if verdict.detail else ""
    gold = trajectory.gold
    shown = "" if gold is None else f"<p class=dim>the answer: {markup(as_text(gold))}</p>"
    return f"{_facts(facts)}{_parts(verdict)}{detail}{shown}"


def _parts(verdict: Verdict) -> str:
    if not verdict.parts:
        return ""
    rows = "".join(
        f"<tr><td>{markup(name)}<td>{value:g}<td>{weight:g}<td>{value * weight:g}"
        for name, (value, weight) in verdict.parts.items()
    )
    return f"<table class=parts><tr><th>part<th>value<th>weight<th>in the reward{rows}</table>"


@dataclass(frozen=True, slots=True)
class _Window:
    segment: Segment
    name: str
    excluded: bool
    """Whether the trajectory is left out of the loss."""
    decode: Detokenizer | None

    def html(self) -> str:
        turns = "".join(_turn(turn, self.excluded) for turn in self.segment.turns)
        return (
            f"<section class=window><h4>{markup(self._facts())}</h4>"
            f"{strip(self.segment, excluded=self.excluded)}{self._tokens()}{turns}{self._gone()}"
            "</section>"
        )

    def _facts(self) -> str:
        length, opening = len(self.segment.ids()), len(self.segment.prompt_ids)
        facts = [f"{length:,} tokens", f"opens with {opening:,}"] if length else []
        reason = self.segment.break_reason
        return " · ".join([self.name, *facts, f"ended by {reason}" if reason else "the last one"])

    def _tokens(self) -> str:
        if self.decode is None or not self.segment.ids():
            return ""
        row = token_row(self.segment, self.decode, excluded=self.excluded)
        return f"<details><summary>tokens</summary>{row}</details>"

    def _gone(self) -> str:
        turns = "".join(_turn(turn, True) for turn in self.segment.discarded)
        heading = "<h5>left this window before its summary</h5>"
        return f"<div class=gone>{heading}{turns}</div>" if turns else ""


def _turn(turn: Turn, excluded: bool) -> str:
    shown = "".join(_message(message, "shown") for message in turn.observation)
    kind = class_of(turn, excluded=excluded)
    said = "" if turn.message is None else _message(turn.message, kind, head=_turn_facts(turn))
    return shown + said


def _turn_facts(turn: Turn) -> list[str]:
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


def _message(message: Message, kind: str, *, head: Sequence[str] = ()) -> str:
    name = f"{message.role} {message.name}".strip()
    said = [f"<header>{markup(name)} <i>{markup(' · '.join(head))}</i></header>"]
    if message.reasoning:
        said.append(
            f"<details class=thoughts><summary>thoughts: {markup(excerpt(message.reasoning))}"
            f"</summary><pre>{markup(message.reasoning)}</pre></details>"
        )
    if message.text:
        said.append(f"<pre>{markup(message.text)}</pre>")
    said += [_image(image) for image in message.images]
    said += [_call(call) for call in message.tool_calls]
    if len(said) == 1:
        said.append("<p class=dim>empty</p>")
    return f'<article class="{kind} {markup(str(message.role))}">{"".join(said)}</article>'


def _call(call: ToolCall) -> str:
    arguments = "".join(
        f"<dt>{markup(name)}<dd><pre>{markup(as_text(value))}</pre>"
        for name, value in call.arguments.items()
    )
    wrong = f"<p class=error>not executed: {markup(call.error)}</p>" if call.error else ""
    return (
        f"<div class=call><b>{markup(call.name or 'unreadable call')}</b> "
        f"<i>{markup(call.id)}</i><dl>{arguments}</dl>{wrong}</div>"
    )


def _image(image: ImagePart) -> str:
    """Return HTML for an image inside the message. An image at an address is named, never
    fetched.
    """
    if not image.data:
        return f"<p class=dim>image at {markup(excerpt(image.url, 200))}</p>"
    if len(image.data) > MAX_IMAGE_BYTES:
        return f"<p class=dim>image of {len(image.data):,} bytes, not shown</p>"
    encoded = base64.b64encode(image.data).decode()
    return f'<img alt="image" src="data:{_kind_of(image.data)};base64,{encoded}">'


def _kind_of(data: bytes) -> str:
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    return "image/webp" if data[8:12] == b"WEBP" else "image/png"


def as_text(value: object) -> str:
    """Return text unchanged, and anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)


def _facts(facts: Mapping[str, Any]) -> str:
    cells = "".join(
        f"<span><i>{markup(name)}</i> {markup(str(value))}</span>"
        for name, value in facts.items()
        if value != ""
    )
    return f"<p class=facts>{cells}</p>"
