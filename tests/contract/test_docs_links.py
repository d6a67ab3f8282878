"""What the documentation cites is there: files, sections, decisions and generated pages."""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "*/*.md", "docs/**/*.md")
    for path in set(ROOT.glob(pattern))
    if ".venv" not in path.parts
)
PACKAGES = ("src", "envs", "agent", "rewards", "trainer", "sandboxes")
FOLDERS = (*PACKAGES, "tests", "benchmarks", "examples", "scripts", "docs")
LINK = re.compile(r"\[[^\]\[]*\]\(([^)\s]+)\)")
PLACE = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w")
DECISION = re.compile(r"decisions?[ /]\[?(0\d{3})", re.IGNORECASE)


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names that a link to a place of the page may use: headings as written by GitHub, ids."""
    text = prose(page)
    slugs = {
        re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    return slugs | set(re.findall(r'<a id="([\w-]+)"></a>', text))


def broken_links(page: Path) -> Iterator[str]:
    """Relative links of a page that lead to no file, or to no section of one."""
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page))):
        path, _, section = link.partition("#")
        target = page.parent / path if path else page
        if "://" in link:
            continue
        if not target.exists() or (
            section and target.suffix == ".md" and section not in anchors(target)
        ):
            yield link


def sources() -> Iterator[Path]:
    """Python files of the repository."""
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_every_link_leads_to_a_file_and_a_section() -> None:
    assert not [(page.name, link) for page in set(PAGES) for link in broken_links(page)]


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "# A page\n[here](page.md#a-page), [there](other.md), [web](https://x.org), [no](#nowhere)"
    )
    assert list(broken_links(tmp_path / "page.md")) == ["other.md", "#nowhere"]


def test_every_file_that_a_page_names_is_there() -> None:
    missing = {
        (page.name, place)
        for page in set(PAGES)
        for place in PLACE.findall(prose(page))
        if not (ROOT / place).exists() and not (page.parent / place).exists()
    }
    assert not missing


def test_every_name_that_an_example_imports_is_there() -> None:
    imports = re.compile(r"^ *from (ludus[\w.]*) import ([\w, ]+)$", re.MULTILINE)
    missing = {
        (page.name, module, name)
        for page in set(PAGES)
        for module, names in imports.findall(page.read_text("utf-8"))
        if not module.startswith("ludus.integrations")  # those import the peer's package
        for name in names.split(", ")
        if not hasattr(import_module(module), name.split(" as ")[0])
    }
    assert not missing


def test_every_page_that_code_names_is_there() -> None:
    cited = re.compile(r"(?<![\w/])docs/[\w/-]+\.md")
    missing = {
        (source.name, place)
        for source in sources()
        for place in cited.findall(source.read_text("utf-8"))
        if not (ROOT / place).exists()
    }
    assert not missing


def test_every_decision_that_is_cited_has_a_place() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8")
    numbers = set(re.findall(r"^- \[(\d{4})\]", index, re.MULTILINE))
    assert len(numbers) > 100
    missing = {
        (path.name, number)
        for path in [*sources(), *set(PAGES)]
        for number in DECISION.findall(path.read_text("utf-8"))
        if number not in numbers
    }
    assert not missing


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
        [sys.executable, "-c", "import decisions_index; print(decisions_index.index(), end='')"],
        cwd=ROOT / "scripts",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert written.returncode == 0, written.stderr
    assert written.stdout == (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8"), (
        "run: python scripts/decisions_index.py"
    )


def test_a_recorded_result_is_of_the_command_that_prints_it() -> None:
    commands = re.findall(
        r'^    "([\w-]+)": "(.+)",$', (ROOT / "benchmarks/record.py").read_text(), re.M
    )
    assert commands
    for _, command in commands:
        assert (ROOT / command.split()[0]).is_file(), command
    for result in (ROOT / "docs" / "results").glob("*.txt"):
        assert result.read_text().startswith(f"$ python {dict(commands)[result.stem]}\n"), result
