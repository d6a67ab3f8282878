"""Draws trees of small files: folders, names and contents.

Each chore is drawn for the tree that the chores before have left, and changes that tree.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

Tree = dict[str, str]
"""A tree of files: the content of each, by path from the top folder."""

FOLDERS = ("inbox", "notes", "reports", "data", "web", "scripts", "photos", "letters")
ENDINGS = ("txt", "log", "csv", "conf", "md")
STEMS = (
    "alder", "birch", "cedar", "dune", "ember", "fjord", "grove", "heron", "ivory", "jasper",
    "kelp", "larch", "maple", "nectar", "osier", "pebble", "quartz", "reed", "sorrel", "tundra",
)  # fmt: skip
WORDS = (
    "anchor", "basket", "candle", "drum", "engine", "feather", "garden", "hammer", "island",
    "jacket", "kettle", "lantern", "mirror", "needle", "orchard", "pillow", "quiver", "ribbon",
    "saddle", "ticket", "umbrella", "violin", "window", "yarn",
)  # fmt: skip
MARKS = ("draft", "old", "copy", "raw")
YEARS = tuple(range(2015, 2025))
EMPTY_RATE, MARKED_RATE, DATED_RATE = 0.12, 0.25, 0.25


def draw_tree(rng: random.Random, files: int) -> Tree:
    """Draw a tree of `files` files in some folders; no two files have the same name."""
    folders_drawn = rng.sample(FOLDERS, min(len(FOLDERS), 2 + files // 6))
    nested = [f"{rng.choice(folders_drawn)}/{name}/" for name in folders_drawn[:2]]
    folders = ["", *[f"{name}/" for name in folders_drawn], *nested]
    names: dict[str, None] = {}
    while len(names) < files:
        name = f"{rng.choice(STEMS)}{rng.randint(1, 99)}"
        if rng.random() < MARKED_RATE:
            name = f"{rng.choice(MARKS)}_{name}"
        if rng.random() < DATED_RATE:
            name = f"{name}_{rng.choice(YEARS)}"
        names[f"{name}.{rng.choice(ENDINGS)}"] = None
    placed = {f"{rng.choice(folders)}{name}": name for name in names}
    return {path: _draw_content(rng, name) for path, name in sorted(placed.items())}


def _draw_content(rng: random.Random, name: str) -> str:
    if rng.random() < EMPTY_RATE:
        return ""
    count = rng.randint(1, 8)
    if name.endswith(".conf"):
        return "".join(f"{rng.choice(STEMS)}={rng.choice(WORDS)}\n" for _ in range(count))
    if name.endswith(".csv"):
        return "".join(f"{rng.choice(WORDS)},{rng.randint(1, 999)}\n" for _ in range(count))
    return "".join(" ".join(rng.choices(WORDS, k=rng.randint(1, 6))) + "\n" for _ in range(count))


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def same(left: Mapping[str, str], right: Mapping[str, str]) -> bool:
    """Return whether two trees have the same files, ignoring line feeds at the end of a file."""
    return left.keys() == right.keys() and all(
        content.rstrip("\n") == right[path].rstrip("\n") for path, content in left.items()
    )


SORTED = "in the order of LC_ALL=C sort"


class Chore(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction that changes a tree of files."""

    text: str
    command: str
    """A bash command that does the chore."""
    result: Tree
    """The tree after the chore."""
    makes: str = ""
    """A folder that the chore creates. The folder must not exist before, and stays even when later
    chores empty it.
    """


Draw = Callable[[random.Random, Tree], "Chore | None"]
"""Draws a chore that changes the tree; None if the tree allows no chore of that kind."""


def gather(rng: random.Random, tree: Tree) -> Chore | None:
    """Move the files with an ending into a new folder."""
    choice = _choose(rng, {end: _ending(tree, end) for end in ENDINGS}, 2)
    if choice is None or (folder := _new(rng, tree, ("archive", "shelf", "bin", "box"))) is None:
        return None
    ending, paths = choice
    new_files = {f"{folder}/{name_of(path)}": tree[path] for path in paths}
    if len(new_files) < len(paths):  # after renamings two may have one name: which would stay?
        return None
    return Chore(
        text=f"Move every .{ending} file, wherever it is, into a new folder {folder} at the top.",
        command=(
            f"mkdir {folder} && find . -name '*.{ending}' -not -path './{folder}/*' "
            f"-exec mv {{}} {folder}/ ';'"
        ),
        result=_without(tree, paths) | new_files,
        makes=folder,
    )


