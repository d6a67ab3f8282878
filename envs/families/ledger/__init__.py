"""LedgerRelay: the policy is asked for what was written long ago, which only a summary can keep."""

from .demonstrator import Demonstrator
from .drawing import Tier, draw_ledger
from .entries import Ledger
from .ledger_env import LedgerRelay

__all__ = ["Demonstrator", "Ledger", "LedgerRelay", "Tier", "draw_ledger"]
