"""Texts about the findings of a probe: roles, lost words, errors and changes.

An episode appends the ids of new messages to the ids of a prompt and a sampled turn. The result is
compared with the ids that the chat template gives for the whole conversation.

The probe renders conversations made of marker words and looks for these words in the text. Where
words are missing it tries repairs, the mildest first; a feature that no repair shows is refused,
with the reason. After that it appends messages to a sampled turn as an episode does, in text and in
token ids.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import ImagePart, Message, TextPart, assistant, user
from ludus.thoughts import ALL

from ..chat import ChatFormat, Tokenizer
from ..parsing import TOOL_FORMATS, ToolFormat, tool_format
from ..parsing.protocol import writes_turns
from . import cases
from .cases import Case, Continuation
from .fallbacks import (
    NO_FALLBACKS,
    Fallbacks,
    Origin,
    Outcome,
    TemplateFinding,
    TemplateReport,
    as_template_message,
)
from .text import FROZEN, TemplateRefused, apply_template, source_of


def roles_of(case: Case) -> str:
    """Return the roles of a conversation, or how many messages a long one has."""
    roles = [str(message.role) for message in case.messages]
    return ", ".join(roles) if len(roles) <= 6 else f"{len(roles)} messages"


KINDS = {
    cases.SYSTEM: "the system message",
    cases.LATER: "the later system message",
    cases.USER: "the question",
    cases.SECOND: "the next user message",
    cases.SUMMARY: "the request for a summary",
    cases.ANSWER: "the answer",
    cases.SPOKEN: "text beside a call",
    cases.VALUE: "the call's arguments",
    cases.OTHER_VALUE: "the second call",
    cases.RESULT: "the result",
    cases.OTHER_RESULT: "the second result",
    cases.NAMES[0]: "the tool's name",
    cases.NAMES[1]: "the parameter's name",
    cases.DESCRIPTIONS[0]: "the tool's description",
    cases.DESCRIPTIONS[1]: "the parameter's description",
}
"""What each marker word stands for."""


def kinds_of(words: Sequence[str]) -> str:
    """Return what marker words of the cases stand for, such as "the question, the answer"."""
    return ", ".join(KINDS[word] for word in words)


def short_reason(error: Exception) -> str:
    """Return the words of the error behind a refusal, at most 120 characters."""
    cause = error.__cause__ or error
    return f"{str(cause).strip()[:120]!r}"


def first_change(sampled: str, rendered: str) -> str:
    """Return short quotations of both texts around the first character that differs."""
    index = next(
        (
            position
            for position, (a, b) in enumerate(zip(sampled, rendered, strict=False))
            if a != b
        ),
        min(len(sampled), len(rendered)),
    )
    near = slice(max(0, index - 12), index + 24)
    return f"{rendered[near]!r} for {sampled[near]!r}"


def continued(
    chat: ChatFormat, step: Continuation, *, apart: bool
) -> tuple[Outcome, str, Sequence[str]]:
    """Append messages to a turn as an episode does, and compare with the whole conversation.

    Args:
        chat: the chat format, with the repairs found so far.
        step: the turn, and what is appended to it.
        apart: whether thoughts stand in a field of their own, as in formats that mark whole turns.

    Returns:
        the outcome, a detail, and the repairs.
    """
    message = cases.thinking(step.said, apart=apart) if step.thought else step.said
    answer = message
    if step.thought and not apart and ALL.opened_by(chat.opening):
        # The policy would sample the turn without the mark that the template opened.
        answer = msgspec.structs.replace(message, thought_marks=("", chat.thought_marks[1]))
    try:
        prompt = chat.prompt([cases.ASKED], [])
        sampled_ids = chat.answer(answer, [cases.TOOL])
        if not step.ended:  # a turn that was cut lacks the token that ends turns
            sampled_ids = sampled_ids[:-1]
        added = chat.extension(
            step.new,
            ended=step.ended,
            thought=step.thought,
            last=sampled_ids[-1] if sampled_ids else None,
        )
        full_prompt = chat.prompt([cases.ASKED, message, *step.new], [])
    except TemplateRefused as error:
        return Outcome.REFUSED, short_reason(error), []
    if added is None:
        reason = "the template rewrites the turn, so that a new segment (row) begins"
        return Outcome.REPAIRED, reason, ["new segment"]
    extended = [*prompt, *sampled_ids, *added]
    extended_text = chat.tokenizer.decode(extended, skip_special_tokens=False)
    full_text = chat.tokenizer.decode(full_prompt, skip_special_tokens=False)
    # None of these differences is a fault: what the policy sampled is never rewritten, and the
    # detail tells how the template's own text differs.
    if extended_text != full_text:
        change = first_change(extended_text, full_text)
        detail = f"the turn stays as sampled; the template would write {change}"
    elif not getattr(chat.tokenizer, "verified", True):
        detail = "text alike; tokens unverified: no tokenizer"
    elif extended == full_prompt:
        detail = "text and tokens alike"
    else:
        # The tokenizer would join characters across the border of two pieces that were encoded
        # apart.
        detail = "text alike; tokens split otherwise at a seam"
    return Outcome.SUPPORTED, detail, []


AUTO = "auto"
"""In place of a format's name: the format in which the template itself writes calls."""
DEFAULT_FORMAT = "hermes"
"""The format in which tools are described to a model whose template knows none."""

