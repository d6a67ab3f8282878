"""Checkpoints of a server of models, on disk under their `tinker://` paths.

    FOLDER/sess-1f0a-train-0/run.json
    FOLDER/sess-1f0a-train-0/weights/step-10/              adapter/ or the model, trainer.pt
    FOLDER/sess-1f0a-train-0/sampler_weights/step-10/      adapter/ or the model

Each has a `checkpoint.json` that says what it is. A checkpoint is written under another name and
renamed when it is complete.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from ludus.wire.faults import Refused

from .wire import LoraSpec

WEIGHTS, SAMPLER = "weights", "sampler_weights"
_TYPES = {WEIGHTS: "training", SAMPLER: "sampler"}
_PATH = re.compile(r"tinker://([\w-]+:train:\d+)/(weights|sampler_weights)/(.+)", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SHORTEST_S, LONGEST_S = 3600, 10 * 365 * 86400
"""How long a checkpoint may be said to live, in seconds, as the API has it."""
RUN_FILE, CHECKPOINT_FILE = "run.json", "checkpoint.json"


class RunCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is."""

    training_run_id: str
    base_model: str
    model_owner: str
    lora: LoraSpec | None
    begun: datetime
    user_metadata: dict[str, Any] | None = None


class CheckpointCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint is."""

    tinker_path: str
    checkpoint_id: str
    """`weights/NAME` or `sampler_weights/NAME`."""
    checkpoint_type: str
    time: datetime
    updates: int
    """How many updates the model has behind it."""
    size_bytes: int = 0
    user_metadata: dict[str, str] | None = None
    expires_at: datetime | None = None
    public: bool = False

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= datetime.now(UTC)


class CheckpointStore:
    """The checkpoints of a server.

    Args:
        root: the folder; made when the first checkpoint is written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def save(
        self,
        run: RunCard,
        kind: str,
        name: str,
        write: Callable[[Path], None],
        *,
        updates: int,
        ttl_s: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> str:
        """Write a checkpoint, and return the path.

        Args:
            run: the model.
            kind: `WEIGHTS` or `SAMPLER`.
            name: the last part of the path.
            write: writes the files into a folder.
            updates: see `CheckpointCard`.
            ttl_s: how long it lives, in seconds; None for ever.
            overwrite: whether one of this name is replaced.
            user_metadata: kept beside it.

        Raises:
            Refused: the name is none, or taken; or the time is not one hour to ten years.
        """
        if not _NAME.fullmatch(name):
            raise Refused(
                f"{name!r} is no name of a checkpoint: letters, digits, '.', '_' and '-', at most "
                "128, beginning with a letter or digit",
                "invalid",
            )
        folder = self._run_folder(run.training_run_id)
        target, expires = folder / kind / name, _expiry(ttl_s)
        if target.is_dir() and not overwrite and not _read_card(target).expired:
            raise Refused(
                f"there is a checkpoint {name!r}; name another, or overwrite it", "invalid"
            )
        partial = folder / kind / f".partial-{name}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            write(partial)
            card = CheckpointCard(
                tinker_path=f"tinker://{run.training_run_id}/{kind}/{name}",
                checkpoint_id=f"{kind}/{name}",
                checkpoint_type=_TYPES[kind],
                time=datetime.now(UTC),
                updates=updates,
                size_bytes=sum(each.stat().st_size for each in partial.rglob("*")),
                user_metadata=user_metadata,
                expires_at=expires,
            )
            (partial / CHECKPOINT_FILE).write_bytes(msgspec.json.encode(card))
            (folder / RUN_FILE).write_bytes(msgspec.json.encode(run))
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return card.tinker_path

    def find(
        self, path: str, owner: str, *, kind: str = ""
    ) -> tuple[Path, RunCard, CheckpointCard]:
        """Return the folder of a checkpoint of this owner, with its model and itself.

        Raises:
            Refused: the path is none (400), or there is no such checkpoint of this owner (404).
        """
        match = _PATH.fullmatch(path)
        if match is None or not _NAME.fullmatch(match[3]):
            raise Refused(
                f"{path!r} is no path of a checkpoint: tinker://MODEL_ID/weights/NAME, or "
                "sampler_weights",
                "malformed",
            )
        if kind and match[2] != kind:
            raise Refused(f"{path!r} has no {kind}: it was saved to be a {match[2]}", "invalid")
        run = self.run(match[1], owner)
        folder = self._run_folder(match[1]) / match[2] / match[3]
        if not folder.is_dir() or (card := _read_card(folder)).expired:
            raise Refused(f"there is no checkpoint {path!r}, or no longer", "not_found")
        return folder, run, card

    def run(self, name: str, owner: str) -> RunCard:
        """Return a model of this owner that has a checkpoint.

        Raises:
            Refused: there is none (404).
        """
        file = self._run_folder(name) / RUN_FILE
        card = msgspec.json.decode(file.read_bytes(), type=RunCard) if file.is_file() else None
        if card is None or card.model_owner != owner:
            raise Refused(f"there is no training run {name!r}", "not_found")
        return card

    def runs(self, owner: str) -> list[RunCard]:
        """Return the models of this owner that have checkpoints, the newest first."""
        files = self.root.glob(f"*/{RUN_FILE}")
        cards = [msgspec.json.decode(file.read_bytes(), type=RunCard) for file in files]
        mine = [card for card in cards if card.model_owner == owner]
        return sorted(mine, key=lambda card: card.begun, reverse=True)

    def checkpoints(self, run: RunCard) -> list[CheckpointCard]:
        """Return the checkpoints of a model, the newest first; expired checkpoints are removed."""
        cards = list[CheckpointCard]()
        for folder in self._folders(run):
            card = _read_card(folder)
            if card.expired:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                cards.append(card)
        return sorted(cards, key=lambda card: card.time, reverse=True)

    def delete(self, path: str, owner: str) -> None:
        """Remove a checkpoint.

        Raises:
            Refused: as in `find`.
        """
        folder, _, _ = self.find(path, owner)
        shutil.rmtree(folder)

    def set_ttl(self, path: str, owner: str, ttl_s: int | None) -> None:
        """Set how long a checkpoint lives from now on, in seconds; None for ever.

        Raises:
            Refused: as in `find`, or the time is not one hour to ten years.
        """
        folder, _, card = self.find(path, owner)
        card = msgspec.structs.replace(card, expires_at=_expiry(ttl_s))
        (folder / CHECKPOINT_FILE).write_bytes(msgspec.json.encode(card))

    def _folders(self, run: RunCard) -> Iterator[Path]:
        for kind in _TYPES:
            folder = self._run_folder(run.training_run_id) / kind
            yield from (file.parent for file in folder.glob(f"[!.]*/{CHECKPOINT_FILE}"))

    def _run_folder(self, name: str) -> Path:
        if not re.fullmatch(r"[\w-]+:train:\d+", name, re.ASCII):
            raise Refused(f"{name!r} is no training run: SESSION:train:NUMBER", "malformed")
        return self.root / name.replace(":", "-")


def default_name(updates: int) -> str:
    """Return a name for a checkpoint that was given none."""
    return f"step-{updates:06d}-{time.time_ns():x}"


def _read_card(folder: Path) -> CheckpointCard:
    return msgspec.json.decode((folder / CHECKPOINT_FILE).read_bytes(), type=CheckpointCard)


def _expiry(ttl_s: int | None) -> datetime | None:
    if ttl_s is None:
        return None
    if not SHORTEST_S <= ttl_s <= LONGEST_S:
        raise Refused(f"ttl_seconds must be {SHORTEST_S} to {LONGEST_S}, got {ttl_s}", "invalid")
    return datetime.now(UTC) + timedelta(seconds=ttl_s)
