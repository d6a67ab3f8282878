"""The loading of a source: every row is read, counted and kept once."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from ludus.envs.problem_files import UnusableRow, rows_of
from ludus.errors import ConfigError

from .fields import FieldNames

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
SHOWN = 4
"""How many reasons a report names."""


@dataclass(frozen=True)
class LoadedItems(Generic[Item]):
    """The items of a source, with what was left out."""

    source: str
    items: list[Item]
    digest: str
    """SHA-256 of what the items say, in order."""
    rows: int
    """Rows that were read."""
    repeated: int
    """Rows that say what an earlier one has said."""
    unusable: dict[str, int]
    """Rows that hold no item, by reason."""

    def report(self) -> str:
        """Return what was left out, in a line; empty where nothing was."""
        parts = [f"{self.repeated} repeated"] if self.repeated else []
        reasons = sorted(self.unusable.items(), key=lambda pair: -pair[1])
        parts += [f"{count} {reason}" for reason, count in reasons[:SHOWN]]
        more = sum(count for _, count in reasons[SHOWN:])
        parts += [f"{more} for other reasons"] if more else []
        if not parts:
            return ""
        return f"{self.source}: {len(self.items)} of {self.rows} rows; left out {'; '.join(parts)}"


class Distinct:
    """Tells what has been said before, and digests the rest."""

    def __init__(self) -> None:
        self._seen: dict[bytes, None] = {}
        self.repeated = 0

    def is_new(self, said: object) -> bool:
        """Whether nothing before has said the same.

        Raises:
            UnusableRow: a whole number in it does not fit 64 bits, so that no file could keep it.
        """
        try:
            encoded = msgspec.msgpack.encode(said)
        except OverflowError:
            raise UnusableRow("with a whole number that does not fit 64 bits") from None
        key = hashlib.blake2b(encoded, digest_size=16).digest()
        new = key not in self._seen
        self.repeated += not new
        self._seen[key] = None
        return new

    @property
    def digest(self) -> str:
        """SHA-256 of what was said, in order."""
        return hashlib.sha256(b"".join(self._seen)).hexdigest()


def load_items(
    source: str, read: Callable[[Mapping[str, Any]], Item], *, fields: Iterable[str] = ()
) -> LoadedItems[Item]:
    """Load the items of a source once each, and log what is left out.

    Args:
        source: see `ludus.envs.problem_files.rows_of`.
        read: makes an item of a row, or raises UnusableRow with the reason.
        fields: the data set's own names of fields and roles; see `FieldNames`.

    Raises:
        ConfigError: the source cannot be read, or no row can be used; the message says why.
        MissingExtra: the package that reads the source is not installed.
    """
    items: list[Item] = []
    names, distinct = FieldNames(fields), Distinct()
    unusable: Counter[str] = Counter()
    number = 0
    last = ""
    for number, row in enumerate(rows_of(source), 1):
        try:
            item = read(names.row(row))
            new = distinct.is_new(item)
        except UnusableRow as error:
            reason = str(error)
            unusable[reason.partition(":")[0]] += 1
            last = f"row {number}: {reason}"
            continue
        if new:
            items.append(item)
    if not items:
        raise ConfigError(f"no row of {source!r} can be used: {last or 'it is empty'}")
    loaded = LoadedItems(source, items, distinct.digest, number, distinct.repeated, dict(unusable))
    if report := loaded.report():
        logger.warning("%s", report)
    return loaded


def share_of(text: bytes) -> float:
    """Return a number in [0, 1) that depends on `text` alone: items that say the same about a
    prompt are on one side of every split.
    """
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) / 2**64
