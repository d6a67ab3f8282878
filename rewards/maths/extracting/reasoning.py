"""The part of a response that counts: the text after the reasoning, up to the end of the turn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """The pair of marks that encloses a model's reasoning."""

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
    """Return (offset, text) of the part after the reasoning, or None if the reasoning never ends.

    A closer without an opener counts, because the opener may have been part of the prompt. With
    "auto" every kind of reasoning is cut off, including several in sequence.
    """
    if thinking == "none":
        return 0, response
    if "<" not in response and "◁" not in response and "[THINK]" not in response:
        return 0, response
    start, open_tag = 0, -1
    for kind in THINKING.values() if thinking == "auto" else (THINKING[thinking],):
        closed = response.rfind(kind.closer)
        if closed >= 0:
            start = max(start, closed + len(kind.closer))
        open_tag = max(open_tag, response.rfind(kind.opener))
    return None if open_tag >= start and open_tag >= 0 else (start, response[start:])


def this_turn(body: str) -> str:
    """Return the text up to the end of the model's own turn."""
    for mark in _TURN_ENDS if "<" in body else ():
        place = body.find(mark)
        if place > 0 and body[:place].strip():
            body = body[:place]
    return body
