"""Agents of other projects, unmodified, play through the gateway with their official SDKs, each in
an environment of its own (`make test-agents`). What they are given is held against the engine's own
log, and what they hold at the end against what the gateway has shown.

LUDUS_AGENT_ROUNDS repeats each run, and LUDUS_AGENT_MODEL=smollm2 lets a released model play.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ludus.agent import Sampling, Stop
from ludus.agent.gateway import Gateway, RolloutLimits
from ludus.agent.rows import TokenWriter
from ludus.messages import Message, ToolCall, assistant
from ludus.trainer.config import ModelConfig
from ludus.trainer.engines.local_policy import local_policy
from ludus.verdict import Verdict
from tests.unit.agent.gateway_engine import LoggedEngine, LoggingEngine, chat_format, check_capture

ENVIRONMENTS = Path(os.environ.get("LUDUS_AGENTS", "build/agents")).resolve()
ROUNDS = int(os.environ.get("LUDUS_AGENT_ROUNDS", "1"))
MODEL = os.environ.get("LUDUS_AGENT_MODEL", "")
PROGRAM = Path(__file__).with_name("agents_played.py")

CODEX = """
model = "policy"
model_provider = "ludus"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.ludus]
name = "ludus"
base_url = "{url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""
OPENCODE = {
    "autoupdate": False,
    "share": "disabled",
    "model": "ludus/policy",
    "provider": {
        "ludus": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"},
            "models": {"policy": {"name": "policy"}},
        }
    },
}
LOOK = ToolCall(name="look", arguments={"key": "k", "depth": 1}, id="call_0")


@dataclass(frozen=True)
class Harness:
    """A variant of an agent: its environment, its program, and what the scripted policy calls."""

    environment: str
    program: Sequence[str] = ()
    """Its own command, in {bin}; empty runs `agents_played.py`."""
    call: ToolCall = LOOK
    last: Message | None = None
    """How the scripted policy ends; by default with a text."""
    rows: int = 1
    """The most rows of a round."""
    window: int = 0
    """The tokens that its own prompt takes, more than a small model has."""
    files: dict[str, str] = field(default_factory=dict)
    """By path in its folder."""


def shell(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments, id="call_0")


DONE = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
HARNESSES = {
    "openai": Harness("openai"),
    "openai-stream": Harness("openai"),
    "openai-wild": Harness("openai", rows=9),
    "anthropic": Harness("anthropic"),
    "anthropic-stream": Harness("anthropic"),
    "langgraph": Harness("langgraph", rows=2),
    "smolagents": Harness("smolagents", rows=8),  # it writes calls as text, so nothing is an echo
    "openai-agents": Harness("openai-agents"),
    "openai-agents-stream": Harness("openai-agents"),
    "pydantic-ai-chat": Harness("pydantic-ai", rows=2),
    "pydantic-ai-responses": Harness("pydantic-ai", rows=2),
    "pydantic-ai-anthropic": Harness("pydantic-ai", rows=2),
    "mini-swe-agent": Harness(
        "mini-swe-agent",
        ("{bin}/mini", "-m", "openai/policy", "-t", "Compute.", "-y", "--exit-immediately",
         "-o", "{folder}/trace.json"),
        call=shell("bash", command="echo $((3 * 39))"),
        last=assistant("", [shell("bash", command=DONE)]),
        window=3_000,
    ),
    "codex": Harness(
        "codex",
        ("{bin}/codex", "exec", "--skip-git-repo-check", "--json", "-C", "{folder}", "Compute."),
        call=shell("exec_command", cmd="echo $((3 * 39))"),
        window=21_000,
        files={"codex/config.toml": CODEX},
    ),
    "opencode": Harness(
        "opencode",
        ("{bin}/opencode", "run", "--format", "json", "Compute."),
        call=shell("bash", command="echo $((3 * 39))", description="computes"),
        rows=2,  # the title of the conversation is one
        window=10_000,
        files={"opencode.json": json.dumps(OPENCODE), "codex/x": ""},
    ),
}  # fmt: skip


class CallingEngine(LoggedEngine):
    """Calls a tool twice, then answers."""

    def __init__(self, harness: Harness) -> None:
        super().__init__(chat_format(), max_length=200_000)
        self.harness = harness

    def _drawn(self, rng: random.Random) -> Message:
        if len(self.log) % 3 == 2:
            return self.harness.last or assistant(f"the final answer is {rng.random()} ")
        return assistant(rng.choice(["", "thinking aloud "]), [self.harness.call])


