"""User ids of slots: no two live slots of a process share an id."""

import gc

import pytest

from ludus.errors import ConfigError
from ludus.sandboxes.local.user_ids import IDS_OF_PROCESS, UserIds


class Slot:
    """Anything that can be referred to weakly."""


def test_live_slots_never_share_an_id_however_many_came_and_went() -> None:
    ids = UserIds()
    kept = Slot()
    first = ids.take()
    ids.lend(first, kept)
    for _ in range(3 * IDS_OF_PROCESS):
        passing = Slot()
        number = ids.take()
        assert number != first
        ids.lend(number, passing)
        del passing
        gc.collect(0)


def test_an_id_given_back_is_lent_last() -> None:
    ids = UserIds()
    slot = Slot()
    number = ids.take()
    ids.lend(number, slot)
    del slot
    gc.collect()
    assert [ids.take() for _ in range(IDS_OF_PROCESS)][-1] == number


def test_too_many_slots_are_refused() -> None:
    ids = UserIds()
    for _ in range(IDS_OF_PROCESS):
        ids.take()
    with pytest.raises(ConfigError, match="512 slots"):
        ids.take()
