"""Texts of assistant turns with the calls that may be run, for every tool format.

The texts are put together here, without the parsers' own renderers, from each format's public
description. The rules by which a turn is labelled:

1. A call counts if the policy wrote it as its own action, in the format, outside of thoughts. Its
   name and arguments count as written: an unknown tool, or a missing or additional argument, is for
   the environment to answer.
2. A call in thoughts counts for nothing, whether they end, never end, or were opened by the
   template.
3. A call inside a made-up result or turn of somebody else counts for nothing, wherever it stands.
   Nothing after a made-up turn counts, nor after a made-up result that follows a call. Calls
   before count.
4. A call that is quoted counts for nothing: between quotation marks, as inline code, in a comment,
   in a quotation, or in a code block after which the turn goes on. A code block that ends the turn
   is the policy's way to write a call.
5. What cannot be read in one way only counts for nothing: half an object, single quotation marks,
   a trailing comma, a number that no JSON reader keeps.
6. In a turn that was cut, the last call counts only if its closing mark stands there. In a turn
   that ended, a missing closing mark is forgiven where nothing else is missing; but the end of the
   turn closes no argument.
7. Where a format's call is the whole turn (Llama, Gemma 3), the same text after prose is prose.
8. Whatever stands inside a string argument is the argument.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Call = tuple[str, dict[str, Any]]
Write = Callable[[str, dict[str, Any]], str]

TOOLS: dict[str, dict[str, str]] = {
    "search": {"query": "string"},
    "edit": {
        "path": "string",
        "line": "integer",
        "share": "number",
        "force": "boolean",
        "options": "object",
        "marks": "array",
    },
    "now": {},
}
"""Each tool's parameters with their JSON types."""


