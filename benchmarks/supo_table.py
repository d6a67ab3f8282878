"""The main table of `supo.py`, and whether its targets hold."""

import statistics

from supo_setting import Setting


def table(rows: list[dict], setting: Setting) -> str:
    """Means over seeds, lowest and highest in brackets."""
    lines = [
        f"{'arm':<12} {'greedy before':>14} {'greedy after':>22} {'sampled':>8} "
        f"{f'{setting.longer}T':>22} {'row':>5} {'CPU s':>6}"
    ]
    for arm in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == arm]

        def spread(name: str, mine: list[dict] = mine) -> str:
            values = [row[name] for row in mine if name in row]
            if not values:
                return "-"
            return f"{statistics.fmean(values):.3f} [{min(values):.3f}, {max(values):.3f}]"

        lines.append(
            f"{arm:<12} {statistics.fmean(r['before'] for r in mine):>14.3f} {spread('after'):>22} "
            f"{statistics.fmean(r['sampled'] for r in mine):>8.3f} {spread('longer'):>22} "
            f"{max(r['row_tokens'] for r in mine):>5} "
            f"{statistics.fmean(r['cpu_s'] for r in mine):>6.0f}"
        )
    return "\n".join(lines)


def targets(rows: list[dict], window: int) -> dict[str, bool]:
    """Whether every seed is where it should be; only of the arms that were run."""
    by_arm = {(row["arm"], row["seed"]): row for row in rows}
    seeds = sorted({row["seed"] for row in rows})

    def pairs(arm: str, other: str, name: str = "after") -> list[tuple[float, float]]:
        """(SUPO or what it is held against, the other) of each seed that has both."""
        both = [(by_arm.get((arm, seed)), by_arm.get((other, seed))) for seed in seeds]
        return [
            (mine["after"], theirs[name])
            for mine, theirs in both
            if mine and theirs and name in theirs
        ]

    cut = [row["after"] for row in rows if row["arm"] in ("keep_last_k", "discard", "none")]
    held = {
        "supo >= 0.9": [success >= 0.9 for success, _ in pairs("supo", "supo")],
        "truncation <= 0.15": [success <= 0.15 for success in cut],
        "masked at least 0.4 below": [a - b >= 0.4 for a, b in pairs("supo", "masked")],
        "full >= supo": [b >= a for a, b in pairs("supo", "full")],
        "longer >= 0.9 of supo": [b >= 0.9 * a for a, b in pairs("supo", "supo", "longer")],
        "rows within W": [row["row_tokens"] <= window for row in rows if row["arm"] != "full"],
    }
    return {name: all(seeds) for name, seeds in held.items() if seeds}
