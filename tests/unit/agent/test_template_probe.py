"""The probe of chat templates: what it finds lost, and that the repairs show it."""

from typing import Any

import pytest

from ludus.agent.chat import ChatFormat
from ludus.agent.parsing import tool_format
from ludus.agent.templates import cases
from ludus.agent.templates.fallbacks import Fallbacks, Outcome, TemplateReport, short_id
from ludus.agent.templates.probe import probe
from ludus.agent.templates.text import TemplateRefused, TemplateTokenizer, apply_template
from ludus.messages import ToolCall, assistant, system, tool_result, user

PLAIN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Shows every message and knows neither tools nor calls, as SmolLM2's does."""
ALTERNATING = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' "
    "+ m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
NO_RESULTS = (
    "{% for m in messages %}{% if m.role in ('system', 'user', 'assistant') %}"
    "{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
    "{# <|system|><|user|><|assistant|> #}"
)
PARTS = (
    "{% for m in messages %}{{ m.role | capitalize }}:{% for part in m.content %}"
    "{% if part['type'] == 'text' %}{{ ' ' + part['text'] }}{% elif part['type'] == 'image' %}"
    "<image>{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
STRING_ARGUMENTS = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + (m.content or '') }}"
    '{% for call in m.tool_calls or [] %}{{ \'<tool_call>\n{"name": "\' + call.function.name '
    "+ '\", \"arguments\": ' + call.function.arguments + '}\n</tool_call>' }}{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
NINE = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + (m.content or '') }}"
    "{% for call in m.tool_calls or [] %}{% if call.id | length != 9 %}"
    "{{ raise_exception('ids have nine letters') }}{% endif %}"
    '{{ \'<tool_call>\n{"name": "\' + call.function.name + \'", "arguments": \' '
    "+ call.function.arguments | tojson + '}\n</tool_call>' }}{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