Options = Sequence[Mapping[str, bool]]
"""Sets of repairs, as fields of `Fallbacks`, in the order in which they are tried."""
# An empty set stands for no repair. `_tools` combines the lists below, so each of them has to offer
# the case in which its own feature needs nothing.
_CALL_OPTIONS: Options = [
    {},
    {"arguments_as_json": True},
    {"short_ids": True},
    {"arguments_as_json": True, "short_ids": True},
    {"named_ids": True},
    {"calls_as_text": True},
]
_THOUGHT_OPTIONS: Options = [{}, {"without_thoughts": True}]
_RESULT_OPTIONS: Options = [{}, {"results_as_user": True}]
_MERGE_OPTIONS: Options = [{}, {"merge_roles": True}]


def probe(
    tokenizer: Tokenizer,
    *,
    wanted_format: str = AUTO,
    origin: Origin | None = None,
    stop_ids: Sequence[int] = (),
    shows_images: bool = False,
) -> TemplateReport:
    """Find out what a chat template shows and which repairs the template needs.

    Args:
        tokenizer: the tokenizer with its chat template, or a `TemplateTokenizer`.
        wanted_format: name of the tool format; "auto" takes the format that reads the calls as the
            template writes them, else one whose signs the model bears, or hermes.
        origin: where the template is from, for the report.
        stop_ids: end tokens of the model's generation config.
        shows_images: whether images reach the model, which needs a processor.
    """
    return _Probe(tokenizer, wanted_format, origin or Origin(), stop_ids, shows_images).run()


