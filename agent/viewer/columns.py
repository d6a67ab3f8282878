"""The columns of `metrics.jsonl` for people: the group, the title and the meaning of each.

The table is `static/columns.txt`: a pattern, the group, the title and the explanation in a line.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec


class Column(msgspec.Struct, frozen=True):
    """A column of the metrics, for people."""

    name: str
    group: str
    title: str
    info: str
    """How the number is computed."""
    rank: int = 1000
    """The position among the columns; known columns stand before others."""


GROUPS = (
    "Reward",
    "Held-out",
    "Groups",
    "Episodes",
    "Tokens and entropy",
    "Context",
    "Update",
    "Staleness",
    "Rollouts",
    "Time",
    "Engine",
    "Wire",
    "Survey",
    "Other",
)
"""The groups, in the order of a page."""

STATIC = Path(__file__).parent / "static"
"""The files of the page, which a wheel has too."""
_RULES = [
    (re.compile(pattern), group, title, info)
    for pattern, group, title, info in (
        line.split(" :: ") for line in (STATIC / "columns.txt").read_text("utf-8").splitlines()
    )
]


def column(name: str) -> Column:
    """Return a column with its group and title; an unknown column has its name as the title.

    >>> column("eval/pass@8").title
    'Pass@8'
    >>> column("mine/own").group
    'Other'
    """
    for rank, (pattern, group, title, info) in enumerate(_RULES):
        if match := pattern.fullmatch(name):
            words = [word.replace("_", " ") for word in match.groups()]
            heading = title.format(*words)
            return Column(name, group, heading[:1].upper() + heading[1:], info.format(*words), rank)
    return Column(name, "Other", name, "A number of this run that the page has no description of.")


CURATED = (
    ("Reward", ("reward/mean", "eval/mean")),
    ("Loss on data", ("loss", "held_out/loss")),
    ("Agreement with preferences", ("preference/accuracy", "held_out/accuracy")),
    ("Margin of preferences", ("preference/margin",)),
    ("Entropy of actions, nats", ("kind/act_entropy",)),
    ("Length, tokens", ("episode/tokens",)),
    ("Groups that teach nothing", ("group/equal", "group/identical")),
    ("KL from the sampler, nats", ("update/kl",)),
    ("Engine gap, nats", ("update/old_sampler_gap", "update/fresh_sampler_gap")),
    ("Age of tokens, versions", ("staleness/mean", "staleness/max")),
    ("Cut by a limit", ("turn/cut", "context/overlong")),
    ("Seconds of a step", ("time/generate_s", "time/update_s", "time/publish_s")),
)
"""The charts of the overview: a title and its columns."""
