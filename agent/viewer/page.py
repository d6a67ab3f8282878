"""Episodes as a single HTML page, which opens from the file and requests nothing.

A content security policy forbids every request and every script except the built-in script, so
that text written by a model cannot act even if left unescaped by mistake.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from ..evaluation import summarise
from ..trajectory import Episode
from . import episode as shown
from .rendering import asset, render
from .text import excerpt
from .tokens import HEIGHT, WIDTH, Detokenizer, bars, class_of, token_row

PACKAGE = "ludus.agent.viewer"
KINDS = {
    "good": "reward 1 or more",
    "between": "between",
    "bad": "reward 0 or less",
    "lost": "no reward",
}
LEGEND = {
    "shown": "shown to the policy: not trained (mask 0)",
    "trained": "sampled: trained (mask 1)",
    "summary": "summary of the context: trained (mask 1)",
    "untrained": "sampled, not trained (mask 0)",
}


@dataclass(frozen=True)
class PageHead:
    """The heading of a page of episodes, with facts about the evaluation."""

    title: str
    """The heading."""
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lines under the heading, by name, such as the model and the environment."""
    left_out: int = 0
    """How many episodes the page does not contain; the page shows this number."""


def page_of(
    episodes: Sequence[Episode],
    head: PageHead,
    *,
    passing: float = 1.0,
    decode: Detokenizer | None = None,
) -> str:
    """Return a complete HTML document.

    Args:
        episodes: the episodes to show, in this order.
        head: what stands above the episodes.
        passing: the return from which an episode passes, for pass@k.
        decode: ids to text; without a decoder, token ids are counted and not shown.
    """
    finished = [episode for episode in episodes if episode.trajectories]
    counts = Counter(shown.outcome(episode.trajectories[0]) for episode in finished)
    counts["lost"] += len(episodes) - len(finished)
    numbers: list[tuple[str, str, str]] = []  # rows of the table: name, value, 95% interval
    if finished:
        result = summarise(finished, passing=passing)
        numbers += [] if result.reward is None else [("mean reward", *result.reward.cells())]
        numbers += [(f"pass@{k}", *estimate.cells()) for k, estimate in result.pass_at.items()]
        numbers.append(("turns", f"{result.turns:.2f}", ""))
        played = str(result.episodes - result.failed)
        numbers.append(("episodes", played, f"of {result.tasks} tasks"))
        numbers += [(f"ended: {stop}", str(n), "") for stop, n in result.stops.items()]
        numbers += [(f"failed: {reason}", str(n), "") for reason, n in result.failures.items()]
    return render(
        PACKAGE,
        "page.html.j2",
        title=head.title,
        facts=head.facts,
        numbers=numbers,
        episodes=episodes,
        decode=decode,
        left_out=head.left_out,
        counts=counts,
        **_constants(),
    )


@cache
def _constants() -> dict[str, object]:
    """Return the values of every page: texts, assets, and functions that the templates call."""
    return {
        "kinds": KINDS,
        "legend": LEGEND,
        "style": asset(PACKAGE, "page.css"),
        "script": asset(PACKAGE, "page.js"),
        "digest": _digest,
        "width": WIDTH,
        "height": HEIGHT,
        "max_image_bytes": shown.MAX_IMAGE_BYTES,
        "base64": _base64,
        "excerpt": excerpt,
        "bars": bars,
        "class_of": class_of,
        "token_row": token_row,
        "outcome": shown.outcome,
        "verdict_facts": shown.verdict_facts,
        "window_facts": shown.window_facts,
        "turn_facts": shown.turn_facts,
        "kind_of": shown.kind_of,
        "as_text": shown.as_text,
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _digest(text: str) -> str:
    """Return the digest by which the content security policy allows an inline script or style."""
    return f"sha256-{_base64(hashlib.sha256(text.encode()).digest())}"
