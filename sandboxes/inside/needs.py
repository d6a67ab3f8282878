"""Which modules tests need that are not here: then the tests cannot run, whatever the solution did.

Decided by the tests' own sources and what is installed. An exception is only the occasion to look:
the solution may raise one that says the same.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable


def missing_modules(sources: Iterable[str]) -> list[str]:
    """The top-level modules these sources import, and do not try to do without, that are not
    installed here.
    """
    import ast  # rarely needed, and large in every child

    named: set[str] = set()
    for source in sources:
        waiting: list[ast.AST] = [ast.parse(source)]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Import):
                named.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                named.add(node.module or "")
            if not isinstance(node, ast.Try):
                waiting += ast.iter_child_nodes(node)
    return sorted({name.partition(".")[0] for name in named if not is_installed(name)})


def is_installed(name: str) -> bool:
    """Whether the top-level module of `name` can be imported here."""
    top = name.partition(".")[0]
    if sys.modules.get(top) is not None:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def not_installed(names: Iterable[str]) -> str:
    """What to tell whoever wrote the tests."""
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
"""Modules people use; a solution that wants one that is not installed has done nothing wrong, while
any other name may be a slip of its own.
"""

_LACKING = re.compile(r"No module named '(\w+)")


def lacking_of(message: str) -> str:
    """The well-known module that an import error names; empty if it names none."""
    found = _LACKING.search(message)
    return found[1] if found and found[1] in WELL_KNOWN else ""


def lacking(message: str) -> str:
    """The same, if that module is not installed here."""
    name = lacking_of(message)
    return "" if name and is_installed(name) else name


def not_installed_for_solution(name: str) -> str:
    """What to tell whoever runs the sandboxes."""
    return f"the solution needs {name}, which is not installed where programs run"
