"""Repairs of what a chat template cannot show: messages are reshaped before the template sees them.

A template may know no tools, refuse a system message, or raise on two user messages in a row. Each
repair is a field of `Fallbacks`. The probe switches on only those that a template needs, and names
them in its table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall

from ..chat_tools import RESULT_CLOSE, RESULT_OPEN, TextTools
from ..images import template_content
from ..parsing import ToolFormat

TemplateRow = dict[str, Any]
"""A message as chat templates read it; the content is text or a list of parts."""

SHORT_ID = 9
"""The length of call ids that Mistral's templates ask for."""


class Fallbacks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The repairs that a template needs; by default none."""

    tools_as_text: bool = False
    """Tools are described in the system message, with an example in the tool format."""
    calls_as_text: bool = False
    """Calls are written into the assistant's text, in the tool format."""
    results_as_user: bool = False
    """Results of tools are user messages, between `<tool_response>` tags."""
    late_system_as_user: bool = False
    """System messages after the first message are user messages."""
    system_as_user: bool = False
    """The system message is the beginning of the first user message."""
    merge_roles: bool = False
    """Neighbouring messages of one role are merged, and the conversation begins with a user."""
    arguments_as_json: bool = False
    """Arguments of calls are JSON text instead of an object."""
    short_ids: bool = False
    """Ids of calls have nine letters or digits."""
    named_ids: bool = False
    """Ids of calls are `functions.NAME:NUMBER`, counted through the conversation: templates of Kimi
    K2.5 write the id in place of the name.
    """
    content_as_parts: bool = False
    """Text is a list of one part."""
    without_thoughts: bool = False
    """Thoughts that a format keeps apart from the text are left out of later prompts."""
    empty_tools: bool = False
    """Without tools the template is given an empty list, not none."""
    lone_results_as_user: bool = False
    """A result that follows no call is a user message, between `<tool_response>` tags."""
    filled_answers: bool = False
    """An assistant's message without words or calls is a full stop."""

    @property
    def names(self) -> list[str]:
        """The names of the repairs that are switched on."""
        return [name for name in self.__struct_fields__ if getattr(self, name)]

    def shape(
        self, rows: Sequence[TemplateRow], tools: Sequence[ToolSpec], tool_format: ToolFormat
    ) -> tuple[list[TemplateRow], list[dict[str, Any]] | None]:
        """Return the messages and tools that the template is given; None stands for no tools.

        Args:
            rows: the messages, with format marks already broken up in text that the policy did not
                write.
            tools: the tools on offer.
            tool_format: how the model writes calls.
        """
        shaped = [self._call(dict(row), tools, tool_format) for row in _named(rows, self.named_ids)]
        if self.results_as_user or self.lone_results_as_user:
            called = False
            for place, row in enumerate(shaped):
                called = bool(row.get("tool_calls")) or (called and row["role"] == "tool")
                if row["role"] == "tool" and (self.results_as_user or not called):
                    content = _join_contents(RESULT_OPEN, row["content"], "\n")
                    content = _join_contents(content, RESULT_CLOSE, "\n")
                    shaped[place] = {"role": "user", "content": content, "result": True}
        if self.tools_as_text and tools:
            description = TextTools(tool_format).offer(tools)
            begun = shaped.pop(0) if shaped and _is_system(shaped[0]) else {"role": "system"}
            content = _join_contents(begun.get("content", ""), description, "\n\n")
            shaped.insert(0, {**begun, "content": content})
        if self.late_system_as_user:
            late = [{**row, "role": "user"} if _is_system(row) else row for row in shaped[1:]]
            shaped = [*shaped[:1], *late]
        if self.system_as_user and shaped and _is_system(shaped[0]):
            begun = shaped.pop(0)
            is_asked = bool(shaped) and shaped[0]["role"] == "user"
            asked = shaped.pop(0) if is_asked else {"role": "user", "content": ""}
            content = _join_contents(begun["content"], asked["content"], "\n\n")
            shaped.insert(0, {**asked, "content": content})
        if self.merge_roles or self.results_as_user or self.lone_results_as_user:
            shaped = _merged(shaped, all_roles=self.merge_roles)
        if self.filled_answers:
            for row in shaped:
                if row["role"] == "assistant" and not row["content"] and not row.get("tool_calls"):
                    row["content"] = "."
        if self.content_as_parts:
            shaped = [{**row, "content": _parts(row["content"])} for row in shaped]
        tool_rows = [] if self.tools_as_text else [tool.as_openai() for tool in tools]
        return shaped, tool_rows if tool_rows or self.empty_tools else None

    def _call(
        self, row: TemplateRow, tools: Sequence[ToolSpec], tool_format: ToolFormat
    ) -> TemplateRow:
        """Reshape the calls of a message, and the ids that tie results to calls."""
        if self.without_thoughts:
            row.pop("reasoning_content", None)
            row.pop("thinking", None)
        calls = row.get("tool_calls", [])
        if self.calls_as_text and calls:
            functions = [(call["function"], call["id"]) for call in calls]
            typed = [
                ToolCall(name=function["name"], arguments=function["arguments"], id=identity)
                for function, identity in functions
            ]
            rendered = tool_format.render(typed, tools=tools)
            row["content"] = _join_contents(row["content"], rendered, "\n")
            del row["tool_calls"]
        elif calls and (self.arguments_as_json or self.short_ids):
            row["tool_calls"] = []
            for call in calls:
                call_row: dict[str, Any] = {**call, "function": dict(call["function"])}
                if self.arguments_as_json:
                    arguments = call_row["function"]["arguments"]
                    call_row["function"]["arguments"] = msgspec.json.encode(arguments).decode()
                if self.short_ids:
                    call_row["id"] = short_id(call_row["id"])
                row["tool_calls"].append(call_row)
        if self.short_ids and row.get("tool_call_id"):
            row["tool_call_id"] = short_id(row["tool_call_id"])
        return row


