"""What the gateway costs each call of an agent, over an engine that answers at once.

    python benchmarks/gateway.py [--model smollm2] [--calls 60]
    python benchmarks/gateway.py --agents 256 --processes 8

A conversation grows by a tool's result of forty words a call. The client is a process of its own,
so that the CPU time is the gateway's alone: HTTP, JSON, the tree, chat template and tokenizer. The
first call with a long history, which renders it whole, is reported apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from http.client import HTTPConnection
from statistics import median
from typing import Any

import ludus
from ludus.agent import ChatFormat, Episode, Finish, Generation, Sampling
from ludus.agent.gateway import Agent, AgentCommand, AgentLimits, AgentMaker, AgentTask, Gateway
from ludus.agent.images import PlacedImage
from ludus.agent.rows import TokenWriter
from ludus.messages import assistant, user
from ludus.trainer.config import ModelConfig
from ludus.trainer.models.loading import load_images, load_tokenizer, open_chat
from ludus.trainer.models.tiny import find_model

WORDS = "the river turns behind the stone and the seventh gate is open".split()  # noqa: SIM905
HISTORIES = (2_000, 10_000, 50_000)
LAG_EVERY_S = 0.01


class NullEngine:
    """Answers every prompt with the same forty tokens, at once."""

    version, max_length = 1, 200_000

    def __init__(self, chat: ChatFormat) -> None:
        self.ids = chat.answer(assistant(said(40)))
        self.bytes = 0

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        """Answer."""
        out = self.ids[: sampling.max_tokens]
        return Generation(
            ids=list(out),
            logprobs=[-0.5] * len(out),
            finish=Finish.STOP if len(out) == len(self.ids) else Finish.LENGTH,
            versions=[1] * len(out),
        )


def said(words: int) -> str:
    """A text of that many words."""
    return " ".join((WORDS * (words // len(WORDS) + 1))[:words])


def chat_of(model: str) -> ChatFormat:
    """The chat format of a model, without its weights."""
    folder = find_model(model)
    tokenizer = load_tokenizer(folder)
    images = load_images(folder, tokenizer, max_pixels=None)
    return open_chat(ModelConfig(path=model), folder, tokenizer, images=images).chat_format


def client(port: int, key: str, tokens: int, calls: int, pipe: Any) -> None:
    """Grow a conversation to `tokens`, say so, and make `calls` more."""
    connection = HTTPConnection("127.0.0.1", port)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Answer briefly."}]

    def call() -> tuple[float, int]:
        messages.append({"role": "user", "content": said(40)})
        body = json.dumps({"model": "policy", "messages": messages})
        begun = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", body, headers)
        reply = json.loads(connection.getresponse().read())
        wall_s = time.perf_counter() - begun
        messages.append(reply["choices"][0]["message"])
        return wall_s, reply["usage"]["prompt_tokens"]

    while call()[1] < tokens:
        pass
    pipe.send("grown")
    pipe.recv()
    pipe.send([call()[0] for _ in range(calls)])
    pipe.recv()
    messages[0]["content"] = "Answer at length."
    pipe.send([call()[0]])


async def latency(chat: ChatFormat, calls: int) -> None:
    """Print what a call costs at each length of history."""
    print("history  CPU ms a call  wall p50  wall p99  CPU ms of a whole rendering")
    context = multiprocessing.get_context("spawn")
    writer = TokenWriter(chat, NullEngine(chat), Sampling(max_tokens=200))
    async with Gateway(writer) as gateway:
        for tokens in HISTORIES:
            rollout = gateway.open()
            rollout.limits = type(rollout.limits)(max_calls=100_000, max_tokens=1 << 30)
            own, other = context.Pipe()
            arguments = (gateway.port, rollout.key, tokens, calls, other)
            process = context.Process(target=client, args=arguments)
            process.start()
            await asyncio.to_thread(own.recv)
            before = time.process_time()
            own.send("go")
            walls = sorted(await asyncio.to_thread(own.recv))
            spent = 1000 * (time.process_time() - before) / calls
            before = time.process_time()
            own.send("go")
            await asyncio.to_thread(own.recv)
            whole = 1000 * (time.process_time() - before)
            process.join()
            p50, p99 = 1000 * median(walls), 1000 * walls[int(0.99 * (calls - 1))]
            print(f"{tokens:7,}  {spent:13.2f}  {p50:8.2f}  {p99:8.2f}  {whole:8.1f}", flush=True)
            gateway.close(rollout)


def ask(task: AgentTask) -> str:
    """An agent of eight calls with one connection, as a plain function."""
    place = task.base_url.removeprefix("http://").split("/")[0]
    connection = HTTPConnection(place, timeout=600)
    headers = {"Authorization": f"Bearer {task.key}"}
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.prompt}]
    for _ in range(8):
        body = json.dumps({"model": "policy", "messages": messages})
        connection.request("POST", "/v1/chat/completions", body, headers)
        reply = json.loads(connection.getresponse().read())
        messages += [reply["choices"][0]["message"], {"role": "user", "content": said(40)}]
    return "117"


def program() -> None:
    """The same agent as a program."""
    with open(os.environ["LUDUS_TASK"]) as given:
        task = json.load(given)
    url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
    prompt = os.environ["LUDUS_PROMPT"]
    print(
        ask(
            AgentTask(
                base_url=url, anthropic_url="", key=key, task=task["task"], messages=[user(prompt)]
            )
        )
    )


async def crowd(chat: ChatFormat, agent: Agent, number: int, name: str) -> None:
    """Let agents play at once, and print what became of them and of the event loop."""
    lags: list[float] = []

    async def watch() -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(LAG_EVERY_S)
            lags.append(time.perf_counter() - begun - LAG_EVERY_S)

    writer = TokenWriter(chat, NullEngine(chat), Sampling(max_tokens=200))
    async with AgentMaker(agent, writer, AgentLimits(timeout_s=300)) as maker:
        watching, begun = asyncio.create_task(watch()), time.perf_counter()

        async def play(index: int) -> Episode:
            env = ludus.make_async("ludus/arithmetic-v0")
            _, info = await env.reset(seed=index)
            task = info["task"]
            try:
                return await maker.make(
                    env, task=task, split="train", seed=index, sampling_seed=index
                )
            finally:
                await env.close()

        episodes = await asyncio.gather(*map(play, range(number)))
        wall_s = time.perf_counter() - begun
        watching.cancel()
    stops = Counter(str(trajectory.stop) for each in episodes for trajectory in each.trajectories)
    calls = sum(len(row.turns) for each in episodes for row in each.trajectories[0].segments)
    lag_ms = 1000 * sorted(lags)[int(0.99 * len(lags))]
    print(
        f"{number} {name}: {dict(stops)}, {calls} calls in {wall_s:.1f} s, "
        f"lag of the loop p99 {lag_ms:.0f} ms"
    )


async def main(options: argparse.Namespace) -> None:
    """Measure what was asked for."""
    chat = chat_of(options.model)
    if options.agents:
        await crowd(chat, ask, options.agents, "callables")
        command = AgentCommand(f"{sys.executable} {__file__} --program")
        await crowd(chat, command, options.processes, "processes")
        return
    await latency(chat, options.calls)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--agents", type=int, default=0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--program", action="store_true")
    given = parser.parse_args()
    if given.program:
        program()
    else:
        asyncio.run(main(given))
