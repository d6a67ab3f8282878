"""Words in braces of the sentences and remedies of rules: commands, options and short texts."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence

from ludus.secret import Secret

from ..config import RewardConfig
from .history import SHORT, RunHistory
from .quantities import SHARE, dominating_part, falling_part, growth


def _rate(run: RunHistory, factor: float) -> str:
    return f"--trainer.lr={run.setting('trainer.lr') * factor:.2g}"


def _wider(run: RunHistory) -> str:
    return f"--rollout.group_size={2 * int(run.of_recipe('sampling.group_size', 8))}"


def _more_tokens(run: RunHistory) -> str:
    return f"--rollout.max_tokens={2 * int(run.setting('rollout.max_tokens'))}"


def _shorter(run: RunHistory) -> str:
    then = run.mean("episode/tokens", SHORT, before=max(0, len(run.rows) - SHORT)) or 1.0
    turns = run.mean("episode/turns") or 1.0
    return f"--rollout.max_tokens={max(1, round(1.5 * then / turns))}"


def _half(run: RunHistory, name: str) -> str:
    return f"--{name}={max(1, int(run.setting(name)) // 2)}"


def _view(run: RunHistory) -> str:
    return f"ludus view {shlex.quote(run.folder)}"


def _reweighed(run: RunHistory, part: str, factor: float) -> str:
    """Return the option that multiplies the weight of a part by `factor`; of the environment's own
    reward, whose weight is 1, the weights of the others are divided.
    """
    rows = []
    for row in run.setting("reward"):
        name, weight = row["name"], row.get("weight", RewardConfig.weight)
        if part == "env":
            weight /= factor
        elif name == part:
            weight *= factor
        fields = [f"name = {json.dumps(name)}", f"weight = {weight:.3g}"]
        # The option replaces the whole list, so that the other settings stand in it as well.
        if (timeout_s := row.get("timeout_s", RewardConfig.timeout_s)) != RewardConfig.timeout_s:
            fields.append(f"timeout_s = {timeout_s:g}")
        if token := Secret(str(row.get("token", ""))).reference:
            fields.append(f'token = "{token}"')
        rows.append(f"{{{', '.join(fields)}}}")
    table = f"[{', '.join(rows)}]"
    return f"--reward {shlex.quote(table)}" if rows else ""


def _even(run: RunHistory) -> str:
    parts = dominating_part(run)
    if parts is None:
        return ""
    top, other, share = parts
    other_share = run.mean(f"{SHARE}{other}", 10) or 1e-4
    return _reweighed(run, top, math.sqrt(other_share / share))


def _falling(run: RunHistory) -> str:
    return (falling_part(run) or ("", 0.0))[0]


def _fallen(rows: Sequence[Mapping[str, float]], column: str) -> str:
    known = [row for row in rows if column in row]
    best = max(known, key=lambda row: row[column])
    return f"{best[column]:.3f} at step {best['step']:.0f} to {known[-1][column]:.3f}"


def _collapse(run: RunHistory) -> str:
    best, last = run.best_level(), run.level(3)
    at = f"{best.mean:.3f} at step {best.step}" if best else "its best"
    return f"{at} to {last.mean if last else math.nan:.3f}"


def _likeness(run: RunHistory) -> str:
    """Return which attacker the policy is most like; "" if no recent step was audited."""
    prefix = "audit/like/"
    columns = {name for row in run.rows[-SHORT:] for name in row if name.startswith(prefix)}
    if not columns:
        return ""
    shares = {name.removeprefix(prefix): run.mean(name) or 0.0 for name in sorted(columns)}
    most = max(shares, key=lambda name: shares[name])
    return f": {shares[most]:.0%} of what is paid does what the attacker {most!r} does"


DROPPED: dict[str, tuple[str, Callable[[RunHistory], str]]] = {
    "filter": (
        "the recipe's group filter drops every group: tasks are all too easy or all too hard",
        _wider,
    ),
    "overlong": (
        "every rollout ended by a limit, and the recipe leaves those out of the loss",
        _more_tokens,
    ),
    "correction": (
        "the recipe's corrections drop every token: learner and sampler disagree",
        lambda run: "--model.dtype=float32",
    ),
    "excluded": ("every rollout with trained tokens is excluded from the loss", _view),
    "": (
        "the policy sampled none, as where the window is full",
        lambda run: "--context.manager=summarize",
    ),
}
"""From the end of a column `update/dropped_...` to why no token reached the loss, and the
remedy; "" for none of these columns.
"""


def _dropped(run: RunHistory) -> tuple[str, Callable[[RunHistory], str]]:
    shares = {name: run.mean(f"update/dropped_{name}", 3, absent=0.0) or 0.0 for name in DROPPED}
    top = max(shares, key=lambda name: shares[name])
    return DROPPED[top if shares[top] else ""]


def _mixed(run: RunHistory) -> float:
    """Return the share of groups whose rollouts earn different rewards."""
    return 1 - (run.mean("group/equal") or 0.0)


def _why_flat(run: RunHistory) -> str:
    share = f"{_mixed(run):.0%} of the groups have mixed results"
    if _mixed(run) < 0.3:
        return f"only {share}: there is little to learn from"
    return (
        f"though {share}: the learning rate is too small, or the rewards say nothing about the "
        "answers"
    )


def _what_behind(run: RunHistory) -> str:
    """Return why held-out tasks may not confirm the training reward."""
    alike = run.mean("reward/std", 3) == 0 and (run.mean("group/identical", 3) or 0.0) < 0.9
    why = "rollouts that differ all earn the same: the verifier of training may pay for anything"
    other = "tasks are learned by heart, or training pays for something else"
    return why if alike else other


def _held_out_last(run: RunHistory) -> str:
    rows = [row for row in run.held_out if "eval/mean" in row]
    return f"{rows[-1]['eval/mean']:.3f} at step {rows[-1]['step']:.0f}" if rows else "nothing"


WORDS: dict[str, Callable[[RunHistory], object]] = {
    # Commands and options.
    "slower": lambda run: _rate(run, 1 / 3),
    "wider": _wider,
    "more_tokens": _more_tokens,
    "more_turns": lambda run: (
        f"--rollout.max_turns={2 * limit}"
        if (limit := int(run.setting("rollout.max_turns")))
        else _view(run)
    ),
    "shorter": _shorter,
    "roomier": lambda run: (
        f"--rollout.window={2 * int(window)}"
        if (window := run.setting("rollout.window"))
        else "--context.manager=summarize"
    ),
    "explore": lambda run: (
        "--rollout.temperature=1.0"
        if 0 < run.setting("rollout.temperature") < 1
        else _rate(run, 1 / 3)
    ),
    "fewer_at_once": lambda run: _half(run, "rollout.concurrency"),
    "fresher": lambda run: _half(run, "overlap.max_staleness"),
    "longer_timeout": lambda run: f"{2 * float(run.setting('rollout.episode_timeout_s')):g}",
    "one_more_try": lambda run: 1 + int(run.setting("rollout.retries")),
    "several_updates": lambda run: min(4, run.setting("rollout.tasks_per_step")),
    "view": _view,
    "warm_start": lambda run: run.command(
        *("sft", "--env", str(run.setting("env"))),
        *("--model.path", str(run.setting("model.path"))),
    ),
    "probe": lambda run: f"ludus model probe {shlex.quote(str(run.setting('model.path')))}",
    "audit": lambda run: run.command("audit", str(run.setting("env")), "--rl"),
    "from_best": lambda run: (
        f"--model.path={shlex.quote(run.folder)}/checkpoints/best {_rate(run, 0.3)}"
    ),
    "weigh_falling_part": lambda run: _reweighed(run, _falling(run), 3.0),
    "even_parts": _even,
    "ask_more": lambda run: (
        f"--rollout.group_size={2 * int(run.setting('rollout.group_size') or 8)}"
    ),
    "train_something": lambda run: _dropped(run)[1](run),
    "unstick": lambda run: _wider(run) if _mixed(run) < 0.3 else _rate(run, 3.0),
    "tasks_there_are": lambda run: max(1, int(run.mean("group/tasks", 1) or 1)),
    # What was seen.
    "first_level": lambda run: run.first_level(),
    "steps_made": lambda run: len(run.rows),
    "turn_limit": lambda run: run.setting("rollout.max_turns") or "that of the environment",
    "window": lambda run: run.setting("rollout.window") or "that of the model",
    "advantage": lambda run: run.of_recipe("algorithm.advantage"),
    "growth": lambda run: growth(run) or 1.0,
    "lost_because": lambda run: run.reason_of_failures(),
    "why_nothing": lambda run: _dropped(run)[0],
    "why_flat": _why_flat,
    "collapse": _collapse,
    "held_out_fallen": lambda run: _fallen(run.held_out, "eval/mean"),
    "audit_fallen": lambda run: _fallen(run.rows, "audit/reward"),
    "likeness": _likeness,
    "what_behind": _what_behind,
    "held_out_last": _held_out_last,
    "best_reward": lambda run: best.mean if (best := run.best_level()) else 1.0,
    "falling_part": _falling,
    "falling_level": lambda run: run.mean(f"reward/part/{_falling(run)}") or 0.0,
    "top_part": lambda run: (dominating_part(run) or ("", ""))[0],
    "other_part": lambda run: (dominating_part(run) or ("", ""))[1],
}
"""From a word in braces to the function for its value; see `Sentence` for other words."""
