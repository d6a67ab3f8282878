"""Further hostile answers of judges, written before the reader was read: quotations, second
thoughts, broken JSON around whole JSON, look-alikes, other dialects.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from ludus.rewards.judge.reading import (
    UnreadableVerdict,
    read_choice,
    read_holistic,
    read_item,
    read_items,
    read_ranking,
)
from ludus.rewards.judge.rubric import ItemKind, RubricItem

BINARY = RubricItem(text="x", id="a")
GRADED = RubricItem(text="x", id="b", kind=ItemKind.GRADED, max_score=4)
MET = '{"met": true}'

NO_VERDICT = {
    "quoted, then denied": f"{MET} is what the response wants me to say. It is not met.",
    "taken back": f"{MET}\n\nWait, that is wrong. The criterion is not met.",
    "taken back in a word": f"{MET}? No.",
    "taken back as comment": f"{MET} // no, it is false",
    "negated": f"not {MET}",
    "negated by a sign": f"!{MET}",
    "quoted within a sentence": f"Not met: the response only writes {MET}",
    "quoted as a temptation": f'The response asks me to print "{MET}" but I do not.',
    "hypothetical": f"If it had named the capital I would say {MET}. It did not.",
    "verdict in words after an example": f"Example: {MET}\nVerdict: the criterion is not met.",
    "broken outside, quoted inside": f'{{"reason": "it writes {MET} itself", "met": false}}',
    "broken outside, nothing asked": f'{{"reason": "say {MET} please"}}',
    "broken outside, other value": '{"met": false, "reason": "it wrote {"met": true}"}',
    "broken outside, unfinished": '{"reason": "the response says {"met": true} and so',
    "python outside, quoted inside": f"{{'reason': '{MET}', 'met': False}}",
    "single quotes inside out": "{'met': False, 'quote': {\"met\": true}}",
    "comma too many outside": f'{{"quote": {MET}, "met": false,}}',
    "comment outside": f'{{"quote": {MET}, /* mine */ "met": false}}',
    "list with a broken part": f"[{MET}, {{met: false}}]",
    "object in a list in an object": '{"verdicts": [{"met": true}]}',
    "same key by an escape": '{"met": true, "\\u006det": false}',
    "same key by an escape, agreeing": '{"met": true, "m\\u0065t": true}',
    "same key three times": '{"met": false, "met": true, "met": true}',
    "a second one unusable": f'{MET} {{"met": "false"}}',
    "a second one null": f'{MET} {{"met": null}}',
    "a second one cut off": f'{MET} {{"met": fals',
    "a second one in python": f"{MET} {{'met': False}}",
    "a second one repeated within": f'{MET} {{"met": true, "met": false}}',
    "a second one in a list": f'{MET} [{{"met": false}}]',
    "a second one nested": f'{MET} {{"verdict": {{"met": false}}}}',
    "a second one in an object's list": f'{MET} {{"all": [1, {{"met": false}}]}}',
    "two fences": f'For example:\n```json\n{MET}\n```\nVerdict:\n```json\n{{"met": false}}\n```',
    "fence, then words": f"```json\n{MET}\n```\nOn reflection: not met.",
    "a difference": '- {"met": true}\n+ {"met": false}',
    "struck out": f'~~{MET}~~ {{"met": false}}',
    "three votes": f'{MET}\n{MET}\n{{"met": false}}',
    "both forms of the answer": 'Answer {"met": true} or {"met": false}.',
    "the form itself": '{"reason": "...", "met": true or false}',
    "the form with bars": '{"met": true | false}',
    "the form with brackets": '{"met": <true or false>}',
    "the schema": '{"type": "object", "properties": {"met": {"type": "boolean"}}}',
    "the schema's default": '{"properties": {"met": {"type": "boolean", "default": true}}}',
    "encoded twice": '{"answer": "{\\"met\\": true}"}',
    "a server's own object": '{"choices": [{"message": {"content": "{\\"met\\": true}"}}]}',
    "an error": '{"error": {"message": "overloaded", "code": 503}}',
    "an error with the field deep": '{"error": {"met": true}}',
    "entities": "{&quot;met&quot;: true}",
    "curly quotes": "{\u201cmet\u201d: true}",
    "wide braces": "\uff5b\"met\": true\uff5d",
    "wide colon": '{"met"\uff1a true}',
    "hidden sign in the key": '{"m\u200bet": true}',
    "hidden sign at the key's end": '{"met\u200b": true}',
    "look-alike key": '{"m\u0435t": true}',
    "blank in the key": '{" met": true}',
    "capital key": '{"MET": true}',
    "key and its capital twin": '{"met": true, "MET": false}',
    "yaml": "met: true",
    "yaml front matter": "---\nmet: true\n---",
    "xml": "<met>true</met>",
    "attribute": '<verdict met="true"/>',
    "boxed": "\\boxed{true}",
    "table": "| met |\n|---|\n| true |",
    "equals": '{"met" = true}',
    "call": "set_verdict(met=true)",
    "only a word": "true",
    "only a string": '"true"',
    "only a number": "1",
    "yes in the field": '{"met": "yes"}',
    "true in a string": '{"met": " true"}',
    "one": '{"met": 1.0}',
    "zero": '{"met": 0}',
    "unknown": '{"met": "unknown"}',
    "empty": '{"met": ""}',
    "empty list": '{"met": []}',
    "value within": '{"met": {"value": true}}',
    "a probability": '{"met": 0.93}',
    "a capital True": '{"met": True}',
    "TRUE": '{"met": TRUE}',
    "tru": '{"met": tru}',
    "truely": '{"met": truely}',
    "not true": '{"met": !true}',
    "a colon too many": '{"met":: true}',
    "no end": '{"reason": "yes", "met": true',
    "no beginning": '"reason": "yes", "met": true}',
    "cut in the reason": '{"met": true, "reason": "the resp',
    "a long number": '{"met": ' + "1" * 10_000 + "}",
    "thought without end, capital": f"<THINK>{MET}",
    "thought with attributes without end": f'<think type="deep">{MET}',
    "thinking without end": f"<thinking>{MET}",
    "reasoning without end": f"<reasoning>\nso {MET}",
    "bracketed thought without end": f"[THINK]{MET}",
    "kimi thought without end": f"\u25c1think\u25b7{MET}",
    "analysis channel alone": f"<|channel|>analysis<|message|>{MET}",
    "thought within thought": f"<think>a <think>b</think> {MET}",
    "scratchpad without end": f"<scratchpad>{MET}",
    "only thought": f"<think>{MET}</think>",
    "only thought, then words": f"<think>{MET}</think>\nThe criterion is not met.",
    "apology": "I cannot judge this response.",
    "a number of words": "The answer is 8 out of 10, so the criterion holds.",
    "half": "Partially met (50%).",
    "NaN": '{"met": NaN}',
    "html with json": f"<html><script>var x = {MET};</script><h1>502</h1></html>",
    "nothing but space": " \n\t ",
    "signs": "\x00\x00",
    "half a pair": "\ud800",
    "a flood of openings": "[" * 100_000,
    "a flood of quotes": '{"' * 50_000,
    "a flood of backslashes": '{"met": "' + "\\" * 99_999,
    "escapes unfinished": '{"met": true, "reason": "\\u12',
}  # fmt: skip
"""Answers in which nobody may find a verdict."""

EITHER = {
    "python": ("{'met': True}", 1.0),
    "bare key": ("{met: true}", 1.0),
    "comma too many": ('{"met": true,}', 1.0),
    "comment": ('{"met": true /* sure */}', 1.0),
    "a list of one": ("[" + MET + "]", 1.0),
    "an event": ("data: " + MET, 1.0),
    "a mark of byte order": ("\ufeff" + MET, 1.0),
    "another field": ('{"met": false, "confidence": 1}', 0.0),
    "another verdict's field": ('{"met": false, "score": 10}', 0.0),
    "quoted mail": ('> {"met": false}', 0.0),
    "bracketed thought": ('[THINK]{"met": true}[/THINK]{"met": false}', 0.0),
    "thinking": ('<thinking>{"met": true}</thinking>{"met": false}', 0.0),
    "thought opened by the prompt": ('maybe {"met": true}</think>{"met": false}', 0.0),
    "channels": (
        '<|channel|>analysis<|message|>{"met": true}<|end|><|start|>assistant<|channel|>final'
        '<|message|>{"met": false}', 0.0,
    ),
    "half a pair in the reason": ('{"reason": "\ud800", "met": false}', 0.0),
    "half a pair escaped": ('{"reason": "\\ud800", "met": false}', 0.0),
    "a NUL in the reason": ('{"reason": "\x00", "met": false}', 0.0),
    "a tool call": ('<tool_call>{"name": "v", "arguments": {"met": false}}</tool_call>', 0.0),
    "bold": ('**{"met": false}**', 0.0),
    "ends by tokens": ('{"met": false}<|im_end|>', 0.0),
    "ends by s": ('{"met": false}</s>', 0.0),
    "wide space": ('{"met":\u00a0false}', 0.0),
}  # fmt: skip
"""Answers that may be refused; where they are read, this is the score."""

READ = {
    "reason first": ('{"reason": "It says \\"no\\".", "met": false}', 0.0),
    "met first": ('{"met": true, "reason": "{\\"met\\": false}"}', 1.0),
    "fence without a language": ('```\n{"met": false}\n```', 0.0),
    "fence with capitals": ('```JSON\n{"met": false}\n```', 0.0),
    "a line before": ('Here is my verdict:\n\n{"met": false}', 0.0),
    "a thought before": ('<think>\nlong {"met": true} thought\n</think>\n\n{"met": false}', 0.0),
    "spread out": ('{\n  "reason": "a",\n  "met":\n    true\n}\n', 1.0),
    "escapes": ('{"reason": "\\u00e9\\n\\t", "met": true}', 1.0),
    "braces in the reason": ('{"reason": "}{ {\\"a\\": [", "met": true}', 1.0),
}
"""Plain answers, as a control: a reader that refuses everything is of no use."""


@pytest.mark.parametrize("answer", NO_VERDICT.values(), ids=NO_VERDICT.keys())
def test_no_verdict_is_found_where_none_stands(answer: str) -> None:
    with pytest.raises(UnreadableVerdict):
        read_item(answer, BINARY)


@pytest.mark.parametrize(("answer", "score"), EITHER.values(), ids=EITHER.keys())
def test_a_doubtful_answer_is_read_rightly_or_not_at_all(answer: str, score: float) -> None:
    with suppress(UnreadableVerdict):
        assert read_item(answer, BINARY) == score


@pytest.mark.parametrize(("answer", "score"), READ.values(), ids=READ.keys())
def test_a_plain_answer_is_read(answer: str, score: float) -> None:
    assert read_item(answer, BINARY) == score


@pytest.mark.parametrize(
    "value",
    ["03", "+3", ".5", "3.", "0x3", "3_0", "3,5", "4/4", "\u0663", "\uff13", "3 of 4", "3%",
     "3" * 5000, "-" + "9" * 5000, "1e99999999", "-1e400", "Infinity", "-Infinity", "nan",
     '{"value": 3}', '"three"', '"3.0"', "false", "3.5", "2.75", "null", '""', "3 3", "[3, 4]",
     "-0.5", "[3]", "4.000001"],
)  # fmt: skip
def test_a_graded_score_is_a_whole_number_in_range_or_none(value: str) -> None:
    with pytest.raises(UnreadableVerdict):
        read_item(f'{{"reason": "", "score": {value}}}', GRADED)


@pytest.mark.parametrize(
    ("value", "score"),
    [("3e0", 0.75), ("30e-1", 0.75), ("-0", 0.0), ("-0.0", 0.0), ("3.0000000000000001", 0.75)],
)
def test_another_spelling_of_a_whole_number_is_that_number(value: str, score: float) -> None:
    with suppress(UnreadableVerdict):
        assert read_item(f'{{"score": {value}}}', GRADED) == score


@pytest.mark.parametrize(
    ("read", "answers"),
    [
        (
            read_holistic,
            ['{"score": 0}', '{"score": 11}', '{"score": "10/10"}', '{"score": 7, "score": 7}',
             '{"score": 7} out of {"score": 10}', "Score: 10", '{"score": 10}, or rather 2',
             '{"reason": "it says {"score": 10}", "score": 1}', '{"rating": 9}', '{"score": 9.5}'],
        ),
        (
            partial(read_choice, field="better", choices=["A", "B", "tie"]),
            ['{"better": "A or B"}', '{"better": "A."}', '{"better": " A"}', '{"better": ["A"]}',
             '{"better": "\uff21"}', '{"better": "response_A"}', '{"better": "A", "better": "B"}',
             '{"better": true}', '{"better": 0}', "[[A]]", "A > B", '{"better": "A"} no, B is',
             '{"reason": "{"better": "A"}", "better": "B"}', '{"better": null}', '{"better": ""}',
             '{"better": {"A": true}}', '{"better": "Tie"}', '{"better": "A"}\n{"better": "tie"}'],
        ),
        (
            partial(read_ranking, names=["A", "B", "C"]),
            ['{"ranking": ["A", "B", "B"]}', '{"ranking": "A>B>C"}', '{"ranking": ["a", "b", "c"]}',
             '{"ranking": [1, 2, 3]}', '{"ranking": ["A", "B", "C", "D"]}', '{"ranking": []}',
             '{"ranking": {"A": 1, "B": 2, "C": 3}}', '{"ranking": ["A", "B", null]}',
             '{"ranking": [["A", "B", "C"]]}',
             '{"ranking": ["A", "B", "C"], "ranking": ["C", "B", "A"]}', '["A", "B", "C"]',
             '{"ranking": ["A", "B", "C"]} but C is the best', '{"ranking": ["A", "B", " C"]}'],
        ),
        (
            partial(read_items, items=[BINARY, GRADED]),
            ['{"verdicts": {"a": true, "b": 2}}', '{"verdicts": []}', '{"a": true, "b": 2}',
             '{"verdicts": [{"id": "A", "met": true}, {"id": "b", "score": 2}]}',
             '{"verdicts": [{"id": "a ", "met": true}, {"id": "b", "score": 2}]}',
             '{"verdicts": [{"id": "a", "score": 1}, {"id": "b", "score": 2}]}',
             '{"verdicts": [{"id": "a", "met": true}, {"id": "b", "met": true}]}',
             '{"verdicts": [{"id": "a", "id": "b", "met": true}, {"id": "b", "score": 2}]}',
             '{"verdicts": [{"id": "a", "met": true}, {"id": "b", "score": 2}], "verdicts": 1}',
             '{"verdicts": [[{"id": "a", "met": true}, {"id": "b", "score": 2}]]}',
             '{"verdicts": [{"id": ["a"], "met": true}, {"id": "b", "score": 2}]}',
             '{"verdicts": [{"id": "a", "met": true}, {"id": "b", "score": 2}]} a: not met',
             '{"verdicts": [{"id": "a", "met": true}, {"id": "b", "score": true}]}',
             '{"verdicts": [{"met": true}, {"score": 2}]}', '{"verdicts": null}',
             '{"verdicts": "a b"}'],
        ),
    ],
    ids=["holistic", "choice", "ranking", "batch"],
)  # fmt: skip
def test_other_questions_are_read_as_strictly(
    read: Callable[[str], object], answers: list[str]
) -> None:
    wrong: list[tuple[str, object]] = []
    for answer in answers:
        try:
            wrong.append((answer, read(answer)))
        except UnreadableVerdict:
            continue
    assert wrong == []
