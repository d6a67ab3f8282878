"""Writes docs/decisions/README.md from the first lines of the decisions.

    python scripts/decisions_index.py

A decision begins with `# NNNN Title`, and a line `Date: YYYY-MM-DD. Status: accepted.` follows, or
`Status: superseded by NNNN.` A test compares the index with what this writes.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "decisions"
AREAS = {
    "00": "Architecture",
    "01": "Environments and their contract",
    "02": "Serving over HTTP and isolation of user code",
    "03": "Rewards",
    "04": "Sandboxes",
    "05": "Agents, contexts and environment families",
    "06": "Algorithms and recipes",
    "07": "Engines",
    "08": "Code and command line",
}


def index() -> str:
    """The page that lists every decision by area, with its status."""
    lines = [
        "# Decisions",
        "",
        "One page for each decision, with its reasons and what was rejected. A decision that is "
        "replaced keeps its page and names the page that replaced it.",
    ]
    area = ""
    for path in sorted(FOLDER.glob("[0-9]*.md")):
        text = path.read_text("utf-8")
        title = re.match(r"# (\d{4}) (.+)\n", text)
        status = re.search(r"^Date: (\d{4}-\d\d-\d\d).*? Status: ([^.\n]+)\.", text, re.MULTILINE)
        if title is None or status is None or title[1] != path.name[:4]:
            raise SystemExit(f"{path.name}: needs '# NNNN Title' and 'Date: ... Status: ...'")
        if area != (area := title[1][:2]):
            lines += ["", f"## {AREAS[area]}", "", "| decision | status |", "|---|---|"]
        lines.append(f"| [{title[1]}]({path.name}) {title[2]} | {status[2]}, {status[1]} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(index(), encoding="utf-8")
