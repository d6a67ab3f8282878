"""Files of answers, and the verdicts on them, a row for a row.

A file of answers is JSON Lines. A row has a response (`response`, `prediction` or `completion`;
none where `images` are judged) and what its verifier needs of `gold`, `prompt`, `info` and
`images` (paths, from the file's folder); it may name its own `verifier`, and have `id`, `label` and
`category`. Other columns are let pass.

A file of verdicts has a line for each row: `row` (the line in the file of answers), `id`,
`verifier`, `status`, `reward`, `detail`, `metrics`, `parts`, and `digest`, by which a second run
knows what it need not score again.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from ludus.errors import ConfigError, Unauthorized, UnknownVerifier
from ludus.messages import ImagePart, Message
from ludus.metrics import LineFile, replace_file
from ludus.verdict import Status, Verdict
from ludus.wire.strict import unknown_field

from .protocol import Sample, Verifier, failed

RESPONSE_FIELDS = ("response", "prediction", "completion")
NEEDS = ("gold", *RESPONSE_FIELDS)
"""Fields of which a near miss is refused."""
READ_FIELDS = (*NEEDS, "prompt", "info", "images", "verifier", "label", "category", "id")
CONCURRENCY = 64
TIMEOUT_S = 600.0
"""The time limit of a row, in seconds. The limit is high, since rows wait in a pool's queue."""

VerifierOf = Callable[[str], Verifier]
"""A function from the name of a verifier to the verifier."""
Settings = Mapping[str, Mapping[str, Any]]
"""Name of a verifier -> its options."""


class AnswerRow(msgspec.Struct, frozen=True):
    """A row of a file: an answer, and what it is judged with."""

    gold: object
    response: str | list[Message]
    label: bool | None = None
    category: str = ""
    id: str = ""
    prompt: str | list[Message] = ""
    info: dict[str, Any] = {}
    images: tuple[str, ...] = ()
    """Paths of images."""
    verifier: str = ""
    """The verifier that judges the row; empty for that of the whole file."""
    line: int = 0
    """The row's line in its file."""

    def digest(self, options: Mapping[str, Any]) -> str:
        """Return what tells the row from another: the fields without place and label, and what the
        images hold, wherever they lie.

        Args:
            options: those of its verifier.

        Raises:
            ConfigError: an image cannot be read.
        """
        images = [hashlib.sha256(image_at(Path(path)).data).hexdigest() for path in self.images]
        judged = [self.gold, self.response, self.prompt, self.info, images, self.verifier]
        judged += [options] if options else []
        encoded = msgspec.json.encode(judged, order="deterministic")
        return hashlib.blake2b(encoded, digest_size=8).hexdigest()

    def sample(self) -> Sample:
        """Return what the verifier is given.

        Raises:
            ConfigError: an image cannot be read.
        """
        return Sample(
            response=self.response,
            gold=self.gold,
            prompt=self.prompt,
            info=self.info,
            images=[image_at(Path(path)) for path in self.images],
        )


class RowVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of a file of verdicts."""

    row: int
    id: str
    verifier: str
    status: Status
    reward: float | None
    detail: str = ""
    metrics: dict[str, float] = {}
    parts: dict[str, tuple[float, float]] = {}
    digest: str

    @classmethod
    def of(cls, row: AnswerRow, verdict: Verdict, options: Mapping[str, Any]) -> RowVerdict:
        """Return the line of a row and its verdict, by a verifier with these options."""
        return cls(
            row=row.line,
            id=row.id,
            verifier=row.verifier,
            status=verdict.status,
            reward=verdict.reward,
            detail=verdict.detail,
            metrics=verdict.metrics,
            parts=verdict.parts,
            digest=row.digest(options),
        )

    def verdict(self) -> Verdict:
        """Return the verdict that the line tells."""
        return Verdict(
            status=self.status,
            reward=self.reward,
            detail=self.detail,
            metrics=self.metrics,
            parts=self.parts,
        )


def image_at(path: Path) -> ImagePart:
    """Read an image.

    Raises:
        ConfigError: the file cannot be read, or has no end: a pipe or a device.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is no file")
        return ImagePart(data=path.read_bytes())
    except (OSError, ValueError) as error:  # also a path with a null byte
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read {str(path)!r}: {reason}") from error


