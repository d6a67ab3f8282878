"""Recognises the chat templates of released models by digest, and tells near misses.

Templates are compared after normalisation. For each released template the project keeps its digest
and a digest of each of its statements, and not its text (decision 0520). A template that differs in
a few statements is thereby known as a near miss, and the statements that differ can be named.

A template is good for training if every message that can follow a turn leaves the text before as
it was. These write the policy's turns exactly as sampled, thoughts included, so that an episode
stays one row of the trainer where a release that drops earlier thoughts begins a new row at each
of the user's messages. The first prompt of a conversation is that of the release: the sentences
about tools in it are the models' own format.

A policy that is trained with kept thoughts reads longer contexts than a server shows it that drops
them. `--model.template stock` trains as the release shows.

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

import copy
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from ludus.errors import ConfigError, UnknownName

from ..chat import ChatFormat, Tokenizer
from ..images import ImageFormat
from ..parsing import TOOL_FORMATS, tool_format
from .fallbacks import Origin, Outcome, TemplateReport
from .probe import AUTO, probe
from .text import TEMPLATE_SUFFIX, TemplateRefused, TemplateTokenizer, source_of

NEAR = 0.7
"""Share of statements in common from which a template is a near miss of a released one."""
SHOWN = 3
"""How many of the differing statements are quoted."""
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_STATEMENT = re.compile(r"\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)


class ReleasedTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A released template."""

    name: str
    """The models that bring the template."""
    family: str
    """The training template of the project for these models."""
    digest: str
    statements: list[str]
    """A short digest of each statement and each text between statements."""
    brief_tools: bool = False
    """Whether the template lists the names of tools and parameters alone, by design."""


class Recognition(msgspec.Struct, frozen=True):
    """The facts that the digests tell about a model's template."""

    digest: str
    said: str
    """The result in words for a person: a release, a near miss with the difference, or unknown."""
    family: str = ""
    """The training template for this very template; empty for a near miss."""
    brief_tools: bool = False
    """See `ReleasedTemplate.brief_tools`."""


def normalised(template: str) -> str:
    """Return a template without comments, and without white space at the ends of lines."""
    lines = _COMMENT.sub("", template.replace("\r\n", "\n")).split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


def digest_of(template: str) -> str:
    """Return the digest of a normalised template: 16 hexadecimal digits of SHA-256."""
    return hashlib.sha256(normalised(template).encode()).hexdigest()[:16]


def statements_of(template: str) -> list[str]:
    """Return the statements of a template and the texts between, without white space around."""
    text, parts, end = normalised(template), list[str](), 0
    for statement in _STATEMENT.finditer(text):
        parts += [text[end : statement.start()].strip(), " ".join(statement[0].split())]
        end = statement.end()
    parts.append(text[end:].strip())
    return [part for part in parts if part]


def short_digest(statement: str) -> str:
    """Return the digest of a statement: six hexadecimal digits."""
    return hashlib.sha256(statement.encode()).hexdigest()[:6]


@cache
def releases() -> tuple[ReleasedTemplate, ...]:
    """Return all released templates that are known."""
    path = Path(__file__).with_name("releases.json")
    return tuple(msgspec.json.decode(path.read_bytes(), type=list[ReleasedTemplate]))


def recognise(template: str) -> Recognition:
    """Return which release brings a template, or which comes near."""
    digest = digest_of(template)
    same = next((release for release in releases() if release.digest == digest), None)
    if same is not None:
        return Recognition(digest, f"the template of {same.name}", same.family, same.brief_tools)
    statements = {short_digest(part): part for part in statements_of(template)}
    own_counts = Counter(short_digest(part) for part in statements_of(template))
    shares: list[tuple[float, ReleasedTemplate]] = []
    for release in releases():
        # Counters, so that a statement which is repeated counts as often as it occurs.
        counts = Counter(release.statements)
        common, all_counts = own_counts & counts, own_counts | counts
        shares.append((common.total() / max(all_counts.total(), 1), release))
    share, nearest = max(shares, key=lambda pair: pair[0])
    if share < NEAR:
        return Recognition(digest, "no template that ludus knows")
    release_counts = Counter(nearest.statements)
    differences: list[str] = []
    if added := [statements[unknown] for unknown in (own_counts - release_counts)]:
        quoted = ", ".join(repr(part[:80]) for part in added[:SHOWN])
        others = f" and {len(added) - SHOWN} more" if len(added) > SHOWN else ""
        differences.append(f"{len(added)} of its statements are other: {quoted}{others}")
    if missing := (release_counts - own_counts).total():
        differences.append(f"{missing} of the released statements are missing")
    difference = " and ".join(differences) or "its statements are in another order"
    return Recognition(digest, f"near {nearest.name} ({nearest.family}), but {difference}")