DATED = "{{ '<|date|>' + strftime_now('%d %b %Y') + '<|im_end|>' }}" + PLAIN
NEXT_ROLE_ENDS = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ '<|observation|>\n' + m.content }}"
    "{% else %}{{ '<|' + m.role + '|>\n' + m.content }}{% endif %}"
    '{% for call in m.tool_calls or [] %}{{ \'\n<tool_call>\n{"name": "\' + call.function.name '
    "+ '\", \"arguments\": ' + call.function.arguments | tojson + '}\n</tool_call>' }}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    "{# <|system|><|user|><|assistant|> #}"
)
COUNTING = (
    "{{ messages | length }}{% for m in messages %}{{ m.role + ':' + m.content + '<|im_end|>' }}"
    "{% endfor %}"
)
LISTS_TOOLS = (  # as templates for tool use do, whose models have another one without tools
    "{% for one in tools %}{{ one.function | tojson }}{% endfor %}" + PLAIN
)
NO_EMPTY_ANSWER = (
    "{% for m in messages %}{% if m.role == 'assistant' and not m.content %}"
    "{{ raise_exception('an answer without words') }}{% endif %}{% endfor %}" + PLAIN
)
NO_LONE_RESULT = (
    "{% set ns = namespace(called=false) %}"
    "{% for m in messages %}{% if m.role == 'tool' and not ns.called %}"
    "{{ raise_exception('a result without a call') }}{% endif %}"
    "{% set ns.called = m.tool_calls or m.role == 'tool' and ns.called %}{% endfor %}"
    + NINE.replace("call.id | length != 9", "false")
)
SIGNS = (
    "{% for m in messages %}{{ ']~b]' + m.role + '\n' + m.content + '[e~[' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ ']~b]assistant\n' }}{% endif %}"
)
"""Ends a turn with a token of signs, as MiniMax-M2 does."""
OWN_MARKS = PLAIN.replace("<|im_end|>", "<turn:end>")
MARKS_OF_ROLES = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
"""Ends no turn, and names no role: the marks stand in no source."""
OPENS_THOUGHTS = NINE.replace("call.id | length != 9", "false").replace(
    "{{ '<|assistant|>' }}", "{{ '<|assistant|><think>' }}"
)
"""Opens the thoughts in the prompt, and begins a call with the same letter, as QwQ's does."""
IDS_FOR_NAMES = (
    "{% for one in tools or [] %}{{ one.function | tojson }}{% endfor %}"
    "{% for m in messages %}{{ '<|' + m.role + '|>' + (m.content or '') }}"
    "{% if m.tool_calls %}<|tool_calls_section_begin|>{% for call in m.tool_calls %}"
    "{{ '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' "
    "+ call.function.arguments | tojson + '<|tool_call_end|>' }}{% endfor %}"
    "<|tool_calls_section_end|>{% endif %}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Writes the id of a call and not the name, as Kimi K2.5's does."""


def report_of(template: str, **options: Any) -> TemplateReport:
    return probe(TemplateTokenizer(template), **options)


def outcome(report: TemplateReport, feature: str) -> Outcome:
    return next(one.outcome for one in report.findings if one.feature == feature)


def switched(report: TemplateReport) -> set[str]:
    return set(report.fallbacks.names)


@pytest.mark.parametrize(
    ("template", "repairs"),
    [
        (PLAIN, {"tools_as_text", "calls_as_text"}),
        (
            ALTERNATING,
            {
                "tools_as_text", "calls_as_text", "results_as_user", "system_as_user",
                "late_system_as_user", "merge_roles",
            },
        ),
        (NO_RESULTS, {"tools_as_text", "calls_as_text", "results_as_user"}),
        (PARTS, {"content_as_parts", "tools_as_text", "calls_as_text"}),
        (STRING_ARGUMENTS, {"tools_as_text", "arguments_as_json"}),
        (NINE, {"tools_as_text", "short_ids"}),
        (LISTS_TOOLS, {"empty_tools", "calls_as_text"}),
        (NO_EMPTY_ANSWER, {"tools_as_text", "calls_as_text", "filled_answers"}),
        (NO_LONE_RESULT, {"tools_as_text", "lone_results_as_user"}),
        (SIGNS, {"tools_as_text", "calls_as_text"}),
        (OWN_MARKS, {"tools_as_text", "calls_as_text"}),
        (MARKS_OF_ROLES, {"tools_as_text", "calls_as_text"}),
        (OPENS_THOUGHTS, {"tools_as_text"}),
        (IDS_FOR_NAMES, {"named_ids"}),
    ],
)  # fmt: skip
def test_what_a_template_loses_is_repaired_by_name(template: str, repairs: set[str]) -> None:
    report = report_of(template)
    assert switched(report) == repairs
    refused = {one.feature for one in report.of(Outcome.REFUSED)}
    assert refused <= {"images"}
    named = [name for one in report.findings for name in one.fallbacks]
    assert repairs <= set(named)
    assert all(one.detail for one in report.of(Outcome.REPAIRED))


def test_ends_of_turns_are_found_where_no_known_mark_stands() -> None:
    assert report_of(SIGNS).stop_tokens[0] == "[e~["
    assert report_of(OWN_MARKS).stop_tokens[0] == "<turn:end>"
    assert report_of(MARKS_OF_ROLES).stop_tokens[0] == "<|user|>"


def test_ids_that_stand_for_names_are_those_of_kimi() -> None:
    report = report_of(IDS_FOR_NAMES)
    assert report.tool_format == "kimi_k2"
    tokenizer = TemplateTokenizer(IDS_FOR_NAMES)
    chat = ChatFormat(tokenizer, tool_format("kimi_k2"), fallbacks=report.fallbacks)
    first = ToolCall(name="look", arguments={}, id="call_0")
    own = ToolCall(name="look", arguments={}, id="functions.look:7")
    text = tokenizer.decode(
        chat.prompt(
            [
                user("a"),
                assistant("", [first]),
                tool_result("b", first),
                assistant("", [first, own]),
            ],
            [],
        )
    )
    begun = text.split("<|tool_call_begin|>")[1:]
    assert [one.partition("<|tool_call_argument_begin|>")[0] for one in begun] == [
        "functions.look:0",
        "functions.look:1",
        "functions.look:7",
    ]


@pytest.mark.parametrize(
    "template",
    [
        PLAIN, ALTERNATING, NO_RESULTS, PARTS, STRING_ARGUMENTS, NINE, NEXT_ROLE_ENDS, LISTS_TOOLS,
        NO_EMPTY_ANSWER, NO_LONE_RESULT, SIGNS, OWN_MARKS, MARKS_OF_ROLES,
        OPENS_THOUGHTS,
    ],
)  # fmt: skip
def test_with_the_repairs_every_word_of_an_episode_is_shown_and_calls_are_read(
    template: str,
) -> None:
    tokenizer = TemplateTokenizer(template)
    report = probe(tokenizer)
    format_ = tool_format(report.tool_format)
    chat = ChatFormat(tokenizer, format_, fallbacks=report.fallbacks)
    call = ToolCall(name="look", arguments={"at": "moonside"}, id="call_0")
    spec = cases.TOOL
    talk = [
        system("sysword"),
        user("askword"),
        assistant("sayword", [call]),
        tool_result("foundword", call),
        user("moreword"),
        assistant("doneword"),
        system("lateword"),
    ]
    text = tokenizer.decode(chat.prompt(talk, [spec]))
    for word in (
        "sysword", "askword", "sayword", "moonside", "foundword", "moreword", "doneword",
        "lateword", spec.name, spec.description, "egretat", "stiltexplains",
    ):  # fmt: skip
        assert word in text
    said = chat.answer(assistant("", [cases.CALL]), [spec])
    (read,) = chat.parse(said, complete=True, tools=[spec]).tool_calls
    assert (read.name, read.arguments, read.error) == (cases.CALL.name, cases.CALL.arguments, "")


def test_a_template_that_needs_nothing_gets_no_repair_and_no_notice() -> None:
    from ludus.trainer.models.tiny import build_tokenizer

    report = probe(build_tokenizer())  # type: ignore[arg-type]
    assert outcome(report, "calls") is Outcome.SUPPORTED
    assert outcome(report, "results") is Outcome.SUPPORTED
    prefixes = [one for one in report.findings if one.feature.startswith("prefix")]
    assert {one.outcome for one in prefixes} == {Outcome.SUPPORTED}
    assert {one.detail for one in prefixes} == {"text and tokens alike"}
    assert report.opening == "<|im_start|>assistant\n"


def test_without_a_tokenizer_tokens_are_unverified() -> None:
    prefixes = [one for one in report_of(PLAIN).findings if one.feature.startswith("prefix")]
    assert len(prefixes) == 7
    assert all("unverified" in one.detail for one in prefixes)


def test_a_date_is_frozen_and_told() -> None:
    report = report_of(DATED)
    assert outcome(report, "date") is Outcome.REPAIRED
    tokenizer = TemplateTokenizer(DATED)
    chat = ChatFormat(tokenizer, tool_format("hermes"), fallbacks=report.fallbacks)
    assert "01 Jan 2026" in tokenizer.decode(chat.prompt([user("hi")], []))
    assert outcome(report_of(PLAIN), "date") is Outcome.SUPPORTED


def test_a_template_that_rewrites_turns_is_told_as_new_segments() -> None:
    report = report_of(COUNTING)
    prefixes = [one for one in report.findings if one.feature.startswith("prefix")]
    assert {one.outcome for one in prefixes} == {Outcome.REPAIRED}
    assert "new segment" in report.notice()


def test_a_template_whose_turns_cannot_end_is_refused() -> None:
    report = report_of("{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}")
    assert outcome(report, "end of a turn") is Outcome.REFUSED


def test_a_template_that_raises_on_everything_is_refused_with_its_words() -> None:
    report = report_of("{{ raise_exception('not today') }}")
    (finding, *_) = report.of(Outcome.REFUSED)
    assert "not today" in finding.detail
    assert "not today" in report.notice()


def test_images_are_refused_without_a_processor_and_the_placeholder_is_told() -> None:
    finding = next(one for one in report_of(PARTS).findings if one.feature == "images")
    assert finding.outcome is Outcome.REFUSED
    assert "<image>" in finding.detail
    shown = report_of(PARTS, shows_images=True)
    assert outcome(shown, "images") is Outcome.SUPPORTED


def test_a_format_that_does_not_read_the_templates_calls_is_written_as_text() -> None:
    report = report_of(STRING_ARGUMENTS, wanted_format="llama3_json")
    assert {"tools_as_text", "calls_as_text"} <= switched(report)
    assert report_of(STRING_ARGUMENTS).tool_format == "hermes"


@pytest.mark.parametrize("last", ["<|user|>", "<|observation|>"])
def test_a_turn_that_ends_with_the_next_role_is_continued_without_writing_it_twice(
    last: str,
) -> None:
    tokenizer = TemplateTokenizer(NEXT_ROLE_ENDS)
    chat = ChatFormat(tokenizer, tool_format("hermes"))
    assert (chat.end_of_turn, chat.end_of_call) == ("<|user|>", "<|observation|>")
    (token,) = tokenizer.encode(last)
    assert chat.ends_turn([7, token])
    call = ToolCall(name="f", id="call_0")
    for new, opens, text in (
        ([user("next")], "<|user|>", "\nnext<|assistant|>\n"),
        ([tool_result("found", call)], "<|observation|>", "\nfound<|assistant|>\n"),
    ):
        added = chat.extension(new, ended=True, last=token)
        assert added is not None
        # A turn that ended as if a user came next, before a result, keeps what was sampled.
        assert tokenizer.decode(added) == (text if last == opens else opens + text)
        cut = chat.extension(new, ended=False, last=tokenizer.encode("x")[0])
        assert cut is not None
        assert tokenizer.decode(cut) == opens + text


@pytest.mark.parametrize("options", [{}, {"merge_roles": True}, {"results_as_user": True}])
def test_shaping_loses_no_text(options: dict[str, bool]) -> None:
    call = ToolCall(name="f", arguments={"a": "argword"}, id="call_0")
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "one"},
        {"role": "user", "content": [{"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "id": "call_0", "function": {"name": "f", "arguments": {"a": 1}}}
        ]},
        {"role": "tool", "content": "three", "tool_call_id": call.id},
        {"role": "tool", "content": "four", "tool_call_id": call.id},
    ]  # fmt: skip
    shaped, _ = Fallbacks(**options).shape(rows, [], tool_format("hermes"))
    text = str(shaped)
    assert all(word in text for word in ("one", "two", "three", "four"))
    assert all("result" not in row for row in shaped)


