"""An engine that logs what it samples, a gateway over it, and the law of capture."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from ludus.agent import ChatFormat, Finish, Generation, Sampling, Segment
from ludus.agent.engine import Engine, can_constrain
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


class LoggingEngine(LoggedEngine):
    """A model whose samples are logged."""

    def __init__(self, engine: Engine, chat: Any) -> None:
        super().__init__(chat, max_length=engine.max_length)
        self.engine = engine
        self.constrains = can_constrain(engine)

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        generation = await self.engine.generate(ids, sampling, images=images)
        self.log.append((tuple(ids), tuple(generation.ids)))
        return generation


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks something up.",
            "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
        },
    }
    for name in ("look", "list_all")
]


class WildAgent:
    """Plays random conversations: it goes on, forks, repeats, edits, strips, compacts, drops
    results, changes tools, asks for several samples, cuts by stop strings, and asks at the same
    time from several branches.
    """

    def __init__(self, seed: int, http: httpx.AsyncClient, rollout: Rollout) -> None:
        self.rng = random.Random(seed)
        self.http, self.rollout = http, rollout
        self.histories: list[list[dict[str, Any]]] = []

    def opening(self) -> list[dict[str, Any]]:
        head = {"role": "system", "content": self.rng.choice(["S", "Another system."])}
        question = {"role": "user", "content": f"question {self.rng.randint(0, 3)}"}
        return [head, question] if self.rng.random() < 0.7 else [question]

    async def run(self, calls: int) -> None:
        while calls > 0:
            width = self.rng.choice([1, 1, 1, 3])
            await asyncio.gather(*(self.step() for _ in range(width)))
            calls -= width

    async def step(self) -> None:
        rng = self.rng
        history = rng.choice(self.histories) if self.histories and rng.random() < 0.9 else None
        messages = json.loads(json.dumps(history)) if history else self.opening()
        body: dict[str, Any] = {"model": "m", "messages": messages, "temperature": 0}
        if rng.random() < 0.8:
            body["tools"] = TOOLS if rng.random() < 0.9 else TOOLS[:1]
        if rng.random() < 0.1:
            body["n"] = 3
        if rng.random() < 0.1:
            body["stop"] = rng.choice(["gamma", ["7", "."]])
        if rng.random() < 0.1:
            body["parallel_tool_calls"] = False
        mood = rng.random()
        if history and mood < 0.08:  # compacts
            told = " ".join(str(message.get("content")) for message in messages)
            body["messages"] = [messages[0], {"role": "user", "content": f"So far: {told}"}]
        elif history and mood < 0.16:  # edits an answer
            for message in messages:
                if message["role"] == "assistant" and rng.random() < 0.5:
                    message["content"] = "I never said that"
        elif history and mood < 0.24:  # strips
            for message in messages:
                if message["role"] == "assistant" and message["content"]:
                    message["content"] = message["content"].rstrip()
        elif history and mood < 0.3:  # clears results
            for message in messages:
                if message["role"] == "tool":
                    message["content"] = "(cleared)"
        answer = await ask(self.http, self.rollout, body)
        for choice in answer["choices"][: rng.choice([1, 3])]:
            message = choice["message"]
            echoed = {"role": "assistant", "content": message["content"]}
            if message.get("tool_calls"):
                echoed["tool_calls"] = message["tool_calls"]
            results = [
                {"role": "tool", "tool_call_id": call["id"], "content": f"found {rng.random()}"}
                for call in message.get("tool_calls", ())
            ]
            more = results or [{"role": "user", "content": rng.choice(["go on", "and?"])}]
            self.histories.append([*body["messages"], echoed, *more])
