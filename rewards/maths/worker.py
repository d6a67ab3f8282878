"""The pool's side of the verifier: the same decision as in the caller, with the costly steps added.

Only workers import this module. Requests and replies are plain data, so the texts are parsed
again here by the same reader.
"""

from __future__ import annotations

from importlib import import_module

from .conventions import Conventions
from .decision import BadGold, decide
from .reading.nodes import Node


def warm() -> None:
    """Import the heavy libraries once, before workers are forked from this process."""
    import_module(".proving.precise", __package__)
    import_module(".proving.symbolic", __package__)


def score(request: object) -> dict[str, object]:
    """Decide a pair and return {"equal", "rule", "detail", "undecided", "trace"}.

    The request is {"gold", "answer", "conventions", "prompt"}. A gold that cannot be read gives
    {"bad_gold": reason}.

    Raises:
        TypeError: the request is not a mapping.
    """
    if not isinstance(request, dict):
        raise TypeError(f"a request is a mapping, got {type(request).__name__}")
    options = request["conventions"]
    gold, answer = str(request["gold"]), str(request["answer"])
    try:
        decision = decide(
            gold, answer, Conventions(**options), prompt=str(request["prompt"]), deep=_deep
        )
    except BadGold as error:
        return {"bad_gold": str(error)}
    return {
        "equal": decision.equal,
        "rule": decision.rule,
        "detail": decision.detail,
        "undecided": decision.undecided,
        "trace": [list(step) for step in decision.trace],
    }


def _deep(left: Node, right: Node) -> bool | str:
    from .proving.calculator import OverBudget
    from .proving.precise import agree, limit_met
    from .proving.symbolic import simplifies_to_zero

    try:
        outcome = agree(left, right)
    except OverBudget as error:
        return str(error)
    if outcome is None:
        outcome = simplifies_to_zero(left, right)
    return limit_met(left, right) if outcome is None else outcome
