"""Small modules in Verilog, simulated against models in Python."""

from .env import Verilog

__all__ = ["Verilog"]
