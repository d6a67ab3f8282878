"""Trackers: other programs that are told the metrics of a run, besides `metrics.jsonl`.

A tracker is imported only where a run asks for it. One that fails ends, and the run goes on.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Protocol

from ludus.errors import ConfigError, MissingExtra

from ..settings.run import RunConfig

PROJECT = "ludus"
"""The project that runs belong to."""


class Tracker(Protocol):
    """Is told the metrics of each step, in order."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take the metrics of a step."""
        ...

    def close(self) -> None:
        """Write what waits, and let go of files and processes."""
        ...


class TensorBoard:
    """Event files in `tensorboard/`.

    Args:
        folder: the run's folder.
        resumed: the step that a resumed run goes on from, after which points are dropped.
    """

    def __init__(self, folder: Path, resumed: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge = None if resumed is None else resumed + 1
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=purge)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write a point of each curve."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close the files."""
        self._writer.close()


class WandB:
    """Weights & Biases without a network: files in `wandb/`, which `wandb sync` uploads.

    A resumed run is a second set of files of the same id.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb

        self._run: Any = wandb.init(
            project=PROJECT,
            name=folder.resolve().name,
            id=identity(folder),
            dir=str(folder),
            config=dict(config),
            mode="offline",
            resume="allow",
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True),
        )

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the metrics of a step."""
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        """Finish the files."""
        self._run.finish()


class Trackio:
    """trackio's local database (`trackio show --project ludus`), in TRACKIO_DIR or its cache."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        import trackio

        with redirect_stdout(io.StringIO()):  # a good run is quiet
            self._run: Any = trackio.init(
                project=PROJECT,
                name=f"{folder.resolve().name}-{identity(folder)}",
                config=dict(config),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Queue the metrics of a step."""
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        """Write the metrics that are queued."""
        with redirect_stdout(io.StringIO()):
            self._run.finish()


def identity(folder: Path) -> str:
    """Return the id by which a tracker knows the run of a folder, a resumed run too."""
    return hashlib.blake2b(str(folder.resolve()).encode(), digest_size=4).hexdigest()


Maker = Callable[[Path, Mapping[str, Any], int | None], Tracker]
TRACKERS: dict[str, Maker] = {
    "tensorboard": lambda folder, config, resumed: TensorBoard(folder, resumed),
    "wandb": lambda folder, config, resumed: WandB(folder, config),
    "trackio": lambda folder, config, resumed: Trackio(folder, config),
}


def open_trackers(
    settings: RunConfig, folder: Path, config: Mapping[str, Any], resumed: int | None
) -> dict[str, Tracker]:
    """Open the trackers that a run asks for. TensorBoard, the default, is left out where it is not
    installed.

    Args:
        settings: names them.
        folder: the run's folder.
        config: the run's settings, without secrets.
        resumed: the step that a resumed run goes on from.

    Raises:
        ConfigError: a tracker cannot be opened.
        MissingExtra: a tracker that was asked for is not installed.
    """
    opened: dict[str, Tracker] = {}
    names = (*(["tensorboard"] if settings.tensorboard else []), *settings.trackers)
    for name in dict.fromkeys(names):
        try:
            opened[name] = TRACKERS[name](folder, config, resumed)
        except ImportError as error:
            if name in settings.trackers:
                close_all(list(opened.values()))
                raise MissingExtra.of(name, needed_for=f"run.trackers = {name}") from error
        except Exception as error:  # a boundary: whatever the tracker's package raises
            close_all(list(opened.values()))
            raise ConfigError(
                f"run.trackers: {name} cannot be opened ({type(error).__name__}: {error}); leave "
                "it out, or mend it"
            ) from error
    return opened


def close_all(trackers: Sequence[Tracker]) -> None:
    """Close trackers, each whatever the others do."""
    for tracker in trackers:
        try:
            tracker.close()
        except Exception:  # a boundary: the run has ended, and metrics.jsonl has every number
            continue
