"""The mock judge as an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import Counter
from typing import Any, Self

from aiohttp import web

from . import answers
from .answers import MockMode
from .prompt_reading import ReadPrompt, read_prompt

MAX_BODY = 16 << 20


class MockJudge:
    """Serves `/v1/chat/completions` and `/v1/models` on this machine.

        async with MockJudge("gullible") as judge:
            verifier = RubricJudge(base_url=judge.url, model="mock", rubric="rubric.toml")

    Args:
        mode: the behaviour; a `MockMode` or the name of a mode.
        port: 0 picks a free port.
        delay_s: seconds before every answer in mode "slow".
        failing: share of requests that fail first in mode "flaky".

    Raises:
        ValueError: no such mode.
    """

    def __init__(
        self,
        mode: MockMode | str = MockMode.HONEST,
        *,
        port: int = 0,
        delay_s: float = 5.0,
        failing: float = 0.5,
    ) -> None:
        self.mode = MockMode(mode)
        self.port = port
        self.delay_s = delay_s
        self.failing = failing
        self.requests = 0
        """Requests that arrived, also those that were failed on purpose."""
        self._attempts: Counter[bytes] = Counter()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The base URL, up to and with `/v1`."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        """Listen on 127.0.0.1; `port` is then the port in use.

        Raises:
            OSError: the port is taken.
        """
        application = web.Application(client_max_size=MAX_BODY)
        application.router.add_post("/v1/chat/completions", self._complete)
        application.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and close the connections."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "mock", "object": "model"}]})

    async def _complete(self, request: web.Request) -> web.Response:
        self.requests += 1
        raw = await request.read()
        body: dict[str, Any] = await request.json()
        digest = hashlib.sha256(raw).digest()
        attempt = self._attempts[digest]
        self._attempts[digest] += 1
        if self.mode is MockMode.FLAKY and not attempt and digest[0] < 256 * self.failing:
            status = 429 if digest[1] % 2 else 500
            headers = {"Retry-After": "0.05"} if status == 429 else {}
            return web.json_response({"error": {"message": "busy"}}, status=status, headers=headers)
        if self.mode is MockMode.SLOW:
            await asyncio.sleep(self.delay_s)
        prompt = read_prompt(body["messages"])
        text = self._answer(prompt, attempt)
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
        }
        if body.get("logprobs"):
            # The log-probabilities of the first token, which is nine times as likely as a zero.
            first = text[:1] or " "
            rivals = [
                {"token": first, "logprob": math.log(0.9)},
                {"token": "0", "logprob": math.log(0.1)},
            ]
            choice["logprobs"] = {
                "content": [{"token": first, "logprob": math.log(0.9), "top_logprobs": rivals}]
            }
        prompt_tokens = sum(len(str(m.get("content", "")).split()) for m in body["messages"])
        tokens = len(text.split())
        usage = {
            "prompt_tokens": prompt_tokens, "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        }  # fmt: skip
        return web.json_response(
            {
                "id": "mock",
                "object": "chat.completion",
                "model": "mock",
                "choices": [choice],
                "usage": usage,
            }
        )

    def _answer(self, prompt: ReadPrompt, attempt: int) -> str:
        match self.mode:
            case MockMode.GULLIBLE:
                return answers.gullible(prompt)
            case MockMode.ECHO:
                return prompt.data.get("response", "")
            case MockMode.GARBAGE:
                return answers.garbage(prompt, attempt)
            case _:
                return answers.honest(prompt)
