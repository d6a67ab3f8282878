"""Training templates: one row an episode, everything shown, chosen by digest."""

import re
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.chat import ChatFormat
from ludus.agent.parsing import TOOL_FORMATS, tool_format
from ludus.agent.templates import cases, choice
from ludus.agent.templates.choice import (
    TRAINING,
    ReleasedTemplate,
    digest_of,
    normalised,
    open_template,
    probe_template,
    recognise,
    statements_of,
    template_of,
    with_sentences,
)
from ludus.agent.templates.fallbacks import Outcome
from ludus.agent.templates.probe import probe
from ludus.agent.templates.text import TemplateRefused, TemplateTokenizer, apply_template
from ludus.errors import ConfigError, UnknownName
from ludus.messages import assistant, system, user
from ludus.trainer.models.tiny import CHAT_TEMPLATE, build_tokenizer

PAIRED = [name for name, one in TRAINING.items() if one.tool_format in TOOL_FORMATS]


@pytest.mark.parametrize("name", PAIRED)
def test_a_training_template_shows_everything_and_rewrites_no_turn(name: str) -> None:
    chosen = TRAINING[name]
    report = probe(TemplateTokenizer(chosen.source), wanted_format=chosen.tool_format)
    assert report.fallbacks.names == []
    found = {one.feature for one in report.findings if one.outcome is not Outcome.SUPPORTED}
    assert found <= {"images", "date"}
    prefixes = [one for one in report.findings if one.feature.startswith("prefix")]
    in_one_turn = 1 if chosen.tool_format == "harmony" else 2  # calls: its first ends a turn
    assert len(prefixes) == len(cases.CONTINUATIONS) - 2 + in_one_turn
    assert all(one.detail.startswith("text alike") for one in prefixes)
    if chosen.tool_format != "tags":
        read = probe(TemplateTokenizer(chosen.source))
        assert not read.fallbacks.tools_as_text  # a format is found that reads its calls


@pytest.mark.parametrize("name", PAIRED)
def test_a_long_episode_stays_one_row(name: str) -> None:
    """Each prompt is the last one with the turn and what followed, over thoughts and calls."""
    chosen = TRAINING[name]
    tokenizer = TemplateTokenizer(chosen.source)
    chat = ChatFormat(tokenizer, tool_format(chosen.tool_format))
    talk = [system("sysword"), user("askword")]
    ids = chat.prompt(talk, [cases.TOOL])
    for turn in range(6):
        said = assistant(f"say{turn}", [cases.CALL] if turn % 2 else [])
        new = [cases.FOUND] if turn % 2 else [user(f"ask{turn}")]
        out = chat.answer(said, [cases.TOOL])
        added = chat.extension(new, ended=True, thought=bool(turn % 3), last=out[-1])
        assert added is not None
        ids += [*out, *added]
        talk += [said, *new]
    assert tokenizer.decode(ids) == tokenizer.decode(chat.prompt(talk, [cases.TOOL]))


def test_templates_are_compared_without_comments_and_trailing_white_space() -> None:
    assert normalised("{# a #}x  \r\ny\n\n") == "x\ny"
    assert digest_of("{# other #}x\ny  ") == digest_of("x\ny")
    assert digest_of("x\nz") != digest_of("x\ny")
    assert statements_of("a{{ b }}  {% if c %}d{% endif %}") == [
        "a", "{{ b }}", "{% if c %}", "d", "{% endif %}",
    ]  # fmt: skip


