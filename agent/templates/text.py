"""Rendering chat templates as transformers does, without a tokenizer's files.

`TemplateTokenizer` stands in for a tokenizer where there is only a template: in the probe of a
template's file, and in tests. It encodes each mark of the template as one token, and all other text
as bytes.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, cast

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from ludus.errors import ConfigError

TEMPLATE_SUFFIX = ".jinja"


class TemplateRefused(ConfigError):
    """A chat template cannot be read, or refuses a conversation."""


FROZEN = datetime.date(2026, 1, 1)
"""The date that templates are given as today's. Some templates write the date into the prompt, and
prompts must not change from day to day.
"""


RENDERING_ERRORS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,  # a division by zero, or a range longer than the sandbox allows
    RecursionError,
)
"""What a template may raise, about as Python code may."""


class AppliesTemplate(Protocol):
    """The part of a tokenizer that renders."""

    def apply_chat_template(self, conversation: list[dict[str, Any]], **kwargs: Any) -> object: ...


def source_of(tokenizer: AppliesTemplate) -> str | None:
    """Return the source of a tokenizer's chat template; None if the tokenizer has no template.

    Of several named templates, the one for tools is taken, or else the default.
    """
    source = getattr(tokenizer, "chat_template", None)
    if isinstance(source, Mapping):
        source = source.get("tool_use") or source.get("default")
    return source if isinstance(source, str) and source else None


def apply_template(
    tokenizer: AppliesTemplate,
    rows: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    *,
    prompt: bool,
    today: datetime.date = FROZEN,
) -> str:
    """Return the conversation that the template writes.

    Args:
        tokenizer: renders.
        rows: the messages as chat templates read them.
        tools: the tools as chat templates read them, or None.
        prompt: whether to add the text before an answer (`add_generation_prompt`).
        today: the date that the template is given as today's.

    Raises:
        TemplateRefused: the template raised an error.
    """
    source = source_of(tokenizer)
    variables: dict[str, Any] = {"tools": tools, "add_generation_prompt": prompt}
    try:
        if source is None:  # the tokenizer renders in code of its own
            rendered = str(tokenizer.apply_chat_template(rows, tokenize=False, **variables))
        else:
            # Tokenizers do not let a caller set the date, so the template is rendered here.
            special = getattr(tokenizer, "special_tokens_map", {})
            rendered = compile_template(source)(
                messages=rows, documents=None, strftime_now=today.strftime, **variables, **special
            )
    except RENDERING_ERRORS as error:
        roles = ", ".join(str(row["role"]) for row in rows)
        raise TemplateRefused(
            f"the chat template refuses a conversation of {roles}: {error}; `ludus model probe` "
            "shows what the template takes"
        ) from error
    return rendered


class _GenerationTag(jinja2.ext.Extension):
    """The tag `{% generation %}`, which marks the assistant's words and writes nothing itself."""

    tags = {"generation"}  # noqa: RUF012 - as the base class declares

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """Return the body of the block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


@lru_cache(maxsize=64)
def compile_template(source: str) -> Callable[..., str]:
    """Return a function that renders a chat template with keyword arguments.

    Raises:
        TemplateRefused: the source is not a template.
    """
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _as_json
    cast(dict[str, Any], environment.globals)["raise_exception"] = _refuse
    try:
        template = environment.from_string(source)
    except jinja2.TemplateError as error:
        raise TemplateRefused(f"the chat template cannot be read: {error}") from None
    render: Callable[..., str] = template.render
    return render


def _as_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(reason: str) -> None:
    raise jinja2.TemplateError(reason)


class Mark(str):
    """A special token."""

    __slots__ = ()

    @property
    def special(self) -> bool:
        """Whether the token stands for itself alone; always true."""
        return True


_MARKS = re.compile(
    r"<\|[^<>|\s]{1,60}\|>|<｜[^<>\s]{1,60}｜>|<\|[a-z_\"]{1,30}>|<[a-z_]{1,30}\|>"  # noqa: RUF001
    r"|</?(?:start|end)_of_[a-z_]+>|\[/?[A-Z][A-Z_]{2,30}\]|</?s>|<[be]os>|\[gMASK\]|<sop>"
    r"|<SPECIAL_\d+>|<image>|<extra_id_\d+>"
)
BOS, EOS = "<s>", "</s>"


class TemplateTokenizer:
    """A stand-in for the tokenizer of a template: special marks as one token, the rest as bytes.

    Args:
        template: the source of the chat template.
        marks: special tokens besides those that are recognised in the source.

    Raises:
        TemplateRefused: the source is not a template.
    """

    verified = False
    """Whether the token ids are those of a real model."""

    def __init__(self, template: str, marks: Sequence[str] = ()) -> None:
        self.chat_template = template
        self.special_tokens_map = {"bos_token": BOS, "eos_token": EOS}
        self._render = compile_template(template)
        known = [BOS, EOS, *marks, *_MARKS.findall(template)]
        mark_texts = dict.fromkeys([*known, *self._unknown_end(known)])
        self._marks = {mark: index for index, mark in enumerate(mark_texts)}
        self._texts = list(self._marks)
        longest = sorted(self._marks, key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(map(re.escape, longest))})")
        self.eos_token: str = EOS
        self.eos_token_id: int = self._marks[EOS]

    def _unknown_end(self, known: Sequence[str]) -> list[str]:
        """Return the mark in brackets that ends an assistant's turn, unless a known mark does.

        Model families write special tokens in many ways (`<seed:eos>`, `[e~[`, `<|{role}|>`), and
        only the tokenizer knows them all. Where nothing ends a turn, the mark is the one that opens
        the next turn. The list is empty if there is none.
        """
        # Words that no template writes by itself.
        question, answer = {"role": "user", "content": "knot"}, "kittiwake"
        conversation = [question, {"role": "assistant", "content": answer}, question]
        for rows in (conversation[:2], conversation):
            try:
                end = apply_template(self, rows, None, prompt=False).rpartition(answer)[2]
            except TemplateRefused:
                return []
            if any(mark in end for mark in known):
                return []
            if mark := re.match(r"\s*([<\[][^\s>]*[>\[\]])", end):
                return [mark[1]]
        return []

    @classmethod
    def load(cls, path: Path) -> TemplateTokenizer:
        """Read a template file.

        Raises:
            TemplateRefused: the file cannot be read, or holds no template.
        """
        try:
            return cls(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise TemplateRefused(
                f"cannot read the template {str(path)!r:.200}: {reason}"
            ) from None

    def __len__(self) -> int:
        return len(self._marks) + 256

    @property
    def added_tokens_decoder(self) -> Mapping[int, Mark]:
        """The special tokens by id."""
        return {index: Mark(mark) for mark, index in self._marks.items()}

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the ids of a text: one for each mark, and one for each other byte."""
        ids: list[int] = []
        for piece in self._split.split(text):
            mark_id = self._marks.get(piece)
            first = len(self._marks)
            ids += [mark_id] if mark_id is not None else [first + byte for byte in piece.encode()]
        return ids

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of ids."""
        first = len(self._marks)
        pieces = [
            bytes([token - first])
            if token >= first
            else (b"" if skip_special_tokens else self._texts[token].encode())
            for token in token_ids
        ]
        return b"".join(pieces).decode("utf-8", "replace")

    def apply_chat_template(self, conversation: list[dict[str, Any]], **kwargs: Any) -> str:
        """Render a conversation as text; see transformers' method of the same name."""
        variables = {name: value for name, value in kwargs.items() if name != "tokenize"}
        return self._render(messages=conversation, **self.special_tokens_map, **variables)
