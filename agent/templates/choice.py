"""Decides between a model's own chat template and one for training, and opens a chat format.

auto            the model's own template if it loses nothing and rewrites no turn; else the training
                template that belongs to it; else the model's own template with repairs
stock           the model's own template, with repairs where it loses something
training        the training template that belongs to the model's own template
training:NAME   the training template of that name
PATH            a template file

A training template belongs to a released template, known by its digest. An edited template has
none, because the edit is somebody's decision (decision 0520).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError

from ..chat import ChatFormat, Tokenizer
from ..images import ImageFormat
from ..parsing import TOOL_FORMATS, tool_format
from .probe import AUTO, probe
from .releases import digest_of, recognise
from .report import Origin, Outcome, TemplateReport
from .text import TEMPLATE_SUFFIX, TemplateRefused, TemplateTokenizer, source_of
from .training import TRAINING, TrainingTemplate, own_template, training_template, with_identity

STOCK, TRAIN = "stock", "training"
_NAMED = f"{TRAIN}:"
"""What begins the choice of a training template by name."""
KEPT = "thoughts of earlier turns stay as sampled"
REPORT_FILE, TABLE_FILE = "template.json", "template.txt"


class WithTemplate:
    """A tokenizer that renders with another chat template and is the same in all else."""

    def __init__(self, tokenizer: Tokenizer, template: str) -> None:
        self._tokenizer = tokenizer
        self.chat_template = template
        self.special_tokens_map = getattr(tokenizer, "special_tokens_map", {})
        self.verified = getattr(tokenizer, "verified", True)
        self.eos_token = tokenizer.eos_token
        self.eos_token_id = tokenizer.eos_token_id

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        """The special tokens by id."""
        return self._tokenizer.added_tokens_decoder

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the ids of a text."""
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of ids."""
        return self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(self, conversation: list[dict[str, Any]], **kwargs: Any) -> object:
        """Render a conversation; see transformers' method of the same name."""
        return self._tokenizer.apply_chat_template(
            conversation, chat_template=self.chat_template, **kwargs
        )


@dataclass(frozen=True, slots=True)
class OpenedTemplate:
    """A chat format together with what the probe found."""

    chat_format: ChatFormat
    report: TemplateReport

    def write(self, folder: Path) -> None:
        """Keep the report in a run folder, as a table and as JSON."""
        (folder / TABLE_FILE).write_text(f"{self.report.table()}\n", encoding="utf-8")
        (folder / REPORT_FILE).write_bytes(msgspec.json.encode(self.report))


def template_of(tokenizer: Tokenizer) -> str:
    """Return the source of a tokenizer's chat template; see `source_of`.

    Raises:
        ConfigError: the tokenizer has none.
    """
    source = source_of(tokenizer)
    if source is None:
        raise ConfigError("the tokenizer has no chat template; name one with --model.template PATH")
    return source


