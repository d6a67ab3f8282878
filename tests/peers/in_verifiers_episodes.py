"""The package's side of `test_in_verifiers.py`: its own agent plays a taskset of a folder.

PYTHON in_verifiers_episodes.py FOLDER < rounds of answers by prompt > rewards by prompt, as JSON
"""

import asyncio
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import verifiers.v1 as vf  # pyright: ignore
from verifiers.v1.utils import loaders  # pyright: ignore

AT_ONCE = 8
answers: dict[str, str] = {}


class Model(BaseHTTPRequestHandler):
    """Streams, in OpenAI's dialect, the answer that is listed for a prompt."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = answers[body["messages"][-1]["content"]]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        first: dict[str, Any] = {"role": "assistant", "content": said}
        for delta, why in ((first, None), ({}, "stop")):
            choice = {"index": 0, "delta": delta, "finish_reason": why}
            self.wfile.write(f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


async def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["PEER_KEY"] = "none"
    sys.path.insert(0, sys.argv[1])
    made = loaders.environment_class("capital_tasks")
    config = loaders.concrete_type(made, vf.EnvConfig, origin=vf.Env)
    agent = {"harness": {"id": "null"}, "runtime": vf.SubprocessConfig()}
    env = vf.load_environment(config(taskset={"id": "capital_tasks"}, agent=agent))
    url = f"http://127.0.0.1:{server.server_port}/v1"
    client = vf.EvalClientConfig(base_url=url, api_key_var="PEER_KEY")
    context, room = vf.ModelContext(model="m", client=client), asyncio.Semaphore(AT_ONCE)

    async def reward(task: Any) -> float:
        async with room:
            episode = await env.run_episode(task, context)
        assert episode.ok, episode.errors
        return float(episode.traces[0].reward)

    rounds = []
    async with env.serving():
        for listed in json.load(sys.stdin):
            answers.update(listed)
            tasks = list(env.taskset)
            rewards = await asyncio.gather(*map(reward, tasks))
            prompts = [task.data.prompt for task in tasks]
            rounds.append(dict(zip(prompts, rewards, strict=True)))
    print("rounds:", json.dumps(rounds))


asyncio.run(main())
