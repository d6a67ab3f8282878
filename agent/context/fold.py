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

from ludus.envs import ToolSpec
from ludus.messages import Message, Role, ToolCall, tool_result

from ..trajectory import Stop
from .keep import KeepEverything
from .protocol import Handled, History, Sizes

OPENED = "You are in a branch now. Work on its prompt only, then call return_branch."


def _spec(name: str, description: str, arguments: dict[str, str]) -> ToolSpec:
    properties = {key: {"type": "string", "description": said} for key, said in arguments.items()}
    parameters = {"type": "object", "properties": properties, "required": list(arguments)}
    return ToolSpec(name=name, description=description, parameters=parameters)


BRANCH = _spec(
    "branch",
    "Begin a sub-task in a branch; what happens there is folded away when it returns.",
    {"prompt": "what to do there, with all it takes to do it"},
)
RETURN = _spec(
    "return_branch",
    "End the branch; only this message is kept of it.",
    {"message": "what was found out"},
)


@dataclass(frozen=True, slots=True)
class Fold:
    """Lets the policy open branches and return.

    Args:
        max_branches: how many branches an episode may open.
    """

    max_branches: int = 7
    name: str = "fold"
    tools: Sequence[ToolSpec] = (BRANCH, RETURN)

    def limit(self, window: int) -> int:
        """Return the whole window: folding is the policy's own decision."""
        return window

    def when_full(self, history: History) -> Stop:
        """End the episode, since the policy did not fold in time."""
        return Stop.CONTEXT_FULL

    def check(self, sizes: Sizes) -> None:
        """Require that the first prompt fits."""
        KeepEverything().check(sizes)

    def handle(self, action: Message, view: Sequence[Message]) -> Handled | None:
        """Open or close a branch; a call that cannot be followed is answered with the reason."""
        own = [call for call in action.tool_calls if call.name in (BRANCH.name, RETURN.name)]
        if not own:
            return None
        if len(action.tool_calls) > 1:
            return _refuse(action.tool_calls, f"call {own[0].name} alone, nothing beside it")
        return self._branch(own[0], view) if own[0].name == BRANCH.name else _return(own[0], view)

    def _branch(self, call: ToolCall, view: Sequence[Message]) -> Handled:
        reason = call.error or _missing(call, "prompt")
        if _open_branch(view) is not None:
            reason = "this is a branch already; call return_branch first"
        elif sum(_is_result(message) for message in view) >= self.max_branches:
            reason = f"all {self.max_branches} branches are used"
        if reason:
            return _refuse([call], reason)
        return Handled([tool_result(OPENED, call)])


def _return(call: ToolCall, view: Sequence[Message]) -> Handled:
    begun = _open_branch(view)
    reason = call.error or _missing(call, "message")
    if begun is None:
        reason = "there is no branch to return from"
    if reason or begun is None:
        return _refuse([call], reason)
    opened_by = view[begun - 1].tool_calls[0]
    result = tool_result(call.arguments["message"], opened_by)
    return Handled([*view[:begun], result], reopen=True)


def _is_result(message: Message) -> bool:
    """Return whether the message answers a `branch` call that was executed, open or returned."""
    return (
        message.role is Role.TOOL
        and message.name == BRANCH.name
        and not message.text.startswith("this call was not executed")
    )


def _open_branch(view: Sequence[Message]) -> int | None:
    """Return the index of the answer that opened the current branch, or None outside a branch."""
    for index, message in enumerate(view):
        if _is_result(message) and message.text == OPENED:
            return index
    return None


def _missing(call: ToolCall, argument: str) -> str:
    value = call.arguments.get(argument)
    return "" if isinstance(value, str) and value else f"the argument {argument!r} must be text"


def _refuse(calls: Sequence[ToolCall], reason: str) -> Handled:
    return Handled([tool_result(f"this call was not executed: {reason}", call) for call in calls])
