"""The page at `/` for an operator's browser: what is served, how full it is, who plays, what came
of it.

It reads and changes nothing, needs no script and no file of another place (the policy of its
content forbids both), and loads itself again every five seconds. Everything on it that a client or
a model wrote is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Protocol, runtime_checkable

import jinja2
from aiohttp import web

REFRESH_S = 5
MAX_ROWS = 100
"""The most rows of a table; the page says how many more there are."""
MAX_CELL = 200
"""The most characters of a cell."""


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table of the page."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@runtime_checkable
class ShownService(Protocol):
    """A service that has tables on the page."""

    def tables(self) -> list[PageTable]:
        """Return the current tables."""
        ...


STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2rem; color: #1b1f24; background: #fff }
h1 { font-size: 1.3rem; margin: 0 } h2 { font-size: 1rem; margin: 1.6rem 0 .3rem }
p { margin: .2rem 0; color: #57606a } .bad { color: #b42318; font-weight: 600 }
table { border-collapse: collapse; min-width: 30rem; max-width: 100% }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #d8dee4 }
th { font-weight: 600; color: #57606a } td { overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117 } th, td { border-color: #30363d }
  p, th { color: #9da7b1 } .bad { color: #ff7b72 }
}
"""
TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="{{ refresh_s }}">
<title>ludus: {{ status }}</title>
<style>{{ style | safe }}</style>
</head>
<body>
<h1>ludus {{ version }}</h1>
<p>instance {{ instance }}, {{ now }} UTC</p>
<p{% if status != "ready" %} class="bad"{% endif %}>{{ status }}</p>
{% for table in tables %}
<h2>{{ table.title }}</h2>
{% if table.rows %}
<table>
<tr>{% for column in table.columns %}<th scope="col">{{ column }}</th>{% endfor %}</tr>
{% for row in table.rows[:most] %}
<tr>{% for cell in row %}<td>{{ cell | cell }}</td>{% endfor %}</tr>
{% endfor %}
</table>
{% if table.rows | length > most %}<p>and {{ table.rows | length - most }} more</p>{% endif %}
{% else %}
<p>none</p>
{% endif %}
{% endfor %}
</body>
</html>
"""


def show(tables: Iterable[PageTable], *, instance: str, status: str) -> web.Response:
    """Return the page.

    Args:
        tables: what stands on it.
        instance: the run of the server.
        status: `ready`, or why the server is not.
    """
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    text = _template().render(
        refresh_s=REFRESH_S,
        style=STYLE,
        version=version("ludus-rl"),
        instance=instance,
        now=time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        status=status,
        tables=list(tables),
        most=MAX_ROWS,
    )
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    return web.Response(text=text, content_type="text/html", headers=headers)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = _cell
    return environment.from_string(TEMPLATE)


def _cell(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def age(since: float) -> str:
    """Return how long ago a time of `time.monotonic` is, in words for a person.

    >>> age(time.monotonic() - 7322)
    '2 h 2 min'
    """
    seconds = int(time.monotonic() - since)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
