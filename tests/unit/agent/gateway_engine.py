"""An engine that logs what it samples, a gateway over it, and the law of capture."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from ludus.agent import ChatFormat, Finish, Generation, Sampling, Segment
from ludus.agent.gateway import Gateway
from ludus.agent.gateway.rollout import Rollout
from ludus.agent.images import PlacedImage
from ludus.agent.parsing import HermesFormat
from ludus.agent.rows import TokenWriter
from ludus.messages import Message, ToolCall, assistant
from ludus.trainer.models.tiny import build_tokenizer

WORDS = ["alpha", "beta", "gamma", "delta", "the", "of", "river", "stone", "seven", "7", ".", ","]


class LoggedEngine:
    """Answers with words and calls drawn by the request's seed, and logs what it sampled."""

    version = 3

    def __init__(self, chat: ChatFormat, max_length: int = 20_000) -> None:
        self.chat, self.max_length = chat, max_length
        self.log: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self.delay_s = 0.0
        self.fails: list[bool] = []
        """Whether each of the next requests fails."""
        self.saying: Message | None = None

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        await asyncio.sleep(self.delay_s)
        if self.fails and self.fails.pop(0):
            raise RuntimeError("the card fell off the bus")
        rng = random.Random(sampling.seed)
        said = self.saying or self._drawn(rng)
        out = self.chat.answer(said)[: sampling.max_tokens]
        finish = Finish.STOP if self.chat.ends_turn(out) else Finish.LENGTH
        if finish is Finish.LENGTH and len(out) < sampling.max_tokens:
            out = out + [out[-1]] * (sampling.max_tokens - len(out))
        self.log.append((tuple(ids), tuple(out)))
        logprobs = [-rng.random() for _ in out]
        return Generation(ids=out, logprobs=logprobs, finish=finish, versions=[3] * len(out))

    def _drawn(self, rng: random.Random) -> Message:
        text = " ".join(rng.choices(WORDS, k=rng.randint(0, 12)))
        calls = [
            ToolCall(name="look", arguments={"key": rng.choice(WORDS), "depth": n}, id="call_0")
            for n in range(rng.choice([0, 0, 1, 2]))
        ]
        return assistant(text + rng.choice(["", " ", "\n"]), calls)


def chat_format(template: str | None = None) -> ChatFormat:
    tokenizer: Any = build_tokenizer()
    if template is not None:
        tokenizer.chat_template = template
    return ChatFormat(tokenizer, HermesFormat())


@asynccontextmanager
async def serving(
    engine: Any, max_tokens: int = 80
) -> AsyncGenerator[tuple[Gateway, httpx.AsyncClient]]:
    writer = TokenWriter(engine.chat, engine, Sampling(max_tokens=max_tokens))
    async with (
        Gateway(writer) as gateway,
        httpx.AsyncClient(base_url=gateway.url, timeout=30) as http,
    ):
        yield gateway, http


def bearer(rollout: Rollout) -> dict[str, str]:
    return {"Authorization": f"Bearer {rollout.key}"}


async def ask(
    http: httpx.AsyncClient, rollout: Rollout, body: dict[str, Any], **headers: str
) -> dict[str, Any]:
    reply = await http.post("/v1/chat/completions", json=body, headers=bearer(rollout) | headers)
    assert reply.status_code == 200, reply.text
    read: dict[str, Any] = reply.json()
    return read


def check_capture(engine: LoggedEngine, rollout: Rollout, segments: Sequence[Segment]) -> None:
    """Hold the rows against the engine's log."""
    sampled = Counter(engine.log)
    trained = 0
    for row in segments:
        ids = tuple(row.ids())
        for start, turn in row.spans():
            if not turn.trained:
                continue
            trained += len(turn.out_ids)
            prefix, out = ids[:start], tuple(turn.out_ids)
            matches = [
                entry for entry in sampled
                if sampled[entry] and entry[0] == prefix and entry[1][: len(out)] == out
            ]  # fmt: skip
            assert matches, "a trained span was not sampled under its prefix"
            sampled[matches[0]] -= 1
    listed = sum(rollout.tree.untrained().values())
    assert trained + listed == sum(len(out) for _, out in engine.log)
