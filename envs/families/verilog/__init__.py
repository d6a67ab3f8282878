"""The Verilog environment: small modules, simulated and compared with models in Python."""

from .verilog_env import Verilog

__all__ = ["Verilog"]
