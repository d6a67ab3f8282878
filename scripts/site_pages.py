"""Hooks of mkdocs: pages that are made of other files, and links that leave the site.

The front page is README.md; the changelog and the notes for contributors are those of the root; the
reference is made of docstrings and of the help of each verb. A link to a file of the repository
that is no page keeps its text and loses its target. `llms.txt` lists the pages for models. The file
is also an extension of griffe, which reads the docstrings.
"""

from __future__ import annotations

import importlib
import io
import os
import posixpath
import re
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
COPIES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Files of the root that are pages, each with the name of its page."""
PACKAGES = {
    "envs": "what the policy acts in",
    "rewards": "what an answer is worth",
    "agent": "one policy playing one environment",
    "trainer": "learning from episodes",
    "algorithms": "the pure functions that recipes are made of",
    "sandboxes": "where untrusted code runs",
}
"""Pages of the reference, each a package whose public names it documents."""
AFTER_GUIDES = ("reference/", "changelog", "decisions/")
"""What search puts below the guides where both have the word."""
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\[]*)\]\((?P<target>[^)\s]+)\)")
_NAMED_BLOCK = re.compile(r"^(```\w+) (\S+)$", re.MULTILINE)
"""A block that is a file, which GitHub shows without its name."""
_DOCTEST = re.compile(r"(?m)^(?P<indent>[ ]*)>>> .*\n?(?:(?P=indent)\S.*\n?)*")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of other files."""
    for source, page in COPIES.items():
        text = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, page, content=relinked(text, source, files)))
    files.append(File.generated(config, "reference/commands.md", content=commands()))
    files.append(File.generated(config, "reference/ludus.md", content=names_page()))
    files.append(File.generated(config, "reference/shared.md", content=shared_page()))
    for package, about in PACKAGES.items():
        page = f"reference/{package}.md"
        files.append(File.generated(config, page, content=package_page(package, about)))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: Any) -> str:
    """Follow the links of a page of docs/, and let guides be found before the reference."""
    if page.file.src_uri.startswith(AFTER_GUIDES):
        page.meta["search"] = {"boost": 1e-4}  # a title counts a thousandfold
    if page.file.generated_by is not None:
        return markdown
    return relinked(markdown, f"docs/{page.file.src_uri}", files)


def relinked(text: str, source: str, files: Files) -> str:
    """Return `text`, the content of the file `source`, with links to pages of the site, and without
    the targets of links to what is no page.
    """
    folder = "" if source in COPIES else posixpath.dirname(source.removeprefix("docs/"))

    def follow(link: re.Match[str]) -> str:
        path, sharp, section = link["target"].partition("#")
        if "://" in path or not path:
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        page = COPIES.get(target) or target.removeprefix("docs/")
        page = "index.md" if target == "docs/README.md" else page
        if page not in COPIES.values() and not (ROOT / "docs" / page).is_file():
            return link["text"]
        return f"[{link['text']}]({posixpath.relpath(page, folder or '.')}{sharp}{section})"

    if source in COPIES:
        text = text.replace("](docs/pictures/", "](pictures/")
    parts = re.split(r"(^```.*?^```|`[^`\n]*`(?!\]))", text, flags=re.DOTALL | re.MULTILINE)
    linked = "".join(part if part[:1] == "`" else _LINK.sub(follow, part) for part in parts)
    return _NAMED_BLOCK.sub(r'\1 title="\2"', linked)


def commands() -> str:
    """Return the page of the command line: the help of every verb."""
    from ludus.cli.main import VERBS, help_text, main

    os.environ["COLUMNS"] = "100"  # of the boxes that the help draws
    lines = ["# Commands", "", "```text", help_text(), "```", ""]
    for verb, summary in VERBS.items():
        screen = io.StringIO()
        with redirect_stdout(screen), suppress(SystemExit):
            main([verb, "--help"])
        lines += [f"## ludus {verb}", "", f"{summary}.", "", "```text"]
        lines += [line.rstrip() for line in screen.getvalue().strip().splitlines()]
        lines += ["```", ""]
    return "\n".join(lines)


def names_page() -> str:
    """Return the page of what `import ludus` gives, each name leading to where it is documented."""
    import ludus

    lines = ["# ludus", "", "What `import ludus` gives.", "", "| name | what |", "|---|---|"]
    for public in sorted(ludus.__all__):
        value = getattr(ludus, public)
        place = f"{value.__module__}.{getattr(value, '__qualname__', public)}"
        summary = (value.__doc__ or "").strip().partition("\n")[0]
        lines.append(f"| [`ludus.{public}`][{place}] | {summary.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def shared_page() -> str:
    """Return the page of the words that every package speaks."""
    modules = ("ludus.messages", "ludus.errors", "ludus.rewards.score")
    parts = ["# Messages and errors", "The words that all packages share."]
    return "\n\n".join([*parts, *(f"::: {module}" for module in modules)])


def package_page(package: str, about: str) -> str:
    """Return the page of a package's public names, whose docstrings mkdocstrings fills in."""
    name = "ludus.trainer.algorithms" if package == "algorithms" else f"ludus.{package}"
    lines = [f"# {name}", "", f"{about[0].upper()}{about[1:]}.", ""]
    for public in sorted(importlib.import_module(name).__all__):
        value = getattr(importlib.import_module(name), public)
        place = getattr(value, "__module__", None)
        if not (place and place.startswith("ludus") and getattr(value, "__doc__", None)):
            continue
        lines += [f"::: {place}.{getattr(value, '__qualname__', public)}", ""]
    return "\n".join(lines)


def on_post_build(config: Any) -> None:
    """Write `llms.txt`: every page with its address and first sentence, for models."""
    site, lines = Path(config["site_dir"]), [f"# {config['site_name']}", ""]
    lines += [f"> {config['site_description']}", ""]
    for page in sorted((ROOT / "docs").rglob("[!R]*.md")):
        text = page.read_text("utf-8")
        title = _TITLE.search(text)
        place = page.relative_to(ROOT / "docs")
        body = re.sub(r"[*`]|\[([^\]]*)\]\([^)]*\)", r"\1", text[title.end() if title else 0 :])
        first = " ".join(body.split("\n\n")[1].split()) if "\n\n" in body else ""
        lines.append(
            f"- [{title[1] if title else place.stem}]({place.with_suffix('.html')}): {first[:160]}"
        )
    (site / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")


class DoctestBlocks(griffe.Extension):
    """Puts every doctest between fences: a paragraph of Markdown would read it as a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object that was loaded."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return `text` with a fence around each run of lines from `>>>` to the next empty line.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """

    def block(match: re.Match[str]) -> str:
        indent = match["indent"]
        return f"{indent}```pycon\n{match[0].rstrip()}\n{indent}```\n"

    return _DOCTEST.sub(block, text).rstrip("\n")