def read_rows(path: Path, verifier: str = "") -> list[AnswerRow]:
    """Read the rows of a JSON Lines file.

    Args:
        path: the file.
        verifier: judges the rows that name no verifier of their own.

    Raises:
        ConfigError: the file cannot be read or is empty, or a line is not such a row; the message
            names the line.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    rows = [
        _row(path, number, line, verifier)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not rows:
        raise ConfigError(f"{str(path)!r} holds no answers; write one as JSON on each line")
    return rows


def _row(path: Path, number: int, line: bytes, verifier: str) -> AnswerRow:
    place = f"{path}:{number}"
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{place}: not a JSON object ({error})") from error
    # A column whose name is nearly that of a missing field is refused; other columns are ignored.
    missing = [name for name in NEEDS if name not in fields]
    for name in fields:
        if name not in READ_FIELDS and difflib.get_close_matches(name, missing, n=1, cutoff=0.7):
            raise ConfigError(f"{place}: {unknown_field(name, set(missing))}")
    cells = {name: cell for name, cell in fields.items() if cell is not None}
    given = next((cells[name] for name in RESPONSE_FIELDS if name in cells), None)
    images = cells.get("images", [])
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise ConfigError(f"{place}: 'images' is a list of paths, got {images!r:.80}")
    is_complete = "gold" in fields or "prompt" in fields or "info" in fields
    if not (given is not None and is_complete) and not images:
        raise ConfigError(
            f"{place}: a row needs 'gold' (or 'prompt' or 'info') and one of "
            f"{', '.join(RESPONSE_FIELDS)}, or 'images'; this one has "
            f"{', '.join(cells) or 'no value'}"
        )
    label = cells.get("label")
    try:
        return msgspec.convert(
            {
                "gold": fields.get("gold"),
                "response": given if given is not None else "",
                "label": label if isinstance(label, bool) else None,
                "category": str(cells.get("category", "")),
                "id": str(cells.get("id", "")) or str(number),
                "prompt": cells.get("prompt", ""),
                "info": cells.get("info", {}),
                "images": [str(path.parent / image) for image in images],
                "verifier": str(cells.get("verifier", "")) or verifier,
                "line": number,
            },
            AnswerRow,
        )
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place}: {error}") from None


class VerdictFile:
    """The verdicts of a file of answers, a line each as they come; sorted by `close`.

    A file that is there is gone on with: its verdicts stay, except those that may be other the next
    time (`unavailable`, `error`), and half a line at its end.

    Args:
        path: the file.
        rows: the rows that are judged.
        settings: the options of verifiers; an answer may be judged otherwise by other ones.

    Raises:
        ConfigError: the file cannot be written, or holds verdicts of other rows, or by other
            options.
    """

    def __init__(
        self, path: Path, rows: Sequence[AnswerRow], settings: Settings = MappingProxyType({})
    ) -> None:
        self.path = path
        self._settings = settings
        self.known = _known_verdicts(path, rows, settings)
        """Line of the answer -> what was said of it before."""
        try:
            self._replace()
        except OSError as error:
            raise ConfigError(f"cannot write --out {str(path)!r}: {error.strerror}") from error
        self._lines = LineFile(path)

    def add(self, row: AnswerRow, verdict: Verdict) -> None:
        """Append a verdict."""
        options = self._settings.get(row.verifier, {})
        self.known[row.line] = RowVerdict.of(row, verdict, options)
        self._lines.append(msgspec.json.encode(self.known[row.line]))

    def close(self) -> None:
        """Bring the lines into the order of the answers.

        Raises:
            ConfigError: the disk is full.
        """
        try:
            self._replace()
        except OSError as error:
            raise ConfigError(f"cannot write --out {str(self.path)!r}: {error.strerror}") from error

    def _replace(self) -> None:
        """Write all lines to a new file, which then takes the old one's place."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [msgspec.json.encode(self.known[line]) + b"\n" for line in sorted(self.known)]
        replace_file(self.path, b"".join(lines))