def probe_template(
    tokenizer: Tokenizer,
    *,
    template: str = AUTO,
    wanted_format: str = AUTO,
    stop_ids: Sequence[int] = (),
    shows_images: bool = False,
) -> tuple[Tokenizer, TemplateReport]:
    """Choose a template and probe it.

    Args:
        tokenizer: the model's tokenizer, or a `TemplateTokenizer`.
        template: auto, stock, training, training:NAME, or the path of a template file.
        wanted_format: name of the tool format, or auto.
        stop_ids: end tokens of the model's generation config.
        shows_images: whether images reach the model.

    Returns:
        The tokenizer that renders with the chosen template, and the report.

    Raises:
        ConfigError: the choice names no template, or none for the model's own.
    """
    recognition = recognise(template_of(tokenizer))

    def probe_source(
        source: str, origin: Origin, paired_format: str
    ) -> tuple[Tokenizer, TemplateReport]:
        shown_tokenizer = _with(tokenizer, source)
        is_paired = wanted_format == AUTO and paired_format in TOOL_FORMATS
        tool_format_name = paired_format if is_paired else wanted_format
        report = probe(
            shown_tokenizer,
            wanted_format=tool_format_name,
            origin=origin,
            stop_ids=stop_ids,
            shows_images=shows_images,
        )
        return shown_tokenizer, report

    def probe_training(training: TrainingTemplate) -> tuple[Tokenizer, TemplateReport]:
        name = f"{TRAIN}:{training.name} ({KEPT})"
        checked = "" if training.verified else "; its first prompt is unverified"
        origin = Origin(name, digest_of(training.source), f"found {recognition.said}{checked}")
        source = with_identity(training.source, template_of(tokenizer))
        return probe_source(source, origin, training.tool_format)

    if template.startswith(_NAMED):
        return probe_training(training_template(template.removeprefix(_NAMED)))
    if template == TRAIN:
        if not recognition.family:
            raise ConfigError(
                f"there is no training template for the model's own ({recognition.digest}): "
                f"{recognition.said}. Name one with --model.template {_NAMED}NAME "
                f"({', '.join(TRAINING)}), or use stock"
            )
        return probe_training(TRAINING[recognition.family])
    if template not in (AUTO, STOCK):
        source = _read_template(template)
        return probe_source(source, _origin(template, source), "")
    # Where the model's own template is one of the training templates, its tool format is known and
    # need not be found out.
    own_training = own_template(template_of(tokenizer))
    paired_format = own_training.tool_format if own_training is not None else ""
    origin = _origin(STOCK, template_of(tokenizer))
    stock_tokenizer, stock_report = probe_source(template_of(tokenizer), origin, paired_format)
    needed = [*stock_report.of(Outcome.REPAIRED), *stock_report.of(Outcome.REFUSED)]
    # Images and the date say nothing against a template: images are refused for want of a
    # processor, and the date is frozen in every template.
    loses = any(finding.feature not in ("images", "date") for finding in needed)
    if template == AUTO and recognition.family and loses:
        return probe_training(TRAINING[recognition.family])
    return stock_tokenizer, stock_report


def open_template(
    tokenizer: Tokenizer,
    *,
    template: str = AUTO,
    wanted_format: str = AUTO,
    stop_ids: Sequence[int] = (),
    images: ImageFormat | None = None,
) -> OpenedTemplate:
    """Choose a template, probe it, and return the chat format with the repairs it needs.

    Args:
        tokenizer: the model's tokenizer.
        template: auto, stock, training, training:NAME, or the path of a template file.
        wanted_format: name of the tool format, or auto.
        stop_ids: end tokens of the model's generation config.
        images: how images become tokens; None for a model that reads none.

    Raises:
        ConfigError: the choice names no template; or the template cannot play an episode, with the
            probe's reason.
    """
    shown_tokenizer, report = probe_template(
        tokenizer,
        template=template,
        wanted_format=wanted_format,
        stop_ids=stop_ids,
        shows_images=images is not None,
    )
    if report.blocking:
        reasons = "; ".join(f"{finding.feature}: {finding.detail}" for finding in report.blocking)
        raise TemplateRefused(
            f"the chat template cannot play an episode: {reasons}. Name another with "
            "--model.template"
        )
    chat_format = ChatFormat(
        shown_tokenizer,
        tool_format(report.tool_format),
        stop_ids=stop_ids,
        images=images,
        fallbacks=report.fallbacks,
    )
    return OpenedTemplate(chat_format, report)


def _with(tokenizer: Tokenizer, source: str) -> Tokenizer:
    if getattr(tokenizer, "chat_template", None) == source:
        return tokenizer
    if isinstance(tokenizer, TemplateTokenizer):
        return TemplateTokenizer(source)
    return WithTemplate(tokenizer, source)


def _origin(name: str, source: str) -> Origin:
    training = own_template(source)
    if training is not None:
        return Origin(name, digest_of(source), f"the training template {training.name}")
    recognition = recognise(source)
    return Origin(name, recognition.digest, recognition.said, recognition.brief_tools)


def _read_template(template: str) -> str:
    path = Path(template)
    if not path.is_file():
        raise ConfigError(
            f"model.template must be auto, stock, training, training:NAME or a {TEMPLATE_SUFFIX} "
            f"file, got {template!r}"
        )
    return TemplateTokenizer.load(path).chat_template
