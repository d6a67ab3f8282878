"""Problems of a data set: rows from files or a hub, split, and kept once per process."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import logging
import re
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ludus.errors import ConfigError, MissingExtra, UnknownSplit

from .tasks import SPLITS, ListedTasks, Task


class Problem(Protocol):
    """The part of a problem that a split needs."""

    @property
    def id(self) -> str:
        """The same in every file, order and split."""
        ...

    @property
    def difficulty(self) -> float | None: ...


P = TypeVar("P", bound=Problem)


class ProblemSet(Generic[P]):
    """The problems of all splits.

    Args:
        problems: the problems to shuffle and split.
        tests: problems that are the test split as they are; none of them is trained on.
        seed: the seed of the shuffle.
        validation: the share of `problems` for validation.
        test: the share for test; only without `tests`.

    Raises:
        ConfigError: shares that cannot be.
    """

    def __init__(
        self,
        problems: Sequence[P],
        tests: Sequence[P] = (),
        *,
        seed: int,
        validation: float,
        test: float,
    ) -> None:
        check_shares(validation, test)
        held_out = {problem.id for problem in tests}
        pool = sorted((p for p in problems if p.id not in held_out), key=lambda p: _key(seed, p.id))
        split_ends = [round(len(pool) * (0.0 if tests else test))]
        split_ends.append(split_ends[0] + round(len(pool) * validation))
        parts = {
            "test": sorted(tests, key=lambda p: _key(seed, p.id))
            if tests
            else pool[: split_ends[0]],
            "validation": pool[split_ends[0] : split_ends[1]],
            "train": pool[split_ends[1] :],
        }
        self._by_id = {problem.id: problem for part in parts.values() for problem in part}
        self._tasks = {split: _tasks(split, part) for split, part in parts.items()}

    def tasks(self, split: str) -> ListedTasks:
        """The tasks of a split. Raises UnknownTask."""
        if split not in self._tasks:
            raise UnknownSplit.near(split, SPLITS)
        return self._tasks[split]

    def problem(self, task: Task) -> P:
        """The problem behind a task."""
        return self._by_id[task.id]


def check_shares(validation: float, test: float) -> None:
    """Refuse shares of validation and test that cannot be.

    Raises:
        ConfigError: a share is negative or no number, or the sum is above 1.
    """
    if not (validation >= 0 and test >= 0 and validation + test <= 1):
        raise ConfigError(
            f"validation and test are shares of the whole, got {validation:g} and {test:g}"
        )


def _tasks(split: str, problems: Sequence[Problem]) -> ListedTasks:
    return ListedTasks(
        split, [Task(id=p.id, split=split, difficulty=p.difficulty) for p in problems]
    )


def _key(seed: int, problem_id: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{problem_id}".encode(), digest_size=8).digest()


def split_of(text: str) -> str:
    """The split a generated problem belongs to: 8 in 10 to train, 1 to validation, 1 to test.

    It goes by a digest of its text alone, so no problem is ever in two splits.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return _BY_TENTH[int.from_bytes(digest) % len(_BY_TENTH)]


_BY_TENTH = (*["train"] * 8, "validation", "test")


FILE_ENDINGS = (".jsonl", ".jsonl.gz", ".json", ".parquet")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoder raises for text that is no JSON, or is nested too deeply."""
_HUB_ID = re.compile(
    r"(?P<name>[\w.-]+/[\w.-]+)(?:/(?P<config>[\w.-]+))?(?:@(?P<split>[\w.\[\]:%-]+))?"
)


def rows_of(source: str) -> Iterable[Mapping[str, Any]]:
    """The rows of a data set.

    Args:
        source: a path that ends in .jsonl, .jsonl.gz, .json (a list of objects) or .parquet, or a
            hub's `owner/name[/config][@split]` (split `train` if none is named).

    Raises:
        ConfigError: no such file or data set, a line that is not JSON, or a file that changed
            while it was read.
        MissingExtra: a hub or a .parquet file is named, and the package that reads it is not
            installed.
    """
    return _file_rows(Path(source)) if source.endswith(FILE_ENDINGS) else _hub_rows(source)


def changed_at(source: str) -> int:
    """When the file was last written, in nanoseconds; 0 for a hub's data set."""
    path = Path(source)
    return path.stat().st_mtime_ns if source and path.is_file() else 0


def read_whole(path: Path) -> bytes:
    """The bytes of a file as at a single moment.

    Raises:
        ConfigError: the file cannot be read, or changed meanwhile.
    """
    try:
        before = path.stat()
        content = path.read_bytes()
        after = path.stat()
    except (OSError, ValueError) as error:  # also a path with a null byte
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read {str(path)!r}: {reason}") from None
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size) or (
        len(content) != after.st_size and path.is_file()
    ):
        raise ConfigError(f"{str(path)!r} changed while it was read; wait for its writer to finish")
    return content


