"""Templates for training, written for ludus: prefix-preserving, with tools, calls and results.

A template is good for training if every message that can follow a turn leaves the text before as
it was. These write the policy's turns exactly as sampled, thoughts included, so that an episode
stays one row of the trainer where a release that drops earlier thoughts begins a new row at each
of the user's messages. The first prompt of a conversation is that of the release: the sentences
about tools in it are the models' own format.

A policy that is trained with kept thoughts reads longer contexts than a server shows it that drops
them. `--model.template stock` trains as the release shows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ludus.errors import UnknownName

from .releases import digest_of

_IDENTITY = re.compile(r"""set model_identity = ("[^"]*"|'[^']*')""")
"""The sentence by which a released template introduces the model, with its quotation marks."""

FOLDER = Path(__file__).with_name("families")


@dataclass(frozen=True, slots=True)
class TrainingTemplate:
    """A template of the project's own, put together from files of `families`."""

    name: str
    parts: tuple[str, ...]
    tool_format: str
    """The tool format that reads the calls."""
    models: str
    """The models that the template is for."""
    verified: bool
    """Whether a test compares the first prompt with the released template, where a peer's package
    brings that.
    """

    @property
    def source(self) -> str:
        """The source of the template, for transformers."""
        return "".join(_part(name).rstrip("\n") for name in self.parts)


@cache
def _part(name: str) -> str:
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


def _chatml(name: str, *before: str, calls: str = "part_hermes") -> tuple[str, ...]:
    return ("part_spoken", calls, *before, name)


_OFFER = ("part_hermes", "part_offer")

TRAINING: dict[str, TrainingTemplate] = {
    template.name: template
    for template in (
        TrainingTemplate(
            "qwen2_5",
            (*_chatml("qwen2_5", "part_qwen_tools"), "part_chatml"),
            "hermes",
            "Qwen2.5",
            verified=True,
        ),
        TrainingTemplate(
            "qwen3",
            (*_chatml("qwen3", "part_qwen_tools"), "part_chatml"),
            "hermes",
            "Qwen3, Qwen3-Instruct-2507, Qwen3-VL",
            verified=True,
        ),
        TrainingTemplate(
            "qwen3_5_think",
            (
                *_chatml("qwen3_5_think", calls="part_xml"),
                "part_qwen3_5_system",
                "part_chatml",
            ),
            "qwen3_coder",
            "Qwen3.5 and 3.6 that think",
            verified=True,
        ),
        TrainingTemplate(
            "qwen3_5_nothink",
            (
                *_chatml("qwen3_5_nothink", calls="part_xml"),
                "part_qwen3_5_system",
                "part_chatml",
            ),
            "qwen3_coder",
            "Qwen3.5 that does not think by itself",
            verified=True,
        ),
        TrainingTemplate("llama3", (*_OFFER, "llama3"), "hermes", "Llama 3", verified=True),
        TrainingTemplate(
            "llama3_1",
            ("part_llama", "llama3_1", "part_llama_tools"),
            "llama3_json",
            "Llama 3.1 and 3.3",
            verified=True,
        ),
        TrainingTemplate(
            "llama3_2",
            ("part_llama", "llama3_2", "part_llama_tools"),
            "llama3_json",
            "Llama 3.2",
            verified=True,
        ),
        TrainingTemplate(
            "smollm2",
            (*_chatml("smollm2", "part_offer"), "part_chatml"),
            "hermes",
            "SmolLM2-Instruct",
            verified=True,
        ),
        TrainingTemplate(
            "smollm3",
            (*_chatml("smollm3", "part_offer"), "part_chatml"),
            "hermes",
            "SmolLM3",
            verified=False,
        ),
        TrainingTemplate("gemma", (*_OFFER, "gemma"), "hermes", "Gemma 1 to 3", verified=True),
        TrainingTemplate("phi3", (*_OFFER, "phi3"), "hermes", "Phi-3 and 3.5", verified=True),
        TrainingTemplate("gpt_oss", ("gpt_oss",), "harmony", "gpt-oss", verified=True),
        TrainingTemplate(
            "deepseek",
            ("part_spoken", "deepseek"),
            "deepseek_v3",
            "DeepSeek-V3 and the distilled R1 models",
            verified=True,
        ),
        TrainingTemplate("glm4", ("glm4",), "glm4", "GLM-4.5 and 4.6", verified=True),
        TrainingTemplate(
            "kimi_k2", ("part_spoken", "kimi_k2"), "kimi_k2", "Kimi K2", verified=False
        ),
        TrainingTemplate(
            "mistral", ("mistral",), "mistral_v3", "Mistral Small 3 and its like", verified=False
        ),
    )
}
"""The training templates by name."""


def training_template(name: str) -> TrainingTemplate:
    """Return the training template called `name`.

    Raises:
        UnknownName: there is none; the message suggests a near miss.
    """
    if name not in TRAINING:
        raise UnknownName.near(name, TRAINING, hint="training templates")
    return TRAINING[name]


def with_identity(source: str, released: str) -> str:
    """Return a training template that introduces the model by the sentence of the released one.

    The sentence is the release's own (`model_identity` in gpt-oss), so it is read there and not
    kept here. A source or a release without it stays unchanged.

    >>> with_identity("{{ model_identity }}", "{% set model_identity = 'You are X.' %}")
    "{%- set model_identity = 'You are X.' -%}{{ model_identity }}"
    """
    identity = _IDENTITY.search(released)
    if identity is None or "model_identity" not in source:
        return source
    return f"{{%- set model_identity = {identity[1]} -%}}{source}"


def own_template(template: str) -> TrainingTemplate | None:
    """Return the training template whose source `template` is; None for any other text."""
    digest = digest_of(template)
    return next(
        (
            known_template
            for known_template in TRAINING.values()
            if digest_of(known_template.source) == digest
        ),
        None,
    )
