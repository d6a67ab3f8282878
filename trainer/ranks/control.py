"""The connections between rank 0, which drives a run, and the other ranks.

Rank 0 tells the others what all ranks do next; the others tell rank 0 how they ended. An open
connection is also the sign of life: the system closes the connections of a process that dies, so
that a death is known at once, however long a rank would otherwise wait for a collective call.
"""

from __future__ import annotations

import os
import queue
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ludus.errors import RankLost
from ludus.isolation.frames import Line

END_S = 8.0
"""Seconds after the loss of a rank in which this process may end by itself."""
TELL_S = 2.0
"""Seconds in which the other ranks must have taken the last message of this one; a rank that reads
nothing holds up neither the end nor those who are told after it.
"""
CONNECT_S = 120.0
"""Seconds in which all ranks must have connected to rank 0."""
HELLO_S = 10.0
"""Seconds in which who has connected must say which rank it is; a stranger waits no longer."""
SILENT_S = 30
"""Seconds after which a host that answers nothing is lost, as after a power cut: no system is left
there to close the connection.
"""
_MAX_BYTES = 1 << 20
"""The longest message that is read; a longer one is not from a rank."""
MESSAGE = 1
"""The tag of every frame: what a message is, it says itself."""


class RankMember(msgspec.Struct, frozen=True):
    """A process of the group, by its name in errors."""

    rank: int
    host: str
    pid: int

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host}, pid {self.pid})"


class RankHello(msgspec.Struct, tag=True, frozen=True):
    """The first message of a rank: who is calling, with the group's token."""

    member: RankMember
    token: str


class Order(msgspec.Struct, tag=True, frozen=True):
    """What all ranks do next; `name` is empty at the end of the run."""

    name: str
    arguments: dict[str, Any] = {}


class Ended(msgspec.Struct, tag=True, frozen=True):
    """The last message of a rank: why the rank ends, or nothing at the end of the run."""

    error: str = ""


class GroupLost(msgspec.Struct, tag=True, frozen=True):
    """A rank is lost, and so the group is."""

    why: str


_Message = RankHello | Order | Ended | GroupLost


class Address(msgspec.Struct, frozen=True):
    """Where rank 0 listens."""

    host: str
    port: int
    token: str


class Control:
    """What both ends share: the knowledge that a rank is lost.

    Args:
        members: all ranks, in order.
    """

    def __init__(self, members: Sequence[RankMember]) -> None:
        self.members = members
        self.lost = ""
        """Why the group is lost; empty while it is whole."""
        self._closed = threading.Event()
        self._known = threading.Event()
        self._lock = threading.Lock()
        self._watchers: list[Callable[[str], None]] = []

    def watch(self, callback: Callable[[str], None]) -> None:
        """Call `callback`, on another thread, with the reason when a rank is lost."""
        self._watchers.append(callback)

    def refuse_lost(self, wait_s: float = 0.0) -> None:
        """Raise if a rank is lost, or if the news comes within `wait_s` seconds.

        Raises:
            RankLost: with the rank, its host and process, and what is known of the cause.
        """
        if (lost := self.loss(wait_s)) is not None:
            raise lost

    def loss(self, wait_s: float) -> RankLost | None:
        """Return the loss of a rank, if known within `wait_s` seconds."""
        return RankLost(self.lost) if self._known.wait(wait_s) else None

    def lose(self, why: str) -> None:
        """Take the group for lost: all ranks end, this rank after `END_S` seconds at the latest."""
        with self._lock:
            if self.lost or self._closed.is_set():
                return
            self.lost = why
            self._known.set()
        sys.stderr.write(f"ludus: {why}; this rank ends\n")
        sys.stderr.flush()
        # A collective call that hangs cannot be interrupted: the process is ended from outside it.
        # The timer comes first, since a rank that reads nothing holds up who tells it.
        timer = threading.Timer(END_S, self._exit)
        timer.daemon = True
        timer.start()
        for callback in self._watchers:
            callback(why)
        # Not under the lock, since a message that cannot be sent calls `lose` again.
        self._spread(why)

    def close(self) -> None:
        """End the connections of a run that is over."""
        self._closed.set()

    def end(self, error: str) -> None:
        """Tell the others that this rank ends, and why."""
        self._closed.set()

    def _spread(self, why: str) -> None:
        """Tell other ranks."""

    def _exit(self) -> None:
        if not self._closed.is_set():
            os._exit(1)


