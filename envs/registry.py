"""Environments by id, `[owner/]name-vN`.

An id comes from the decorator, from the table of those ludus ships, or from another package's entry
point:

    [project.entry-points."ludus.envs"]
    "me/echo-v0" = "my_package.echo:Echo"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, TypeVar

from ludus.errors import ConfigError, UnknownEnv
from ludus.registry import HINT, Description, Registry, Shipped, check_plain, make, origin

from .outside.sources import is_bare_kind, is_outside, outside_factory
from .protocol import TextEnv

Factory = Callable[..., TextEnv]
Decorated = TypeVar("Decorated", bound=Callable[..., TextEnv])

BUILTIN: dict[str, Shipped] = {
    "ludus/arithmetic-v0": Shipped(
        "ludus.envs.families.arithmetic:Arithmetic",
        "Asks for the exact value of a random expression, and offers a calculator",
    ),
    "ludus/calls-v0": Shipped(
        "ludus.envs.families.calls:Calls",
        "Asks for function calls; problems come from BFCL files or are generated",
    ),
    "ludus/coding-tools-v0": Shipped(
        "ludus.envs.families.coding:CodingTools",
        "Write a program with an interpreter; hidden tests grade the submission",
    ),
    "ludus/coding-v0": Shipped(
        "ludus.envs.families.coding:Coding",
        "Asks for a program; problems come from a file, a hub or a generator",
    ),
    "ludus/files-v0": Shipped(
        "ludus.envs.families.files:Files", "Shell commands put a tree of files in order"
    ),
    "ludus/functions-v0": Shipped(
        "ludus.envs.families.functions:Functions",
        "Small algorithms, whose data can be reached through primitive steps alone",
    ),
    "ludus/image-prompt-v0": Shipped(
        "ludus.envs.families.image_prompt:ImagePrompt",
        "Write a prompt for an image generator so that the picture shows what a person asked for",
    ),
    "ludus/ledger-v0": Shipped(
        "ludus.envs.families.ledger:LedgerRelay",
        "Writes to registers, and asks for the content of a register at the end",
    ),
    "ludus/maths-tools-v0": Shipped(
        "ludus.envs.families.maths_tools:MathsTools",
        "Asks for a final answer in \\boxed{}, with Python in a sandbox at hand",
    ),
    "ludus/maths-v0": Shipped(
        "ludus.envs.families.maths:Maths", "Asks for a final answer in \\boxed{}"
    ),
    "ludus/number-quiz-v0": Shipped(
        "ludus.envs.families.number_quiz:NumberQuiz",
        "Questions about whole numbers; the answer is a number and nothing else",
    ),
    "ludus/repair-v0": Shipped(
        "ludus.envs.families.repair:CodeRepair",
        "Broken functions have to be repaired; hidden tests decide",
    ),
    "ludus/research-v0": Shipped(
        "ludus.envs.families.research:Research",
        "Search a fictional world and write a short report with citations",
    ),
    "ludus/search-v0": Shipped(
        "ludus.envs.families.search.search_env:Search",
        "Multi-hop questions over a corpus that BM25, a server or a model searches",
    ),
    "ludus/shapes-v0": Shipped(
        "ludus.envs.families.shapes:ShapesQuiz",
        "Answer a question about pictures of coloured shapes",
    ),
    "ludus/sql-v0": Shipped(
        "ludus.envs.families.sql:Sql",
        "Questions to answer by SQL, judged by execution on random databases",
    ),
    "ludus/tally-v0": Shipped(
        "ludus.envs.families.tally:Tally",
        "Asks for a sum of labelled digits modulo a base; checking costs tokens",
    ),
    "ludus/textworld-v0": Shipped(
        "ludus.envs.families.textworld:TextWorld",
        "Text games that are won by commands: go, take, open, unlock, put, cook",
        extra="textworld",
    ),
    "ludus/twenty-questions-v0": Shipped(
        "ludus.envs.families.twenty_questions:TwentyQuestions",
        "Yes-or-no questions to a scripted user find a secret thing",
    ),
    "ludus/verilog-v0": Shipped(
        "ludus.envs.families.verilog:Verilog",
        "Asks for a Verilog module; simulation against a Python model decides",
    ),
    "ludus/wikigame-v0": Shipped(
        "ludus.envs.families.wikigame:WikiGame",
        "Links lead from a start page to a target page of an encyclopedia",
    ),
}
"""The environments ludus ships, by id."""

_ID = re.compile(r"(?:[A-Za-z0-9_\-.]+/)?[A-Za-z0-9_\-.]*[A-Za-z0-9_.]-v\d+")
_ENVIRONMENTS: Registry[Factory] = Registry(
    "environment", BUILTIN, group="ludus.envs", unknown=UnknownEnv, hint=HINT, word="id"
)
_listeners: list[Callable[[str], None]] = []


def register(env_id: str, **arguments: Any) -> Callable[[Decorated], Decorated]:
    """Register a `TextEnv` class, or a function that returns a `TextEnv`, as `env_id`.

    Args:
        env_id: `name-vN` or `owner/name-vN`.
        arguments: constructor arguments that are fixed for this id.

    Raises:
        ConfigError: the id is malformed, or taken by another class.
    """
    _check_id(env_id)  # `@register` without an id hands in the class

    def decorate(target: Decorated) -> Decorated:
        register_env(env_id, target, **arguments)
        return target

    return decorate


def register_env(env_id: str, target: Factory, **arguments: Any) -> None:
    """Register `target` under `env_id`.

    Raises:
        ConfigError: the id is malformed, or taken by something else.
    """
    _check_id(env_id)
    is_other_class = isinstance(target, type) and not issubclass(target, TextEnv)
    if is_other_class or not callable(target):
        raise ConfigError(
            f"cannot register {target!r:.80} as {env_id!r}: hand in a subclass of ludus.TextEnv, "
            "or a function that makes one"
        )
    _ENVIRONMENTS.check_free(env_id, target, same=not arguments)
    # Fix some arguments of `target`, and keep its name and docstring.
    _ENVIRONMENTS.registered[env_id] = (
        update_wrapper(partial(target, **arguments), target, updated=()) if arguments else target
    )
    for listener in _listeners:
        listener(env_id)


def on_register(listener: Callable[[str], None]) -> None:
    """Call `listener` with every id known now and registered later."""
    for env_id in env_ids():
        listener(env_id)
    _listeners.append(listener)


def env_ids() -> list[str]:
    """Return all ids: shipped, registered, and offered by installed packages."""
    return _ENVIRONMENTS.names()


def is_env(env_id: str) -> bool:
    """Whether an id is that of an environment: listed, or of another project's kind."""
    return env_id in env_ids() or is_outside(env_id)


