"""LedgerRelay: the policy is asked for what was written long ago, which only a summary can keep."""

from .courses import Ledger, Tier, draw_ledger
from .ledger_env import Demonstrator, LedgerRelay

__all__ = ["Demonstrator", "Ledger", "LedgerRelay", "Tier", "draw_ledger"]