class Lead(Control):
    """The end of rank 0.

    Args:
        members: all ranks, in order.
        host: the address to listen at.
    """

    def __init__(self, members: Sequence[RankMember], host: str) -> None:
        super().__init__(members)
        self._server = socket.create_server((host, 0))
        self._server.settimeout(CONNECT_S)
        self._lines: dict[int, Line] = {}
        self.address = Address(host, self._server.getsockname()[1], secrets.token_hex(16))

    def accept(self) -> None:
        """Wait until all other ranks have called.

        Raises:
            RankLost: a rank has not called in time.
        """
        with self._server:
            end = time.monotonic() + CONNECT_S
            while len(self._lines) < len(self.members) - 1:
                try:
                    self._server.settimeout(max(0.01, end - time.monotonic()))
                    connection, _ = self._server.accept()
                except TimeoutError:
                    absent = [
                        str(member) for member in self.members[1:] if member.rank not in self._lines
                    ]
                    raise RankLost(
                        f"{', '.join(absent)} did not connect to rank 0 within {CONNECT_S:g} s"
                    ) from None
                _watch_host(connection)
                line = Line(connection, _MAX_BYTES)
                hello = _receive(line, deadline=time.monotonic() + HELLO_S)
                if not isinstance(hello, RankHello) or hello.token != self.address.token:
                    connection.close()  # another program, which does not know the group's token
                    continue
                self._lines[hello.member.rank] = line
                threading.Thread(
                    target=self._listen, args=(hello.member, line), daemon=True
                ).start()

    def send(self, order: Order) -> None:
        """Give an order to all other ranks.

        Raises:
            RankLost: a rank is gone.
        """
        self.refuse_lost()
        self._spread_message(order)
        self.refuse_lost()

    def close(self) -> None:
        """Tell the others that the run is over."""
        if not self.lost:
            self._closed.set()
            self._spread_message(Order(""), within_s=TELL_S)
        super().close()

    def end(self, error: str) -> None:
        """Tell the others that rank 0 ends, and why, unless they know of a lost rank."""
        if not self.lost:
            self._closed.set()
            lost = GroupLost(f"{self.members[0]} failed: {error}")
            self._spread_message(lost, within_s=TELL_S)
        super().end(error)

    def _listen(self, member: RankMember, line: Line) -> None:
        # A rank sends a single message, when it ends; without it the connection just closes.
        with line.sock:
            message = _receive(line)
        if isinstance(message, Ended):
            if message.error:
                self.lose(f"{member} failed: {message.error}")
        elif not self._closed.is_set():
            self.lose(f"{member} died")

    def _spread(self, why: str) -> None:
        self._spread_message(GroupLost(why), within_s=TELL_S)

    def _spread_message(self, message: _Message, *, within_s: float | None = None) -> None:
        deadline = None if within_s is None else time.monotonic() + within_s
        for rank, line in self._lines.items():
            try:
                _send(line, message, deadline=deadline)
            except OSError:
                if not self.lost and not self._closed.is_set():
                    self.lose(f"{self.members[rank]} died")


class Follower(Control):
    """The end of another rank.

    Args:
        members: all ranks, in order.
        me: this rank.
        address: where rank 0 listens.
    """

    def __init__(self, members: Sequence[RankMember], me: RankMember, address: Address) -> None:
        super().__init__(members)
        self._orders: queue.Queue[Order | None] = queue.Queue()
        connection = socket.create_connection((address.host, address.port), CONNECT_S)
        _watch_host(connection)
        self._line = Line(connection, _MAX_BYTES)
        _send(self._line, RankHello(me, address.token))
        threading.Thread(target=self._listen, daemon=True).start()

    def receive(self) -> Order | None:
        """Wait for the next order, for as long as rank 0 lives; None at the end of the run.

        Raises:
            RankLost: a rank is lost.
        """
        order = self._orders.get()
        self.refuse_lost()
        return order if order is not None and order.name else None

    def close(self) -> None:
        """Tell rank 0 that this rank ends as planned."""
        self.end("")

    def end(self, error: str) -> None:
        """Tell rank 0 that this rank ends, and why."""
        super().end(error)
        try:
            _send(self._line, Ended(error), deadline=time.monotonic() + TELL_S)
        except OSError:
            return  # rank 0 is gone or stuck too

    def _listen(self) -> None:
        with self._line.sock:
            while isinstance(message := _receive(self._line), Order):
                if not message.name:
                    # The closing order. Rank 0 may exit before this rank's main thread has read it,
                    # and the end of the connection is then no loss.
                    self._closed.set()
                self._orders.put(message)
        why = message.why if isinstance(message, GroupLost) else f"{self.members[0]} died"
        self.lose(why)
        self._orders.put(None)


def _watch_host(connection: socket.socket) -> None:
    """Let the system end a connection whose other host answers nothing for `SILENT_S`.

    Keep-alive finds this on a connection that only waits, the user timeout on one that sends.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", SILENT_S // 3),
        ("TCP_KEEPINTVL", SILENT_S // 6),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 1000 * SILENT_S),
    ):
        if hasattr(socket, name):  # Linux has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _send(line: Line, message: _Message, *, deadline: float | None = None) -> None:
    line.send(MESSAGE, msgspec.msgpack.encode(message), deadline=deadline)


def _receive(line: Line, *, deadline: float | None = None) -> _Message | None:
    """Return the next message; None where the other end is gone, or has sent anything else."""
    try:
        return msgspec.msgpack.decode(line.receive(deadline=deadline).body, type=_Message)
    except (OSError, msgspec.MsgspecError):
        return None
