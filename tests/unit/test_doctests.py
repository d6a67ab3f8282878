"""Every example in a docstring gives what it says; those of one folder are one test."""

import doctest
import importlib
import os
from collections import defaultdict
from pathlib import Path

import pytest

import ludus


def modules_with_examples() -> dict[str, list[str]]:
    """The modules that hold an example, by the folder at the root of `ludus`."""
    root = Path(ludus.__file__).parent
    by_folder: dict[str, list[str]] = defaultdict(list)
    for place, _, files in os.walk(root, followlinks=True):
        for file in files:
            path = Path(place, file)
            if path.suffix == ".py" and ">>> " in path.read_text(encoding="utf-8"):
                parts = path.relative_to(root.parent).with_suffix("").parts
                by_folder[parts[1]].append(".".join(parts).removesuffix(".__init__"))
    return by_folder


MODULES = modules_with_examples()


@pytest.mark.parametrize("folder", sorted(MODULES))
def test_every_example_in_a_docstring_is_right(folder: str) -> None:
    counts = {name: doctest.testmod(importlib.import_module(name)) for name in MODULES[folder]}
    assert not [name for name, count in counts.items() if count.failed]
    assert sum(count.attempted for count in counts.values()) > 0
