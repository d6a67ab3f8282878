"""What runs in the pool: the same decision as in the caller, with the costly means at hand.

Imported by workers only. The request and the reply are plain data; texts are read again here, by the same reader.
"""

from __future__ import annotations

from .conventions import Conventions
from .nodes import Node
from .verify import decide


def warm() -> None:
    """Import what the work needs, so that forked workers are ready at once."""
    from . import precise  # noqa: F401


def score(request: object) -> dict[str, object]:
    """Decide one pair: {"gold", "answer", "conventions"} to {"equal", "rule", "detail", "undecided", "trace"}."""
    if not isinstance(request, dict):
        raise TypeError(f"a request is a mapping, got {type(request).__name__}")
    options = request["conventions"]
    decision = decide(
        str(request["gold"]), str(request["answer"]), Conventions(**options), deep=_deep
    )
    return {
        "equal": decision.equal,
        "rule": decision.rule,
        "detail": decision.detail,
        "undecided": decision.undecided,
        "trace": [list(step) for step in decision.trace],
    }


def _deep(left: Node, right: Node) -> bool | None:
    from .precise import agree

    return agree(left, right)
