"""Reading the body of a request: bounded on the wire, inflated, and over all requests together.

Nothing here runs before a request has shown its token.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Protocol

from aiohttp import web

from .faults import QueueFull, Refused

TIMEOUT_S = 30.0
SLICE_BYTES = 1 << 17
"""Inflated at a time, about 0.2 ms; others have their turn between two slices."""
DISCARDED_BYTES = 1 << 16
"""A refused request's body no longer than this is read away, so that the connection can be used
again."""
DISCARD_S = 0.5
ENCODINGS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Content-Encoding -> `wbits` of zlib."""


class Bytes:
    """The bytes of bodies that a server holds at one time.

    Args:
        limit: past it bodies are refused with 429.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, number: int) -> None:
        """Count `number` bytes in.

        Raises:
            QueueFull: there is no room.
        """
        if self.held + number > self.limit:
            said = f"the bodies of requests in flight hold {self.held} of {self.limit} bytes"
            raise QueueFull(said, depth=self.held, limit=self.limit)
        self.held += number

    def give_back(self, number: int) -> None:
        """Count them out."""
        self.held -= number


class Held:
    """The bytes of one request."""

    def __init__(self, bytes: Bytes) -> None:
        self._bytes = bytes
        self._number = 0

    def take(self, number: int) -> None:
        """Hold `number` bytes more."""
        self._bytes.take(number)
        self._number += number

    def release(self) -> None:
        """Hold none."""
        self._bytes.give_back(self._number)
        self._number = 0


class _Inflater(Protocol):
    """What `zlib.decompressobj` gives."""

    @property
    def unconsumed_tail(self) -> bytes: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


async def read_body(request: web.Request, max_bytes: int, held: Held) -> bytes:
    """The whole body, inflated.

    Args:
        request: whose body has not been read.
        max_bytes: of the body, on the wire and inflated.
        held: counts the bytes read.

    Raises:
        Refused: too large (413), too slow (408), broken (400), or in an encoding not taken (415).
        QueueFull: the bodies of all requests together are too large (429).
    """
    inflater = _inflater_of(request)
    length = request.content_length
    if length is not None and length > max_bytes:
        raise too_large(length, max_bytes)
    await _continue(request)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            raw = request.content.iter_any()
            chunks = raw if inflater is None else _inflated(raw, inflater)
            return await _joined(chunks, max_bytes, held)
    except TimeoutError:
        said = f"the body did not arrive within {TIMEOUT_S:g} s"
        raise Refused(said, "slow_body") from None
    except zlib.error as error:
        raise Refused(f"the body cannot be inflated: {error}", "malformed") from None
    except (ConnectionError, web.RequestPayloadError):
        raise Refused("the connection ended within the body", "malformed") from None


async def discard_body(request: web.Request) -> None:
    """Read a short body of a refused request away; the connection of a longer one is closed."""
    length = request.content_length
    if length is None or length > DISCARDED_BYTES or request.headers.get("Expect"):
        return
    try:
        async with asyncio.timeout(DISCARD_S):
            await request.content.read()
    except (TimeoutError, ConnectionError, web.RequestPayloadError):
        return


def too_large(size: int | None, limit: int) -> Refused:
    """A body beyond the bound; `size` is None where the end was not waited for."""
    shown = f" ({size} bytes)" if size is not None else ""
    message = f"the body is too large{shown}: this server takes at most {limit} bytes"
    return Refused(message, "too_large")


def _inflater_of(request: web.Request) -> _Inflater | None:
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return None
    if encoding not in ENCODINGS:
        raise Refused(
            f"Content-Encoding is {encoding!r}; send gzip, deflate or none", "unsupported_media"
        )
    return zlib.decompressobj(ENCODINGS[encoding])


async def _continue(request: web.Request) -> None:
    """Ask for the body, where the client waits to be asked."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


async def _joined(chunks: AsyncIterator[bytes], max_bytes: int, held: Held) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > max_bytes:
            raise too_large(None, max_bytes)
        held.take(len(chunk))
        parts.append(chunk)
    return b"".join(parts)


async def _inflated(raw: AsyncIterator[bytes], inflater: _Inflater) -> AsyncIterator[bytes]:
    async for chunk in raw:
        data = chunk
        while data:
            yield inflater.decompress(data, SLICE_BYTES)
            data = inflater.unconsumed_tail
            await asyncio.sleep(0)
        if inflater.unused_data:
            raise zlib.error("bytes after the end of the compressed data")
    if not inflater.eof:
        raise zlib.error("the compressed data ends too soon")
