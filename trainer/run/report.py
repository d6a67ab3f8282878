"""A run as one HTML page that opens from the file: the curve, episodes before and after, settings.

Everything shown is escaped; what a model wrote never becomes markup.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ludus.agent import Episode, Turn
from ludus.metrics import read_metrics

from .folder import read_episodes
from .judges import told_judges
from .notice_board import counts_of, read_notices

OF_STEPS = ("episode/count",)
"""Metrics that every step has, and nothing else."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
color: #1c1c28; } h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem } .numbers {
display: flex; flex-wrap: wrap; gap: 1rem } .numbers div { background: #f3f3f7; border-radius: 8px;
padding: .6rem 1rem } .numbers b { display: block; font-size: 1.35rem } .pair {
display: grid; grid-template-columns: 1fr 1fr; gap: 1rem } .episode { border: 1px solid #ddd;
border-radius: 8px; padding: .6rem .8rem; margin: .5rem 0 } .right { border-left: 5px solid #2a9d5c
} .wrong { border-left: 5px solid #c8433c } .lost { border-left: 5px solid #999 } pre {
margin: .15rem 0; white-space: pre-wrap; word-break: break-word;
font: 13px/1.45 ui-monospace, monospace } .role { color: #777; font-size: .75rem; text-transform:
uppercase } .call { background: #eef4ff } .policy { background: #f6f6ee } svg { width: 100%; height:
auto; background: #fbfbfd;
border: 1px solid #eee; border-radius: 8px } table { border-spacing: 1rem .1rem } th {
text-align: left } svg text { font: 11px system-ui; fill: #666 } details
pre {
background: #f6f6f9; padding: .8rem; border-radius: 8px }
"""


def write_report(
    folder: Path, *, title: str = "", lead: str = "", facts: Mapping[str, str] | None = None
) -> Path:
    """Write `report.html` into a run folder and return its path.

    Args:
        folder: a run folder, finished or not.
        title: heading; by default the folder's name.
        lead: one paragraph under it.
        facts: numbers to show on top, besides the held-out rewards.
    """
    rows = read_metrics(folder / "metrics.jsonl") if (folder / "metrics.jsonl").exists() else []
    settings = folder / "config.toml"
    body = [
        f"<h1>{html.escape(title or folder.name)}</h1>",
        f"<p>{html.escape(lead)}</p>" if lead else "",
        _numbers({**_held_out(rows), **(facts or {})}),
        "<h2>Reward of the training rollouts</h2>",
        _curve(rows),
        told_judges(folder),
        _notices(folder, rows),
        _before_and_after(folder),
        "<h2>Settings</h2><details open><summary>config.toml</summary><pre>",
        html.escape(settings.read_text(encoding="utf-8")) if settings.exists() else "",
        "</pre></details>",
    ]
    path = folder / "report.html"
    page = "\n".join(part for part in body if part)
    head = (
        "<!doctype html><html lang=en><meta "
        f"charset=utf-8><title>{html.escape(folder.name)}</title>"
    )
    path.write_text(f"{head}<style>{STYLE}</style><body>{page}</body></html>\n", encoding="utf-8")
    return path


def _held_out(rows: Sequence[Mapping[str, float]]) -> dict[str, str]:
    found = [row for row in rows if "eval/failed" in row or "eval/mean" in row]
    ends = [("before", found[0])] if found else []
    if len(found) > 1:
        ends.append(("after", found[-1]))
    return {
        f"held-out reward {name}": _reward_told(row) for name, row in ends if "eval/mean" in row
    }


def _reward_told(row: Mapping[str, float]) -> str:
    """A mean with its standard error, where they are known."""
    mean, error = row["eval/mean"], row.get("eval/standard_error")
    if error is None:
        return f"{mean:.3f} (error unknown)" if row.get("eval/episodes") == 1 else f"{mean:.3f}"
    return f"{mean:.3f} ± {error:.3f}"


def _notices(folder: Path, rows: Sequence[Mapping[str, float]]) -> str:
    """What the run was told, once each: the newest text, and in how many steps it held."""
    newest = {told.name: told for told in read_notices(folder)}
    if not newest:
        return ""
    counts, steps = counts_of(rows), sum(any(name in row for name in OF_STEPS) for row in rows)
    lines = [
        f"<li>{html.escape(told.text)} <b>{_held(counts.get(told.name, 0), steps)}</b></li>"
        for told in newest.values()
    ]
    return f"<h2>Notices</h2><ul>{''.join(lines)}</ul>"


def _held(count: int, steps: int) -> str:
    return f"In {count} of {steps} steps." if count else ""


def _series(rows: Sequence[Mapping[str, float]], name: str) -> list[tuple[float, float]]:
    """(step, value) where there is one: a mean of nothing is NaN, which JSON reads back as None."""
    found = [(row["step"], row.get(name)) for row in rows]
    return [(step, value) for step, value in found if value is not None and math.isfinite(value)]


def _numbers(facts: Mapping[str, str]) -> str:
    cells = [
        f"<div>{html.escape(name)}<b>{html.escape(value)}</b></div>"
        for name, value in facts.items()
    ]
    return f"<div class=numbers>{''.join(cells)}</div>"


WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 800, 260, 46, 12, 28


def _curve(rows: Sequence[Mapping[str, float]]) -> str:
    """The mean reward by step as a line, held-out means as dots."""
    rewards, held_out = _series(rows, "reward/mean"), _series(rows, "eval/mean")
    if not rewards:
        finished = any(row["step"] > 0 for row in rows)
        return f"<p>{'No step has a reward' if finished else 'No step was finished'}.</p>"
    values = [value for _, value in rewards + held_out]
    low, high = min(0.0, *values), max(1.0, *values)
    last = max(step for step, _ in rewards + held_out)

    def place(step: float, value: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - 10) * step / max(1.0, last)
        y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))
        return round(x, 1), round(y, 1)

    line = " ".join(f"{x},{y}" for x, y in itertools.starmap(place, rewards))
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="5" fill="#c8433c">'
        f"<title>held-out {value:.3f}</title></circle>"
        for (x, y), (_, value) in zip(itertools.starmap(place, held_out), held_out, strict=True)
    )
    ticks = "".join(_tick(place(0, level)[1], level) for level in (low, (low + high) / 2, high))
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{ticks}'
        f'<polyline points="{line}" fill="none" stroke="#3a5fcd" stroke-width="2"/>{dots}'
        f'<text x="{LEFT}" y="{HEIGHT - 8}">step 0</text>'
        f'<text x="{WIDTH - 60}" y="{HEIGHT - 8}">step {last:.0f}</text></svg>'
        "<p>Line: rollouts, sampled. Dots: held-out tasks.</p>"
    )


def _tick(y: float, level: float) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y}" y2="{y}" stroke="#e4e4ea"/>'
        f'<text x="8" y="{y + 4}">{level:.2f}</text>'
    )


def _before_and_after(folder: Path) -> str:
    """The same held-out tasks, first and last evaluation side by side."""
    files = sorted((folder / "episodes").glob("eval-*.jsonl"))
    if not files:
        return ""
    before = {episode.task: episode for episode in read_episodes(files[0])}
    after = {episode.task: episode for episode in read_episodes(files[-1])}
    chosen = _instructive(before, after)[:3]
    cells = "".join(
        "<div "
        f"class=pair><div>{_episode(before[task])}</div><div>{_episode(after[task])}</div></div>"
        for task in chosen
    )
    heading = (
        "<h2>Held-out episodes, before (left) and after (right): of the tasks with a reward both "
        "times, the three whose reward rose most</h2>"
    )
    return heading + (cells or "<p>No task has a reward both times.</p>")


def _instructive(before: Mapping[str, Episode], after: Mapping[str, Episode]) -> list[str]:
    """Tasks with a reward both times, those whose reward rose most first.

    A lost episode has no reward, which is not a reward of zero: it shows no rise.
    """
    rises: dict[str, float] = {}
    for task in before.keys() & after.keys():
        first, last = _reward(before[task]), _reward(after[task])
        if first is not None and last is not None:
            rises[task] = last - first
    return sorted(rises, key=lambda task: (-rises[task], task))


def _reward(episode: Episode) -> float | None:
    return episode.trajectories[0].verdict.reward if episode.trajectories else None


def _episode(episode: Episode) -> str:
    trajectory = episode.trajectories[0]
    reward = trajectory.verdict.reward
    kind = "lost" if reward is None else "right" if reward > 0 else "wrong"
    score = "no reward" if reward is None else f"reward {reward:g}"
    turns = "".join(_turn(turn) for turn in trajectory.turns)
    return (
        f'<div class="episode {kind}"><b>{html.escape(episode.task)}</b> · {score} · '
        f"{html.escape(str(trajectory.stop))}{turns}</div>"
    )


def _turn(turn: Turn) -> str:
    shown = [
        f"<div><span class=role>{message.role}</span><pre>{html.escape(message.text)}</pre></div>"
        for message in turn.observation
    ]
    if turn.message is not None:
        for call in turn.message.tool_calls:
            arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
            said = call.error or f"{call.name}({arguments})"
            shown.append(
                f"<div class=call><span class=role>calls</span><pre>{html.escape(said)}</pre></div>"
            )
        if turn.message.text:
            text = html.escape(turn.message.text)
            shown.append(
                f"<div class=policy><span class=role>answers</span><pre>{text}</pre></div>"
            )
    return "".join(shown)
