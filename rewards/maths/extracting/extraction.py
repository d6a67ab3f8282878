"""Where in a response the answer is: the last box, else a closing sentence, else the last
expression.

Everything is a search from the end, so 200 KB cost as much as 2 KB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .boxes import boxed
from .closing import last_expression
from .excerpt import MAX_ANSWER, Extraction
from .sentences import announced, restated, tagged


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """How a model marks its reasoning."""

    opener: str
    closer: str


THINKING: dict[str, Thinking] = {
    "think": Thinking(opener="<think>", closer="</think>"),
    "thinking": Thinking(opener="<thinking>", closer="</thinking>"),
    "thought": Thinking(opener="<|begin_of_thought|>", closer="<|end_of_thought|>"),
    "gpt-oss": Thinking(opener="<|channel|>analysis", closer="<|channel|>final<|message|>"),
    "reasoning": Thinking(opener="<reasoning>", closer="</reasoning>"),
    "kimi": Thinking(opener="◁think▷", closer="◁/think▷"),
    "magistral": Thinking(opener="[THINK]", closer="[/THINK]"),
    "seed": Thinking(opener="<seed:think>", closer="</seed:think>"),
}
ThinkingOption = Literal["auto", "none"] | str


_TURN_ENDS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|endoftext|>",
    "</s>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|return|>",
)


def visible(response: str, thinking: str = "auto") -> tuple[int, str] | None:
    """(offset, text) of what follows the reasoning; None if the reasoning never ends.

    A lone closer counts: its opener was in the prompt.
    """
    if thinking == "none":
        return 0, response
    if "<" not in response and "◁" not in response and "[THINK]" not in response:
        return 0, response
    kinds = THINKING.values() if thinking == "auto" else (THINKING[thinking],)
    for kind in kinds:
        closed = response.rfind(kind.closer)
        opened = response.rfind(kind.opener)
        if opened > closed:
            return None
        if closed >= 0:
            start = closed + len(kind.closer)
            return start, response[start:]
    return 0, response


def extract(response: str, *, thinking: str = "auto", truncated: bool = False) -> Extraction:
    """The answer in `response`.

    `thinking` is "auto", "none" or a key of THINKING; `truncated` says the response was cut off,
    which forbids taking its last expression.

    >>> extract(r"so $x$ is \\\\boxed{\\\\frac{1}{2}}.").text
    '\\\\\\\\frac{1}{2}'
    """
    shown = visible(response, thinking)
    if shown is None:
        return Extraction(
            None, "thinking", reason="the reasoning is never closed, so there is no answer after it"
        )
    offset, body = shown
    body = _this_turn(body)
    if not body.strip():
        return Extraction(
            None,
            "empty",
            offset,
            offset,
            reason="nothing follows the reasoning" if offset else "the response is empty",
        )
    found = boxed(body)
    if found is not None and found.text is not None:
        found = restated(body, found) or found
    found = found or tagged(body) or announced(body)
    if found is None:
        if truncated:
            return Extraction(
                None, "truncated", offset, offset, reason="cut off before a marked answer"
            )
        found = last_expression(body)
    if found.text is not None and len(found.text) > MAX_ANSWER:
        return Extraction(
            None,
            found.rule,
            offset + found.start,
            offset + found.end,
            f"the answer is longer than {MAX_ANSWER} characters",
        )
    if not offset:
        return found
    return Extraction(
        found.text, found.rule, offset + found.start, offset + found.end, found.reason
    )


def _this_turn(body: str) -> str:
    """Without what a model wrote after the end of its own turn."""
    for mark in _TURN_ENDS if "<" in body else ():
        place = body.find(mark)
        if place > 0 and body[:place].strip():
            body = body[:place]
    return body