def _file_rows(path: Path) -> Iterable[Mapping[str, Any]]:
    content = read_whole(path)
    if path.suffix == ".parquet":
        yield from _parquet_rows(path, content)
        return
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError(f"cannot read {str(path)!r}: {error}") from None
    if path.suffix == ".json":
        try:
            yield from msgspec.json.decode(content, type=list[dict[str, Any]])
        except _UNREADABLE as error:
            raise ConfigError(f"{path}: not a list of JSON objects: {error}") from None
        return
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
        except _UNREADABLE as error:
            raise ConfigError(f"{path}, line {number}: not a JSON object: {error}") from None
        yield row


def _parquet_rows(path: Path, content: bytes) -> Iterable[Mapping[str, Any]]:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtra.of("data", needed_for=f"the file {str(path)!r}") from None
    try:
        batches = parquet.ParquetFile(io.BytesIO(content)).iter_batches()
        for batch in batches:
            yield from batch.to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's own errors are either of the two
        raise ConfigError(f"cannot read {str(path)!r}: {str(error).strip():.200}") from None


def _hub_rows(source: str) -> Iterable[Mapping[str, Any]]:
    hub_match = _HUB_ID.fullmatch(source)
    if hub_match is None:
        raise ConfigError(
            f"{source!r} is neither a path that ends in {', '.join(FILE_ENDINGS)} nor a hub's "
            "'owner/name[/config][@split]'"
        )
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError:
        raise MissingExtra.of(
            "data", needed_for=f"the hub data set {hub_match['name']!r}"
        ) from None
    try:
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(
            hub_match["name"], hub_match["config"], split=hub_match["split"] or "train"
        )
    except Exception as error:  # each hub and cache fails in its own way
        raise ConfigError(
            f"cannot load {source!r}: {type(error).__name__}: {str(error).strip():.200}"
        ) from error
    return rows


P_co = TypeVar("P_co", bound=Problem, covariant=True)

logger = logging.getLogger(__name__)


class UnusableRow(ValueError):
    """A row that holds no complete problem; the message says what is missing."""


class RowReader(Hashable, Protocol[P_co]):
    """A reader of the rows of a family of data sets. Equal readers share problems."""

    def read(self, row: Mapping[str, Any]) -> P_co:
        """Read a row as decoded from JSON.

        Raises:
            UnusableRow: the row holds no complete problem.
        """
        ...


class ProblemFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of an environment's problems, and how the problems are split.

    A source is a path that ends in .jsonl, .jsonl.gz, .json or .parquet, or a hub's
    `owner/name[/config][@split]` (split `train` if none is named).
    """

    source: str
    test_source: str = ""
    """Source of problems that are the whole test split; empty takes the share `test` instead."""
    seed: int = 0
    """Seed of the shuffle before the split."""
    validation: float = 0.05
    test: float = 0.1

    def __post_init__(self) -> None:
        if self.test_source and not self.source:
            raise ConfigError(
                f"test_source={self.test_source!r} is the test split of a source: name the source, "
                "too"
            )

    def load(self, reader: RowReader[P]) -> ProblemSet[P]:
        """Load and split the problems, once per process and file version.

        Raises:
            ConfigError: the shares are out of range, a source cannot be read, or it has no problem.
            MissingExtra: a hub is named, and the package `datasets` is not installed.
        """
        check_shares(self.validation, self.test)
        changed = (changed_at(self.source), changed_at(self.test_source))
        # lru_cache forgets the type of the reader's problems
        return _load_split(self, reader, changed)  # type: ignore[return-value] # pyright: ignore[reportReturnType]


@lru_cache(maxsize=16)
def _load_split(
    files: ProblemFiles, reader: RowReader[Problem], changed: tuple[int, int]
) -> ProblemSet[Problem]:
    """Load and split; `changed` is part of the cache key, so that an edited file is read again."""
    return ProblemSet(
        load_problems(files.source, reader),
        load_problems(files.test_source, reader) if files.test_source else [],
        seed=files.seed,
        validation=files.validation,
        test=files.test,
    )


def load_problems(source: str, reader: RowReader[P]) -> list[P]:
    """Load the problems of a source; a repeated problem is loaded once.

    Raises:
        ConfigError: no such file or data set, a line that is not JSON, or no usable row.
        MissingExtra: a hub is named, and the package `datasets` is not installed.
    """
    problems: dict[str, P] = {}
    repeated, unusable, reason = 0, 0, "it is empty"
    for row in rows_of(source):
        try:
            problem = reader.read(row)
        except UnusableRow as error:
            unusable, reason = unusable + 1, str(error)
            continue
        repeated += problem.id in problems
        problems.setdefault(problem.id, problem)
    if not problems:
        raise ConfigError(f"no problem in {source!r} can be used: {reason}")
    if unusable or repeated:
        logger.warning(
            "%s: %d problems; left out %d rows that cannot be used (%s), %d repeated",
            source, len(problems), unusable, reason, repeated,
        )  # fmt: skip
    return list(problems.values())
