"""Verbs with several actions: `ludus model get`, `ludus recipes show`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ludus.errors import UnknownName

Action = Callable[[Sequence[str]], int]
"""A function from the words after the action's name to the exit status."""


class UnknownAction(UnknownName):
    """The command line names an action that the verb does not have."""

    kind = "action"


def run_action(
    verb: str, actions: Mapping[str, Action], arguments: Sequence[str], *, usage: str
) -> int:
    """Run the action that the first of `arguments` names; without one, print `usage` and return 0.

    Raises:
        UnknownAction: the verb has no such action; the message suggests a near miss.
    """
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage)
        return 0
    if arguments[0] not in actions:
        raise UnknownAction.near(arguments[0], actions, hint=f"ludus {verb} --help")
    return actions[arguments[0]](arguments[1:])
