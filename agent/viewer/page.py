"""The page of runs: one set of files, for the server that is asked again and again and for a file
that opens from the disk.

A content security policy forbids every request to another place and every script but the page's
own, so that text written by a model cannot act even if it were shown as markup by mistake.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ludus.metrics import replace_file

from .columns import STATIC
from .run import RunReader
from .store import BETWEEN, EQUAL
from .views import Runs, view

SCRIPTS = [
    "vendor/uplot-1.6.32/uPlot.iife.min.js",
    "messages.js",
    "core.js",
    "charts.js",
    "numbers.js",
    "rollouts.js",
    "episodes.js",
    "episode.js",
    "start.js",
]
STYLES = ("vendor/uplot-1.6.32/uPlot.min.css", "page.css")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of all pages, also for labelling: a browser runs no script but the page's own."""
LIMIT = 5_000_000
"""The most bytes of a file."""
TELLING = 300
"""The most episodes that are contained whole where nobody asks for a number."""
POINTS = 600
"""Points of a line in a file."""
_FILTERS = {"equal": EQUAL, "between": BETWEEN}


@cache
def script() -> str:
    """Return the script of the page: uPlot as released, and ours in one function."""
    vendored, *own = [(STATIC / name).read_text("utf-8") for name in SCRIPTS]
    return f"{vendored}\n(() => {{ 'use strict';\n{''.join(own)}\n}})();\n"


@cache
def style() -> str:
    """Return the style sheet of the page."""
    return "".join((STATIC / name).read_text("utf-8") for name in STYLES)


def embedded(value: object) -> str:
    """Return JSON that can stand inside of a script element, whatever the JSON holds."""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _size(value: object) -> int:
    """Return the bytes that a value takes in a page."""
    return len(embedded(value).encode())


def live_page(prefix: str) -> str:
    """Return the page of the server, whose script and style are files beside the page."""
    head = (
        f'<link rel=stylesheet href="{prefix}page.css">'
        f'<script defer src="{prefix}page.js"></script>'
    )
    return _document(head, {"prefix": prefix, "data": None, "filters": _FILTERS}, "")


def _document(head: str, boot: Mapping[str, object], tail: str) -> str:
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        f'<meta name=viewport content="width=device-width"><title>ludus</title>{head}</head><body>'
        f"<script type=application/json id=boot>{embedded(boot)}</script>{tail}</body></html>\n"
    )


