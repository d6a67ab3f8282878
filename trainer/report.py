"""A run as one HTML page that opens from the file: the curve, episodes before and after, settings.

Everything shown is escaped; what a model wrote never becomes markup.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from ludus.agent import Episode, Turn
from ludus.metrics import read_metrics

from .run_folder import read_episodes

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
border: 1px solid #eee; border-radius: 8px } svg text { font: 11px system-ui; fill: #666 } details
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
    found = [row for row in rows if "eval/mean" in row]
    if not found:
        return {}
    shown = {"held-out reward before": f"{found[0]['eval/mean']:.3f}"}
    if len(found) > 1:
        shown["held-out reward after"] = f"{found[-1]['eval/mean']:.3f}"
    return shown


def _numbers(facts: Mapping[str, str]) -> str:
    cells = [
        f"<div>{html.escape(name)}<b>{html.escape(value)}</b></div>"
        for name, value in facts.items()
    ]
    return f"<div class=numbers>{''.join(cells)}</div>"


WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 800, 260, 46, 12, 28


def _curve(rows: Sequence[Mapping[str, float]]) -> str:
    """The mean reward by step as a line, held-out means as dots."""
    rewards = [(row["step"], row["reward/mean"]) for row in rows if "reward/mean" in row]
    held_out = [(row["step"], row["eval/mean"]) for row in rows if "eval/mean" in row]
    values = [value for _, value in rewards + held_out if value == value]
    if not rewards or not values:
        return "<p>No step was finished.</p>"
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
    return f"<h2>Held-out episodes, before (left) and after (right)</h2>{cells}"


def _instructive(before: Mapping[str, Episode], after: Mapping[str, Episode]) -> list[str]:
    """Tasks played both times, those whose reward rose most first."""

    def rise(task: str) -> float:
        first, last = before[task].trajectories[0].verdict, after[task].trajectories[0].verdict
        return (last.reward or 0.0) - (first.reward or 0.0)

    return sorted((task for task in before if task in after), key=lambda task: -rise(task))


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