def _known_verdicts(
    path: Path, rows: Sequence[AnswerRow], settings: Settings
) -> dict[int, RowVerdict]:
    if not path.exists():
        return {}
    if not path.is_file():  # a pipe or a device has no end, and would be replaced by a file
        raise ConfigError(f"cannot write --out {str(path)!r}: it is no file, name one")
    judged = {row.line: row for row in rows}
    known: dict[int, RowVerdict] = {}
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise ConfigError(f"cannot read --out {str(path)!r}: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        try:
            verdict = msgspec.json.decode(line, type=RowVerdict)
        except (msgspec.DecodeError, UnicodeDecodeError):
            if number == len(lines) and not line.endswith(b"\n"):
                continue  # what was being written when the other run ended
            raise ConfigError(
                f"{path}:{number}: no verdict of ludus score; name another --out"
            ) from None
        row = judged.get(verdict.row)
        if row is None or row.digest(settings.get(row.verifier, {})) != verdict.digest:
            raise ConfigError(
                f"{path}:{number}: the verdict is on another answer than row {verdict.row} now "
                "has, or by other options; remove the file or name another --out"
            )
        if verdict.status in (Status.OK, Status.INVALID):
            known[verdict.row] = verdict
    return known


async def score_rows(
    rows: Sequence[AnswerRow],
    verifier_of: VerifierOf,
    *,
    known: Mapping[int, Verdict] | None = None,
    on_verdict: Callable[[AnswerRow, Verdict], None] = lambda row, verdict: None,
) -> list[Verdict]:
    """Score rows, each with its own verifier, and return the verdicts in their order.

    Verdicts that have to wait are awaited together, at most `CONCURRENCY` of them.

    Args:
        rows: the rows; each names its verifier.
        verifier_of: returns the verifier of a name; asked once for each name.
        known: line -> the verdict on a row that is not scored again.
        on_verdict: called with each new verdict as it comes.

    Raises:
        ConfigError: an image cannot be read, or a verifier cannot be made.
        UnknownVerifier: nothing has the name of a row's verifier.
    """
    verifiers = {name: verifier_of(name) for name in dict.fromkeys(row.verifier for row in rows)}
    known = known or {}
    verdicts = {place: known[row.line] for place, row in enumerate(rows) if row.line in known}
    waiting: set[asyncio.Task[None]] = set()

    async def wait_for(place: int, scoring: Any) -> None:
        verdicts[place] = await _awaited(rows[place], scoring)
        on_verdict(rows[place], verdicts[place])

    try:
        for place, row in enumerate(rows):
            if place in verdicts:
                continue
            verifier = verifiers[row.verifier]
            sample = row.sample().heard_by(verifier)
            try:
                scoring = verifier.score(sample)
            except Exception as error:  # a boundary, as for those that are awaited
                scoring = failed(row.verifier, error)
            if isinstance(scoring, Verdict):
                verdicts[place] = scoring
                on_verdict(row, scoring)
                continue
            waiting.add(asyncio.create_task(wait_for(place, scoring)))
            if len(waiting) >= CONCURRENCY:
                waiting = await _some(waiting, asyncio.FIRST_COMPLETED)
        if waiting:
            waiting = await _some(waiting, asyncio.ALL_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        # whoever called closes the verifiers next
        await asyncio.gather(*waiting, return_exceptions=True)
    return [verdicts[place] for place in range(len(rows))]


async def _some(waiting: set[asyncio.Task[None]], when: str) -> set[asyncio.Task[None]]:
    """Wait for some of the tasks, raise what ended one, and return those that go on."""
    ended, going = await asyncio.wait(waiting, return_when=when)
    for task in ended:
        task.result()
    return going


async def _awaited(row: AnswerRow, scoring: Any) -> Verdict:
    if not inspect.isawaitable(scoring):
        return failed(row.verifier, TypeError(f"score() gave {scoring!r:.80}, which is no Verdict"))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            verdict: Verdict = await scoring
            return verdict
    except TimeoutError:
        return Verdict.unavailable(f"no verdict within {TIMEOUT_S:g} s")
    except (Unauthorized, UnknownVerifier):  # of a server: no other row would fare better
        raise
    except Exception as error:  # a boundary: one row's failure must not end the others
        return failed(row.verifier, error)
