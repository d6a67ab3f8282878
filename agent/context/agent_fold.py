"""The manager `agent_fold`: with each action the policy folds its latest steps into a block.

    window t     s_1, blocks of the steps before, step t-1 in full
             ->  <compress>{"compress_range": [k, t-1], "compress_text": "..."}</compress> action t

After "AgentFold: Long-Horizon Web Agents with Proactive Context Management" (arXiv 2510.24699): a
directive covers a range that ends with the newest step. Where the range is that step alone, one
block is added; where it begins with an earlier block, that block and all later ones become one. The
paper trains by imitation; here the directive is sampled and trained with the action.

What the paper leaves open: a directive that is missing or cannot be read folds the newest step into
a block without a text, so that a policy pays for it and the window stays bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from ludus.messages import Message

from ..trajectory import Stop
from .decisions import Reopen
from .history import History, add_to_prompt
from .keep import last_exchanges
from .protocol import ContextManager

INSTRUCTION = (
    'Begin every reply after the first with <compress>{"compress_range": [k, t], "compress_text": '
    '"..."}</compress>, then act. Step t is the newest; k is t, or the first step of a block that '
    "is to be joined with all after it. Only the blocks and the newest step stay in view."
)
NOTHING = "(nothing was kept)"
_DIRECTIVE = re.compile(r"<compress>(.*?)</compress>\s*", re.DOTALL)


class Directive(msgspec.Struct, frozen=True):
    """A policy's order to fold a span of steps."""

    compress_range: tuple[int, int]
    compress_text: str


@dataclass(frozen=True, slots=True)
class Block:
    """Steps that were folded into a text."""

    first: int
    last: int
    text: str

    def __str__(self) -> str:
        """Return the block as the policy reads it."""
        steps = (
            f"Step {self.first}"
            if self.first == self.last
            else f"Steps {self.first} to {self.last}"
        )
        return f"{steps}: {self.text}"


@dataclass(frozen=True, slots=True)
class FoldSteps(ContextManager):
    """Keeps blocks that the policy writes, and the newest step.

    Args:
        instruction: the text after the first prompt that asks for directives.
    """

    instruction: str = INSTRUCTION
    name = "agent_fold"
    needs_window = False
    _folded: list[Block] = field(init=False, repr=False, default_factory=list[Block])

    def begin(self) -> FoldSteps:
        """Return a manager without blocks."""
        return FoldSteps(self.instruction)

    def before_turn(self, history: History) -> Reopen | None:
        """Open a window with the blocks and the newest step."""
        if not history.actions:
            return None
        return Reopen(last_exchanges(history, 1), self.name)

    def when_full(self, history: History) -> Stop:
        """End the episode: the blocks and one step do not fit."""
        return Stop.CONTEXT_FULL

    def opens(self, opening: list[Message], history: History) -> list[Message]:
        """Add the instruction and the blocks."""
        return add_to_prompt(opening, "\n".join([self.instruction, *map(str, self._folded)]))

    def hear(self, text: str, history: History) -> str:
        """Take the directive out and carry it out."""
        steps = len(history.actions)
        if steps:
            self._fold(_DIRECTIVE.findall(text), steps)
        return _DIRECTIVE.sub("", text)

    def rehearse(self, action: Message, summarise: Callable[[], str], history: History) -> Message:
        """Fold all steps into one block with what the expert knows."""
        steps = len(history.actions)
        if not steps:
            return action
        directive_text = msgspec.json.encode(Directive((1, steps), summarise())).decode()
        return msgspec.structs.replace(
            action, content=f"<compress>{directive_text}</compress>{action.text}"
        )

    def _fold(self, directives: list[str], steps: int) -> None:
        """Fold the newest step as the last directive says, or without a text."""
        blocks = self._folded
        first, last, text = _read(directives[-1]) if directives else (0, 0, "")
        if last == steps and first in {steps, *(block.first for block in blocks)}:
            kept_blocks = [block for block in blocks if block.last < first]
            self._folded[:] = [*kept_blocks, Block(first, steps, text)]
        elif not blocks or blocks[-1].last < steps:
            blocks.append(Block(steps, steps, NOTHING))


def _read(text: str) -> tuple[int, int, str]:
    """Return the first step, the last step and the text of a directive; zeros if unreadable."""
    try:
        read = msgspec.json.decode(text, type=Directive)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0, 0, ""
    return *read.compress_range, read.compress_text
