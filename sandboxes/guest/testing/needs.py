"""Finds modules that tests need and that are not installed: then no solution could pass.

The decision comes from the tests' own sources and from what is installed. An exception is only the
occasion to look, since the solution may raise an exception that says the same.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable


def missing_modules(sources: Iterable[str]) -> list[str]:
    """Return the top-level modules that the sources import and that are not installed here.

    An import inside a `try` does not count, since those tests can do without the module.
    """
    import ast  # a large module that is rarely needed

    module_names: set[str] = set()
    for source in sources:
        waiting: list[ast.AST] = [ast.parse(source)]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Import):
                module_names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                module_names.add(node.module or "")
            if not isinstance(node, ast.Try):
                waiting += ast.iter_child_nodes(node)
    return sorted({name.partition(".")[0] for name in module_names if not is_installed(name)})


def is_installed(name: str) -> bool:
    """Return whether the top-level module of `name` can be imported here."""
    top = name.partition(".")[0]
    if sys.modules.get(top) is not None:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def not_installed(names: Iterable[str]) -> str:
    """Return the message for the author of the tests."""
    return f"the tests need {', '.join(names)}, which is not installed where they run"


WELL_KNOWN = frozenset(
    """
    PIL aiohttp altair arrow attr attrs bs4 cachetools cv2 cython dask django faker fastapi flask
    folium geopandas geopy gensim gmpy2 gym gymnasium h5py httpx imageio jax jinja2 joblib keras
    librosa lightgbm lxml markdown matplotlib mpmath msgpack networkx nltk numba numpy openpyxl
    orjson ortools pandas patsy pendulum plotly polars psutil psycopg2 pulp pyarrow pydantic pygame
    pymongo pyparsing pytest pytz rapidfuzz redis regex requests rich scipy seaborn shapely simpy
    skimage sklearn sortedcontainers spacy sqlalchemy starlette statsmodels sympy tabulate
    tensorflow textblob tiktoken toolz torch torchvision tornado tqdm transformers typer
    typing_extensions unidecode websockets wordcloud xarray xgboost xlrd xlsxwriter yaml zmq
    """.split()  # noqa: SIM905 - a list literal would take a line a name
)
"""Modules that people use. A solution that wants such a module, where it is not installed, has done
nothing wrong, while any other name may be a mistake of the solution.
"""

_LACKING = re.compile(r"No module named '(\w+)")


def lacking_of(message: str) -> str:
    """Return the well-known module that an import error names, or an empty text."""
    match = _LACKING.search(message)
    return match[1] if match and match[1] in WELL_KNOWN else ""


def lacking(message: str) -> str:
    """Return the well-known module that an import error names, if not installed here."""
    name = lacking_of(message)
    return "" if name and is_installed(name) else name


def not_installed_for_solution(name: str) -> str:
    """Return the message for the operator of the sandboxes."""
    return f"the solution needs {name}, which is not installed where programs run"
