"""`ludus view`: show episodes, or a run, as a file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ludus.agent import Episode, read_episodes, summarise
from ludus.agent.viewer import PageHead, RunReader, load_detokenizer, page_of
from ludus.errors import ConfigError

from .arguments import VerbHelp, parse
from .runs import run_place

DOCTYPE = b"<!doctype html>"
"""How every page begins."""


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """The options of `ludus view`."""

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """A file of episodes (ludus eval --out), or the folder of a run."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """The file to write the page to; by default the file of episodes with the ending .html, or
    view.html in the folder.
    """
    tokenizer: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    """A model folder or tokenizer.json; without it a run's own is taken, and for a file of episodes
    the page shows ids of tokens.
    """
    most: int = 500
    """The most episodes of a file that are contained whole, the first ones; the page holds 5 MB."""
    passing: float = 1.0
    """The lowest return with which an episode passes."""


def main(arguments: Sequence[str]) -> int:
    """Write the page and print the path; returns 0."""
    options = parse(
        ViewOptions,
        arguments,
        VerbHelp(
            verb="view",
            about="Show episodes: tokens, windows, calls, rewards by part. Needs no network.",
            example="ludus view episodes.jsonl",
        ),
    )
    if options.most < 1:
        raise ConfigError(f"--most must be at least 1, got {options.most}")
    source = run_place(options.path)
    tokenizer = Path(options.tokenizer) if options.tokenizer else None
    if tokenizer is not None:
        load_detokenizer(tokenizer)  # a mistake is told before anything is read
    if source.is_dir():
        reader = RunReader(source, source.resolve().name, None, tokenizer=tokenizer)
        reader.refresh()
        if not reader.store.query({})[0]:
            raise ConfigError(f"no episodes in {str(source)!r}; name a .jsonl of ludus eval --out")
        page = page_of([reader], PageHead(first="episodes"))
        default = source / "view.html"
    else:
        episodes = read_episodes(source)
        if not episodes:
            raise ConfigError(f"{str(source)!r} holds no episodes; name a file of ludus eval --out")
        page = page_of_file(
            source, episodes, passing=options.passing, most=options.most, tokenizer=tokenizer
        )
        default = source.with_suffix(".html")
    print(write_page(page, Path(options.out) if options.out else default))
    return 0


def page_of_file(
    source: Path,
    episodes: Sequence[Episode],
    *,
    passing: float,
    title: str = "",
    most: int = ViewOptions.most,
    tokenizer: Path | None = None,
) -> str:
    """Return the page of a file that holds `episodes`, with the measurements at the top."""
    result = summarise([episode for episode in episodes if episode.trajectories], passing=passing)
    measured = {} if result.reward is None else {"mean reward": result.reward}
    measured |= {f"pass@{k}": estimate for k, estimate in result.pass_at.items()}
    facts = {name: " (".join(estimate.cells()) + ")" for name, estimate in measured.items()}
    facts |= {"passed": f"a return of at least {passing:g}"} if result.pass_at else {}
    facts |= {"episodes": f"{result.episodes - result.failed} of {result.tasks} tasks"}
    facts |= {f"failed: {reason}": str(count) for reason, count in result.failures.items()}
    reader = RunReader(source, source.name, None, tokenizer=tokenizer)
    return page_of(
        [reader], PageHead(title=title or source.name, facts=facts, first="episodes", most=most)
    )


def refuse_unwritable(path: Path, flag: str = "") -> None:
    """Refuse a file that could not be written after the work for it was done; what is there stays.

    Args:
        path: the file.
        flag: the option that names it, for the message.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        named = " ".join(filter(None, (flag, repr(str(path)))))
        raise ConfigError(f"cannot write {named}: {error.strerror}") from error


def refuse_no_page(path: Path) -> None:
    """Refuse a file for a page that could not be written, or that holds something else.

    Raises:
        ConfigError: the file cannot be written, or its content would be lost.
    """
    refuse_unwritable(path)
    head = path.read_bytes()[: len(DOCTYPE)] if path.is_file() else b""
    if head and head != DOCTYPE:
        raise ConfigError(f"{str(path)!r} holds no page, and would be replaced; name another file")


def write_page(page: str, path: Path) -> Path:
    """Write `page` to `path` and return `path`; a missing folder is made.

    Raises:
        ConfigError: the file cannot be written, or holds something else than a page.
    """
    refuse_no_page(path)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror}") from error
    return path
