"""The folder of a training run, which everything that looks at a run reads.

config.toml       the settings, complete
recipe.json       the recipe, complete
imports.json      what `ludus --import` named, where it did
plan.json         how many steps a run on data has
metrics.jsonl     one line for each step
rollouts.jsonl    the fate of each rollout; see `../stream/accounts.py`
findings.jsonl    what its numbers say; see `ludus.findings`
failures.jsonl    why episodes have no reward, a line for each reason of a step
template.txt      what the probe found out about the chat template, also as template.json
episodes/         whole episodes, one in each line, index.jsonl with the place of each, and images/
annotations/      what is learned about kept episodes later: learner.jsonl
refused/          the rows of updates that were not made
checkpoints/      see `../models/checkpoint.py`
tensorboard/, wandb/  of trackers; see `trackers.py`
.lock             held by the process that writes here; see `claim.py`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import torch

from ludus.agent import Episode, write_episodes
from ludus.agent.episodes import INDEX, indexed
from ludus.config import as_table, to_toml
from ludus.errors import SaveFailed
from ludus.metrics import LineFile, MetricsLog, replace_file
from ludus.registry import imported
from ludus.secret import Secret

from ..findings.history import IMPORTS
from ..learning.guard import Refusal
from ..settings.run import RunConfig
from .claim import RunClaim, unwritable
from .trackers import close_all, open_trackers


class RunFolder:
    """Writes the files of a run.

    Args:
        folder: created if missing.
        config: written to `config.toml`, its secrets as `env:NAME`.
        claim: the run's claim on the folder, which says where the run starts; what an earlier
            process wrote about later steps is removed. None claims the folder for a new run.
        settings: names the trackers; None has none.

    Raises:
        ConfigError: the folder cannot be written, holds another run, or is in use, or a tracker
            cannot be opened.
    """

    def __init__(
        self,
        folder: Path,
        config: object,
        *,
        claim: RunClaim | None = None,
        settings: RunConfig | None = None,
    ) -> None:
        self.path = folder
        self.checkpoints = folder / "checkpoints"
        self.episodes = folder / "episodes"
        self.refused = folder / "refused"
        self._claim = claim or RunClaim(folder, resume=False)
        try:
            self._claim.take_back()
            self.episodes.mkdir(parents=True, exist_ok=True)
            replace_file(folder / "config.toml", to_toml(referring(config)).encode())
            if imported:
                replace_file(folder / IMPORTS, msgspec.json.encode(imported) + b"\n")
        except OSError as error:
            raise unwritable(folder, error) from None
        self._metrics = MetricsLog(folder / "metrics.jsonl")
        self._lines: dict[str, LineFile] = {"metrics.jsonl": self._metrics.lines}
        self._faults: dict[str, str] = {}
        resumed = self._claim.first_step if self._claim.start else None
        self._trackers = (
            open_trackers(settings, folder, referring(config), resumed) if settings else {}
        )

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the metrics of a step."""
        self._metrics.write(step, numbers)
        for name, tracker in list(self._trackers.items()):
            try:
                tracker.log(step, numbers)
            except Exception as error:  # a boundary: a tracker's package may raise anything
                reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
                self._faults[name] = (
                    f"{name} cannot be written ({reason}) and ends here; metrics.jsonl has every "
                    "number"
                )
                close_all([self._trackers.pop(name)])

    def lines(self, name: str) -> LineFile:
        """Return the file NAME of the run, to which lines are appended."""
        return self._lines.setdefault(name, LineFile(self.path / name))

    def faults(self) -> dict[str, str]:
        """Return what could not be written since the last call, as events by name."""
        faults, self._faults = self._faults, {}
        for name, lines in self._lines.items():
            if lines.fault is not None:
                faults[f"unwritten {name}"] = (
                    f"{len(lines.waiting)} lines of {name} cannot be written "
                    f"({lines.fault.strerror}) and wait in memory; make room on the disk of "
                    f"{str(self.path)!r}"
                )
        return faults

    def sync(self) -> None:
        """Wait until every line is on the disk.

        Raises:
            SaveFailed: lines cannot be written.
        """
        for name, lines in self._lines.items():
            lines.flush()
            if lines.fault is not None:
                raise SaveFailed(
                    f"{len(lines.waiting)} lines of {name} cannot be written: "
                    f"{lines.fault.strerror}; make room on the disk of {str(self.path)!r}"
                )
            lines.sync()

    def keep_episodes(
        self, name: str, step: int, episodes: Sequence[Episode], kept: Sequence[str] = ()
    ) -> Path:
        """Write whole episodes to `episodes/NAME.jsonl`, and their lines of the index; where that
        cannot be done, no file is left and `faults` says why.

        Args:
            name: the file's name without its ending.
            step: the step that the episodes are from.
            episodes: the episodes.
            kept: why each was kept; empty where the file holds all of a step.
        """
        path = self.episodes / f"{name}.jsonl"
        partial = path.with_suffix(".partial")
        try:
            sizes = write_episodes(partial, episodes)
            partial.replace(path)
            lines = indexed(path.name, step, episodes, sizes, kept)
            if lines:
                encoded = b"\n".join(msgspec.json.encode(line) for line in lines)
                self.lines(f"episodes/{INDEX}").append(encoded)
        except OSError as error:
            self._faults["unwritten episodes"] = (
                f"{path.name} could not be written ({error.strerror}); make room on the disk of "
                f"{str(self.path)!r}"
            )
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        return path

    def keep_refused(self, step: int, refusals: Sequence[Refusal]) -> Path:
        """Write the rows of refused updates to `refused/step-NNNNNN.pt`, and the episodes to
        `episodes/refused-NNNNNN.jsonl`; return the path of the latter.
        """
        rows = [
            {
                "reason": refusal.reason,
                "episodes": refusal.names,
                "ids": refusal.batch.ids,
                "mask": refusal.batch.mask,
                "sampler_logp": refusal.batch.sampler_logp,
                "lengths": refusal.batch.lengths,
                **({} if refusal.batch.versions is None else {"versions": refusal.batch.versions}),
                "images": [
                    [(shown.start, shown.tokens) for shown in row] for row in refusal.batch.images
                ],
                **refusal.batch.inputs.given(),
            }
            for refusal in refusals
        ]
        try:
            self.refused.mkdir(exist_ok=True)
            torch.save(rows, self.refused / f"step-{step:06d}.pt")
        except (OSError, RuntimeError) as error:  # torch raises RuntimeError for a full disk
            reason = str(error).strip().partition("\n")[0]
            self._faults["unwritten refusal"] = (
                f"the rows of the update that was refused at step {step} could not be written: "
                f"{reason}"
            )
        episodes = [episode for refusal in refusals for episode in refusal.episodes]
        return self.keep_episodes(f"refused-{step:06d}", step, episodes)

    def close(self) -> None:
        """Flush buffered lines, close the files, and let another run use the folder."""
        close_all(list(self._trackers.values()))
        self._claim.release()


VARIABLES = {"env_token": "LUDUS_TOKEN", "token": "LUDUS_TOKEN", "api_key": "LUDUS_API_KEY"}
"""Setting -> the environment variable that is asked for when a run continues."""


def referring(config: object) -> dict[str, Any]:
    """Return the settings with each secret as a reference.

    The reference is `env:NAME` as given, or the variable that is asked for when the run
    continues.
    """
    return _referring(as_table(config))


def _referring(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _reference(name, value) for name, value in table.items()}


def _reference(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _referring(value)
    if isinstance(value, list):
        items: list[Any] = value
        return [_reference("", item) for item in items]
    is_plain = name in VARIABLES and value and not Secret(value).reference
    return f"env:{VARIABLES[name]}" if is_plain else value
