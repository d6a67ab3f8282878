"""The manager `mem1`: each action rewrites an internal state, and the window holds nothing older.

    window t     s_1, state t-1, the newest exchange      ->  <IS>state t</IS> action t

After "MEM1: Learning to Synergize Memory and Reasoning for Efficient Long-Horizon Agents" (arXiv
2506.15841): before each turn everything is removed but the state and the newest action with its
answer, so the window stays as long whatever the episode's length. Each turn is a segment. The paper
packs the turns of a rollout into one sequence with a two-dimensional attention mask; rows of their
own give every token the same context, and so the same gradient.

The state is taken out of the action before the environment hears the action. An action without a
state leaves none: what the policy does not write down is gone.
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
    "Begin every reply with <IS>, all that you need to remember, and </IS>; then act. You will see "
    "the task, that text and the answer to your last action, and nothing older."
)
_STATE = re.compile(r"<IS>(.*?)</IS>\s*", re.DOTALL)


@dataclass(slots=True)
class _Written:
    state: str = ""


@dataclass(frozen=True, slots=True)
class InternalState(ContextManager):
    """Keeps the policy's own state between turns, and nothing else.

    Args:
        instruction: the text after the first prompt that asks for the state.
    """

    instruction: str = INSTRUCTION
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
        """End the episode: the state and one exchange do not fit."""
        return Stop.CONTEXT_FULL

    def opens(self, opening: list[Message], history: History) -> list[Message]:
        """Add the instruction and the state."""
        state = self._written.state
        instruction = f"{self.instruction}\n\n<IS>{state}</IS>" if state else self.instruction
        return add_to_prompt(opening, instruction)

    def hear(self, text: str, history: History) -> str:
        """Take the state out; several are joined."""
        self._written.state = "\n".join(state.strip() for state in _STATE.findall(text))
        return _STATE.sub("", text)

    def rehearse(self, action: Message, summarise: Callable[[], str], history: History) -> Message:
        """Put what the expert knows in front of the action."""
        return msgspec.structs.replace(action, content=f"<IS>{summarise()}</IS>{action.text}")
