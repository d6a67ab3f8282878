"""LedgerRelay: what was written long ago is asked for, and only a summary can carry it there."""

from .entries import Ledger, draw_ledger
from .env import Demonstrator, LedgerRelay

__all__ = ["Demonstrator", "Ledger", "LedgerRelay", "draw_ledger"]
