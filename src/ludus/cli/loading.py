"""Import of the user's code that the command line names, before the verb runs."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import shlex
import sys
from pathlib import Path

from ludus.errors import ConfigError
from ludus.registry import imported


def import_user_code(name: str) -> None:
    """Import user code by `name`: a `.py` file, or a module by a dotted name.

    A file may import its neighbours. Modules are also searched for in the current folder.

    Raises:
        ConfigError: the file or module does not exist, is no Python, or imports what is missing.
    """
    imported.append(name)
    if name.endswith(".py"):
        _import_file(Path(name))
        return
    if Path(name).is_dir() and not (Path(name) / "__init__.py").is_file():
        raise ConfigError(
            f"--import {name!r}: a folder, neither a .py file nor the name of a module"
        )
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"--import {name}: neither a .py file nor the name of a module")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"--import {name}: no such module; name a .py file or a module") from None


def command_line(*words: str) -> str:
    """Return a `ludus` command to type, with the imports of this command."""
    imports = [part for name in imported for part in ("--import", name)]
    return shlex.join(["ludus", *imports, *words])


def _import_file(path: Path) -> None:
    if not path.is_file():
        raise ConfigError(f"--import {str(path)!r}: no such file")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last: a file there hides nothing that is installed
    # The module has the file's own name, by which neighbours and worker processes find it, unless
    # that name means another module: a file `numbers.py` must not stand in for the standard
    # library's. Then the name is one that nothing else has.
    name = path.stem
    try:
        same = importlib.util.find_spec(name) if name.isidentifier() else None
    except ValueError:  # of a module without a spec, such as __main__
        same = None
    if same is None or not same.origin or Path(same.origin).resolve() != path.resolve():
        digest = hashlib.blake2b(str(path.resolve()).encode(), digest_size=4).hexdigest()
        name = f"ludus_import_{name}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"--import {str(path)!r}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, SyntaxError):
            raise ConfigError(f"--import {str(path)!r}: {error}") from error
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            raise ConfigError(
                f"--import {str(path)!r}: it imports {error.name!r}, which is not installed here; "
                f"install it into the Python of ludus ({sys.executable})"
            ) from error
        raise