class _Probe:
    """A single run of the probe: the repairs and findings so far."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        wanted_format: str,
        origin: Origin,
        stop_ids: Sequence[int],
        shows_images: bool,
    ) -> None:
        self.tokenizer, self.origin, self.stop_ids = tokenizer, origin, stop_ids
        self.shows_images = shows_images
        self.fallbacks = NO_FALLBACKS
        self.findings: list[TemplateFinding] = []
        self.wanted = wanted_format
        self.format = tool_format(DEFAULT_FORMAT if wanted_format == AUTO else wanted_format)

    def run(self) -> TemplateReport:
        """Try every feature in turn; each feature is tried with the repairs of earlier features."""
        options = [{"content_as_parts": True}, {"empty_tools": True}]
        if self._settle("questions and answers", cases.QUESTION, options):
            self._settle("system message", cases.WITH_SYSTEM, [{"system_as_user": True}])
            self._settle("user messages in a row", cases.IN_A_ROW, [{"merge_roles": True}])
            options = [{"late_system_as_user": True, **option} for option in _MERGE_OPTIONS]
            self._settle("later system message", cases.LATE_SYSTEM, options)
            self._tools()
            lone = [{}, {"filled_answers": True}, {"lone_results_as_user": True}]
            lone.append({**lone[1], **lone[2]})
            options = [{**some, **more} for some in [{}, *self._last_resorts()] for more in lone]
            self._settle("whole episodes", cases.EPISODES, options)
            self._date()
            self._image()
        # `ChatFormat` renders a question with an answer. Where the template refuses even these,
        # there is no chat format, and nothing more can be tried.
        opening, stops, chat = "", tuple[int, ...](), self._chat()
        if chat is not None:
            for continuation in cases.CONTINUATIONS:
                # Formats that mark whole turns have one call in a turn.
                if self._thoughts_apart and len(continuation.said.tool_calls) > 1:
                    continue
                outcome, detail, repairs = continued(chat, continuation, apart=self._thoughts_apart)
                self._report(f"prefix: {continuation.name}", outcome, detail, repairs)
            self._thoughts()
            stops = chat.stop_token_ids
            # The opening is what the template writes between a question and its answer. Where the
            # prompt does not begin with the question as it is rendered alone, the opening is taken
            # to be everything after the user's words.
            question = self.render([cases.ASKED], fallbacks=self.fallbacks)
            prompt = self.render([cases.ASKED], fallbacks=self.fallbacks, prompt=True)
            extends = prompt.startswith(question)
            opening = prompt[len(question) :] if extends else prompt.rpartition(cases.USER)[2]
        return TemplateReport(
            template=self.origin.name,
            digest=self.origin.digest,
            recognised=self.origin.recognised,
            tool_format=self.format.name,
            findings=self.findings,
            fallbacks=self.fallbacks,
            opening=opening,
            stop_tokens=[self.tokenizer.decode([token]) for token in stops],
        )

    def render(
        self,
        messages: Sequence[Message],
        *,
        fallbacks: Fallbacks,
        tools: Sequence[Any] = (),
        prompt: bool = False,
        today: datetime.date = FROZEN,
    ) -> str:
        """Return the conversation that the template writes with some repairs."""
        rows = [as_template_message(message) for message in messages]
        shaped, tool_rows = fallbacks.shape(rows, tools, self.format)
        return apply_template(self.tokenizer, shaped, tool_rows, prompt=prompt, today=today)

    def _fault(self, required: Sequence[Case], fallbacks: Fallbacks) -> str:
        """Return why the cases are not shown with some repairs; empty if all cases are shown."""
        for case in map(cases.of_one_call, required) if self._thoughts_apart else required:
            has_prompt = case.messages[-1].role != "assistant"
            try:
                text = self.render(
                    case.messages, fallbacks=fallbacks, tools=case.tools, prompt=has_prompt
                )
            except TemplateRefused as error:
                return f"the template raises {short_reason(error)}"
            missing = [word for word in case.words if word not in text]
            missing += [word for word in case.twice if text.count(word) < 2]
            if missing:
                return f"not shown in a conversation of {roles_of(case)}: {kinds_of(missing)}"
        return ""

    def _settle(self, feature: str, required: Sequence[Case], options: Options) -> bool:
        """Record how a feature is shown, with the mildest repair that shows the feature."""
        fault = self._fault(required, self.fallbacks)
        if not fault:
            self._report(feature, Outcome.SUPPORTED)
            return True
        for option in options:
            candidate = msgspec.structs.replace(self.fallbacks, **option)
            if not self._fault(required, candidate):
                self._switch(feature, candidate, fault)
                return True
        self._report(feature, Outcome.REFUSED, fault)
        return False

    def _switch(self, feature: str, fallbacks: Fallbacks, fault: str) -> None:
        """Use these repairs from now on, and record that a feature needs the new repairs."""
        new = [name for name in fallbacks.names if name not in self.fallbacks.names]
        self.fallbacks = fallbacks
        self._report(feature, Outcome.REPAIRED, fault, new)

    def _report(
        self, feature: str, outcome: Outcome, detail: str = "", fallbacks: Sequence[str] = ()
    ) -> None:
        self.findings.append(
            TemplateFinding(
                feature=feature, outcome=outcome, detail=detail, fallbacks=list(fallbacks)
            )
        )

    def _tools(self) -> None:
        """Settle tools, calls and results, all of which must be in the format that is read."""
        shown_cases = cases.TOOLS
        if self.origin.brief_tools:
            shown_cases = [Case(case.messages, cases.NAMES, case.tools) for case in shown_cases]
        if self.wanted == AUTO:
            # Choose the format that reads calls as the template writes them, hermes before others.
            names = [DEFAULT_FORMAT, *(name for name in TOOL_FORMATS if name != DEFAULT_FORMAT)]
            formats = map(tool_format, names)
            self.format = next(filter(self._reads_calls, formats), self.format)
            if not self._turns_with_calls():
                # The template shows no call, and the model may bear the signs of a format all the
                # same: Granite 3, Phi-4-mini and the first LFM2 do.
                formats = map(tool_format, names)
                self.format = next(filter(self._has_signs, formats), self.format)
        # A template whose calls the tool format does not read has lost them (decision 0520), so
        # that calls and tools are both written as text. `foreign` holds this reason.
        foreign = ""
        if self._turns_with_calls() and not self._reads_calls(self.format):
            name = self.format.name
            foreign = f"the template writes calls in another way than the tool format {name}"
        as_text = msgspec.structs.replace(self.fallbacks, tools_as_text=True)
        fault = self._fault(shown_cases, self.fallbacks) or foreign
        if not fault:
            detail = "names and parameters alone, by design" if self.origin.brief_tools else ""
            self._report("tools", Outcome.SUPPORTED, detail)
        elif remaining_fault := self._fault(shown_cases, as_text):
            self._report("tools", Outcome.REFUSED, remaining_fault)
        else:
            self._switch("tools", as_text, fault)
        # `product` varies its last list fastest. Repairs of calls are thus tried before results are
        # turned into messages of the user, and merging roles is tried last.
        options = [
            {**result, **call, **merge}
            for merge, result, call in product(_MERGE_OPTIONS, _RESULT_OPTIONS, _CALL_OPTIONS)
        ]
        if self._thoughts_apart:
            # Where text and thoughts are marked as well as calls, a call cannot be mere text.
            marked_calls = [option for option in options if not option.get("calls_as_text")]
            options = [
                {**option, **thoughts} for thoughts in _THOUGHT_OPTIONS for option in marked_calls
            ]
        if foreign:
            # The tools are described in the format that is read. Calls written in the template's
            # own way would contradict that description.
            options = [option for option in options if option.get("calls_as_text")]
        self._calls_and_results(options, foreign)

    def _calls_and_results(self, options: Options, foreign: str) -> None:
        """Settle calls and results together, since a result is never shown without its call."""
        required = [*cases.CALL_SHOWN, *cases.RESULT_SHOWN]
        call_fault = (
            foreign or self._fault(cases.CALL_SHOWN, self.fallbacks) or self._unread(self.fallbacks)
        )
        result_fault = self._fault(cases.RESULT_SHOWN, self.fallbacks)
        before = self.fallbacks
        if call_fault or result_fault:
            candidates = [msgspec.structs.replace(before, **option) for option in options]
            working = next(
                (
                    candidate
                    for candidate in candidates
                    if not self._fault(required, candidate) and not self._unread(candidate)
                ),
                None,
            )
            if working is None:
                # A feature that is shown by itself may still be lost in every combination. The last
                # candidate has the most repairs, and its fault is the reason for that feature.
                fault = self._fault(required, candidates[-1])
                self._report("calls", Outcome.REFUSED, call_fault or fault)
                self._report("results", Outcome.REFUSED, result_fault or fault)
                return
            self.fallbacks = working
        new = [name for name in self.fallbacks.names if name not in before.names]
        # `results_as_user` is reported with the results, and all other repairs with the calls.
        # Where results were lost and have no repair of their own, the repairs of the calls showed
        # them.
        for_results = [name for name in new if name == "results_as_user"]
        for_calls = [name for name in new if name not in for_results]
        for feature, fault, repairs in (
            ("calls", call_fault, for_calls),
            ("results", result_fault, for_results or (for_calls if result_fault else [])),
        ):
            if repairs:
                # A repair of one may need a repair of the other: calls that are mere text leave
                # results without a call before them.
                without = dict.fromkeys(repairs, False)
                fallbacks = msgspec.structs.replace(self.fallbacks, **without)
                reason = fault or self._fault(required, fallbacks)
                self._report(feature, Outcome.REPAIRED, reason, repairs)
            else:
                self._report(
                    feature, Outcome.SUPPORTED, "" if not fault else "repaired with the results"
                )

    def _last_resorts(self) -> Options:
        """Return repairs for whole episodes, whose parts alone are shown."""
        if self._thoughts_apart:
            return [{"without_thoughts": True}, {"without_thoughts": True, "merge_roles": True}]
        all_text = {"calls_as_text": True, "results_as_user": True}
        return [
            {"merge_roles": True},
            {"calls_as_text": True},
            all_text,
            {**all_text, "merge_roles": True},
        ]

    def _reads_calls(self, candidate: ToolFormat) -> bool:
        """Return whether a format reads the call as the template writes a call."""
        return any(_reads(candidate, turn) for turn in self._turns_with_calls())

    def _has_signs(self, candidate: ToolFormat) -> bool:
        """Return whether the signs of a format are tokens of the model or in the template."""
        signs: Sequence[str] = getattr(candidate, "signs", ())
        tokens = {str(token) for token in self.tokenizer.added_tokens_decoder.values()}
        source = source_of(self.tokenizer) or ""
        return bool(signs) and all(sign in tokens or sign in source for sign in signs)

    def _turns_with_calls(self) -> list[str]:
        """Return the assistant's turn with a call in it as the template writes that turn, in each
        way that calls may be passed; empty if the template shows no call.
        """
        options = _CALL_OPTIONS[:-1]  # all but calls_as_text, which the template never sees
        passed = [msgspec.structs.replace(self.fallbacks, **option) for option in options]
        return [turn for fallbacks in passed if (turn := self._turn_with_call(fallbacks))]

    def _turn_with_call(self, fallbacks: Fallbacks) -> str:
        """Return the turn that the template writes with some repairs; empty if no turn is shown."""
        try:
            question_text = self.render([cases.ASKED], fallbacks=fallbacks, prompt=True)
            full_text = self.render([cases.ASKED, cases.CALLS], fallbacks=fallbacks)
        except TemplateRefused:
            return ""
        # The turn begins where the two texts part. The prompt as a whole need not be a prefix: a
        # template may end it with a mark, such as `<think>`, that the rendered turn lacks.
        start = next(
            (
                index
                for index, (a, b) in enumerate(zip(question_text, full_text, strict=False))
                if a != b
            ),
            min(len(question_text), len(full_text)),
        )
        # The first letters of two marks may be the same: those of `<think>` and `<tool_call>` are.
        mark_start = max(full_text.rfind("<", 0, start), full_text.rfind("[", 0, start))
        if mark_start >= 0 and not {">", "]"} & set(full_text[mark_start:start]):
            start = mark_start
        return full_text[start:] if cases.VALUE in full_text[start:] else ""

    def _unread(self, fallbacks: Fallbacks) -> str:
        """Return why a call that the template writes with some repairs is not read; empty if it is
        read, or if the template writes none.
        """
        turn = "" if fallbacks.calls_as_text else self._turn_with_call(fallbacks)
        if not turn or _reads(self.format, turn):
            return ""
        return f"the template writes calls in another way than the tool format {self.format.name}"

    def _date(self) -> None:
        """Record whether prompts contain today's date, which is then frozen."""
        # Forty days later both the day and the month differ, so a template that writes only one of
        # them is noticed too.
        later_date = FROZEN + datetime.timedelta(days=40)
        prompt, later_prompt = (
            self.render([cases.ASKED], fallbacks=self.fallbacks, prompt=True, today=day)
            for day in (FROZEN, later_date)
        )
        if prompt == later_prompt:
            self._report("date", Outcome.SUPPORTED, "the template writes none")
            return
        self._report("date", Outcome.REPAIRED, "today's date would change prompts", [f"{FROZEN}"])

    def _image(self) -> None:
        """Record whether the template writes a placeholder for an image after the user's words."""
        image = user([TextPart(text=cases.USER), ImagePart(data=b"")])
        row = as_template_message(image)
        row["content"] = [{"type": "text", "text": cases.USER}, {"type": "image"}]
        try:
            _, no_tools = self.fallbacks.shape([], [], self.format)
            text = apply_template(self.tokenizer, [row], no_tools, prompt=True)
        except TemplateRefused as error:
            self._report("images", Outcome.REFUSED, f"the template raises {short_reason(error)}")
            return
        bare = self.render([cases.ASKED], fallbacks=self.fallbacks, prompt=True)
        # What stands after the user's words beyond what stands there without an image.
        start = text.find(cases.USER) + len(cases.USER)
        image_text = text[start:].removesuffix(bare[bare.find(cases.USER) + len(cases.USER) :])
        # A template that expects text writes a list of parts as Python prints it: "{'type': ...}".
        if "'type'" in image_text:
            self._report("images", Outcome.REFUSED, "the template writes parts as they are in code")
        elif cases.USER not in text or not image_text.strip():
            self._report("images", Outcome.REFUSED, "the template writes no placeholder")
        elif not self.shows_images:
            reason = f"the template writes {image_text.strip()[:40]!r}, but pixels need a processor"
            self._report("images", Outcome.REFUSED, reason)
        else:
            self._report("images", Outcome.SUPPORTED, image_text.strip()[:40])

    def _chat(self) -> ChatFormat | None:
        """Return the chat format with the repairs, or None where a turn could never end."""
        try:
            chat = ChatFormat(
                self.tokenizer, self.format, stop_ids=self.stop_ids, fallbacks=self.fallbacks
            )
        except ConfigError as error:
            self._report("end of a turn", Outcome.REFUSED, str(error))
            return None
        by_role = ", which opens the next message" if chat.ends_by_role else ""
        end_marks = dict.fromkeys([chat.end_of_turn, chat.end_of_call])
        self._report("end of a turn", Outcome.SUPPORTED, " ".join(end_marks) + by_role)
        return chat

    @property
    def _thoughts_apart(self) -> bool:
        """Whether thoughts stand in a field of their own, as in formats that mark whole turns."""
        return writes_turns(self.format)

    def _thoughts(self) -> None:
        """Record which thoughts the template shows."""
        thinking_answer = cases.thinking(assistant(cases.ANSWER), apart=self._thoughts_apart)
        are_shown: list[bool] = []
        for messages in (
            [cases.ASKED, thinking_answer],
            [cases.ASKED, thinking_answer, user(cases.SECOND)],
        ):
            try:
                text = self.render(messages, fallbacks=self.fallbacks)
            except TemplateRefused as error:
                self._report("thoughts", Outcome.REFUSED, short_reason(error))
                return
            are_shown.append(cases.THOUGHT in text)
        if all(are_shown):
            self._report("thoughts", Outcome.SUPPORTED, "kept")
            return
        detail = "dropped once a user speaks" if are_shown[0] else "dropped at once"
        self._report("thoughts", Outcome.REPAIRED, detail, ["new segment"])


def _reads(candidate: ToolFormat, turn: str) -> bool:
    """Return whether a format reads the call of the cases, and no other, in a turn."""
    calls = candidate.parse(turn, complete=True, tools=[cases.TOOL]).tool_calls
    read = [(call.name, call.arguments) for call in calls if not call.error]
    return len(calls) == 1 and read == [(cases.CALL.name, cases.CALL.arguments)]
