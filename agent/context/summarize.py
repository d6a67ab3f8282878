"""The manager `summarize`: the policy writes a summary and continues from that text (SUPO).

    s_t full  ->  s_t, instruction -> summary         ends this segment; trained like an action
              ->  s_1 + summary                       the prompt of the next

After "Scaling LLM Multi-turn RL with End-to-end Summarization-based Context Management" (arXiv
2510.06727): L = 0.95 of the window; the last action and its observation are dropped before the
instruction, so that one long observation cannot crowd out the summary. The environment has
executed that action all the same and is not rolled back.

Dropping suits environments whose observations can be fetched again. `last_pair` offers two
alternatives:

    discard   gone from this window and from the next; the action is not trained (the paper)
    carry     the action ends this segment and is trained; both are shown again after the summary
    keep      both are in front of the instruction; what is to survive must be in the summary
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ludus.errors import ConfigError
from ludus.messages import user

from ..trajectory import Stop
from .decisions import Reopen, WriteSummary
from .history import History, add_to_prompt
from .protocol import ContextManager, Sizes, require_room_to_act

LastPair = Literal["discard", "carry", "keep"]

INSTRUCTION = (
    "The conversation has grown too long to go on with. Write a summary between <summary> and "
    "</summary> that you will go on from: you will see the task and this summary, and nothing "
    "else. Keep what was found out, what was tried, and what to do next. Call no tool now."
)
CONTINUATION = "Your summary of the work so far:\n{summary}"


@dataclass(frozen=True, slots=True)
class Summarize(ContextManager):
    """Summaries of the context that the policy writes and is trained on.

    Args:
        threshold: the share of the window from which the window counts as full; L = threshold * W.
        max_summaries: S; after S summaries a full window ends the episode (overlong).
        summary_tokens: the most sampled tokens of a summary.
        last_pair: what happens to the last action and its observation.
        train_summaries: False leaves the summaries out of the loss: an ablation.
        instruction: the text that asks for a summary.
        continuation: the text added to the first prompt after a summary; contains `{summary}`.
    """

    threshold: float = 0.95
    max_summaries: int = 7
    summary_tokens: int = 256
    last_pair: LastPair = "discard"
    train_summaries: bool = True
    instruction: str = INSTRUCTION
    continuation: str = CONTINUATION
    name = "summarize"

    def __post_init__(self) -> None:
        if self.max_summaries < 1 or self.summary_tokens < 1:
            raise ConfigError(
                "context.max_summaries and context.summary_tokens must be at least 1, got "
                f"{self.max_summaries} and {self.summary_tokens}"
            )
        if "{summary}" not in self.continuation:
            raise ConfigError(
                f"context.continuation must hold {{summary}}, got {self.continuation!r}"
            )

    def limit(self, window: int) -> int:
        """Return L, `threshold` times the window."""
        return int(self.threshold * window)

    def when_full(self, history: History) -> WriteSummary | Stop:
        """Ask for a summary, or stop if all summaries are used."""
        if history.summaries >= self.max_summaries:
            return Stop.MAX_SUMMARIES
        return WriteSummary(
            instruction=user(self.instruction),
            max_tokens=self.summary_tokens,
            drop_last=self.last_pair == "discard",
            show_newest=self.last_pair == "keep",
            trained=self.train_summaries,
            resume=lambda summary: self._resume(history, summary),
        )

    def check(self, sizes: Sizes) -> None:
        """Require that a window holds a step after the longest summary, and that the summary
        fits.
        """
        limit = self.limit(sizes.window)
        opening_tokens = sizes.reopened + self.summary_tokens
        made_of = (
            f"the first prompt, {sizes.reopened}, and a full summary, {self.summary_tokens}: "
            "context.summary_tokens"
        )
        require_room_to_act(self.name, sizes, limit, opening_tokens, made_of)
        # An action may begin just below the limit, and is sampled to the end of the window at most.
        # Under `discard` it is cut off again before the summary (decision 0501).
        last = 0 if self.last_pair == "discard" else min(sizes.answer, sizes.window - limit)
        longest = limit + last + sizes.instruction + self.summary_tokens
        if longest > sizes.row:
            raise ConfigError(
                f"a summary may begin at {limit + last} tokens, needs {sizes.instruction} for its "
                f"instruction and up to {self.summary_tokens} (context.summary_tokens): {longest}, "
                f"but the engine takes {sizes.row}; lower context.threshold or "
                "context.summary_tokens"
            )

    def overrun(self) -> int:
        """Return what the instruction and the longest summary may take."""
        return written_overrun(self.instruction, self.summary_tokens)

    def _resume(self, history: History, summary: str) -> Reopen:
        # Not `format`: the texts may have braces of their own.
        opening = add_to_prompt(history.opening, self.continuation.replace("{summary}", summary))
        carried_messages = history.last(1) if self.last_pair == "carry" else []
        return Reopen([*opening, *carried_messages], "summary")


INSTRUCTION_MARKS = 64
"""Number of tokens that a chat template may put around an instruction."""


def written_overrun(instruction: str, tokens: int) -> int:
    """Return the most tokens that an instruction and the text written after that may take."""
    # No tokenizer is known here. A token has at least one byte, so the bytes bound the tokens.
    return len(instruction.encode()) + INSTRUCTION_MARKS + tokens


_TAGGED = re.compile(r"<summary>(.*?)</summary>", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)


def read_summary(text: str) -> str:
    """Return the summary in the policy's text: the last tagged summary, else everything but
    thoughts. A summary that was cut at its budget has no closing tag, and is still returned.

    >>> read_summary("<think>hm</think> <summary>a=5</summary>")
    'a=5'
    >>> read_summary("a=5 <summary>b")
    'a=5 b'
    """
    text_after_thoughts = _THOUGHT.sub("", text)
    tagged: list[str] = _TAGGED.findall(text_after_thoughts)
    if tagged:
        return tagged[-1].strip()
    return text_after_thoughts.replace("<summary>", "").strip()
