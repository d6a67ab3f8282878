"""Starts the server in a peer's interpreter: `PYTHON -s boot.py DESCRIPTOR`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys


def load_package(name: str, folder: str) -> None:
    """Import the folder as the top-level package `name`, without a change of `sys.path`."""
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} is not a package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != own]
    load_package("inside", own)
    sys.exit(importlib.import_module("inside.serve").main(int(sys.argv[1])))
