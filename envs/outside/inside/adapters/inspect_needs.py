"""Tells what evaluations of inspect_evals need: by trying them, and by the package's own lists."""

from __future__ import annotations

import inspect
import os
import signal
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from ..contract import PeerRefusal

TRYING_S = 20
"""For how long an evaluation may take to be made and to be asked and answered once."""
_SHOWN = 3
"""How many downloads of a family are named."""
_MARKS = (
    ("its samples have a sandbox", "a sandbox of its own (containers), which is not given"),
    ("brings a sandbox", "a sandbox of its own (containers), which is not given"),
    ("solver has tools", "tools of its own solver, which are not played here"),
    ("needs a model", "a model that grades, or that plays another part"),
    ("No model specified", "a model that grades, or that plays another part"),
    ("optional dependencies", "a model that grades, or that plays another part"),
    ("API_KEY", "a model that grades, or that plays another part"),
    ("no scorer", "a scorer"),
)

Make = Callable[[str, dict[str, Any]], Any]


def catalogue(make: Make) -> dict[str, Any]:
    """Return the families of inspect_evals, their tasks as variants, and what each needs.

    A family is tried task by task until one is played to a reward. It is tried without a network,
    so that what has to be downloaded fails, and nothing is left behind.

    Args:
        make: opens a task by its name and settings.
    """
    registry = import_module("inspect_evals._registry")
    yaml: Any = import_module("yaml")
    found: dict[str, list[str]] = {}
    for name, made in sorted(vars(registry).items()):
        if not name.startswith("_") and inspect.isfunction(made):
            found.setdefault(made.__module__.split(".")[1], []).append(name)
    folder = Path(str(registry.__file__)).parent
    families: list[dict[str, Any]] = []
    with _without_network():
        for topic, names in found.items():
            about = folder / topic / "eval.yaml"
            told = yaml.safe_load(about.read_text(encoding="utf-8")) if about.exists() else {}
            outcomes = {name: _tried(make, name) for name in names}
            played = [name for name, outcome in outcomes.items() if not outcome]
            needs = "" if played else _need(told, list(outcomes.values()))
            # the first task is the one that is played unless another one is asked for
            ordered = [*played, *(name for name in names if name not in played)]
            families.append({"name": topic, "variants": ordered, "needs": needs})
    version = metadata.version("inspect-evals")
    return {"package": "inspect-evals", "version": version, "families": families}


def _tried(make: Make, name: str) -> str:
    """Make a task, and play its first sample; return what went wrong, empty for nothing."""
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(TRYING_S)
    try:
        task = make(name, {})
        sizes = task.about()["sizes"]
        task.reset({"split": max(sizes, key=lambda split: int(sizes[split])), "index": 0})
        for _ in range(8):
            if task.step({"text": "A"}).get("terminated"):
                return ""
        return "it asks more than eight times"
    except Exception as error:
        signal.alarm(0)
        return (
            f"{type(error).__name__}: {error}" if not isinstance(error, PeerRefusal) else str(error)
        )
    finally:
        signal.alarm(0)


def _need(told: dict[str, Any], outcomes: list[str]) -> str:
    """Say what a family needs that could not be played.

    Args:
        told: what the package declares of the family.
        outcomes: what went wrong with each of its tasks.
    """
    found = (need for mark, need in _MARKS if any(mark in outcome for outcome in outcomes))
    parts = list(dict.fromkeys(found))
    package = next(
        (o.rpartition("named ")[2].strip("'\"") for o in outcomes if "No module named" in o), ""
    )
    if extra := told.get("dependency") or told.get("dependency-group"):
        parts.insert(0, f"the package inspect-evals[{extra}]")
    elif package:
        parts.insert(0, f"the package {package}")
    if assets := _downloads(told):
        parts.insert(0, assets)
    runs = (told.get("metadata") or {}).get("sandbox") or []
    if runs and not any("sandbox" in part for part in parts):
        who = " and ".join(sorted(f"its {one}" for one in runs))
        parts.append(f"a sandbox of its own (containers) for {who}, which is not given")
    return "; ".join(parts) or f"what its task asks for: {outcomes[0].rpartition(': ')[2][:100]}"


def _downloads(told: dict[str, Any]) -> str:
    """Name the data that the package lists as coming from elsewhere."""
    places: dict[str, None] = {}
    for asset in told.get("external_assets") or []:
        source = str(asset["source"])
        on_hub = asset["type"] == "huggingface"
        places[f"{source} of Hugging Face" if on_hub else source] = None
    if not places:
        return ""
    shown = ", ".join(list(places)[:_SHOWN])
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return f"a download: {shown}{more}"


@contextmanager
def _without_network() -> Generator[None]:
    """Let every connection fail at once, and no retry wait."""
    kept = socket.getaddrinfo, time.sleep
    os.environ["HF_HUB_OFFLINE"] = "1"
    socket.getaddrinfo, time.sleep = _refused, _no_pause
    try:
        yield
    finally:
        socket.getaddrinfo, time.sleep = kept


def _refused(*_: Any, **__: Any) -> Any:
    raise OSError("the network is not asked while the catalogue is written")


def _no_pause(_: Any) -> None:
    """Return at once."""


def _late(*_: object) -> None:
    raise TimeoutError(f"not done within {TRYING_S} s")