def sweep(rng: random.Random, tree: Tree) -> Chore | None:
    """Delete all files without content."""
    paths = [path for path, content in tree.items() if not content]
    if not paths:
        return None
    return Chore(
        text="Delete every empty file.",
        command="find . -type f -empty -delete",
        result=_without(tree, paths),
    )


def rename(rng: random.Random, tree: Tree) -> Chore | None:
    """Replace the beginning of some file names."""
    choice = _choose(
        rng, {mark: [p for p in tree if name_of(p).startswith(f"{mark}_")] for mark in MARKS}, 2
    )
    if choice is None:
        return None
    mark, paths = choice
    new = rng.choice(("final", "done", "checked"))
    renamed = {_renamed(path, mark, new): tree[path] for path in paths}
    if renamed.keys() & tree.keys():
        return None
    return Chore(
        text=(
            f"Rename every file whose name begins with {mark}_ so that it begins with {new}_ "
            "instead; it stays in its folder."
        ),
        command=(
            f"find . -name '{mark}_*' | while read -r f; do "
            f'n="$(basename "$f")"; mv "$f" "$(dirname "$f")/{new}_${{n#{mark}_}}"; done'
        ),
        result=_without(tree, paths) | renamed,
    )


def replace(rng: random.Random, tree: Tree) -> Chore | None:
    """Replace a word by another in the files with an ending."""
    ending, old = rng.choice(ENDINGS), rng.choice(WORDS)
    new = rng.choice(("walnut", "copper", "velvet", "marble"))  # none of these is in `WORDS`
    changed = {path: re.sub(rf"\b{old}\b", new, tree[path]) for path in _ending(tree, ending)}
    if all(tree[path] == content for path, content in changed.items()):
        return None
    return Chore(
        text=f"In every .{ending} file, replace the word {old} by {new} wherever it stands.",
        command=f"find . -name '*.{ending}' -exec sed -i 's/\\b{old}\\b/{new}/g' {{}} +",
        result=tree | changed,
    )


def find(rng: random.Random, tree: Tree) -> Chore | None:
    """Write the paths of the files that contain a word into a new file."""
    word, target = rng.choice(WORDS), _new_file(rng, tree, ("found", "matches", "hits"))
    paths = sorted(path for path, content in tree.items() if _has(content, word))
    if not paths or target is None:
        return None
    return Chore(
        text=(
            f"Write the paths of all files that contain the word {word} into {target} at the top: "
            f"one a line, from the top folder on (such as notes/a.txt), {SORTED}."
        ),
        command=(
            f"grep -rlw --exclude={target} {word} . | sed 's|^[.]/||' | LC_ALL=C sort > {target}"
        ),
        result=tree | {target: "".join(f"{path}\n" for path in paths)},
    )


def count(rng: random.Random, tree: Tree) -> Chore | None:
    """Write the number of lines of the files with an ending into a new file."""
    choice = _choose(rng, {end: _ending(tree, end) for end in ENDINGS}, 2)
    target = _new_file(rng, tree, ("total", "lines", "sum"))
    if choice is None or target is None:
        return None
    ending, paths = choice
    if target.endswith(ending):
        return None
    total = sum(tree[path].count("\n") for path in paths)
    return Chore(
        text=(
            f"Count the lines of all .{ending} files together and write the number into {target} "
            "at the top."
        ),
        command=f"find . -name '*.{ending}' -exec cat {{}} + | wc -l > {target}",
        result=tree | {target: f"{total}\n"},
    )


