"""`ludus view`: show episodes as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ludus.agent import Episode
from ludus.agent.episodes import read_episodes
from ludus.agent.viewer import PageHead, load_detokenizer, page_of
from ludus.errors import ConfigError

from .arguments import VerbHelp, parse


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """The options of `ludus view`."""

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """A file of episodes (ludus eval --out), or the folder of a run, in which the newest file of
    episodes is taken.
    """
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """The file to write the page to; by default the file of episodes with the ending .html."""
    tokenizer: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    """A model folder or tokenizer.json; with it the page shows every token and its
    log-probability.
    """
    most: int = 500
    """The most episodes in the page; the first ones are shown."""
    passing: float = 1.0
    """The lowest return with which an episode passes."""


def main(arguments: Sequence[str]) -> int:
    """Write the page and print the path; returns 0."""
    options = parse(
        ViewOptions,
        arguments,
        VerbHelp(
            verb="view",
            about="Show episodes: windows, masks, tool calls, rewards by part. Needs no network.",
            example="ludus view episodes.jsonl",
        ),
    )
    if options.most < 1:
        raise ConfigError(f"--most must be at least 1, got {options.most}")
    source = episodes_file(Path(options.path))
    decode = load_detokenizer(Path(options.tokenizer)) if options.tokenizer else None
    episodes = read_episodes(source)
    if not episodes:
        raise ConfigError(f"{str(source)!r} holds no episodes")
    page = page_of(
        episodes[: options.most],
        PageHead(
            title=f"{source.parent.name}/{source.name}" if source.parent.name else source.name,
            left_out=max(0, len(episodes) - options.most),
        ),
        passing=options.passing,
        decode=decode,
    )
    print(write_page(page, Path(options.out) if options.out else source.with_suffix(".html")))
    return 0


def episodes_file(path: Path) -> Path:
    """Return `path` itself, or, if it is a folder, the newest file of episodes in it.

    Raises:
        ConfigError: there is no file of episodes in the folder or in its subfolder `episodes`.
    """
    if not path.is_dir():
        return path
    # A run writes its episodes into `episodes/`, and its metrics, also as JSON lines, beside it.
    files = [*path.glob("*.jsonl"), *path.glob("episodes/*.jsonl")]
    files = [file for file in files if file.name != "metrics.jsonl"]
    if not files:
        raise ConfigError(f"no episodes in {str(path)!r}; name a .jsonl of ludus eval --out")
    return max(files, key=lambda file: (file.stat().st_mtime, file.name))


def write_page(page: str, path: Path) -> Path:
    """Write `page` to `path` and return `path`; a missing folder is made.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror}") from None
    return path


def page_of_evaluation(
    episodes: Sequence[Episode], *, title: str, passing: float, most: int = ViewOptions.most
) -> str:
    """Build the page of `ludus eval --html`; arguments as in `ViewOptions`."""
    return page_of(
        episodes[:most],
        PageHead(title=title, left_out=max(0, len(episodes) - most)),
        passing=passing,
    )
