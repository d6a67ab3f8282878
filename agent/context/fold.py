"""The manager `fold`: the policy opens a branch for a sub-task, and the branch is folded away on
return.

    main       ... branch(prompt)                       | result of the branch ...
    branch                        work ... return(message)

After "Scaling Long-Horizon LLM Agent via Context-Folding" (arXiv 2510.11967): the content of a
branch leaves the window on return; the call that opened the branch and the returned message
stay. Each return begins a new segment. Branches do not nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ludus.messages import Message, Role, ToolCall, tool_result

from ..trajectory import Stop
from .decisions import Handled
from .history import History
from .protocol import ContextManager
from .tools import REFUSED, own_calls, refuse, text_missing, tool_spec

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