def join(rng: random.Random, tree: Tree) -> Chore | None:
    """Write the contents of the files of a folder, in the order of the names, into a new file."""
    folders = {path.rpartition("/")[0] for path in tree if "/" in path}
    inside = {folder: [p for p in tree if p.rpartition("/")[0] == folder] for folder in folders}
    choice = _choose(rng, dict(sorted(inside.items())), 2)
    target = _new_file(rng, tree, ("all", "joined", "bundle"))
    if choice is None or target is None:
        return None
    folder, paths = choice
    return Chore(
        text=(
            f"Write the contents of all files that are directly in {folder}, one after the other "
            f"{SORTED} of their names, into {target} at the top. The files stay."
        ),
        command=(
            f"find {folder} -maxdepth 1 -type f | LC_ALL=C sort | "
            f'while read -r f; do cat "$f"; done > {target}'
        ),
        result=tree | {target: "".join(tree[path] for path in sorted(paths))},
    )


def tidy(rng: random.Random, tree: Tree) -> Chore | None:
    """Sort the lines of a file and keep each line once."""
    untidy = [path for path, content in tree.items() if content != _tidied(content)]
    if not untidy:
        return None
    path = rng.choice(sorted(untidy))
    return Chore(
        text=f"Sort the lines of {path} {SORTED}, and keep each line once.",
        command=f"LC_ALL=C sort -u -o {path} {path}",
        result=tree | {path: _tidied(tree[path])},
    )


def file_by_year(rng: random.Random, tree: Tree) -> Chore | None:
    """Move the files with a year in the name into a folder for each year."""
    dated = {
        path: match[1]
        for path in tree
        if (match := re.search(r"_(20\d\d)\.[a-z]+$", name_of(path)))
    }
    if len(dated) < 2 or any(path.partition("/")[0] in map(str, YEARS) for path in tree):
        return None
    new_files = {f"{year}/{name_of(path)}": tree[path] for path, year in dated.items()}
    if len(new_files) < len(dated):  # as in `gather`
        return None
    return Chore(
        text=(
            "Move every file whose name ends in an underscore and a year, such as reed7_2019.md, "
            "into a folder at the top that is named after the year, such as 2019."
        ),
        command=(
            "find . -regextype posix-extended -regex '.*_20[0-9]{2}[.][a-z]+' | "
            'while read -r f; do y="$(echo "$f" | sed -E '
            "'s/.*_(20[0-9]{2})[.][a-z]+$/\\1/')\"; "
            'mkdir -p "$y" && mv "$f" "$y/"; done'
        ),
        result=_without(tree, list(dated)) | new_files,
    )


def drop(rng: random.Random, tree: Tree) -> Chore | None:
    """Delete the files that contain a word."""
    word = rng.choice(WORDS)
    paths = [path for path, content in tree.items() if _has(content, word)]
    if not paths or len(paths) > len(tree) // 2:
        return None
    return Chore(
        text=f"Delete every file that contains the word {word}.",
        command=f"grep -rlw {word} . | xargs -d '\\n' rm",
        result=_without(tree, paths),
    )


CHORES: dict[str, Draw] = {
    chore.__name__: chore
    for chore in (gather, sweep, rename, replace, find, count, join, tidy, file_by_year, drop)
}


def _choose(
    rng: random.Random, groups: dict[str, list[str]], min_files: int
) -> tuple[str, list[str]] | None:
    """Choose a group with at least `min_files` paths; None if no group has so many."""
    usable = [(name, paths) for name, paths in groups.items() if len(paths) >= min_files]
    return rng.choice(usable) if usable else None


def _ending(tree: Tree, ending: str) -> list[str]:
    return [path for path in tree if path.endswith(f".{ending}")]


def _without(tree: Tree, paths: Sequence[str]) -> Tree:
    return {path: content for path, content in tree.items() if path not in paths}


def _new(rng: random.Random, tree: Tree, names: Sequence[str]) -> str | None:
    tops = {path.partition("/")[0] for path in tree}
    free = [name for name in names if name not in tops]
    return rng.choice(free) if free else None


def _new_file(rng: random.Random, tree: Tree, stems: Sequence[str]) -> str | None:
    return _new(rng, tree, [f"{stem}.out" for stem in stems])


def _renamed(path: str, mark: str, new: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{new}_{name.removeprefix(f'{mark}_')}"


def _has(content: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", content) is not None


def _tidied(content: str) -> str:
    return "".join(f"{line}\n" for line in sorted(set(content.splitlines())))
