"""LedgerRelay: what was written long ago is asked for, and only a summary can carry it there."""

from .demonstrator import Demonstrator
from .drawing import Tier, draw_ledger
from .entries import Ledger
from .env import LedgerRelay

__all__ = ["Demonstrator", "Ledger", "LedgerRelay", "Tier", "draw_ledger"]