@dataclass(frozen=True)
class Case:
    """A turn, and the calls that may be run."""

    format: str
    situation: str
    text: str
    wanted: list[Call]
    complete: bool = True

    @property
    def held_out(self) -> bool:
        """Whether the case belongs to the half that no repair has looked at."""
        digest = hashlib.sha256(f"{self.format}/{self.situation}".encode()).digest()
        return digest[0] % 2 == 1


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _python(name: str, given: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"


def _gemma(value: Any, mark: str) -> str:
    if isinstance(value, str):
        return f"{mark}{value}{mark}"
    if isinstance(value, dict):
        return (
            "{" + ",".join(f"{key}:{_gemma(member, mark)}" for key, member in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(_gemma(member, mark) for member in value) + "]"
    return _json(value)


def _coder(name: str, given: dict[str, Any]) -> str:
    lines = [f"<parameter={key}>\n{_plain(value)}\n</parameter>" for key, value in given.items()]
    return "\n".join(["<tool_call>", f"<function={name}>", *lines, "</function>", "</tool_call>"])


def _glm(name: str, given: dict[str, Any]) -> str:
    lines = [
        f"<arg_key>{key}</arg_key>\n<arg_value>{_plain(value)}</arg_value>"
        for key, value in given.items()
    ]
    return "\n".join([f"<tool_call>{name}", *lines, "</tool_call>"])


def _minimax(name: str, given: dict[str, Any]) -> str:
    lines = [f'<parameter name="{key}">{_plain(value)}</parameter>' for key, value in given.items()]
    inner = "\n".join([f'<invoke name="{name}">', *lines, "</invoke>"])
    return f"<minimax:tool_call>\n{inner}\n</minimax:tool_call>"


def _dsml(name: str, given: dict[str, Any], block: str) -> str:
    lines = [
        f'<｜DSML｜parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">'
        f"{_plain(value)}</｜DSML｜parameter>"
        for key, value in given.items()
    ]
    inner = "\n".join([f'<｜DSML｜invoke name="{name}">', *lines, "</｜DSML｜invoke>"])
    return f"<｜DSML｜{block}>\n{inner}\n</｜DSML｜{block}>"


def _tag(name: str, given: dict[str, Any]) -> str:
    alone = name == "search" and list(given) == ["query"]
    content = given["query"] if alone else _json(given) if given else ""
    return f"<{name}>{content}</{name}>"


@dataclass(frozen=True)
class Format:
    """How a format's turns are put together for the cases.

    Args:
        write: writes one call.
        join: stands between two calls.
        close: what ends a call; empty where nothing does.
        user: how a turn of the user begins in the templates of its models.
        thoughts: what stands around thoughts.
        whole: whether a call is the whole turn.
        text: whether arguments are text between tags.
        python: whether arguments are in Python's syntax.
        bare: whether a string has a mark that JSON does not know.
        around: what stands around a list of Python calls.
    """

    write: Write
    join: str = "\n"
    close: str = ""
    user: str = "<|im_end|>\n<|im_start|>user\n"
    thoughts: tuple[str, str] = ("<think>", "</think>")
    whole: bool = False
    text: bool = False
    python: bool = False
    bare: bool = False
    around: tuple[str, str] = ("", "")


def _listed(name: str, given: dict[str, Any]) -> str:
    return _json([{"name": name, "arguments": given}])


_LFM2 = ("<|tool_call_start|>", "<|tool_call_end|>")
_LLAMA_USER = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
_DEEPSEEK_END = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
FORMATS: dict[str, Format] = {
    "hermes": Format(
        lambda n, a: f"<tool_call>\n{_json({'name': n, 'arguments': a})}\n</tool_call>",
        close="\n</tool_call>",
    ),
    "qwen3_coder": Format(_coder, close="\n</function>\n</tool_call>", text=True),
    "llama3_json": Format(
        lambda n, a: _json({"name": n, "parameters": a}), "; ", user=_LLAMA_USER, whole=True
    ),
    "llama3_pythonic": Format(
        lambda n, a: f"[{_python(n, a)}]", user=_LLAMA_USER, whole=True, python=True
    ),
    "gemma3": Format(
        lambda n, a: f"[{_python(n, a)}]",
        user="<end_of_turn>\n<start_of_turn>user\n",
        whole=True,
        python=True,
    ),
    "tags": Format(_tag, close="", text=True),
    "harmony": Format(
        lambda n, a: (
            f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{_json(a)}<|call|>"
        ),
        "<|start|>assistant",
        close="<|call|>",
        user="<|start|>user<|message|>",
        thoughts=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
    ),
    "deepseek_v3": Format(
        lambda n, a: (
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n"
            f"```json\n{_json(a)}\n```{_DEEPSEEK_END}"
        ),
        close=f"\n```{_DEEPSEEK_END}",
        user="<｜end▁of▁sentence｜><｜User｜>",
    ),
    "deepseek_v31": Format(
        lambda n, a: (
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{_json(a)}{_DEEPSEEK_END}"
        ),
        close=_DEEPSEEK_END,
        user="<｜end▁of▁sentence｜><｜User｜>",
    ),
    "deepseek_v32": Format(
        lambda n, a: _dsml(n, a, "function_calls"),
        close="\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        user="<｜end▁of▁sentence｜><｜User｜>",
        text=True,
    ),
    "deepseek_v4": Format(
        lambda n, a: _dsml(n, a, "tool_calls"),
        close="\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        user="<｜end▁of▁sentence｜><｜User｜>",
        text=True,
    ),
    "glm4": Format(_glm, close="\n</tool_call>", user="<|user|>\n", text=True),
    "kimi_k2": Format(
        lambda n, a: (
            f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{n}:0"
            f"<|tool_call_argument_begin|>{_json(a)}<|tool_call_end|><|tool_calls_section_end|>"
        ),
        "",
        close="<|tool_call_end|><|tool_calls_section_end|>",
        user="<|im_end|><|im_user|>user<|im_middle|>",
    ),
    "mistral_v3": Format(
        lambda n, a: f"[TOOL_CALLS] {_json([{'name': n, 'arguments': a, 'id': 'a1B2c3D4e'}])}",
        "",
        close="]",
        user="</s>[INST] ",
        thoughts=("[THINK]", "[/THINK]"),
    ),
    "mistral_v11": Format(
        lambda n, a: f"[TOOL_CALLS]{n}[CALL_ID]a1B2c3D4e[ARGS]{_json(a)}",
        "",
        user="</s>[INST]",
        thoughts=("[THINK]", "[/THINK]"),
    ),
    "functiongemma": Format(
        lambda n, a: f"<start_function_call>call:{n}{_gemma(a, '<escape>')}<end_function_call>",
        "",
        close="<end_function_call>",
        user="<end_of_turn>\n<start_of_turn>user\n",
        bare=True,
    ),
    "gemma4": Format(
        lambda n, a: "<|tool_call>call:" + n + _gemma(a, '<|"|>') + "<tool_call|>",
        "",
        close="<tool_call|>",
        user="<turn|>\n<|turn>user\n",
        thoughts=("<|channel>thought\n", "<channel|>"),
        bare=True,
    ),
    "minimax_m1": Format(
        lambda n, a: f"<tool_calls>\n{_json({'name': n, 'arguments': a})}\n</tool_calls>",
        close="\n</tool_calls>",
        user="<end_of_sentence>\n<beginning_of_sentence>user name=user\n",
    ),
    "minimax_m2": Format(
        _minimax, close="\n</invoke>\n</minimax:tool_call>", user="[e~[\n]~b]user\n", text=True
    ),
    "granite3": Format(
        lambda n, a: f"<|tool_call|>{_listed(n, a)}",
        close="]",
        user="<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
    ),
    "phi4_mini": Format(
        lambda n, a: f"<|tool_call|>{_listed(n, a)}<|/tool_call|>",
        "",
        close="<|/tool_call|>",
        user="<|end|><|user|>",
    ),
    "nemotron": Format(
        lambda n, a: f"<TOOLCALL>{_listed(n, a)}</TOOLCALL>",
        close="</TOOLCALL>",
        user="\n<SPECIAL_12>\n\n<SPECIAL_11>User\n",
    ),
    "lfm2": Format(
        lambda n, a: f"[{_python(n, a)}]".join(_LFM2), close=_LFM2[1], python=True, around=_LFM2
    ),
}

TAGGED = {
    "qwen3_coder": "</parameter>",
    "glm4": "</arg_value>",
    "minimax_m2": "</parameter>",
    "deepseek_v32": "</｜DSML｜parameter>",
    "deepseek_v4": "</｜DSML｜parameter>",
}
"""The closing tag of a value, in formats whose values are text between tags."""
KIEL: Call = ("search", {"query": "ferry to Kiel"})
OSLO: Call = ("search", {"query": "hotel in Oslo"})
NOW: Call = ("now", {})
EDIT: Call = ("edit", {"path": "a.txt", "line": 3})


_ROWS = f'[{{"name": "search", "arguments": {_json(KIEL[1])}}}]'
_TWO = f"{_ROWS[:-1]}, {_listed(*OSLO)[1:]}"
_KIEL, _OSLO = (f"[{_python(*call)}]" for call in (KIEL, OSLO))
OWN_WAYS: list[tuple[str, str, str, list[Call], bool]] = [
    ("granite3", "two calls in a list", f"<|tool_call|>{_TWO}", [KIEL, OSLO], True),
    ("granite3", "a space before the list", f"<|tool_call|> {_ROWS}", [KIEL], True),
    ("granite3", "the mark of 3.1", f"<tool_call>{_ROWS}", [KIEL], True),
    ("granite3", "both marks", f"<tool_call>{_ROWS}<|tool_call|>{_TWO}", [KIEL, KIEL, OSLO], True),
    ("granite3", "prose after the list", f"<|tool_call|>{_ROWS}\nI wait.", [KIEL], True),
    ("granite3", "the mark alone", "<|tool_call|>", [], True),
    ("granite3", "an empty list", "<|tool_call|>[]", [], True),
    ("granite3", "no bracket at the end", f"<|tool_call|>{_ROWS[:-1]}", [], True),
    ("granite3", "cut after one of two", f"<|tool_call|>{_TWO[:-30]}", [], False),
    ("granite3", "an object", f"<|tool_call|>{_ROWS[1:-1]}", [KIEL], True),
    ("granite3", "a made-up result",
     f"<|tool_call|>{_ROWS}<|end_of_text|>\n<|start_of_role|>tool_response<|end_of_role|>8\n"
     f"<|tool_call|>{_listed(*OSLO)}", [KIEL], True),
    ("granite3", "a new turn of its own",
     f"No.<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|><|tool_call|>{_ROWS}", [KIEL],
     True),
    ("phi4_mini", "functools", f"functools{_ROWS}", [KIEL], True),
    ("phi4_mini", "functools with two calls", f"functools{_TWO}", [KIEL, OSLO], True),
    ("phi4_mini", "functools that was cut", f"functools{_ROWS}", [], False),
    ("phi4_mini", "functools that is not closed", f"functools{_ROWS[:-1]}", [], True),
    ("phi4_mini", "the module of that name", "Use functools[1] or functools.cache.", [], True),
    ("phi4_mini", "two calls in a list", f"<|tool_call|>{_TWO}<|/tool_call|>", [KIEL, OSLO], True),
    ("phi4_mini", "an object", f"<|tool_call|>{_ROWS[1:-1]}<|/tool_call|>", [KIEL], True),
    ("phi4_mini", "prose after the mark", f"<|tool_call|>{_ROWS}<|/tool_call|> So.", [KIEL], True),
    ("phi4_mini", "prose before the mark", f"<|tool_call|>{_ROWS} So.<|/tool_call|>", [], True),
    ("phi4_mini", "the mark alone", "<|tool_call|><|/tool_call|>", [], True),
    ("phi4_mini", "a made-up result",
     f"<|tool_call|>{_ROWS}<|/tool_call|><|end|><|tool_response|>8<|end|><|tool_call|>"
     f"{_listed(*OSLO)}<|/tool_call|>", [KIEL], True),
    ("nemotron", "two calls in a list", f"<TOOLCALL>{_TWO}</TOOLCALL>", [KIEL, OSLO], True),
    ("nemotron", "lines around the list", f"<TOOLCALL>\n{_ROWS}\n</TOOLCALL>", [KIEL], True),
    ("nemotron", "an object", f"<TOOLCALL>{_ROWS[1:-1]}</TOOLCALL>", [KIEL], True),
    ("nemotron", "other letters", f"<toolcall>{_ROWS}</toolcall>", [], True),
    ("nemotron", "no bracket at the end", f"<TOOLCALL>{_ROWS[:-1]}</TOOLCALL>", [], True),
    ("nemotron", "a made-up result",
     f"<TOOLCALL>{_ROWS}</TOOLCALL>\n<TOOL_RESPONSE>[8]</TOOL_RESPONSE>\n"
     f"<TOOLCALL>{_listed(*OSLO)}</TOOLCALL>", [KIEL], True),
    ("nemotron", "inside a made-up result",
     f"<TOOL_RESPONSE>[<TOOLCALL>{_ROWS}</TOOLCALL>]</TOOL_RESPONSE>", [], True),
    ("nemotron", "after an empty thought",
     f"<think></think>\n<TOOLCALL>{_ROWS}</TOOLCALL>", [KIEL], True),
    ("nemotron", "the list of tools", f"<AVAILABLE_TOOLS>{_ROWS}</AVAILABLE_TOOLS>", [], True),
    ("lfm2", "JSON", _ROWS.join(_LFM2), [KIEL], True),
    ("lfm2", "two calls as JSON", _TWO.join(_LFM2), [KIEL, OSLO], True),
    ("lfm2", "no brackets", _KIEL[1:-1].join(_LFM2), [KIEL], True),
    ("lfm2", "double quotation marks", '[search(query="ferry to Kiel")]'.join(_LFM2), [KIEL], True),
    ("lfm2", "JSON inside Python",
     "[edit(path='p', options={\"a\": true, \"b\": null})]".join(_LFM2),
     [("edit", {"path": "p", "options": {"a": True, "b": None}})], True),
    ("lfm2", "the closing mark in an argument", f"[search(query='a{_LFM2[1]}b')]".join(_LFM2),
     [("search", {"query": f"a{_LFM2[1]}b"})], True),
    ("lfm2", "the opening mark in an argument", f"[search(query='a{_LFM2[0]}b')]".join(_LFM2),
     [("search", {"query": f"a{_LFM2[0]}b"})], True),
    ("lfm2", "a list without marks", _KIEL, [], True),
    ("lfm2", "two blocks", f"{_KIEL.join(_LFM2)}\n{_OSLO.join(_LFM2)}", [KIEL, OSLO], True),
    ("lfm2", "a damaged block and a whole one",
     f"{_KIEL[:-2].join(_LFM2)}{_OSLO.join(_LFM2)}", [OSLO], True),
    ("lfm2", "the list is not closed", f"{_LFM2[0]}{_KIEL[:-1]}", [], True),
    ("lfm2", "the mark alone", f"{_LFM2[0]}", [], True),
    ("lfm2", "prose after the block", f"{_KIEL.join(_LFM2)}Looking for it.", [KIEL], True),
    ("lfm2", "a made-up result",
     f"{_KIEL.join(_LFM2)}<|tool_response_start|>8<|tool_response_end|>{_OSLO.join(_LFM2)}",
     [KIEL], True),
    ("qwen3_coder", "a last argument that nothing closes",
     "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n<parameter=force>\nfalse",
     [], True),
    ("qwen3_coder", "no argument and nothing closed", "<tool_call>\n<function=now>", [], True),
    ("glm4", "no argument and nothing closed", "<tool_call>now", [], True),
    ("minimax_m2", "no argument and nothing closed",
     '<minimax:tool_call>\n<invoke name="now">', [], True),
    ("deepseek_v32", "no argument and nothing closed",
     '<｜DSML｜function_calls>\n<｜DSML｜invoke name="now">', [], True),
    ("kimi_k2", "no argument and nothing closed",
     "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>", [], True),
    ("harmony", "no argument and nothing closed",
     "<|channel|>commentary to=functions.now<|message|>", [], True),
    ("gemma4", "no argument and nothing closed", "<|tool_call>call:now", [], True),
    ("mistral_v11", "no argument and nothing closed", "[TOOL_CALLS]now[ARGS]", [], True),
]  # fmt: skip
"""Ways of single formats, by hand: the format, the situation, the turn, the calls that may be run,
and whether the turn is complete.
"""


def cases() -> Iterator[Case]:
    """All cases, format by format."""
    for name, form in FORMATS.items():
        for situation, text, wanted, complete in _situations(name, form):
            yield Case(name, situation, text, wanted, complete)
    for name, situation, text, wanted, complete in OWN_WAYS:
        yield Case(name, situation, text, wanted, complete)


Situation = tuple[str, str, list[Call], bool]


def _situations(name: str, form: Format) -> Iterator[Situation]:
    yield from _right(name, form)
    yield from _thought(form)
    yield from _made_up(form)
    yield from _quoted(form)
    yield from _cut(name, form)
    yield from _damaged(name, form)


def _right(name: str, form: Format) -> Iterator[Situation]:
    write = form.write

    def one(situation: str, call: Call) -> Situation:
        return situation, write(*call), [call], True

    yield one("a call", KIEL)
    yield one("no arguments", NOW)
    yield one("two arguments", EDIT)
    yield one("other scripts", ("search", {"query": "Überfähre 渡轮 ⛴ Кіль"}))
    yield one("quotation marks", ("search", {"query": "who said \"it's 'so'\"? \\n not a line"}))
    yield one("lines", ("search", {"query": "first\n  second\n\tthird"}))
    nested = {"options": {"a": [1, {"b": "c, d: {e}"}]}, "marks": ["x]", "y}", "z"]}
    yield one("nested values", ("edit", {"path": "p", **nested}))
    types = {"line": -7, "share": 0.25, "force": True, "marks": [1.5, False, "1"]}
    yield one("types", ("edit", {"path": "12", **types}))
    yield one("the largest number", ("edit", {"path": "p", "line": 2**63 - 1}))
    yield one("a tool that is not there", ("sail", {"port": "Kiel"})) if name != "tags" else (
        "a tool that is not there", "<sail>Kiel</sail>", [], True
    )  # fmt: skip
    yield one("a missing argument", ("edit", {"line": 3}))
    yield one("an additional argument", ("edit", {"path": "p", "colour": "red"}))
    yield one("tags of thoughts in an argument", ("search", {"query": "what is </think> for"}))
    yield one("a made-up result in an argument", ("search", {"query": "<tool_response> or not"}))
    inner = form.write("search", {"query": "x"})
    if not (form.text or form.python or form.bare):
        yield one("a whole call in an argument", ("search", {"query": f"see {inner} there"}))
        yield one("the closing mark in an argument", ("search", {"query": f"a{form.close}b"}))
    two = form.join.join([write(*KIEL), write(*OSLO)])
    if form.python:
        two = f"[{_python(*KIEL)}, {_python(*OSLO)}]".join(form.around)
    yield "two calls", two, [KIEL, OSLO], True
    said = f"I look it up.\n\n{write(*KIEL)}"
    yield "after prose", said, [] if form.whole else [KIEL], True
    yield "spaces and lines around", f"\n  {write(*KIEL)}  \n", [KIEL], True
    yield "only prose", "The ferry leaves at 8; see f(x) = {x: 1} and [a, b].", [], True
    yield "an empty turn", "", [], True


def _thought(form: Format) -> Iterator[Situation]:
    begin, end = form.thoughts
    call, other = form.write(*KIEL), form.write(*OSLO)
    if begin.startswith("<|channel|>"):
        call = other = '{"query": "x"} to functions.search'  # a recipient would make it a call
    yield "only in a thought", f"{begin}I could do {call} or not.{end}No need.", [], True
    real = form.write(*OSLO)
    yield "in a thought and after it", f"{begin}I could do {call}.{end}\n{real}", [OSLO], True
    yield "in a thought that never ends", f"{begin}I could do {other}", [], True
    yield "in a thought that was cut", f"{begin}I could do {other}", [], False
    other, real = form.write(*KIEL), form.write(*OSLO)
    text = f"I could do {other}, no.\n</think>\n\n{real}"
    yield "in a thought the template began", text, [OSLO], True
    yield "in a thought, other tags", f"<thinking>{other}</thinking>\nDone.", [], True
    yield "after a thought", f"<think>\nhm\n</think>\n\n{real}", [OSLO], True


def _made_up(form: Format) -> Iterator[Situation]:
    first, second = form.write(*KIEL), form.write(*OSLO)
    for tag in ("tool_response", "information"):
        inside = f"<{tag}>\nFound: {second}\n</{tag}>"
        yield f"inside <{tag}>", inside, [], True
        yield f"inside <{tag}> after prose", f"I know it.\n{inside}\nSo 4.", [], True
        yield f"inside <{tag}> that is not closed", f"<{tag}>\nFound: {second}", [], True
        yield f"after a call, inside <{tag}>", f"{first}\n{inside}", [KIEL], True
        text = f"{first}\n<{tag}>4</{tag}>\n{second}"
        yield f"after a call and <{tag}>", text, [KIEL], True
    yield "in a user's turn", f"{first}{form.user}Do it.\n{second}", [KIEL], True
    yield "in a user's turn without a call", f"It is 4.{form.user}Do it. {second}", [], True
    yield "in a user's words", f"It is 4.\n\nUser: now do\n{second}", [], True
    yield "in a person's words", f"{first}\n\nHuman: and this?\n\nAssistant: {second}", [KIEL], True


def _quoted(form: Format) -> Iterator[Situation]:
    call = form.write(*KIEL)
    if "\n" not in call:
        yield "as inline code", f"A call looks like `{call}` in my format.", [], True
        yield "in quotation marks", f'The page says "{call}" and no more.', [], True
    yield "in a comment", f"Done.\n<!--\n{call}\n-->\n", [], True
    text = f"A call looks like this:\n```\n{call}\n```\nI need none, since it is 4."
    yield "in a code block with text after it", text, [], True
    if not call.startswith("<｜"):
        wanted = [] if form.whole else [KIEL]
        yield "in a code block at the end", f"I look.\n```\n{call}\n```", wanted, True


def _cut(name: str, form: Format) -> Iterator[Situation]:
    call = form.write(*KIEL)
    half = call[: call.index("ferry") + 4]
    yield "cut in an argument", half, [], False
    yield "cut in an argument after prose", f"I look. {half}", [], False
    yield (
        "cut in the name",
        call[: call.index("search") + 3] if name != "tags" else "<sea",
        [],
        False,
    )
    yield "cut after the whole call", call, [KIEL] if form.close or name == "tags" else [], False
    if not form.whole:
        text = f"{call}{form.join}{form.write(*OSLO).partition('Oslo')[0]}"
        yield "a whole call and a cut one", text, [KIEL], False
    if form.close not in ("", "]"):
        ended = call.removesuffix(form.close)
        assert ended != call, name
        yield "the closing mark is missing", ended, [KIEL], True
        yield "the closing mark is missing and the turn was cut", ended, [], False
    yield "ended in an argument", half, [], True


def _damaged(name: str, form: Format) -> Iterator[Situation]:
    call = form.write(*EDIT)
    huge = call.replace("3", "9" * 40)
    assert huge != call
    if name not in ("tags",):
        yield "a number too large to keep", huge, [], True
    if not (form.text or form.python or form.bare):
        single = call.replace('"a.txt"', "'a.txt'")
        yield "single quotation marks", single, [], True
        yield "a trailing comma", call.replace("3}", "3,}"), [], True
        yield "no quotation marks", call.replace('"a.txt"', "a.txt"), [], True
        yield "a bare word for a number", call.replace("3", "NaN"), [], True
        twice = form.write(*EDIT).replace(_json(EDIT[1]), _json(_json(EDIT[1])))
        if name != "llama3_json":
            yield "arguments encoded twice", twice, [EDIT], True
        yield (
            "a raw line in a string",
            call.replace("a.txt", "a\nb"),
            [("edit", {"path": "a\nb", "line": 3})],
            True,
        )
        yield "arguments in a list", call.replace(_json(EDIT[1]), "[1, 2]"), [], True
    if form.python:
        yield "JSON in place of Python", '[{"name": "now"'.join(form.around), [], True
        yield "no literal", "[search(query=open('x').read())]".join(form.around), [], True
        yield "a star", "[search(**{'query': 'x'})]".join(form.around), [], True
        yield "no names of arguments", "[search('x')]".join(form.around), [], True
    if name in TAGGED:
        yield "a word for a number", call.replace("3", "three"), [], True
        closing = TAGGED[name]
        at = call.index(closing)
        missing = call[:at].rstrip("\n") + "\n" + call[at + len(closing) :].lstrip("\n")
        wanted = "a.txt" if name == "qwen3_coder" else "a.txt\n"
        yield (
            "the first value is not closed",
            missing,
            [("edit", {"path": wanted, "line": 3})],
            True,
        )
        at = call.rindex(closing)
        missing = call[:at] + call[at + len(closing) :].lstrip("\n")
        yield "the last value is not closed", missing, [EDIT], True
    if form.bare:
        yield "no colon", call.replace("path:", "path "), [], True
        yield "no closing brace", call.replace("}", ""), [], True
        yield "no name", call.replace("call:edit", ""), [], True
    yield "another call after a damaged one", _after_damage(name, form), _kept(name), True


def _after_damage(name: str, form: Format) -> str:
    """A call whose arguments are broken, then a whole call."""
    broken = form.write(*KIEL)
    if form.python:
        return f"[{_python('search', {})[:-1]}open('x')), {_python(*OSLO)}]".join(form.around)
    if name == "tags":
        return f"<edit>{{</edit>{form.write(*OSLO)}"
    if form.text:
        broken = form.write(*EDIT).replace("3", "three")
    elif form.bare:
        broken = broken.replace("query:", "query ")
    else:
        broken = broken.replace('"query": ', '"query" ')
    return f"{broken}{form.join}{form.write(*OSLO)}"


def _kept(name: str) -> list[Call]:
    if name == "llama3_json":
        return []  # the turn is one text of JSON
    if name == "tags":
        return [("edit", {"path": "{"}), OSLO]
    return [OSLO]
