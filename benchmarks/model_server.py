"""A transformers folder behind an OpenAI-compatible address, with the project's own local engine.

Used to measure a small released model as a judge (docs/judges.md):

    python benchmarks/model_server.py FOLDER --port 8000 &
    ludus check-judge http://127.0.0.1:8000/v1 --model local

It answers `/v1/chat/completions` with messages, temperature, max_tokens and seed, and tells
`top_logprobs` of the first token. Of `response_format` it understands JSON schemas that are a flat
object of strings, booleans, numbers in a range and enumerations, which is all that questions about
one response or one pair need: strings are sampled, every other value is the likeliest one allowed
(up to ten numbers).
"""

import argparse
import asyncio
import json

import msgspec
import torch
from aiohttp import web

from ludus.trainer.engines.local import EngineLimits

REASON_TOKENS = 24
"""Of a string in a guided answer."""


class ModelServer:
    """Answers chat requests from one engine."""

    def __init__(self, folder: str, threads: int, *, free: bool):
        from ludus.trainer.engines.local import LocalEngine
        from ludus.trainer.models.loading import load_model, load_stop_ids, load_tokenizer

        torch.set_num_threads(threads)
        self.free = free
        self.tokenizer = load_tokenizer(folder)
        self.stops = tuple(load_stop_ids(folder))
        self.model = load_model(folder, device="cpu")
        self.engine = LocalEngine(self.model, EngineLimits(max_rows=64, kept_tokens=20_000))

    async def complete(self, request: web.Request) -> web.Response:
        """One answer."""
        from ludus.agent import Finish, Sampling

        asked = await request.json()
        ids = self.tokenizer.apply_chat_template(
            asked["messages"], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        max_tokens = int(asked.get("max_tokens") or 256)
        if len(ids) + max_tokens > self.engine.max_length:
            message = f"maximum context length is {self.engine.max_length} tokens"
            error = {"message": message, "code": "context_length_exceeded"}
            return web.json_response({"error": error}, status=400)
        sampling = Sampling(
            max_tokens=max_tokens,
            temperature=float(asked.get("temperature", 1.0)),
            seed=int(asked.get("seed") or 0),
            stop_token_ids=self.stops,
        )
        schema = (asked.get("response_format") or {}).get("json_schema", {}).get("schema")
        if schema and not self.free:
            text, count, finish = *await self.guided(ids, schema, sampling), "stop"
        else:
            generation = await self.engine.generate(ids, sampling)
            text = self.tokenizer.decode([i for i in generation.ids if i not in self.stops])
            count = len(generation.ids)
            finish = "length" if generation.finish is Finish.LENGTH else "stop"
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": finish,
        }
        if asked.get("logprobs"):
            top = await asyncio.to_thread(self.first_token, ids, int(asked.get("top_logprobs", 5)))
            choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
        usage = {
            "prompt_tokens": len(ids),
            "completion_tokens": count,
            "total_tokens": len(ids) + count,
        }
        reply = {"id": "local", "object": "chat.completion", "model": "local"}
        return web.json_response({**reply, "choices": [choice], "usage": usage})

    async def guided(self, ids: list[int], schema: dict, sampling) -> tuple[str, int]:
        """An object of the schema, and the tokens that it took."""
        said = ""
        for name, kind in schema["properties"].items():
            said += f"{', ' if said else '{'}{json.dumps(name)}: "
            if kind.get("type") == "string":
                start = ids + self.encode(said + '"')
                short = msgspec.structs.replace(sampling, max_tokens=REASON_TOKENS)
                generation = await self.engine.generate(start, short)
                text = self.tokenizer.decode([i for i in generation.ids if i not in self.stops])
                said += json.dumps(text.partition('"')[0].partition("\n")[0])
            else:
                said += await self.likeliest(ids, said, allowed(kind))
        return said + "}", len(self.encode(said))

    async def likeliest(self, ids: list[int], said: str, values: list[str]) -> str:
        """The value whose first token of its own is the likeliest after what was said."""
        rows = [self.encode(f"{said}{value}}}") for value in values]
        columns = zip(*rows, strict=False)
        fork = next(n for n, column in enumerate(columns) if len(set(column)) > 1)
        logprobs = await asyncio.to_thread(self.next_token, ids + rows[0][:fork])
        return max(values, key=lambda value: logprobs[rows[values.index(value)][fork]].item())

    def encode(self, text: str) -> list[int]:
        """Token ids of a continuation."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    @torch.no_grad()
    def next_token(self, ids: list[int]) -> torch.Tensor:
        """Log-probabilities of what follows."""
        return torch.log_softmax(self.model(torch.tensor([ids])).logits[0, -1].float(), -1)

    def first_token(self, ids: list[int], count: int) -> list[dict]:
        """The likeliest first tokens with their log-probabilities."""
        values, chosen = self.next_token(ids).topk(count)
        return [
            {"token": self.tokenizer.decode([token]), "logprob": value}
            for token, value in zip(chosen.tolist(), values.tolist(), strict=True)
        ]


def allowed(kind: dict) -> list[str]:
    """The values that a part of a schema allows, as JSON."""
    if kind.get("type") == "boolean":
        return ["true", "false"]
    if "enum" in kind:
        return [json.dumps(value) for value in kind["enum"]]
    return [str(n) for n in range(kind["minimum"], kind["maximum"] + 1)]


async def models(request: web.Request) -> web.Response:
    """The one model."""
    return web.json_response({"object": "list", "data": [{"id": "local", "object": "model"}]})


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--free", action="store_true", help="leave schemas aside")
    options = parser.parse_args()
    server = ModelServer(options.folder, options.threads, free=options.free)
    application = web.Application(client_max_size=16 << 20)
    application.router.add_post("/v1/chat/completions", server.complete)
    application.router.add_get("/v1/models", models)
    web.run_app(application, host="127.0.0.1", port=options.port, print=None)


if __name__ == "__main__":
    main()
