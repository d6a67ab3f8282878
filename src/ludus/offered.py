"""The objects that installed packages offer by entry points, by group and name."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .errors import ConfigError, LudusError


def offered_names(group: str) -> set[str]:
    """Return the names offered in `group`."""
    return {point.name for point in entry_points(group=group)}


def load_offered(group: str, name: str) -> Any | None:
    """Return the object that a package offers as `name` in `group`, or None if no package does.

    Raises:
        ConfigError: the object cannot be imported, or two packages offer different objects.
    """
    points = sorted(entry_points(group=group, name=name), key=_package)
    if not points:
        return None
    if len({point.value for point in points}) > 1:
        raise ConfigError(
            f"{name!r} is offered by {' and by '.join(map(_origin, points))}; uninstall one, or "
            "rename it in its pyproject.toml"
        )
    try:
        return points[0].load()
    except LudusError:
        raise
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{name!r}, offered by {_origin(points[0])}, cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error


def _origin(point: EntryPoint) -> str:
    return f"the package {_package(point)} ({point.value})"


def _package(point: EntryPoint) -> str:
    return "" if point.dist is None else point.dist.name
