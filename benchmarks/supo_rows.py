"""The other tables of `supo.py`: harder tiers, and ablations where they can matter."""

import statistics
from collections.abc import Sequence
from pathlib import Path

TIERS: dict[str, dict[str, object]] = {
    "copy": {"attempts": 1},
    "sum": {"attempts": 1, "tier": "sum"},
    "pointer": {"attempts": 1, "tier": "pointer"},
    "fetch": {"attempts": 1, "tier": "fetch", "window": 72},
    "fetch, again": {"attempts": 1, "tier": "fetch", "window": 72, "requeries": 32},
}
"""Settings of each row. Of the last one, summaries drop the last pair and it is fetched again: no
bound is claimed there. What one tier learns from, another may not: other weights are not tried.
"""
TIGHT: dict[str, object] = {"turns": 8, "doublings": 2, "window": 53}
SETTINGS: dict[str, dict[str, object]] = {
    "S = 7": TIGHT | {"max_summaries": 7},
    "wordy, S = 11": TIGHT | {"max_summaries": 11, "demo": "wordy"},
}
"""Where each ablation is measured: T is 8, 16 or 32. S = 7 is what summaries without a word too
many need at 32, and hardly any is longer. Of summaries that say half of what they say twice 10 to
14 are needed: with S = 11 most rollouts of 32 turns are overlong, until they learn to be brief.
"""
ABLATIONS = {
    "supo": 'base = "supo"\nname = "supo"\n',
    "segments": 'base = "supo"\nname = "supo-segments"\n'
    '[algorithm.advantage_options]\nstatistics_over = "segments" # equation 4\n',
    "unmasked": 'base = "supo"\nname = "supo-unmasked"\n[algorithm.overlong]\nin_loss = true\n',
}
"""Recipes: SUPO, its statistics over segments, and SUPO without the mask of overlong rollouts."""
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5% of Student's t, with 1, 2, 3 ... degrees of freedom; 1.96 beyond."""


def write_recipes(folder: Path) -> dict[str, str]:
    """The ablations as files; name to path."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.toml" for name in ABLATIONS}
    for name, path in paths.items():
        path.write_text(ABLATIONS[name])
    return {name: str(path) for name, path in paths.items()}


def interval(values: Sequence[float]) -> str:
    """The mean over seeds and its 95% interval by Student's t; two seeds at least make one.

    >>> interval([0.5, 0.7])
    '0.600 +- 1.271'
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    t = STUDENT[len(values) - 2] if len(values) - 2 < len(STUDENT) else 1.96
    return f"{mean:.3f} +- {t * statistics.stdev(values) / len(values) ** 0.5:.3f}"


def rows_table(rows: list[dict]) -> str:
    """A line for each row and arm: what truncation cannot pass, greedy success on held-out tasks
    over seeds, before and after, and the share of overlong rollouts, in the first step and in all.
    """
    lines = [
        f"{'row':<24} {'arm':<12} {'bound':>6} {'seeds':>5} {'greedy before':>16} "
        f"{'greedy after':>16} {'sampled':>16} {'overlong':>16}"
    ]
    for row, arm in dict.fromkeys((line["row"], line["arm"]) for line in rows):
        mine = [line for line in rows if (line["row"], line["arm"]) == (row, arm)]
        bound = mine[0]["bound"]
        shown = [interval([line[name] for line in mine]) for name in ("before", "after", "sampled")]
        shown.append(f"{over(mine, 'overlong_before')} -> {over(mine, 'overlong')}")
        lines.append(
            f"{row:<24} {arm:<12} {'-' if bound is None else f'{bound:.2f}':>6} {len(mine):>5} "
            + " ".join(f"{text:>16}" for text in shown)
        )
    return "\n".join(lines)


def over(rows: list[dict], name: str) -> str:
    """The mean of a share over seeds; of arms that never sum up there is none."""
    known = [row[name] for row in rows if row[name] is not None]
    return f"{statistics.fmean(known):.3f}" if known else "-"
