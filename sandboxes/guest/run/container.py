"""The first process of a container: the slot itself, since the engine has made the namespaces.

No supervisor stands above it, and none is needed: the slot ends when the driver's end of its
control socket closes, and since the slot is process 1, everything else in the container ends as
well.
"""

from __future__ import annotations

import importlib.util
import os
import socket

from .plan import JailPlan


def main(path: str) -> None:
    """Connect to the driver's socket twice, for control and for requests, and serve for ever."""
    control, requests = _connect(path), _connect(path)
    try:
        plan = JailPlan.decode(control.recv(1 << 18))
        # Imported within the `try`, so that the driver is told if the image's Python cannot.
        from . import launch

        if plan.own_packages:  # the image may lack modules to preload
            there = [name for name in plan.preload if importlib.util.find_spec(name)]
            plan = plan._replace(preload=there)
        launch.be_slot(plan, control, requests)
    except BaseException as error:
        control.send(f"failed:{type(error).__name__}: {error}".encode()[:2000])
    finally:
        os._exit(1)


def _connect(path: str) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.connect(path)
    return line
