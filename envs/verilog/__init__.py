"""The Verilog environment: small modules, simulated and compared with models in Python."""

from .env import Verilog

__all__ = ["Verilog"]