def test_results_that_echo_the_closing_tag_cannot_leave_their_message() -> None:
    tokenizer = TemplateTokenizer(NO_RESULTS)
    chat = ChatFormat(tokenizer, tool_format("hermes"), fallbacks=Fallbacks(results_as_user=True))
    call = ToolCall(name="f", id="call_0")
    new = [tool_result("a</tool_response>b<|end|>c", call)]
    text = tokenizer.decode(chat.extension(new, ended=True) or [])
    assert text.count("</tool_response>") == 1
    assert text.count("<|end|>") == 1


def test_short_ids_are_nine_letters_and_tell_calls_apart() -> None:
    made = {short_id(f"call_{number}") for number in range(50)}
    assert len(made) == 50
    assert all(len(one) == 9 and one.isalnum() for one in made)


def test_an_error_of_a_template_is_a_typed_error() -> None:
    tokenizer = TemplateTokenizer(ALTERNATING)
    with pytest.raises(TemplateRefused, match="roles must alternate"):
        apply_template(tokenizer, [{"role": "assistant", "content": "x"}], None, prompt=True)
    with pytest.raises(TemplateRefused, match="cannot be read"):
        TemplateTokenizer("{% if %}")
    for source, reason in (
        ("{{ 1 // 0 }}", "division"),
        ("{% for i in range(999999) %}{% endfor %}", "Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ):
        with pytest.raises(TemplateRefused, match=reason):
            apply_template(
                TemplateTokenizer(source), [{"role": "user", "content": "x"}], None, prompt=True
            )


@pytest.mark.parametrize(
    ("sign", "name"),
    [
        ("With tools, respond with <|tool_call|> and a JSON list. <|start_of_role|>", "granite3"),
        ("<|tool|>[]<|/tool|>", "phi4_mini"),
        ("<AVAILABLE_TOOLS>[]</AVAILABLE_TOOLS>", "nemotron"),
        ("<|tool_list_start|>[]<|tool_list_end|>", "lfm2"),
        ("", "hermes"),
    ],
)
def test_a_template_without_calls_is_read_in_the_format_whose_signs_it_bears(
    sign: str, name: str
) -> None:
    template = (
        "{{ '" + sign + "' }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
        "{{ m.content }}{{ '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    report = probe(TemplateTokenizer(template))
    assert report.tool_format == name
    assert not report.blocking


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("<|tool_call|>[{{ c.function | tojson }}]", "granite3"),
        ("<|tool_call|>{{ c.function | tojson }}<|/tool_call|>", "phi4_mini"),
        ("<TOOLCALL>[{{ c.function | tojson }}]</TOOLCALL>", "nemotron"),
        ("<|tool_call_start|>[{{ c.function.name }}(egretat='{{ c.function.arguments.egretat }}')]"
         "<|tool_call_end|>", "lfm2"),
    ],
)  # fmt: skip
def test_calls_are_read_as_the_template_writes_them(written: str, name: str) -> None:
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}" + written + "{% endfor %}{{ '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    report = probe(TemplateTokenizer(template))
    assert (report.tool_format, "calls_as_text" in report.fallbacks.names) == (name, False)
