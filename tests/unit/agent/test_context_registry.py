"""Context managers by name: settings, compositions, and managers of users."""

import sys
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.context import (
    ClearToolResults,
    Composed,
    ContextManager,
    ContextSettings,
    Fold,
    History,
    KeepLast,
    MemoryTool,
    ReSum,
    Summarize,
    UnknownContext,
    context_names,
    make_context,
    register_context,
)
from ludus.agent.trajectory import Stop
from ludus.config import build
from ludus.errors import ConfigError, UnknownName


@register_context("other/strict")
class Strict(ContextManager):
    """Ends the episode at a share of the window."""

    name = "strict"

    def __init__(self, threshold: float = 0.5, *, words: str = "") -> None:
        self.threshold, self.words = threshold, words

    def when_full(self, history: History) -> Stop:
        return Stop.CONTEXT_FULL


def made(manager: str, **fields: Any) -> Any:
    return make_context(ContextSettings(manager=manager, **fields))


def test_a_registered_manager_gets_the_fields_it_names_and_its_own_arguments() -> None:
    assert made("other/strict").threshold == 0.5
    assert made("other/strict", threshold=0.7, keep=9).threshold == 0.7
    both = made("other/strict?threshold=0.9&words=so", threshold=0.7)
    assert (both.threshold, both.words) == (0.9, "so")
    assert "other/strict" in context_names()


def test_fields_that_were_not_set_leave_each_manager_its_own_default() -> None:
    assert made("keep_last_k") == KeepLast(keep=4)
    assert made("clear") == ClearToolResults(keep=3)
    assert made("clear", keep=4) == ClearToolResults(keep=4)
    assert made("fold", max_summaries=2) == Fold(max_summaries=2)
    assert made("summarize", summary_tokens=9).summary_tokens == 9


def test_a_composition_keeps_the_written_order_and_arguments_apart() -> None:
    both = made("clear?keep=1 + memory?carry=false+summarize", threshold=0.8)
    assert isinstance(both, Composed)
    assert both.name == "clear+memory+summarize"
    clear, memory, summarize = both.managers
    assert isinstance(clear, ClearToolResults)
    assert isinstance(memory, MemoryTool)
    assert isinstance(summarize, Summarize)
    assert (clear.keep, memory.carry, summarize.threshold) == (1, False, 0.8)
    assert [tool.name for tool in both.tools] == ["memory"]


@pytest.mark.parametrize(
    ("manager", "error", "said"),
    [
        ("memgent", UnknownContext, "memagent"),
        ("clear+sumarize", UnknownContext, "did you mean 'summarize'"),
        ("other/strikt", UnknownContext, "other/strict"),
        ("keep_last_k?kepe=2", UnknownName, "did you mean 'keep'"),
        ("keep_last_k?keep=two", ConfigError, "whole number, got 'two'"),
        ("keep_last_k?keep", ConfigError, "name\\?argument=value"),
        ("keep_last_k?keep=0", ConfigError, "at least 1"),
        ("discard?threshold=-1", ConfigError, "threshold of discard must be in"),
        ("clear+summarize?threshold=1.5", ConfigError, "threshold of summarize must be in"),
        ("clear?max_tool_uses=2", ConfigError, "at least keep"),
        ("clear+clear", ConfigError, "different"),
        ("resum", ConfigError, "summariser_url"),
        ("memory?max_files=0", ConfigError, "at least 1"),
        ("", UnknownContext, "no context manager"),
    ],
)
def test_mistakes_name_what_was_meant(manager: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        made(manager)


def test_names_and_targets_that_cannot_be_registered_are_refused() -> None:
    for name in ("a+b", "a?b", "", "a b"):
        with pytest.raises(ConfigError, match="is not 'name' or 'owner/name'"):
            register_context(name)(Strict)
    with pytest.raises(ConfigError, match="subclass of ContextManager"):
        register_context("other/int")(int)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="is one ludus ships"):
        register_context("summarize")(Strict)

    class Twin(Strict):
        pass

    with pytest.raises(ConfigError, match="already registered by"):
        register_context("other/strict")(Twin)
    assert register_context("other/strict")(Strict) is Strict  # a module that is read again


def test_a_factory_that_makes_something_else_is_named() -> None:
    @register_context("other/nothing")
    def nothing() -> Any:
        return 3

    with pytest.raises(ConfigError, match=r"nothing, which made int, not a ContextManager"):
        made("other/nothing")
    assert nothing() == 3


def test_an_installed_package_offers_managers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "offering.py").write_text(
        "from ludus.agent.context import KeepLast\nclass Theirs(KeepLast):\n    pass\n"
    )
    info = tmp_path / "offering-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ludus.contexts]\nthem/theirs = offering:Theirs\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "them/theirs" in context_names()
    assert made("them/theirs?keep=2").keep == 2
    monkeypatch.delitem(sys.modules, "offering")


def test_settings_are_read_from_tables_as_before() -> None:
    table = {"manager": "clear+resum", "exclude_tools": ["search"], "keep": 1}
    table |= {"summariser_url": "http://127.0.0.1:1/v1", "summariser_model": "m"}
    both = make_context(build(ContextSettings, table))
    assert isinstance(both, Composed)
    clear, resum = both.managers
    assert isinstance(clear, ClearToolResults)
    assert isinstance(resum, ReSum)
    assert clear.exclude_tools == ("search",)
    assert resum.threshold == 0.9


class Held(Strict):
    """Holds something that may fail to close."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        super().__init__()
        self.name, self.error, self.is_closed = name, error, False

    async def close(self) -> None:
        self.is_closed = True
        if self.error is not None:
            raise self.error


async def test_a_manager_that_cannot_be_closed_leaves_no_other_open() -> None:
    first, second = Held("first", OSError("the connection is gone")), Held("second")
    with pytest.raises(OSError, match="the connection is gone"):
        await Composed([first, second]).close()
    assert (first.is_closed, second.is_closed) == (True, True)