def find_env(env_id: str) -> Factory:
    """The class or function behind `env_id`.

    Raises:
        UnknownEnv: nobody registered it; the message names the near miss.
        MissingExtra: it needs an optional dependency.
        ConfigError: a package offers it that cannot be imported, or two packages do.
    """
    # Whether an installed package offers the id is asked last: that reads files of all packages.
    is_ours = env_id in _ENVIRONMENTS.registered or env_id in _ENVIRONMENTS.shipped
    if not is_ours and (is_outside(env_id) or is_bare_kind(env_id)) and env_id not in env_ids():
        return outside_factory(env_id)
    factory = _ENVIRONMENTS.find(env_id)
    _check_id(env_id)
    return factory


def describe_envs() -> list[Description]:
    """Describe all environments by id; built-in environments are not imported."""
    return _ENVIRONMENTS.descriptions()


def build_env(env_id: str, **arguments: Any) -> TextEnv:
    """Construct the environment `env_id`.

    Raises:
        ConfigError: it does not take these arguments, or one is of a wrong type.
    """
    return construct(env_id, find_env(env_id), **arguments)


def construct(env_id: str, factory: Factory, /, **arguments: Any) -> TextEnv:
    """Construct the environment `env_id` from a class or function.

    Raises:
        ConfigError: an argument is unknown or of a wrong type.
        ConstructionFailed: the constructor failed for another reason.
    """
    check_plain(env_id, factory, arguments)
    env = make(env_id, factory, arguments)
    if not isinstance(env, TextEnv):
        raise ConfigError(
            f"{env_id} is registered to {origin(factory)}, which made {type(env).__name__}, not "
            "a TextEnv"
        )
    return env


def _check_id(env_id: object) -> None:
    if not isinstance(env_id, str):
        raise ConfigError(
            f"register takes an id, @ludus.register('me/echo-v0'), got {env_id!r:.80}"
        )
    if not _ID.fullmatch(env_id):
        raise ConfigError(
            f"environment id {env_id!r} is not 'name-vN' or 'owner/name-vN', such as 'me/echo-v0'"
        )