RELEASED = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ m.content }}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""A release that shows no tools, for which the training template is smollm2."""


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> None:
    statements = [choice.short_digest(part) for part in statements_of(RELEASED)]
    known = ReleasedTemplate("Invented-1B", "smollm2", digest_of(RELEASED), statements)
    monkeypatch.setattr(choice, "releases", lambda: (known,))


@pytest.mark.usefixtures("released")
def test_a_release_is_recognised_and_a_near_miss_is_told_with_the_difference() -> None:
    assert recognise(RELEASED).family == "smollm2"
    assert recognise(f"{{# hi #}}{RELEASED}\n").family == "smollm2"
    near = recognise(RELEASED.replace("{{ m.content }}", "{{ m.content | trim }}"))
    assert near.family == ""
    assert "near Invented-1B (smollm2)" in near.said
    assert "{{ m.content | trim }}" in near.said
    assert "1 of the released statements are missing" in near.said
    assert recognise("{{ messages }}").said == "no template that ludus knows"


@pytest.mark.usefixtures("released")
@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("auto", "training:smollm2"),
        ("stock", "stock"),
        ("training", "training:smollm2"),
        ("training:qwen3", "training:qwen3"),
    ],
)
def test_the_option_decides_and_the_report_names_it(wanted: str, name: str) -> None:
    _, report = probe_template(TemplateTokenizer(RELEASED), template=wanted)
    assert report.template.startswith(name)
    assert "Invented-1B" in report.recognised
    assert ("thoughts of earlier turns stay" in report.template) == name.startswith("training")


def test_auto_leaves_a_template_that_loses_nothing_alone() -> None:
    tokenizer: Any = build_tokenizer()
    opened = open_template(tokenizer)
    assert opened.report.template == "stock"
    assert opened.report.recognised == "the template of a tiny policy of ludus"
    assert opened.report.notice() == ""
    assert opened.chat_format.tokenizer is tokenizer


def test_a_template_file_is_taken_and_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text(RELEASED)
    tokenizer: Any = build_tokenizer()
    opened = open_template(tokenizer, template=str(path))
    assert opened.report.template == str(path)
    assert "<|im_start|>assistant" in opened.report.opening
    assert tokenizer.chat_template == CHAT_TEMPLATE  # a checkpoint keeps the model's own
    for other in ("trainig", "", str(tmp_path), "a\0b", "{{ messages }}" * 300):
        with pytest.raises(ConfigError, match="must be auto, stock, training") as caught:
            open_template(tokenizer, template=other)
        assert len(str(caught.value)) < 500
    with pytest.raises(UnknownName, match="qwen3"):
        open_template(tokenizer, template="training:qwen33")


def test_training_without_a_template_for_it_says_what_was_found() -> None:
    with pytest.raises(ConfigError, match="no template that ludus knows"):
        probe_template(TemplateTokenizer("{{ messages }}"), template="training")


def test_a_template_that_cannot_play_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(TemplateRefused, match=r"not today.*--model\.template"):
        open_template(TemplateTokenizer("{{ raise_exception('not today') }}"))


def test_the_report_is_kept_as_a_table_and_as_json(tmp_path: Path) -> None:
    import msgspec

    from ludus.agent.templates.fallbacks import TemplateReport

    opened = open_template(TemplateTokenizer(RELEASED))
    opened.write(tmp_path)
    assert "tools" in (tmp_path / "template.txt").read_text()
    read = msgspec.json.decode((tmp_path / "template.json").read_bytes(), type=TemplateReport)
    assert read == opened.report


def test_a_tokenizer_with_several_templates_is_asked_for_the_one_for_tools() -> None:
    tokenizer: Any = build_tokenizer()
    tokenizer.chat_template = {"default": "a", "tool_use": "b"}
    assert template_of(tokenizer) == "b"
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        template_of(tokenizer)


def test_a_tokenizer_without_a_template_is_given_one_by_file_or_name(tmp_path: Path) -> None:
    tokenizer: Any = build_tokenizer()
    tokenizer.chat_template = None
    file = tmp_path / "own.jinja"
    file.write_text(TRAINING["qwen2_5"].source)
    for wanted in (str(file), "training:qwen2_5"):
        shown, report = probe_template(tokenizer, template=wanted)
        assert template_of(shown) == TRAINING["qwen2_5"].source
        assert not report.blocking
    for wanted in ("auto", "stock", "training"):
        with pytest.raises(
            ConfigError, match=r"no chat template.*training:NAME, or a \.jinja file"
        ):
            probe_template(tokenizer, template=wanted)


def test_templates_render_as_transformers_renders_them() -> None:
    talk: list[dict[str, Any]] = [
        {"role": "system", "content": "é <b>"},
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "id": "call_0", "function": {"name": "f", "arguments": {"a": "é"}}}
        ]},
        {"role": "tool", "content": "{}", "name": "f", "tool_call_id": "call_0"},
    ]  # fmt: skip
    tools = [cases.TOOL.as_openai()]
    for one in TRAINING.values():
        tokenizer: Any = build_tokenizer()
        tokenizer.bos_token = "<s>"
        tokenizer.eos_token = "</s>"
        # transformers tells the date of today, so its call is replaced by a text.
        source = f"{one.source}{{% generation %}}x{{% endgeneration %}}{{{{ bos_token }}}}"
        source = re.sub(r"strftime_now\('.*?'\)", "'today'", source)
        tokenizer.chat_template = source
        theirs = tokenizer.apply_chat_template(
            talk, tools=tools, add_generation_prompt=True, tokenize=False
        )
        assert apply_template(tokenizer, talk, tools, prompt=True) == theirs


def test_a_real_tokenizer_is_told_the_frozen_date() -> None:
    tokenizer: Any = build_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE + "{{ strftime_now('%d %b %Y') }}"
    opened = open_template(tokenizer)
    assert [one.outcome for one in opened.report.findings if one.feature == "date"] == ["repaired"]
    text = tokenizer.decode(opened.chat_format.prompt([user("hi")], []))
    assert text.endswith("01 Jan 2026")


def test_a_release_says_by_itself_how_hard_to_think() -> None:
    released = (
        "{%- set reasoning_instructions = '' %}{%- set reasoning_instructions = 'Think well.' %}"
        "{%- set reasoning_instructions = 'Be quick.' %}"
    )
    source = with_sentences(TRAINING["qwen3_5_think"].source, released)
    told, asked = {"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}
    for talk, shown in (([asked], "Think well."), ([told, asked], "Think well.\n\nbe brief")):
        text = apply_template(TemplateTokenizer(source), talk, None, prompt=True)
        assert text.startswith(f"<|im_start|>system\n{shown}<|im_end|>\n<|im_start|>user\nhi")
    text = apply_template(TemplateTokenizer(source), [asked], [cases.TOOL.as_openai()], prompt=True)
    assert text.startswith("<|im_start|>system\nThink well.\n\n# Tools\n\n")
