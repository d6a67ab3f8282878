"""The live page: a server that only reads run folders."""

from __future__ import annotations

import asyncio
import hmac
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from ludus.errors import ConfigError
from ludus.wire.address import is_loopback, listen

from .guard import page_guard
from .page import live_page, script, style
from .run import RunReader, find_runs
from .store import cache_folder
from .views import Runs, view

COOKIE = "ludus_watch"
REFRESH_S = 1.0
"""Least seconds between two looks at the folders."""
COMPRESSED = 20_000
"""Bytes from which an answer to another machine is compressed."""
EPISODES = (".jsonl", ".jsonl.gz")
"""The ends of the names of files with episodes."""


class WatchServer:
    """Serves the page of runs, and its views as JSON.

    Args:
        places: run folders, folders that hold some, or files of episodes.
        token: what a browser must bring, once, as `?token=`; empty asks for none.
        prefix: the path under which a proxy shows the page, such as "/watch/".
        tokenizer: a model folder or `tokenizer.json`; None takes the run's own.

    Raises:
        ConfigError: a place is missing, or there is no run.
    """

    def __init__(
        self,
        places: list[Path],
        *,
        token: str = "",
        prefix: str = "/",
        tokenizer: Path | None = None,
    ) -> None:
        self.prefix = f"/{prefix.strip('/')}/".replace("//", "/")
        self._places, self._token, self._tokenizer = places, token, tokenizer
        for place in places:
            if not place.exists():
                raise ConfigError(f"there is no {str(place)!r}; name a run folder, or one of runs")
            if place.is_file() and not place.name.endswith(EPISODES):
                raise ConfigError(
                    f"{str(place)!r} is no file of episodes ({', '.join(EPISODES)}); name a run "
                    "folder, or one of runs"
                )
        self._cache = cache_folder()
        # Everything that reads runs happens on this thread, one request after the other.
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="watch")
        self._readers: dict[Path, RunReader] = {}
        self._seen_s = -1.0
        self._look()
        if not self._readers:
            asked = ", ".join(repr(str(place)) for place in places)
            raise ConfigError(f"no run to show in {asked}: name a run folder, or one of runs")
        self.runs = Runs(list(self._readers.values()))

    def application(self) -> web.Application:
        """Return the application, to be run or tested."""
        application = web.Application(
            middlewares=[
                page_guard(
                    COOKIE,
                    self._known if self._token else None,
                    local=not self._token,
                    verb="ludus watch",
                    root=self.prefix,
                )
            ]
        )
        root = self.prefix
        for path, text, kind in (
            ("", live_page(root), "text/html"),
            ("page.js", script(), "text/javascript"),
            ("page.css", style(), "text/css"),
        ):
            application.router.add_get(root + path, _fixed(text, kind))
        application.router.add_get(f"{root}api/since", self._since)
        application.router.add_get(f"{root}api/{{view}}", self._view)
        application.on_cleanup.append(self._close)
        return application

    async def _close(self, _: web.Application) -> None:
        self._reading.shutdown(wait=False, cancel_futures=True)

    def _known(self, given: str) -> str:
        return "one" if hmac.compare_digest(given.encode(), self._token.encode()) else ""

    async def _view(self, request: web.Request) -> web.Response:
        name, query = request.match_info["view"], dict(request.query)
        data = await self._on_thread(lambda: self._answer(name, query))
        return _json(request, data)

    async def _since(self, request: web.Request) -> web.Response:
        """Say whether anything has changed since `cursor`: 304, or the new cursor."""
        cursor = await self._on_thread(self._refreshed)
        if cursor == request.query.get("cursor", ""):
            return web.Response(status=304)
        return _json(request, msgspec.json.encode({"cursor": cursor}))

    async def _on_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._reading, work)

    def _answer(self, name: str, query: dict[str, str]) -> bytes:
        self._refreshed()
        return msgspec.json.encode(view(name, self.runs, query), enc_hook=str)

    def _refreshed(self) -> str:
        """Read what is new, at most once a second, and return what names this state of the runs."""
        now = time.monotonic()
        if now - self._seen_s >= REFRESH_S:
            self._look()
            self._seen_s = now
        return "-".join(
            f"{zlib.crc32(r.name.encode()):x}.{r.version}" for r in self._readers.values()
        )

    def _look(self) -> None:
        paths = find_runs(self._places)
        # A run is named by the shortest end of its path that tells it from the others.
        parts = [path.resolve().parts for path in paths]
        names: list[str] = []
        for own in parts:
            length = 1
            while (
                length < len(own) and sum(other[-length:] == own[-length:] for other in parts) > 1
            ):
                length += 1
            names.append("/".join(own[-length:]).replace(",", "_"))
        for path, name in zip(paths, names, strict=True):
            if path not in self._readers:
                self._readers[path] = RunReader(path, name, self._cache, tokenizer=self._tokenizer)
        for path in set(self._readers) - set(paths):
            del self._readers[path]
        for reader in self._readers.values():
            reader.refresh()
        if self._readers:
            self.runs = Runs(list(self._readers.values()))


def _fixed(text: str, kind: str) -> Handler:
    """Return what answers every request with the same text."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=text, content_type=kind)

    return answer


def _json(request: web.Request, data: bytes) -> web.Response:
    answer = web.Response(body=data, content_type="application/json")
    if len(data) > COMPRESSED and not is_loopback(request.remote or ""):
        answer.enable_compression()
    return answer


def open_runs(places: list[Path], *, most: int = 0, tokenizer: Path | None = None) -> Runs:
    """Read runs once, for a command that ends.

    Raises:
        ConfigError: a place is missing, there is no run, or there are more than `most`.
    """
    runs = WatchServer(places, tokenizer=tokenizer).runs
    if most and len(runs.readers) > most:
        names = ", ".join(runs.readers)
        raise ConfigError(f"{str(places[0])!r} holds several runs; name one of them: {names}")
    return runs


async def serve(
    application: web.Application, host: str, port: int, listening: Callable[[int], None]
) -> None:
    """Serve a page until cancelled; `listening` is called with the port.

    Raises:
        OSError: the port is taken, or the host is not an address of this machine.
    """
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.SockSite(runner, listener := listen(host, port))
        await site.start()
        listening(int(listener.getsockname()[1]))
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def serve_until_interrupted(
    application: web.Application, host: str, port: int, listening: Callable[[str], None]
) -> None:
    """Serve a page until Ctrl-C; `listening` is called with its address, without a path.

    Raises:
        ConfigError: the port is taken, or the host is not an address of this machine.
    """
    name = f"[{host}]" if ":" in host else host
    try:
        asyncio.run(serve(application, host, port, lambda at: listening(f"http://{name}:{at}")))
    except KeyboardInterrupt:
        return
    except OSError as error:
        raise ConfigError(
            f"cannot listen at {host}:{port}: {error.strerror}; choose another --port"
        ) from None


def refuse_open_door(host: str, token: str) -> None:
    """Raise ConfigError for an address that others can reach, without a token."""
    if not token and not is_loopback(host):
        raise ConfigError(
            f"--host {host} can be reached from other machines: give a --token for browsers"
        )
