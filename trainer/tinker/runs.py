"""What a server of models says of its training runs and checkpoints, and their removal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from ludus.wire.codec import decode
from ludus.wire.faults import Refused
from ludus.wire.principals import asked_by
from ludus.wire.routes import Endpoint

from . import wire
from .models import ServedModel
from .store import CheckpointCard, CheckpointStore, RunCard

T = TypeVar("T")
BASE = "/api/v1"
Handler = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


def owner() -> str:
    """Return the name of whoever asks."""
    return asked_by.get().name


async def answer_json(
    body: type[T], handler: Callable[[T], Awaitable[Any]], request: web.Request, data: bytes
) -> web.Response:
    """Read a JSON body, and answer what the handler returns."""
    return as_json(await handler(decode(data or b"{}", body)))


def as_json(value: Any) -> web.Response:
    """Build an answer."""
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


class RunPages:
    """Answers about training runs.

    Args:
        store: the checkpoints.
        models: those in training, by id.
    """

    def __init__(self, store: CheckpointStore, models: Mapping[str, ServedModel]) -> None:
        self.store = store
        self.models = models

    def endpoints(self) -> list[Endpoint]:
        """Return the routes."""
        checkpoint = "/training_runs/{run}/checkpoints/{checkpoint:.+}"
        pages: dict[tuple[str, str], Handler] = {
            ("POST", "/weights_info"): partial(answer_json, wire.AskWeights, self._weights_info),
            ("GET", "/training_runs"): self._training_runs,
            ("GET", "/checkpoints"): self._all_checkpoints,
            ("GET", "/training_runs/{run}"): self._training_run,
            ("GET", "/training_runs/{run}/checkpoints"): self._checkpoints,
            ("PUT", checkpoint + "/ttl"): self._set_ttl,
            ("DELETE", checkpoint): self._delete,
        }
        return [Endpoint(method, BASE + path, done) for (method, path), done in pages.items()]

    async def _weights_info(self, request: wire.AskWeights) -> dict[str, Any]:
        _, run, _ = self.store.find(request.tinker_path, owner())
        lora = {} if run.lora is None else msgspec.to_builtins(run.lora)
        flags = {name: lora.get(name) for name in ("train_unembed", "train_mlp", "train_attn")}
        return {
            "base_model": run.base_model,
            "is_lora": run.lora is not None,
            "lora_rank": lora.get("rank"),
            **flags,
        }

    async def _training_runs(self, request: web.Request, body: bytes) -> web.Response:
        runs = [self._described(run) for run in self.store.runs(owner())]
        page, cursor = page_of(runs, request)
        return as_json({"training_runs": page, "cursor": cursor})

    async def _training_run(self, request: web.Request, body: bytes) -> web.Response:
        return as_json(self._described(self._run(request)))

    async def _checkpoints(self, request: web.Request, body: bytes) -> web.Response:
        return as_json({"checkpoints": self.store.checkpoints(self._run(request))})

    async def _all_checkpoints(self, request: web.Request, body: bytes) -> web.Response:
        runs = self.store.runs(owner())
        every = [card for run in runs for card in self.store.checkpoints(run)]
        page, cursor = page_of(every, request)
        return as_json({"checkpoints": page, "cursor": cursor})

    async def _set_ttl(self, request: web.Request, body: bytes) -> web.Response:
        path = "tinker://{run}/{checkpoint}".format(**request.match_info)
        self.store.set_ttl(path, owner(), decode(body, wire.SetTtl).ttl_seconds)
        return as_json({})

    async def _delete(self, request: web.Request, body: bytes) -> web.Response:
        self.store.delete("tinker://{run}/{checkpoint}".format(**request.match_info), owner())
        return as_json({})

    def _run(self, request: web.Request) -> RunCard:
        """Return the model that a path names: one in training, or one with checkpoints."""
        name = request.match_info["run"]
        model = self.models.get(name)
        if model is not None and model.card.model_owner == owner():
            return model.card
        return self.store.run(name, owner())

    def _described(self, run: RunCard) -> dict[str, Any]:
        cards = self.store.checkpoints(run)

        def newest(kind: str) -> CheckpointCard | None:
            return next((card for card in cards if card.checkpoint_type == kind), None)

        metadata = {name: str(value) for name, value in (run.user_metadata or {}).items()}
        return {
            "training_run_id": run.training_run_id,
            "base_model": run.base_model,
            "model_owner": run.model_owner,
            "is_lora": run.lora is not None,
            "lora_rank": run.lora and run.lora.rank,
            "last_request_time": cards[0].time if cards else run.begun,
            "last_checkpoint": newest("training"),
            "last_sampler_checkpoint": newest("sampler"),
            "user_metadata": metadata or None,
        }


def page_of(items: list[Any], request: web.Request) -> tuple[list[Any], dict[str, int]]:
    """Return the page of a list that the query asks for, and the cursor of the page."""
    try:
        offset, limit = (
            int(request.query.get(*each)) for each in (("offset", "0"), ("limit", "20"))
        )
    except ValueError:
        raise Refused("offset and limit are numbers", "malformed") from None
    offset, limit = max(0, offset), max(1, limit)
    cursor = {"offset": offset, "limit": limit, "total_count": len(items)}
    return items[offset : offset + limit], cursor
