"""The names of a data set for fields and roles, where the names are the data set's own.

    messages=chats role=speaker content=text assistant=agent

reads {"chats": [{"speaker": "agent", "text": ...}]}: a name of ours, and the data set's for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ludus.errors import ConfigError
from ludus.messages import Role

OF_MESSAGES = ("role", "content", "tool_calls", "train")
"""Fields of a message."""
OF_ROWS = (
    "messages", "tools", "images", "system", "prompt", "completion", "chosen", "rejected",
    "answers", "ranks", "rewards", "margin", "label", "answer", "rating", "steps", "labels",
    "win_rates", "other_rewards",
)  # fmt: skip
"""Fields of a row."""
_NAMES = (*OF_ROWS, *OF_MESSAGES, *Role)


class FieldNames:
    """Writes rows with the names that readers know.

    Args:
        pairs: `ours=theirs` each.

    Raises:
        ConfigError: a pair has another form, or names a field that nothing reads, or that another
            pair names otherwise.
    """

    def __init__(self, pairs: Iterable[str]) -> None:
        self._theirs: dict[str, str] = {}
        for pair in pairs:
            ours, equals, theirs = pair.partition("=")
            if not equals or not theirs:
                raise ConfigError(f"fields are OURS=THEIRS, such as messages=chats; got {pair!r}")
            if ours not in _NAMES:
                raise ConfigError(f"no field or role named {ours!r}; known are {', '.join(_NAMES)}")
            if self._theirs.setdefault(ours, theirs) != theirs:
                raise ConfigError(f"{ours} is both {self._theirs[ours]!r} and {theirs!r}")

    def row(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a row with our names."""
        if not self._theirs:
            return row
        named = self._renamed(row, OF_ROWS)
        plain = ("tools", "images")  # lists of tables that are no messages
        return {key: named[key] if key in plain else self._messages(named[key]) for key in named}

    def _messages(self, value: object) -> object:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return value
        return [self._message(each) if isinstance(each, Mapping) else each for each in value]

    def _message(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        named = self._renamed(message, OF_MESSAGES)
        ours = {self._theirs[role]: str(role) for role in Role if role in self._theirs}
        for place in ("role", "from"):
            if isinstance(given := named.get(place), str):
                named[place] = ours.get(given, given)
        return named

    def _renamed(self, row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Return a row in which the fields of the data set stand in the place of ours."""
        given = {ours: self._theirs[ours] for ours in names if self._theirs.get(ours) in row}
        kept = {key: row[key] for key in row if key not in {*given, *given.values()}}
        return kept | {ours: row[theirs] for ours, theirs in given.items()}
