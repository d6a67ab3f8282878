"""Bounds and savings for calls of a model: budgets, rates, a circuit breaker, a cache.

Each client bounds its own calls, and a process often has several: a rubric judge, a generator, a
preference judge, an evaluation. What they send together is bounded here. Calls wait in turn, on
whatever event loop they come from; a call that waits before it asks again holds no place.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import threading
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ludus.errors import BudgetExceeded, ConfigError


class TokenUsage(msgspec.Struct, kw_only=True):
    """Tokens as counted by a server."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total(self) -> int:
        """Tokens of prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens

    def add(self, other: TokenUsage) -> None:
        """Add the tokens of `other` to these counts."""
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens


class TokenBudget:
    """A bound on the tokens of prompts and answers, shared by all clients that hold the budget.

    The cost of requests under way is known only when they are answered, so the bound can be
    exceeded by them; no request starts after the bound is reached.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.spent = TokenUsage()

    def ensure_left(self) -> None:
        """Raise BudgetExceeded if nothing is left."""
        if self.spent.total >= self.max_tokens:
            raise BudgetExceeded(
                f"the budget of {self.max_tokens} tokens is spent ({self.spent.total} used); raise "
                "it, or ask for less"
            )


MAX_CALLS, MAX_CALLS_PER_HOST = 1024, 256
"""Bounds where the variables LUDUS_MAX_CALLS and LUDUS_MAX_CALLS_PER_HOST are not set."""


@dataclass(eq=False, slots=True)
class PlaceWaiter:
    """A caller that waits for a place."""

    arrival: asyncio.Future[None]
    """Done when a place has come, on the event loop of the caller."""
    has_place: bool = False
    """Whether a place was sent, which may arrive later, or never if the event loop has stopped."""


class Places:
    """A number of places that callers on any event loop take and give back, first come, first
    served.

    Args:
        count: number of places, at least 1.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[PlaceWaiter] = deque()
        self._lock = threading.RLock()

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[None]:
        """Take a place for the length of the block; wait while all places are taken."""
        waiter = PlaceWaiter(asyncio.get_running_loop().create_future())
        with self._lock:
            if self._free:
                self._free -= 1
                waiter.arrival.set_result(None)
            else:
                self._waiting.append(waiter)
        try:
            await waiter.arrival
        except BaseException:  # a caller that gives up hands on the place that was sent to it
            with self._lock:
                if waiter.has_place:
                    self._give()
                else:
                    self._waiting.remove(waiter)
            raise
        try:
            yield
        finally:
            self._give()

    def _give(self) -> None:
        """Hand the place to whoever has waited longest on an event loop that is not closed."""
        with self._lock:
            while self._waiting:
                waiter = self._waiting.popleft()
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop = waiter.arrival.get_loop()
                    loop.call_soon_threadsafe(_arrive, waiter.arrival)
                    waiter.has_place = True
                    return
            self._free += 1


def _arrive(arrival: asyncio.Future[None]) -> None:
    if not arrival.done():  # otherwise the caller has given up meanwhile
        arrival.set_result(None)


class CallLimits:
    """The bounds on calls in flight, in total and to each host.

    Args:
        total: most calls at once; 1024 by default.
        per_host: most calls at once to the same host and port; 256 by default.

    Raises:
        ConfigError: a bound below 1.
    """

    def __init__(self, total: int = MAX_CALLS, per_host: int = MAX_CALLS_PER_HOST) -> None:
        if total < 1 or per_host < 1:
            raise ConfigError(f"calls in flight need bounds of at least 1, got {total}, {per_host}")
        self.total = total
        self.per_host = per_host
        self._all = Places(total)
        self._hosts: dict[str, Places] = {}
        self._lock = threading.Lock()

    @asynccontextmanager
    async def place(self, url: str) -> AsyncGenerator[None]:
        """Take a place for a call of `url`, for the length of the block. The host's place comes
        first, so that calls that wait for a slow host hold no places that other hosts could use.
        """
        host = urlsplit(url).netloc.rpartition("@")[2].casefold()
        with self._lock:
            places = self._hosts.setdefault(host, Places(self.per_host))
        async with places.taken(), self._all.taken():
            yield


def limits_from_environment() -> CallLimits:
    """Return the bounds that LUDUS_MAX_CALLS and LUDUS_MAX_CALLS_PER_HOST name.

    Raises:
        ConfigError: a variable holds no whole number of at least 1.
    """
    variables = {"LUDUS_MAX_CALLS": MAX_CALLS, "LUDUS_MAX_CALLS_PER_HOST": MAX_CALLS_PER_HOST}
    counts: list[int] = []
    for variable, default in variables.items():
        value = os.environ.get(variable, "")
        if value and not (value.isascii() and value.isdigit() and int(value)):
            raise ConfigError(f"{variable} must be a whole number of at least 1, got {value!r}")
        counts.append(int(value or default))
    return CallLimits(*counts)


_shared: CallLimits | None = None


def shared_limits() -> CallLimits:
    """Return the bounds that all clients of this process share, from the environment."""
    global _shared
    if _shared is None:
        _shared = limits_from_environment()
    return _shared


logger = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder(order="deterministic")


class DiskCache:
    """A folder with a file for each answer. Processes may share a folder. An unreadable file counts
    as no answer, so the server is asked again.

    Raises:
        ConfigError: the folder cannot be made.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._failed = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot use {str(folder)!r} as a cache: {error.strerror}") from None

    @staticmethod
    def key(request: object) -> str:
        """Return the key of a request: equal JSON has an equal key, whatever the order of
        fields."""
        return hashlib.blake2b(_encoder.encode(request), digest_size=16).hexdigest()

    def get(self, key: str) -> bytes | None:
        """Return the kept answer, or None."""
        try:
            return self._path(key).read_bytes()
        except OSError:
            return None

    def put(self, key: str, answer: bytes) -> None:
        """Keep an answer. The file appears complete or not at all; where it cannot be written (a
        full disk), the first failure is logged, since the answer itself is paid for and good.
        """
        path = self._path(key)
        draft = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(exist_ok=True)
            draft.write_bytes(answer)
            draft.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            if not self._failed:
                logger.warning("answers are not kept in %s: %s", self.folder, error.strerror)
            self._failed = True

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"
