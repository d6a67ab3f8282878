"""Context managers with which the policy itself decides what is folded into a summary, or kept.

    main       ... branch(prompt)                       | result of the branch ...
    branch                        work ... return(message)

After "Scaling Long-Horizon LLM Agent via Context-Folding" (arXiv 2510.11967): the content of a
branch leaves the window on return; the call that opened the branch and the returned message
stay. Each return begins a new segment. Branches do not nest.

    window t     s_1, blocks of the steps before, step t-1 in full
             ->  <compress>{"compress_range": [k, t-1], "compress_text": "..."}</compress> action t

After "AgentFold: Long-Horizon Web Agents with Proactive Context Management" (arXiv 2510.24699): a
directive covers a range that ends with the newest step. Where the range is that step alone, one
block is added; where it begins with an earlier block, that block and all later ones become one. The
paper trains by imitation; here the directive is sampled and trained with the action.

The paper does not say what a missing directive does. Here it folds the newest step into a block
without a text, as one that cannot be read does: the policy loses the step, and the window stays
bounded.

    window t     s_1, state t-1, the newest exchange      ->  <IS>state t</IS> action t

After "MEM1: Learning to Synergize Memory and Reasoning for Efficient Long-Horizon Agents" (arXiv
2506.15841): before each turn everything is removed but the state and the newest action with its
answer, so that the window does not grow with the episode. Each turn is a segment. The paper packs
the turns of a rollout into one sequence with a two-dimensional attention mask; here each turn is a
row, in which every token has the same context as there, and so the same gradient.

The state is taken out of the action before the environment sees the action. After an action without
a state, the state is empty: what the policy does not write down is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from ludus.messages import Message, Role, ToolCall, tool_result

from ..trajectory import Stop
from .keep import last_exchanges
from .protocol import (
    REFUSED,
    ContextManager,
    Handled,
    History,
    Reopen,
    add_to_prompt,
    own_calls,
    refuse,
    tagged,
    text_missing,
    tool_spec,
)

OPENED = "You are in a branch now. Work on its prompt only, then call return_branch."


BRANCH = tool_spec(
    "branch",
    "Begin a sub-task in a branch; what happens there is folded away when it returns.",
    {"prompt": "what to do there, with all it takes to do it"},
    required=["prompt"],
)
RETURN = tool_spec(
    "return_branch",
    "End the branch; only this message is kept of it.",
    {"message": "what was found out"},
    required=["message"],
)


@dataclass(frozen=True, slots=True)
class Fold(ContextManager):
    """Lets the policy open branches and return.

    Args:
        max_summaries: how many branches an episode may open.
    """

    max_summaries: int = 7
    name = "fold"
    tools = (BRANCH, RETURN)
    needs_window = False  # folding is the policy's own decision

    def when_full(self, history: History) -> Stop:
        """End the episode, since the policy did not fold in time."""
        return Stop.CONTEXT_FULL

    def handle(self, action: Message, history: History) -> Handled | None:
        """Open or close a branch; a call that cannot be followed is answered with the reason."""
        fold_calls = own_calls(action, self.tools)
        if not fold_calls:
            return None
        if len(action.tool_calls) > 1:
            return refuse(action.tool_calls, f"call {fold_calls[0].name} alone, nothing beside it")
        view = history.view
        return (
            self._branch(fold_calls[0], view)
            if fold_calls[0].name == BRANCH.name
            else _return(fold_calls[0], view)
        )

    def _branch(self, call: ToolCall, view: Sequence[Message]) -> Handled:
        reason = call.error or text_missing(call, "prompt")
        if _open_branch(view) is not None:
            reason = "this is a branch already; call return_branch first"
        elif sum(_is_result(message) for message in view) >= self.max_summaries:
            reason = f"all {self.max_summaries} branches are used"
        if reason:
            return refuse([call], reason)
        return Handled([tool_result(OPENED, call)])


def _return(call: ToolCall, view: Sequence[Message]) -> Handled:
    branch = _open_branch(view)
    reason = call.error or text_missing(call, "message")
    if branch is None:
        reason = "there is no branch to return from"
    elif not reason and call.arguments["message"].startswith((OPENED, REFUSED)):
        # Branches are counted by their results, which must not read like these.
        reason = "the message has to say what was found out"
    if reason or branch is None:
        return refuse([call], reason)
    opened_by = view[branch - 1].tool_calls[0]
    result = tool_result(call.arguments["message"], opened_by)
    return Handled([*view[:branch], result], reopen=True)


def _is_result(message: Message) -> bool:
    """Return whether the message answers a `branch` call that was executed, open or returned."""
    return (
        message.role is Role.TOOL
        and message.name == BRANCH.name
        and not message.text.startswith(REFUSED)
    )


def _open_branch(view: Sequence[Message]) -> int | None:
    """Return the index of the answer that opened the current branch, or None outside a branch."""
    for index, message in enumerate(view):
        if _is_result(message) and message.text == OPENED:
            return index
    return None


FOLD_INSTRUCTION = (
    'Begin every reply after the first with <compress>{"compress_range": [k, t], "compress_text": '
    '"..."}</compress>, then act. Step t is the newest; k is t, or the first step of a block that '
    "is to be joined with all after it. Only the blocks and the newest step stay in view."
)
NOTHING = "(nothing was kept)"
"""The text of a block for which the policy gave none."""


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
        """Return the text of the block for the policy."""
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

    instruction: str = FOLD_INSTRUCTION
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
        """End the episode: the blocks and a single step do not fit the window."""
        return Stop.CONTEXT_FULL

    def opens(self, opening: list[Message], history: History) -> list[Message]:
        """Add the instruction and the blocks."""
        return add_to_prompt(opening, "\n".join([self.instruction, *map(str, self._folded)]))

    def hear(self, text: str, history: History) -> str:
        """Carry out the directives in `text`, and return the text without directives."""
        steps = len(history.actions)
        directives, others = tagged(text, "compress")
        if steps:
            # The newest step is folded as the last directive says, or without a text.
            blocks = self._folded
            first, last, said = _read(directives[-1]) if directives else (0, 0, "")
            if last == steps and first in {steps, *(block.first for block in blocks)}:
                kept_blocks = [block for block in blocks if block.last < first]
                self._folded[:] = [*kept_blocks, Block(first, steps, said)]
            elif not blocks or blocks[-1].last < steps:
                blocks.append(Block(steps, steps, NOTHING))
        return others

    def rehearse(self, action: Message, summarise: Callable[[], str], history: History) -> Message:
        """Fold all steps into a single block with what the expert knows."""
        steps = len(history.actions)
        if not steps:
            return action
        directive_text = msgspec.json.encode(Directive((1, steps), summarise())).decode()
        return msgspec.structs.replace(
            action, content=f"<compress>{directive_text}</compress>{action.text}"
        )


def _read(text: str) -> tuple[int, int, str]:
    """Return the first step, the last step and the text of a directive; zeros if unreadable."""
    try:
        read = msgspec.json.decode(text, type=Directive)
    except (ValueError, RecursionError):  # a policy that loops nests as deep as it can
        return 0, 0, ""
    return *read.compress_range, read.compress_text


STATE_INSTRUCTION = (
    "Begin every reply with <IS>, all that you need to remember, and </IS>; then act. You will see "
    "the task, that text and the answer to your last action, and nothing older."
)


@dataclass(slots=True)
class _Written:
    state: str = ""


@dataclass(frozen=True, slots=True)
class InternalState(ContextManager):
    """Keeps the policy's own state between turns, and nothing else.

    Args:
        instruction: the text after the first prompt that asks for the state.
    """

    instruction: str = STATE_INSTRUCTION
    name = "mem1"
    needs_window = False
    _written: _Written = field(init=False, repr=False, default_factory=_Written)

    def begin(self) -> InternalState:
        """Return a manager without a state."""
        return InternalState(self.instruction)

    def before_turn(self, history: History) -> Reopen | None:
        """Open a window with the state and the newest exchange."""
        if not history.actions:
            return None
        return Reopen(last_exchanges(history, 1), self.name)

    def when_full(self, history: History) -> Stop:
        """End the episode: the state and a single exchange do not fit the window."""
        return Stop.CONTEXT_FULL

    def opens(self, opening: list[Message], history: History) -> list[Message]:
        """Add the instruction and the state."""
        state = self._written.state
        instruction = f"{self.instruction}\n\n<IS>{state}</IS>" if state else self.instruction
        return add_to_prompt(opening, instruction)

    def hear(self, text: str, history: History) -> str:
        """Take the state out; several are joined."""
        states, others = tagged(text, "IS")
        self._written.state = "\n".join(state.strip() for state in states)
        return others

    def rehearse(self, action: Message, summarise: Callable[[], str], history: History) -> Message:
        """Put what the expert knows in front of the action."""
        return msgspec.structs.replace(action, content=f"<IS>{summarise()}</IS>{action.text}")
