"""Untrusted text as HTML: escaped, bounded in length, and with invisible characters shown.

A template is written by us; what it shows was written by models, and is never itself a template.
Every value that a template puts out is escaped, bounded in length and cleared of invisible
characters (`markup`), without a word in the template; in a quoted attribute the template says
`|attribute`, since a mark cannot stand there.

A content security policy forbids every request and every script except the built-in script, so
that text written by a model cannot act even if left unescaped by mistake.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ludus.messages import ImagePart

from ..evaluation import summarise
from ..trajectory import Episode, Finish, Segment, Trajectory, Turn, TurnKind
from .tokens import HEIGHT, WIDTH, Detokenizer, bars, class_of, token_row

MAX_CHARS = 20_000
"""The most characters shown of one message; a longer message is shown from both ends."""

_INVISIBLE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for tab and line feed
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"  # drawn as nothing
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e0fff"  # annotations, tags
    "\ud800-\udfff"  # lone surrogates, which UTF-8 cannot hold
    "]"
)
_SURROUNDED = 80


def markup(text: str) -> str:
    r"""Escape `text` for HTML.

    Characters that are invisible, or that reverse the text direction, are written as Python
    escapes inside a mark.

    >>> markup("<b>\x1b[2J")
    '&lt;b&gt;<mark>\\x1b</mark>[2J'
    """
    return _INVISIBLE.sub(
        lambda match: f"<mark>{ascii(match[0])[1:-1]}</mark>", html.escape(clipped(text))
    )


def attribute(text: str) -> str:
    """Escape `text` for a quoted HTML attribute."""
    return _INVISIBLE.sub(lambda match: ascii(match[0])[1:-1], html.escape(clipped(text)))


def clipped(text: str) -> str:
    """Return `text`, or the beginning and end with the number of characters left out."""
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    left_out = f"{len(text) - 2 * half:,} characters are not shown"
    return f"{text[:half]}\n[... {left_out} ...]\n{text[-half:]}"


def excerpt(text: str, max_chars: int = _SURROUNDED) -> str:
    r"""Return `text` as a single short line.

    >>> excerpt("a\n b")
    'a b'
    """
    line = " ".join(text[: 8 * max_chars].split())
    return line if len(line) <= max_chars else f"{line[:max_chars]}…"


@cache
def templates_of(package: str) -> Environment:
    """Return the templates in the folder `templates` of a package.

    Args:
        package: the dotted name, such as "ludus.agent.viewer".
    """
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        keep_trailing_newline=True,
    )
    environment.filters["attribute"] = lambda value: Markup(attribute(str(value)))
    environment.filters["thousands"] = lambda value: f"{value:,}"
    return environment


def render(package: str, template: str, **values: object) -> str:
    """Return the template filled with values."""
    return templates_of(package).get_template(template).render(**values)


def asset(package: str, name: str) -> str:
    """Return a file beside the templates as it is, such as a style sheet."""
    environment = templates_of(package)
    assert environment.loader is not None
    # The loader returns the source of any file of the folder, template or not.
    return environment.loader.get_source(environment, name)[0]


def _safe(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(markup(str(value)))


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
    counts = Counter(outcome(episode.trajectories[0]) for episode in finished)
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
        "max_image_bytes": MAX_IMAGE_BYTES,
        "base64": _base64,
        "excerpt": excerpt,
        "bars": bars,
        "class_of": class_of,
        "token_row": token_row,
        "outcome": outcome,
        "verdict_facts": verdict_facts,
        "window_facts": window_facts,
        "turn_facts": turn_facts,
        "kind_of": kind_of,
        "as_text": as_text,
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _digest(text: str) -> str:
    """Return the digest by which the content security policy allows an inline script or style."""
    return f"sha256-{_base64(hashlib.sha256(text.encode()).digest())}"