@asynccontextmanager
async def playing(harness: Harness) -> AsyncGenerator[tuple[LoggedEngine, Gateway]]:
    if not MODEL:
        scripted = CallingEngine(harness)
        writer = TokenWriter(scripted.chat, scripted, Sampling(max_tokens=400))
        async with Gateway(writer) as gateway:
            yield scripted, gateway
        return
    async with local_policy(ModelConfig(path=MODEL), Sampling(max_tokens=48)) as policy:
        logging = LoggingEngine(policy.engine, policy.chat_format)
        async with Gateway(TokenWriter(policy.chat_format, logging, policy.sampling)) as gateway:
            yield logging, gateway


def binaries(harness: Harness) -> Path:
    """The folder of the environment's programs."""
    root = ENVIRONMENTS / harness.environment
    for folder in (root / "bin", root / "node_modules" / ".bin"):
        if folder.is_dir():
            return folder
    pytest.skip(f"{harness.environment} is not installed: make test-agents")


async def run(name: str, harness: Harness, url: str, key: str, folder: Path) -> list[Any] | None:
    """Run an agent; returns the answers that it holds at its end, None where it tells none."""
    found = binaries(harness)
    for path, text in harness.files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text.replace("{url}", f"{url}/v1"))
    trace = folder / "trace.json"
    own = [word.format(bin=found, folder=folder) for word in harness.program]
    command = own or [str(found / "python"), str(PROGRAM), name, str(trace), str(ROUNDS)]
    variables = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "HOME": str(folder),
        "CODEX_HOME": str(folder / "codex"),
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | variables,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(900):
        printed, complaints = await process.communicate()
    if MODEL and process.returncode:
        return None  # a small model drives some agents into an error of their own
    assert process.returncode == 0, (printed + complaints).decode()[-3000:]
    return held_by(name, trace, printed.decode())


def held_by(name: str, trace: Path, printed: str) -> list[Any]:
    """The text and the calls of each answer that an agent holds."""
    if name == "mini-swe-agent":
        messages = json.loads(trace.read_text())["messages"]
        return [
            [m.get("content") or "", [
                [call["function"]["name"], json.loads(call["function"]["arguments"])]
                for call in m.get("tool_calls") or []
            ]]
            for m in messages if m["role"] == "assistant"
        ]  # fmt: skip
    if name in ("codex", "opencode"):  # texts alone: they tell what a call did, not what it was
        rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        if name == "codex":
            items = [row["item"] for row in rows if row["type"] == "item.completed"]
            return [[item["text"], None] for item in items if item["type"] == "agent_message"]
        return [[row["part"]["text"], None] for row in rows if row["type"] == "text"]
    read: list[Any] = json.loads(trace.read_text())
    return read


def said(text: str, calls: Any) -> str:
    return json.dumps([text.strip(), calls], sort_keys=True)


@pytest.mark.parametrize("name", sorted(HARNESSES))
async def test_an_agent_plays_and_each_of_its_tokens_is_captured(
    name: str, tmp_path: Path, record_property: Any
) -> None:
    harness = HARNESSES[name]
    binaries(harness)
    async with playing(harness) as (engine, gateway):
        if MODEL and harness.window > engine.max_length:
            pytest.skip(f"its own prompt is {harness.window} tokens, {MODEL} has less")
        rollout = gateway.open(limits=RolloutLimits(max_calls=100_000))
        held = await run(name, harness, gateway.url, rollout.key, tmp_path)
        rollout.end(Stop.TERMINATED)
        trajectory = rollout.trajectory(Verdict.of(1.0))
        check_capture(engine, rollout, trajectory.segments)
        shown = [call.shown for call in rollout.tree.calls if call.shown is not None]
    assert trajectory.metrics["trained_share"] == 1.0
    if not MODEL:
        assert rollout.counts["calls"] >= 3
        assert len(trajectory.segments) <= harness.rows * ROUNDS
    ours = Counter(said(m.text, [[c.name, c.arguments] for c in m.tool_calls]) for m in shown)
    ours += Counter(said(m.text, None) for m in shown)
    if held is not None:
        theirs = Counter(said(text, calls) for text, calls in held)
        assert theirs or MODEL  # what is no call, mini-swe-agent does not keep
        assert not theirs - ours, "the agent holds an answer that the gateway did not show"
    causes = {k[5:]: n for k, n in sorted(rollout.counts.items()) if k.startswith("rows_")}
    row = (
        name,
        rollout.counts["calls"],
        len(trajectory.segments),
        causes,
        len(held) if held is not None else "it failed",
    )
    record_property("agent", json.dumps(row))