NO_FALLBACKS = Fallbacks()


def _named(rows: Sequence[TemplateRow], wanted: bool) -> list[TemplateRow]:
    """Return the messages with ids that name the function, if these are `wanted`."""
    if not wanted:
        return list(rows)
    named_rows, ids, number = [], dict[str, str](), 0
    for row in rows:
        named_row = dict(row)
        if "tool_calls" in row:
            named_row["tool_calls"] = []
            for call in row["tool_calls"]:
                # Ids repeat from turn to turn, and a result answers the newest call of its id.
                name, own = call["function"]["name"], call["id"]
                written = own.startswith(f"functions.{name}:")  # as a model of Kimi's says
                ids[own] = own if written else f"functions.{name}:{number}"
                number += 1
                named_row["tool_calls"].append({**call, "id": ids[call["id"]]})
        if row.get("tool_call_id") in ids:
            named_row["tool_call_id"] = ids[row["tool_call_id"]]
        named_rows.append(named_row)
    return named_rows


def as_template_message(message: Message) -> TemplateRow:
    """Return a message in the form that chat templates read."""
    marked = message.thought_marks is not None
    content = message.written if marked else template_content(message)
    row: TemplateRow = {"role": str(message.role), "content": content}
    if message.tool_calls:
        row["tool_calls"] = [
            {
                "type": "function",
                "id": call.id,
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.reasoning and not marked:  # templates read thoughts under different names
        row |= {"reasoning_content": message.reasoning, "thinking": message.reasoning}
    if message.name:
        row["name"] = message.name
    if message.tool_call_id:
        row["tool_call_id"] = message.tool_call_id
    return row


def short_id(identity: str) -> str:
    """Return nine letters or digits for the id of a call; an id of that form is left unchanged.

    >>> short_id("abcdefgh1")
    'abcdefgh1'
    >>> len(short_id("call_0"))
    9
    """
    if len(identity) == SHORT_ID and identity.isascii() and identity.isalnum():
        return identity
    return hashlib.sha256(identity.encode()).hexdigest()[:SHORT_ID]


def _is_system(row: TemplateRow) -> bool:
    return bool(row["role"] == "system")


def _merged(rows: Sequence[TemplateRow], *, all_roles: bool) -> list[TemplateRow]:
    """Merge neighbouring messages of one role: all roles, or results alone."""
    merged_rows: list[TemplateRow] = []
    for row in rows:
        last = merged_rows[-1] if merged_rows else None
        both_results = last is not None and "result" in last and "result" in row
        if last is None or last["role"] != row["role"] or not (all_roles or both_results):
            merged_rows.append(dict(row))
            continue
        last["content"] = _join_contents(
            last["content"], row["content"], "\n" if both_results else "\n\n"
        )
        last["tool_calls"] = [*last.get("tool_calls", []), *row.get("tool_calls", [])]
        if not last["tool_calls"]:
            del last["tool_calls"]
        if "result" not in row:
            last.pop("result", None)
    if all_roles:
        first_spoken = next(
            (index for index, row in enumerate(merged_rows) if not _is_system(row)),
            len(merged_rows),
        )
        if first_spoken < len(merged_rows) and merged_rows[first_spoken]["role"] == "assistant":
            merged_rows.insert(first_spoken, {"role": "user", "content": "."})
    return [{key: value for key, value in row.items() if key != "result"} for row in merged_rows]


def _parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _join_contents(
    before: str | list[dict[str, Any]], after: str | list[dict[str, Any]], separator: str
) -> str | list[dict[str, Any]]:
    """Return two contents as one, with `separator` where neither is empty."""
    if not before or not after:
        return before or after
    if isinstance(before, str) and isinstance(after, str):
        return before + separator + after
    return [*_parts(before), {"type": "text", "text": separator}, *_parts(after)]


class Outcome(StrEnum):
    """How a template stands to a feature."""

    SUPPORTED = "supported"
    """The template shows the feature by itself."""
    REPAIRED = "repaired"
    """A declared fallback shows the feature."""
    REFUSED = "refused"
    """Nothing shows the feature; the detail says why."""
    UNVERIFIED = "unverified"
    """The feature could not be checked, for want of a tokenizer."""


class TemplateFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of one feature."""

    feature: str
    outcome: Outcome
    detail: str = ""
    fallbacks: list[str] = []
    """The repairs that were switched on for this feature."""


class Origin(msgspec.Struct, frozen=True):
    """The source of a template."""

    name: str = "stock"
    digest: str = ""
    recognised: str = "not looked up"
    """What the digest says, for people."""
    brief_tools: bool = False
    """Whether the template lists the names of tools and parameters alone, by design."""


class TemplateReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole outcome of a probe."""

    template: str
    """The name of the template: a family of the project, or stock."""
    digest: str
    """The digest of the normalised template."""
    recognised: str
    """What the digest says: the released model, a near miss with the difference, or unknown."""
    tool_format: str
    findings: list[TemplateFinding]
    fallbacks: Fallbacks
    opening: str
    """The text that the template writes between a question and its answer."""
    stop_tokens: list[str]
    """The tokens that end a turn."""

    def of(self, outcome: Outcome) -> list[TemplateFinding]:
        """Return the findings with an outcome."""
        return [finding for finding in self.findings if finding.outcome is outcome]

    @property
    def blocking(self) -> list[TemplateFinding]:
        """The refusals with which no episode can be played; images matter only where an environment
        shows some.
        """
        return [finding for finding in self.of(Outcome.REFUSED) if finding.feature != "images"]

    def table(self) -> str:
        """Return the report as lines for a terminal."""
        facts = {
            "template": f"{self.template} ({self.digest})",
            "recognised": self.recognised,
            "tool format": self.tool_format,
            "before an answer": repr(self.opening),
            "ends of a turn": " ".join(self.stop_tokens),
        }
        width = max(len(finding.feature) for finding in self.findings)
        lines = [f"{name:<{width}}  {fact}" for name, fact in facts.items()]
        lines.append("")
        for row in self.findings:
            lines.append(f"{row.feature:<{width}}  {row.outcome:<10}  {_describe(row)}".rstrip())
        return "\n".join(lines)

    def notice(self) -> str:
        """Return one sentence about what was repaired or refused; empty if nothing was, as with a
        template that was put in place of the model's own.

        Images are left out, since a run that shows images to a model without a processor is refused
        at its start.
        """
        repaired = [
            f"{finding.feature} ({_describe(finding)})" for finding in self.of(Outcome.REPAIRED)
        ]
        refusals = [f"{finding.feature} ({_describe(finding)})" for finding in self.blocking]
        parts = [
            f"{word}: {'; '.join(details)}"
            for word, details in (("repaired", repaired), ("refused", refusals))
            if details
        ]
        if not parts:
            return ""
        where = f"The chat template {self.template} ({self.recognised})"
        return f"{where} does not show everything: {'. '.join(parts)}."


def _describe(finding: TemplateFinding) -> str:
    fallback_names = ", ".join(finding.fallbacks)
    return "; ".join(part for part in (fallback_names, finding.detail) if part)