@dataclass(frozen=True)
class PageHead:
    """The head of a page in a file, which stands above the overview."""

    title: str = ""
    lead: str = ""
    """A paragraph."""
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Numbers beside those of the run, by name."""
    first: str = "overview"
    """The page that opens."""
    most: int = 0
    """The most episodes that are contained whole, the first ones; 0 chooses the telling ones."""


def page_of(readers: Sequence[RunReader], head: PageHead, *, limit: int = LIMIT) -> str:
    """Return a complete HTML document of runs, of at most `limit` bytes.

    Episodes are put in one after the other until the file is full; what is left out is said at the
    head of the page.
    """
    for reader in readers:
        reader.refresh()
    runs = Runs(readers)
    data = _views(runs)
    left_out: list[str] = []
    frame = len(script().encode()) + len(style().encode()) + 2000
    room = limit - frame - _size([data, head.title, head.lead, dict(head.facts)])
    for reader in readers:
        room = _fill(runs, reader, head, data["runs"][reader.name], room, left_out)
    boot = {
        "prefix": "",
        "data": data,
        "filters": _FILTERS,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "left_out": left_out,
        "title": head.title,
        "lead": head.lead,
        "facts": dict(head.facts),
        "first": head.first,
        "hidden": _hidden(readers),
    }
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_digest(style())}'; script-src '{_digest(script())}'"
    )
    meta = f'<meta http-equiv=Content-Security-Policy content="{policy}"><style>{style()}</style>'
    return _document(meta, boot, f"<script>{script()}</script>")


def write_report(
    folder: Path, *, title: str = "", lead: str = "", facts: Mapping[str, str] | None = None
) -> Path:
    """Write `report.html` into a run folder, finished or not, and return the file's path.

    Args:
        folder: a run folder.
        title: heading; by default the folder's name.
        lead: one paragraph under it.
        facts: numbers to show on top, besides the held-out rewards.

    Raises:
        OSError: the file cannot be written.
    """
    reader = RunReader(folder, folder.resolve().name, None)
    page = page_of([reader], PageHead(title=title, lead=lead, facts=facts or {}))
    path = folder / "report.html"
    replace_file(path, page.encode())
    return path


def _views(runs: Runs) -> dict[str, Any]:
    """Return the views that a file holds, without episodes."""
    columns = view("columns", runs, {})
    names = ",".join(column["name"] for column in columns["columns"])
    # Fewer points a line where there are many lines, so that they never fill the file.
    points = max(60, min(POINTS, 120_000 // max(1, len(columns["columns"]) * len(runs.readers))))
    series = view("series", runs, {"columns": names, "width": str(points)})
    data: dict[str, Any] = {
        "columns": columns,
        "settings": view("settings", runs, {}),
        "compare": view("compare", runs, {}) if len(runs.readers) > 1 else {"refused": []},
        "runs": {},
    }
    for name in runs.readers:
        query = {"run": name}
        steps = view("steps", runs, query)
        lines = {column: of[name] for column, of in series["series"].items() if name in of}
        data["runs"][name] = {
            "overview": view("overview", runs, query),
            "series": lines,
            "tasks": view("tasks", runs, query),
            "accounts": view("accounts", runs, query),
            "lanes": view("lanes", runs, {**query, "most": "256"}),
            "steps": {str(steps["step"]): steps},
            "episodes": {"rows": [], "total": 0, "all": 0},
            "episode": {},
        }
    return data


def _fill(
    runs: Runs,
    reader: RunReader,
    head: PageHead,
    data: dict[str, Any],
    room: int,
    left_out: list[str],
) -> int:
    """Put rows of the table and whole episodes into `data`; return the bytes that are left."""
    table = view("episodes", runs, {"run": reader.name, "limit": "1000", "choices": "1"})
    for offset in range(1000, min(table["total"], 5000), 1000):
        query = {"run": reader.name, "limit": "1000", "offset": str(offset)}
        table["rows"] += view("episodes", runs, query)["rows"]
    rows = table["rows"]
    while rows and _size(rows) > room // 2:
        rows = rows[: len(rows) // 2]
    data["episodes"] = {**table, "rows": rows, "total": len(rows)}
    room -= _size(data["episodes"])
    if len(rows) < table["all"]:
        left_out.append(f"{table['all'] - len(rows):,} of {table['all']:,} episodes are left out.")
    numbers = _telling(data["overview"], rows) if not head.most else [row["id"] for row in rows]
    whole = 0
    for number in numbers[: head.most or TELLING]:
        episode = view("episode", runs, {"run": reader.name, "id": str(number)})
        size = _size(episode) + 16
        if size > room:
            continue
        data["episode"][str(number)] = episode
        room, whole = room - size, whole + 1
    if whole < len(rows):
        left_out.append(f"{whole:,} of {len(rows):,} listed episodes can be opened.")
    return room


def _telling(overview: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the ids of episodes, the most telling first: pairs before and after, kept ones of the
    last steps, then the others from the last step back.
    """
    pairs = [pair[end] for pair in overview["instructive"] for end in ("before", "after")]
    kept = [row["id"] for row in overview["kept"]]
    others = [row["id"] for row in sorted(rows, key=lambda row: -row["step"])]
    return list(dict.fromkeys([*pairs, *kept, *others]))


def _hidden(readers: Sequence[RunReader]) -> list[str]:
    """Return the pages for which there is nothing to show."""
    if len(readers) > 1:
        return []
    numbers = [] if readers[0].lines else ["metrics", "timeline", "steps", "accounts", "settings"]
    return ["runs", "compare", *numbers]


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
