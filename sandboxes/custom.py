"""Opens sandboxes that are written outside ludus, named as `module:attribute`.

    LUDUS_SANDBOX=my_tier:MySandbox ludus --import my_tier.py score coding ...

Such a sandbox is never chosen automatically, and its isolation is not probed: a probe that breaks
out would harm this machine. Whoever names such a sandbox is responsible for it.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module

from ludus.errors import ConfigError, LudusError

from .protocol import Sandbox

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_custom(tier: str) -> bool:
    """Return whether a tier is named as `module:attribute`.

    >>> is_custom("my_tier:MySandbox"), is_custom("slots-root"), is_custom("http://10.0.0.7:8765")
    (True, False, False)
    """
    return _NAME.fullmatch(tier) is not None


async def open_custom(name: str) -> Sandbox:
    """Return a new sandbox of the class or function that `module:attribute` names.

    Args:
        name: names a class derived from `Sandbox`, or a function, plain or async, that returns a
            sandbox; it is called without arguments.

    Raises:
        ConfigError: the name cannot be imported, or what it names returns no sandbox.
    """
    module, _, attribute = name.partition(":")
    try:
        factory: object = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the sandbox {name!r} cannot be imported: {error}; name an installed module, or a "
            f"file by --import {module}.py"
        ) from error
    if not callable(factory):
        raise ConfigError(
            f"the sandbox {name!r} is a {type(factory).__name__}; name a class derived from "
            "ludus.sandboxes.Sandbox, or a function that returns a sandbox"
        )
    try:
        sandbox: object = factory()
    except TypeError as error:
        raise ConfigError(
            f"the sandbox {name!r} cannot be made without arguments: {error}"
        ) from error
    if inspect.isawaitable(sandbox):
        sandbox = await sandbox
    if not isinstance(sandbox, Sandbox):
        raise ConfigError(
            f"the sandbox {name!r} made a {type(sandbox).__name__}; derive its class from "
            "ludus.sandboxes.Sandbox, and define tier, run and close"
        )
    return sandbox


async def examine_custom(name: str) -> tuple[list[str], list[str]]:
    """Run a small program in the sandbox `name`.

    Returns:
        The problems, empty if the program ran; and notes for the operator.
    """
    try:
        sandbox = await open_custom(name)
    except LudusError as error:
        return [str(error)], []
    try:
        execution = await sandbox.execute("print(6 * 7)")
        problems = [] if execution.stdout == "42\n" else [f"a program does not run: {execution}"]
        return problems, ["its isolation is not probed; docs/sandboxes.md says how to attack it"]
    except LudusError as error:
        return [str(error)], []
    finally:
        await sandbox.close()
