"""The manager `records`: exchanges that leave the window stay in an index and can be fetched again.

    window 2   s_1
               Records: 1: search(query="Tisenmar Mills") -> Doc 1 ... | 2: ...
               the newest exchanges, fetch_record(id=1), what stood there, ...

After "ECHO: Prune to act, trace to learn with selective turn memory in agentic RL" (arXiv
2606.31650): each completed turn becomes a compact record with the index of its source, a bounded
context is built from records, and a record's source can be reached again. The abstract leaves open
who writes a record and how credit is weighted. Here a record is the call and the beginning of its
answer, cut to `record_chars`, so that nothing untrained writes into the context; the policy selects
by calling `fetch_record`, a sampled turn that shares the rollout's advantage.
"""

from __future__ import annotations

from dataclasses import dataclass

from ludus.errors import ConfigError
from ludus.messages import Message, TextPart, tool_result

from ..images import images_of
from ..trajectory import Stop
from .decisions import Handled, Reopen
from .history import Exchange, History, add_to_prompt
from .keep import last_exchanges
from .protocol import ContextManager, Sizes, require_room_to_act
from .tools import own_calls, refuse, spelled_out, tool_spec

FETCH = tool_spec(
    "fetch_record",
    "Shows a record in full: an action that has left the view, and what answered.",
    {"id": {"type": "integer", "description": "the number of the record"}},
    required=["id"],
)

INDEX = "Records of what has left the view (fetch_record shows one in full):"


@dataclass(frozen=True, slots=True)
class Records(ContextManager):
    """Replaces old exchanges by an index, from which the policy can fetch them.

    Args:
        keep: how many of the newest exchanges stay in view.
        threshold: the share of the window from which exchanges are moved out.
        record_chars: the most characters of a line of the index.
        max_records: the most lines of the index; older records can still be fetched.
    """

    keep: int = 2
    threshold: float = 0.95
    record_chars: int = 80
    max_records: int = 64
    name = "records"
    tools = (FETCH,)

    def __post_init__(self) -> None:
        if self.keep < 0 or self.record_chars < 8 or self.max_records < 1:
            raise ConfigError(
                "records needs keep >= 0, record_chars >= 8 and max_records >= 1, got "
                f"{self.keep}, {self.record_chars} and {self.max_records}"
            )

    def limit(self, window: int) -> int:
        """Return `threshold` times the window."""
        return int(self.threshold * window)

    def when_full(self, history: History) -> Reopen | Stop:
        """Move all but the newest exchanges out of the window."""
        if len(history.actions) <= self.keep:
            return Stop.CONTEXT_FULL
        return Reopen(last_exchanges(history, self.keep), self.name)

    def opens(self, opening: list[Message], history: History) -> list[Message]:
        """Add the index, once anything has been moved out."""
        exchanges = history.exchanges
        moved_count = len(exchanges) - self.keep
        if moved_count < 1:
            return opening
        first = max(1, moved_count - self.max_records + 1)
        older = [f"(records 1 to {first - 1} are older)"] if first > 1 else []
        lines = [
            f"{number}: {' '.join(_record(exchanges[number - 1]).split())}"[: self.record_chars]
            for number in range(first, moved_count + 1)
        ]
        return add_to_prompt(opening, "\n".join([INDEX, *older, *lines]))

    def handle(self, action: Message, history: History) -> Handled | None:
        """Show a record."""
        record_calls = own_calls(action, self.tools)
        if not record_calls:
            return None
        if len(record_calls) < len(action.tool_calls):
            return refuse(action.tool_calls, "call fetch_record without other tools beside it")
        exchanges = history.exchanges
        answers: list[Message] = []
        for call in record_calls:
            number = call.arguments.get("id")
            # `isinstance` would accept True, which is an int.
            if not call.error and type(number) is int and 1 <= number <= len(exchanges):
                record = exchanges[number - 1]
                images, text = images_of(record.answer), _record(record)
                answers.append(tool_result([TextPart(text), *images] if images else text, call))
                continue
            reason = call.error or f"there are records 1 to {len(exchanges)}, got {number!r}"
            answers += refuse([call], reason).messages
        return Handled(answers)

    def check(self, sizes: Sizes) -> None:
        """Require that the opening leaves room to act; the index comes on top."""
        require_room_to_act(
            self.name, sizes, self.limit(sizes.window), sizes.opening, "the first prompt"
        )


def _record(exchange: Exchange) -> str:
    """Return an exchange as text."""
    answers = [message.text for message in exchange.answer]
    return "\n".join([f"{spelled_out(exchange.action)} ->", *answers])
