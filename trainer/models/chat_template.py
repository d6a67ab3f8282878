"""The chat template of a run: chosen and probed before anything is spent."""

from __future__ import annotations

from pathlib import Path

from ludus.agent.chat import Tokenizer
from ludus.agent.images import ImageFormat
from ludus.agent.templates.choice import OpenedTemplate, open_template

from ..config import ModelConfig
from .loading import load_stop_ids


def open_chat(
    model: ModelConfig,
    path: str,
    tokenizer: Tokenizer,
    folder: Path | None = None,
    *,
    images: ImageFormat | None = None,
) -> OpenedTemplate:
    """Return the chat format of a model, with the repairs that its template needs.

    Args:
        model: the settings; `template` and `tool_format` decide.
        path: the model's folder.
        tokenizer: the model's tokenizer, which stays as it is.
        folder: a run folder, which gets the probe's table and its JSON.
        images: how images become tokens; None for a model that reads none.

    Raises:
        ConfigError: the settings name no template, or the template cannot play an episode.
    """
    opened = open_template(
        tokenizer,
        template=model.template,
        wanted_format=model.tool_format,
        stop_ids=load_stop_ids(path),
        images=images,
    )
    if folder is not None:
        opened.write(folder)
    return opened
