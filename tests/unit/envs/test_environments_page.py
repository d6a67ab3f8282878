"""docs/environments.md says what the environments take."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ludus.envs import find_env

PAGE = (Path(__file__).parents[3] / "docs" / "environments.md").read_text()
SECTION = re.compile(r"^## (ludus/\S+)\n(.*?)(?=^## |\Z)", re.M | re.S)
ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| (.*?) \| ", re.M)


def rows() -> list[Any]:
    return [
        pytest.param(env_id, names.replace("`", "").split(", "), given, id=f"{env_id} {names}")
        for env_id, body in SECTION.findall(PAGE)
        for names, given in ROW.findall(body)
    ]


def as_shown(value: object) -> set[str]:
    """The ways the page writes a default."""
    match value:
        case bool():
            return {str(value).lower()}
        case "":
            return {""}
        case str():
            return {f"`{value}`", value}
        case float() if value.is_integer():
            return {str(value), str(int(value))}
        case tuple() | None:
            return {"all", ""}
        case _:
            return {str(value)}


@pytest.mark.parametrize(("env_id", "names", "given"), rows())
def test_arguments_have_the_defaults_the_page_gives(
    env_id: str, names: list[str], given: str
) -> None:
    parameters = inspect.signature(find_env(env_id)).parameters
    shown = given.split(", ") if given else [""] * len(names)
    assert len(shown) == len(names)
    for name, default in zip(names, shown, strict=True):
        assert default in as_shown(parameters[name].default), name


@pytest.mark.parametrize("place", sorted(set(re.findall(r"`(ludus(?:\.\w+)+)[`(]", PAGE))))
def test_what_it_names_is_there(place: str) -> None:
    module, found = import_module("ludus"), "ludus"
    target: Any = module
    for name in place.split(".")[1:]:
        found += f".{name}"
        target = getattr(target, name, None) or import_module(found)
    assert target is not None