_SENTENCE = re.compile(r"""set (model_identity|reasoning_instructions) = ("[^"]+"|'[^']+')""")
"""A sentence by which a released template introduces the model (gpt-oss), or says how hard it
should think (Qwen3.8, whose first such sentence is the default), with its quotation marks.
"""

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


_TABLE = """
qwen2_5 | hermes | spoken hermes qwen_tools . chatml | Qwen2.5
qwen3 | hermes | spoken hermes qwen_tools . chatml | Qwen3, Qwen3-Instruct-2507, Qwen3-VL
qwen3_5_think | qwen3_coder | spoken xml . qwen3_5_system chatml | Qwen3.5, 3.6 and 3.8 that think
qwen3_5_nothink | qwen3_coder | spoken xml . qwen3_5_system chatml | Qwen3.5 that does not think
llama3 | hermes | hermes offer . | Llama 3
llama3_1 | llama3_json | llama . llama_tools | Llama 3.1 and 3.3
llama3_2 | llama3_json | llama . llama_tools | Llama 3.2
smollm2 | hermes | spoken hermes offer . chatml | SmolLM2-Instruct
smollm3 | hermes | spoken hermes offer . chatml | SmolLM3
gemma | hermes | hermes offer . | Gemma 1 to 3
gemma4 | gemma4 | . | Gemma 4
phi3 | hermes | hermes offer . | Phi-3 and 3.5
gpt_oss | harmony | . | gpt-oss
deepseek | deepseek_v3 | spoken . | DeepSeek-V3 and the distilled R1 models
glm4 | glm4 | . | GLM-4.5 and 4.6
kimi_k2 | kimi_k2 | spoken . | Kimi K2
mistral | mistral_v3 | . | Mistral Small 3 and its like
"""
"""A line for each template: its name, its tool format, its files (`.` is the template's own, others
are shared ones, named `part_...`), and the models that it is for.
"""
_UNVERIFIED = ("smollm3", "kimi_k2", "mistral")
TRAINING: dict[str, TrainingTemplate] = {
    name: TrainingTemplate(
        name=name,
        parts=tuple(name if part == "." else f"part_{part}" for part in parts.split()),
        tool_format=tool_format_name,
        models=models,
        verified=name not in _UNVERIFIED,
    )
    for name, tool_format_name, parts, models in (
        line.split(" | ") for line in _TABLE.strip().splitlines()
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


def with_sentences(source: str, released: str) -> str:
    """Return a training template that says to the model what the released one says by itself.

    Such sentences (`model_identity` in gpt-oss, `reasoning_instructions` in Qwen3.8) are the
    release's own, so they are read there and not kept here. A source or a release without them
    stays unchanged.

    >>> with_sentences("{{ model_identity }}", "{% set model_identity = 'You are X.' %}")
    "{%- set model_identity = 'You are X.' -%}{{ model_identity }}"
    """
    sentences: dict[str, str] = {}
    for name, sentence in _SENTENCE.findall(released):
        if name in source:
            sentences.setdefault(name, sentence)
    return "".join(f"{{%- set {name} = {sentences[name]} -%}}" for name in sentences) + source


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


STOCK, TRAIN = "stock", "training"
_NAMED = f"{TRAIN}:"
"""What begins the choice of a training template by name."""
KEPT = "thoughts of earlier turns stay as sampled"
REPORT_FILE, TABLE_FILE = "template.json", "template.txt"


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
        raise ConfigError(
            "the tokenizer has no chat template; name one with --model.template "
            f"({_NAMED}NAME, or a {TEMPLATE_SUFFIX} file)"
        )
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
    probing = _Probing(tokenizer, wanted_format, stop_ids, shows_images)
    if template.startswith(_NAMED):
        return probing.of_training(training_template(template.removeprefix(_NAMED)))
    if template not in (AUTO, STOCK, TRAIN):
        source = _read_template(template)
        return probing.of_source(source, _origin(template, source))
    own_source = template_of(tokenizer)
    recognition = recognise(own_source)
    if template == TRAIN:
        return probing.of_training(_training_of_family(recognition))
    # Where the model's own template is one of the training templates, its tool format is known and
    # need not be found out.
    own_training = own_template(own_source)
    paired_format = own_training.tool_format if own_training is not None else ""
    own = probing.of_source(own_source, _origin(STOCK, own_source), paired_format)
    if template == AUTO and recognition.family and _needs_another(own[1]):
        return probing.of_training(TRAINING[recognition.family])
    return own


@dataclass(frozen=True, slots=True)
class _Probing:
    """Probes templates for a model; the fields are arguments of `probe_template`."""

    tokenizer: Tokenizer
    wanted_format: str
    stop_ids: Sequence[int]
    shows_images: bool

    def of_source(
        self, source: str, origin: Origin, paired_format: str = ""
    ) -> tuple[Tokenizer, TemplateReport]:
        """Probe a template, with the tool format that is known to go with it, if any is."""
        shown_tokenizer = _with(self.tokenizer, source)
        is_paired = self.wanted_format == AUTO and paired_format in TOOL_FORMATS
        report = probe(
            shown_tokenizer,
            wanted_format=paired_format if is_paired else self.wanted_format,
            origin=origin,
            stop_ids=self.stop_ids,
            shows_images=self.shows_images,
        )
        return shown_tokenizer, report

    def of_training(self, training: TrainingTemplate) -> tuple[Tokenizer, TemplateReport]:
        """Probe a training template, with the sentences of the model's own template."""
        own_source = source_of(self.tokenizer)
        recognised = "no chat template" if own_source is None else recognise(own_source).said
        name = f"{TRAIN}:{training.name} ({KEPT})"
        checked = "" if training.verified else "; its first prompt is unverified"
        origin = Origin(name, digest_of(training.source), f"found {recognised}{checked}")
        source = with_sentences(training.source, own_source or "")
        return self.of_source(source, origin, training.tool_format)


def _training_of_family(recognition: Recognition) -> TrainingTemplate:
    """Return the training template for the model's own.

    Raises:
        ConfigError: there is none.
    """
    if not recognition.family:
        raise ConfigError(
            f"there is no training template for the model's own ({recognition.digest}): "
            f"{recognition.said}. Name one with --model.template {_NAMED}NAME "
            f"({', '.join(TRAINING)}), or use stock"
        )
    return TRAINING[recognition.family]


def _needs_another(report: TemplateReport) -> bool:
    """Return whether a template had to be repaired, or refuses something.

    Images and the date say nothing against a template: images are refused for want of a processor,
    and the date is frozen in every template.
    """
    needed = [*report.of(Outcome.REPAIRED), *report.of(Outcome.REFUSED)]
    return any(finding.feature not in ("images", "date") for finding in needed)


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
    other = copy.copy(tokenizer)
    vars(other)["chat_template"] = source
    return other


def _origin(name: str, source: str) -> Origin:
    training = own_template(source)
    if training is not None:
        return Origin(name, digest_of(source), f"the training template {training.name}")
    recognition = recognise(source)
    return Origin(name, recognition.digest, recognition.said, recognition.brief_tools)


def _read_template(template: str) -> str:
    try:
        return TemplateTokenizer.load(Path(template)).chat_template
    except TemplateRefused as error:
        raise ConfigError(
            f"{error}. model.template must be auto, stock, training, training:NAME or a "
            f"{TEMPLATE_SUFFIX} file"
        ) from None
