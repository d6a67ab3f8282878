"""The page on which people label, and its requests.

Everything is answered from this machine: the page loads nothing from elsewhere, and the browser is
told so. A label is answered when its row is on the disk.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from ludus.errors import ConfigError
from ludus.metrics import replace_file
from ludus.wire.address import is_loopback

from ..viewer.guard import page_guard
from ..viewer.transcript import message_data
from .journal import LabelJournal, row_of
from .sheet import LabelItem, in_turn

COOKIE = "ludus_label"
STATIC = Path(__file__).parent / "static"
VIEWER = Path(__file__).parents[1] / "viewer" / "static"
"""The scripts of the viewer, which shows messages here too."""
LONGEST_S = 3600.0
"""The longest time that an item is said to have taken: a page that was left open tells nothing."""
_KINDS = {"messages.js": "text/javascript", "page.js": "text/javascript", "page.css": "text/css"}


class LabelRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What the page sends: a label, with answers in the order shown."""

    item: str
    label: list[float]
    seconds: float


class LabelServer:
    """Asks people about items.

    Args:
        items: what is asked.
        journal: where rows go.
        annotators: the people; each has a token of their own, kept beside the journal.
        guidelines: what is shown above every item.
        overlap: how many people label an item; 0 is everybody.
        host: where the page is served, for the check of the browser's Host header.

    Raises:
        ConfigError: a name that cannot be, or tokens that cannot be read.
    """

    def __init__(
        self,
        items: Sequence[LabelItem],
        journal: LabelJournal,
        annotators: Sequence[str],
        *,
        guidelines: str = "",
        overlap: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        for name in annotators:
            if not name or not all(char.isalnum() or char in "-_." for char in name):
                raise ConfigError(f"{name!r} is no name of an annotator: letters, digits, - _ .")
        if not annotators or len(set(annotators)) < len(annotators):
            raise ConfigError(f"annotators are named once each, got {', '.join(annotators)!r}")
        self.items = {item.id: item for item in items}
        self.journal, self.guidelines = journal, guidelines
        self.overlap = overlap or len(annotators)
        self.tokens = _tokens(journal.path.with_suffix(".tokens.json"), annotators)
        self._local = is_loopback(host)
        self._turns = {name: in_turn(items, name) for name in annotators}
        self._writing = asyncio.Lock()

    def application(self) -> web.Application:
        """Return the application, to be run or tested."""
        application = web.Application(
            middlewares=[page_guard(COOKIE, self._named, local=self._local, verb="ludus label")],
            client_max_size=1 << 16,
        )
        application.router.add_get("/", self._page)
        for name in _KINDS:
            application.router.add_get(f"/{name}", self._static)
        application.router.add_get("/api/item", self._item)
        application.router.add_post("/api/label", self._label)
        application.router.add_post("/api/undo", self._undo)
        return application

    def waiting(self, annotator: str) -> list[LabelItem]:
        """Return the items that a person is still asked, in turn."""
        done = {row.item for row in self.journal.of(annotator)}
        counts = Counter(row.item for row in self.journal.rows.values())
        return [
            item
            for item in self._turns[annotator]
            if item.id not in done
            # Test items are for everybody.
            and (item.expected is not None or counts[item.id] < self.overlap)
        ]

    def _asked_by(self, request: web.Request) -> str:
        """Return who asks; empty for a stranger."""
        return self._named(request.cookies.get(COOKIE, ""))

    def _named(self, token: str) -> str:
        """Return the owner of a token; empty for a token of nobody."""
        for name, own in self.tokens.items():
            # A cookie may hold any byte.
            shown = token.encode(errors="surrogateescape")
            if token and hmac.compare_digest(shown, own.encode()):
                return name
        return ""

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(
            text=(STATIC / "page.html").read_text("utf-8"), content_type="text/html"
        )

    async def _static(self, request: web.Request) -> web.Response:
        name = request.path.removeprefix("/")
        folder = STATIC if (STATIC / name).exists() else VIEWER
        return web.Response(text=(folder / name).read_text("utf-8"), content_type=_KINDS[name])

    async def _item(self, request: web.Request) -> web.Response:
        name = self._asked_by(request)
        waiting = self.waiting(name)
        shown = {
            "annotator": name,
            "guidelines": self.guidelines,
            "done": len(self.journal.of(name)),
            "left": len(waiting),
            "item": _shown(waiting[0], name) if waiting else None,
        }
        return web.Response(body=msgspec.json.encode(shown), content_type="application/json")

    async def _label(self, request: web.Request) -> web.Response:
        sent = msgspec.json.decode(await request.read(), type=LabelRequest)
        item = self.items.get(sent.item)
        if item is None:
            raise ConfigError(f"there is no item {sent.item!r}")
        name, label = self._asked_by(request), sent.label
        if len(item.answers) > 1:
            if len(label) != len(item.answers):
                raise ConfigError(f"{label} is no label of {len(item.answers)} answers")
            order = item.order(name)
            label = [label[order.index(place)] for place in range(len(order))]
        seconds = min(LONGEST_S, max(0.0, sent.seconds))
        row = row_of(item, name, label, seconds)
        async with self._writing:
            await asyncio.to_thread(self.journal.add, row)
        return await self._item(request)

    async def _undo(self, request: web.Request) -> web.Response:
        async with self._writing:
            await asyncio.to_thread(self.journal.undo, self._asked_by(request))
        return await self._item(request)


def _shown(item: LabelItem, annotator: str) -> dict[str, Any]:
    """Return an item in the form that the page shows to a person."""
    order = item.order(annotator)
    return {
        "id": item.id,
        "question": str(item.question),
        "criterion": item.criterion,
        "prompt": [message_data(message) for message in item.prompt],
        "answers": [[message_data(message) for message in item.answers[place]] for place in order],
    }


def _tokens(path: Path, annotators: Sequence[str]) -> dict[str, str]:
    """Return the token of each person, from the file if any: a server that starts again knows the
    browsers of before.
    """
    known: dict[str, str] = {}
    try:
        if path.exists():
            known = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        tokens = {name: known.get(name) or secrets.token_urlsafe(18) for name in annotators}
        if tokens != known:
            replace_file(path, msgspec.json.encode({**known, **tokens}), mode=0o600)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"cannot use the tokens in {str(path)!r}: {error}") from None
    return tokens
