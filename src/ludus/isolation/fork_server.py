"""The fork server: a fresh interpreter with a single thread, from which templates are forked.

The fork server is started by exec (`python -m ludus.isolation.fork_server`), so that it shares no
thread, lock or CUDA context with its owner. User code never runs here. It therefore always notices
the end of its owner, and then ends everything below: templates, workers, and whatever those have
started.

    owner (ludus serve, ludus train)
      fork server      one a process, imports ludus alone
        template       one for each environment or verifier served, loads it
          worker       runs the calls
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from importlib import import_module
from types import FrameType

from . import channel, system, template

LOOK_EVERY_S = 1.0


def main() -> None:
    """Read the set-up message, then fork templates until the owner is gone."""
    control = socket.socket(fileno=os.dup(0))
    setup = channel.receive(control)
    owner = os.pidfd_open(int(setup["owner"])) if hasattr(os, "pidfd_open") else -1
    sys.path[:] = setup["path"]
    for name in setup["imports"]:
        import_module(name)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stay)  # the owner decides when we end
    system.adopt_orphans()
    gc.collect()
    gc.freeze()
    channel.send(control, {"ready": os.getpid()})
    templates: set[int] = set()
    orphans = system.Orphans(template.GRACE_S, own_pids=set())
    try:
        while True:
            if _is_asked(control, owner):
                templates.add(_fork_template(control, owner))
            _reap(templates)
            orphans.look(templates)
    except OSError:  # the owner is gone
        pass
    for pid in templates:
        system.kill(pid)
    system.end_children(template.GRACE_S)
    os._exit(0)


def stay(number: int, frame: FrameType | None) -> None:
    """Do nothing; unlike an ignored signal, a program that is executed later does not inherit
    this.
    """


def _is_asked(control: socket.socket, owner: int) -> bool:
    """Wait for a message, for at most `LOOK_EVERY_S`; return whether a message has come.

    Raises:
        ChannelClosed: the owner is gone.
    """
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if owner >= 0:
        poll.register(owner, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(LOOK_EVERY_S * 1000)}
    if owner in ready:
        raise channel.ChannelClosed("the owner is gone")
    return bool(ready)


def _fork_template(control: socket.socket, owner: int) -> int:
    message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    if not message:
        raise channel.ChannelClosed("the owner is gone")
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        control.close()
        if owner >= 0:
            os.close(owner)
        template.run(socket.socket(fileno=descriptors[0]), parent)
    os.close(descriptors[0])
    channel.send(control, {"pid": pid})
    return pid


def _reap(templates: set[int]) -> None:
    for pid in list(templates):
        try:
            ended_pid, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended_pid = pid
        if ended_pid:
            templates.discard(pid)


if __name__ == "__main__":
    main()
