"""Episodes as a single HTML page, which opens from the file and requests nothing.

A content security policy forbids every request and every script except the built-in script, so
that text written by a model cannot act even if left unescaped by mistake.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from ..evaluation import Evaluation, summarise
from ..trajectory import Episode
from .episode import episode_html, outcome
from .style import SCRIPT, STYLE
from .text import attribute, markup
from .tokens import Detokenizer

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


def page_of(
    episodes: Sequence[Episode],
    *,
    title: str,
    facts: Mapping[str, str] | None = None,
    passing: float = 1.0,
    decode: Detokenizer | None = None,
    left_out: int = 0,
) -> str:
    """Return a complete HTML document.

    Args:
        episodes: the episodes to show, in this order.
        title: the heading.
        facts: shown under the heading, such as the model and the environment.
        passing: the return from which an episode passes, for pass@k.
        decode: ids to text; without a decoder, token ids are counted and not shown.
        left_out: how many episodes are not in the page; the page says so.
    """
    played = [episode for episode in episodes if episode.trajectories]
    numbers = _numbers(summarise(played, passing=passing)) if played else ""
    note = f"<p class=dim>{left_out:,} more episodes are not shown</p>" if left_out else ""
    body = [
        f"<h1>{markup(title)}</h1>",
        "".join(f"<p class=dim>{markup(k)}: {markup(v)}</p>" for k, v in (facts or {}).items()),
        numbers,
        _legend(),
        _tools(episodes),
        *(episode_html(episode, index, decode) for index, episode in enumerate(episodes)),
        note or ("" if episodes else "<p class=dim>no episodes</p>"),
    ]
    return f"{_head(title)}<body>{''.join(body)}<script>{SCRIPT}</script></body></html>\n"


def _head(title: str) -> str:
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(STYLE)}'; "
        f"script-src '{_digest(SCRIPT)}'"
    )
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv=Content-Security-Policy content="{policy}">'
        '<meta name=viewport content="width=device-width">'
        f"<title>{attribute(title)}</title><style>{STYLE}</style></head>"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _numbers(made: Evaluation) -> str:
    rows = [] if made.reward is None else [("mean reward", *made.reward.cells())]
    rows += [(f"pass@{k}", *estimate.cells()) for k, estimate in made.pass_at.items()]
    rows.append(("turns", f"{made.turns:.2f}", ""))
    rows.append(("episodes", str(made.episodes - made.failed), f"of {made.tasks} tasks"))
    rows += [(f"ended: {stop}", str(count), "") for stop, count in made.stops.items()]
    rows += [(f"failed: {why}", str(count), "") for why, count in made.failures.items()]
    shown = "".join(
        f"<tr><td>{markup(name)}<td>{markup(value)}<td>{markup(interval)}"
        for name, value, interval in rows
    )
    return f"<table><tr><th><th><th>95% interval{shown}</table>"


def _legend() -> str:
    spans = "".join(f"<span class={kind}>{said}</span>" for kind, said in LEGEND.items())
    return f"<p class=legend>{spans}</p>"


def _tools(episodes: Sequence[Episode]) -> str:
    counts = Counter(outcome(one.trajectories[0]) for one in episodes if one.trajectories)
    counts["lost"] += sum(not one.trajectories for one in episodes)
    boxes = "".join(
        f"<label><input type=checkbox value={kind} checked> {said} ({counts[kind]})</label>"
        for kind, said in KINDS.items()
    )
    return (
        "<div id=tools><input type=search id=words placeholder='words in the episode'>"
        f"{boxes}<button id=open>fold or unfold all</button><span id=left></span></div>"
    )
