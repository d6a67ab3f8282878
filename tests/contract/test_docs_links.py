"""Every relative link of a page of documentation leads to a file or folder that exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "*/*.md", "docs/**/*.md")
    for path in ROOT.glob(pattern)
    if ".venv" not in path.parts
)
LINK = re.compile(r"\[[^\]\[]*\]\(([^)\s]+)\)")


def broken_links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    targets = [link.split("#")[0] for link in LINK.findall(text) if "://" not in link]
    return [target for target in targets if target and not (page.parent / target).exists()]


@pytest.mark.parametrize("page", sorted(set(PAGES)), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert not broken_links(page)


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("[here](page.md), [there](other.md), [web](https://x.org)")
    assert broken_links(tmp_path / "page.md") == ["other.md"]


def test_the_pictures_of_the_architecture_are_as_drawn(tmp_path: Path) -> None:
    script = ROOT / "docs" / "pictures" / "architecture.py"
    copy = tmp_path / script.name
    copy.write_bytes(script.read_bytes())
    subprocess.run([sys.executable, str(copy)], check=True, timeout=60)
    drawn = sorted(tmp_path.glob("*.svg"))
    assert len(drawn) == 4
    for picture in drawn:
        assert picture.read_text() == (script.parent / picture.name).read_text(), picture.name


def test_the_index_of_decisions_is_as_written() -> None:
    written = subprocess.run(
        [
            sys.executable,
            "-c",
            "import decisions_index; print(decisions_index.index(), end='')",
        ],
        cwd=ROOT / "scripts",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert written.returncode == 0, written.stderr
    assert written.stdout == (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8"), (
        "run: python scripts/decisions_index.py"
    )
