"""Lends every slot of this process a user id of its own, since some kernel limits are counted by
user.
"""

from __future__ import annotations

import os
import weakref
from collections import deque

from ludus.errors import ConfigError

IDS_OF_PROCESS = 512
"""The number of user ids that a driver process has for its slots."""


class UserIds:
    """The user ids of a driver process, each lent to a single slot at a time.

    Ids are counted from 0; a tier adds the first id that it may use. The id that was given back
    longest ago is lent next, so that a program which outlives its slot for a moment does not meet
    the programs of the next slot.
    """

    def __init__(self) -> None:
        self._free = deque(range(IDS_OF_PROCESS))

    def take(self) -> int:
        """Take an id that no slot has.

        Raises:
            ConfigError: all ids are lent.
        """
        if not self._free:
            raise ConfigError(
                f"this process has {IDS_OF_PROCESS} slots, and no user id for another: close some "
                "sandboxes first"
            )
        return self._free.popleft()

    def give_back(self, number: int) -> None:
        """Take back an id that was not lent."""
        self._free.append(number)

    def lend(self, number: int, slot: object) -> None:
        """Take the id back once `slot` is gone."""
        weakref.finalize(slot, self._free.append, number).atexit = False


_by_process: dict[int, UserIds] = {}
"""By pid, so that a forked process does not share the ids of its parent."""


def user_ids() -> UserIds:
    """Return the ids of this process."""
    return _by_process.setdefault(os.getpid(), UserIds())


def first_user_id() -> int:
    """Return the first id for the slots of this process, which no user of this machine has.

    Where this process may use the whole range of ids, each driver has ids of its own. In a smaller
    range (a user namespace) all drivers share the same ones.
    """
    with open("/proc/self/uid_map") as stream:
        count = sum(int(line.split()[2]) for line in stream)
    return 1_000_000_000 + os.getpid() * IDS_OF_PROCESS if count > 4_000_000_000 else 50_000
