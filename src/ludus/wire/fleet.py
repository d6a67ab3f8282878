"""Members with health: which serve, which are lost, and how a lost member comes back.

A member is a server of environments and verifiers, or an engine of a pool. A member that is lost
takes no work until it was brought back in the background; its loss is told to whoever waits on it
at once, and is never their time-out. One that does not answer its checks is lost after a few of
them, since it may only be slow; one whose connection fails is lost at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ludus.errors import RemoteError

logger = logging.getLogger(__name__)


class FleetMember:
    """A place in a fleet.

    Args:
        name: the name in messages.
        why: the reason why the member does not serve at first; empty for one that does.
    """

    def __init__(self, name: str, why: str = "") -> None:
        self.name = name
        self.serving = not why
        """Whether the member is alive, and is given work."""
        self.draining = False
        """Whether the member is to get no new work, but goes on with what it has."""
        self.barred = False
        """Whether the member stays out for good."""
        self.why = why
        """The reason why the member does not serve."""
        self.missed = 0
        """How many checks, and attempts to bring the member back, have failed in a row."""
        self.deaths: deque[float] = deque(maxlen=64)
        """When the member was lost, by the event loop's clock."""

    def open(self) -> None:
        """Let the member serve."""
        self.serving, self.why, self.missed = True, "", 0

    def shut(self, why: str) -> None:
        """Give the member no work."""
        self.serving, self.why = False, why


M = TypeVar("M", bound=FleetMember)


@dataclass(frozen=True, kw_only=True)
class HealthRules:
    """When a member is lost, and how often a lost member is tried again."""

    check_every_s: float
    check_timeout_s: float
    max_missed: int
    """A member that fails to answer this many checks in a row is lost."""
    mend_again_s: float
    """The pause after the first failed attempt to bring a member back; doubled each time."""
    max_mend_again_s: float
    max_deaths: int = 0
    """A member lost this often within `deaths_window_s` stays out; 0 for one that never does."""
    deaths_window_s: float = 600.0
    by_others: bool = False
    """Whether a check without an answer counts only if another member answered its own."""


class Fleet(Generic[M]):
    """Keeps track of serving members, drops silent members, and brings lost members back.

    Args:
        members: those there are from the beginning.
        health: when a member is lost.
        check: returns if the member is alive, and raises otherwise.
        revive: brings a member back, which then may serve. The second argument is false where the
            member was not lost, and only its state is unknown.
        is_sure: whether the error of a check says by itself that the member is lost.
        on_loss: called with each member that is lost.
        on_tick: called after each round of checks.
    """

    def __init__(
        self,
        members: Iterable[M],
        health: HealthRules,
        *,
        check: Callable[[M], Awaitable[None]],
        revive: Callable[[M, bool], Awaitable[None]],
        is_sure: Callable[[Exception], bool],
        on_loss: Callable[[M], None],
        on_tick: Callable[[], Awaitable[None]],
    ) -> None:
        self.members = list(members)
        self.health = health
        self.closed = False
        self.losses = 0
        """How many times a member was lost so far."""
        self._check_member = check
        self._revive = revive
        self._is_sure = is_sure
        self._on_loss = on_loss
        self._on_tick = on_tick
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def up(self) -> list[M]:
        """Return the members that serve."""
        return [member for member in self.members if member.serving]

    def watch(self) -> None:
        """Begin to check the members regularly, unless that has begun."""
        if self._watching is None:
            self._watching = self._start(self._watch())

    async def changed(self) -> None:
        """Wait until a member was lost or has come back."""
        await self._changed.wait()

    def announce(self) -> None:
        """Wake everybody who waits for a change."""
        # Waiters keep the event that they wait for, which stays set; later waiters get a new event.
        self._changed.set()
        self._changed = asyncio.Event()

    def lose(self, member: M, error: Exception, *, joining: bool = False) -> None:
        """Give a member no more work and begin the repair, unless the member is lost already.

        Args:
            member: the member.
            error: the reason.
            joining: whether the member was about to serve for the first time.
        """
        if self.closed or not (member.serving or joining):
            return
        member.shut(str(error) or type(error).__name__)
        member.deaths.append(asyncio.get_running_loop().time())
        self.losses += 1
        self._on_loss(member)
        logger.warning("lost %s: %s", member.name, error)
        self.announce()
        self.mend(member)

    def mend(self, member: M, *, revive: bool = True) -> None:
        """Bring a member back in the background, until the member serves or stays out."""
        self._start(self._mend(member, revive=revive))

    async def is_alive(self, member: M) -> bool:
        """Ask a member for a sign of life; a member that gives none is lost."""
        try:
            async with asyncio.timeout(self.health.check_timeout_s):
                await self._check_member(member)
        except (RemoteError, TimeoutError) as error:
            self.lose(member, error)
            return False
        return True

    async def settled(self, member: M) -> bool:
        """Wait until a member serves, or an attempt to bring it back has failed; return which."""
        while not (member.serving or member.missed or member.barred or self.closed):
            await self._changed.wait()
        return member.serving

    async def _mend(self, member: M, *, revive: bool) -> None:
        wait_s = self.health.mend_again_s
        while not self._is_worn_out(member):
            try:
                await self._revive(member, revive)
            except Exception as error:
                member.why = f"does not come back: {str(error) or type(error).__name__}"
                member.missed += 1
                member.deaths.append(asyncio.get_running_loop().time())
                revive = True
                self.announce()
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, self.health.max_mend_again_s)
            else:
                if not member.barred:
                    member.open()
                    logger.warning("%s serves again", member.name)
                    self.announce()
                return
        self.bar(
            member,
            f"was lost {self.health.max_deaths} times in {self.health.deaths_window_s:g} s, the "
            f"last time: {member.why}",
        )

    def bar(self, member: M, why: str) -> None:
        """Keep a member out for good."""
        member.shut(why)
        member.barred = True
        logger.error("%s stays out: it %s", member.name, why)
        self.announce()

    def _is_worn_out(self, member: M) -> bool:
        most, now = self.health.max_deaths, asyncio.get_running_loop().time()
        lately = [death for death in member.deaths if now - death <= self.health.deaths_window_s]
        return member.barred or 0 < most <= len(lately)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.health.check_every_s)
            members = self.up()
            errors = await asyncio.gather(*map(self._error_of, members))
            # Where nobody answers, more likely this process or the network stands still.
            is_alone = self.health.by_others and None not in errors
            for member, error in zip(members, errors, strict=True):
                if error is None:
                    member.missed = 0
                elif self._is_sure(error):
                    self.lose(member, error)
                elif not is_alone:
                    member.missed += 1
                    if member.missed >= self.health.max_missed:
                        self.lose(member, error)
            try:
                await self._on_tick()
            except Exception:
                logger.exception("the regular work of a fleet failed")

    async def _error_of(self, member: M) -> Exception | None:
        try:
            async with asyncio.timeout(self.health.check_timeout_s):
                await self._check_member(member)
        except Exception as error:
            return error
        return None

    async def close(self) -> None:
        """End the checks and all attempts to bring members back; wake everybody who waits."""
        self.closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.announce()

    def obituary(self) -> str:
        """Return why each member that does not serve does not."""
        return "; ".join(
            f"{member.name} {member.why}" for member in self.members if not member.serving
        )

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
