"""Writes docs/decisions/README.md: where the reasons of each decision are.

    python scripts/decisions_index.py

A decision is a page of docs/decisions that begins with `# NNNN Title`, or a paragraph of a chapter
that begins with `<a id="NNNN"></a>**NNNN.**`. A test compares the index with what this
writes.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
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
ENTRY = re.compile(r'^<a id="(\d{4})"></a>\*\*\1\.\*\* ', re.MULTILINE)


def decisions() -> dict[str, tuple[str, str]]:
    """What to show of each decision and its place, by number; places are relative to this folder.

    Of a page its title is shown, and of a paragraph the name of its chapter.
    """
    places: dict[str, tuple[str, str]] = {}

    def add(number: str, shown: str, place: str) -> None:
        if number in places:
            raise SystemExit(f"decision {number} is in {places[number][1]} and in {place}")
        places[number] = shown, place

    for page in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        title = re.match(r"# (\d{4}) (.+)\n", page.read_text("utf-8"))
        if title is None or title[1] != page.name[:4]:
            raise SystemExit(f"{page.name}: needs '# NNNN Title', with the number of its name")
        add(title[1], title[2], page.name)
    for page in sorted(DOCS.glob("*.md")):
        for number in ENTRY.findall(page.read_text("utf-8")):
            add(number, page.stem, f"../{page.name}#{number}")
    return places


def index() -> str:
    """The page that lists every decision by area, with the place of its reasons."""
    lines = [
        "# Decisions",
        "",
        "Where the reasons of each decision are: in a page of this folder, or in the section "
        '"Why" of a chapter. Code and pages cite the numbers.',
    ]
    area = ""
    for number, (shown, place) in sorted(decisions().items()):
        if area != (area := number[:2]):
            lines += ["", f"## {AREAS[area]}", ""]
        lines.append(f"- [{number}]({place}) {shown}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (DOCS / "decisions" / "README.md").write_text(index(), encoding="utf-8")
