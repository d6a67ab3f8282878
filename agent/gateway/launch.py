"""An agent that ludus does not run, a command or a Python callable, plays one episode.

The environment gives the task and judges the answer; the agent does whatever it does in between,
and calls the policy through the gateway. How it ends is typed. Only failures of infrastructure
leave the loss: an agent that crashes or hangs is judged by what the policy has answered so far, so
that a policy cannot escape a bad task by breaking its agent.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import logging
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from ludus.envs.gym import Playable
from ludus.errors import ConfigError, LudusError, RemoteError, RewardUnavailable
from ludus.messages import Message, as_messages, assistant
from ludus.verdict import Verdict

from ..loop import opening_of
from ..rows import RowWriter
from ..trajectory import Episode, Stop, Trajectory
from .rollout import Rollout, RolloutLimits
from .service import Gateway

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 1 << 20
"""The longest answer that is read from an agent."""
KILL_AFTER_S = 0.5
"""Seconds between SIGTERM and SIGKILL for an agent that is out of time."""
SECRETS = ("_TOKEN", "_KEY", "_SECRET", "_PASSWORD")
"""Ends of the names of variables that an agent's process does not inherit."""


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one run of an agent."""

    timeout_s: float = 600.0
    rollout: RolloutLimits = RolloutLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask:
    """What an agent is given."""

    base_url: str
    """For OpenAI's clients; it ends with /v1."""
    anthropic_url: str
    """For Anthropic's clients."""
    key: str
    """The API key, which names the rollout."""
    task: str
    """The id of the task."""
    messages: list[Message]
    """The opening of the environment."""
    model: str = "policy"

    @property
    def prompt(self) -> str:
        """The opening as one text."""
        return "\n\n".join(message.text for message in self.messages if message.text)


Result = str | Message | None
Agent = Callable[[AgentTask], Result | Awaitable[Result]]
"""Returns the final answer; None where the policy's last words are the answer. A plain function
runs on a thread.
"""


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """An agent that is a program; calling it runs the program once.

    The program finds the gateway in OPENAI_BASE_URL, OPENAI_API_BASE, OPENAI_API_KEY, OPENAI_MODEL,
    ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY, the prompt in LUDUS_PROMPT, and in LUDUS_TASK a JSON
    file with `task` and `messages`. Its answer is the file that LUDUS_ANSWER names if it was
    written, or else what was printed.

    Raises:
        ConfigError: the command is empty, or its program does not exist.
    """

    command: str
    variables: Mapping[str, str] = field(default_factory=dict)
    """Further variables of the program."""

    def __post_init__(self) -> None:
        words = shlex.split(self.command)
        if not words:
            raise ConfigError("the agent's command is empty; give one such as 'python agent.py'")
        if shutil.which(words[0]) is None:
            raise ConfigError(f"the agent's command {self.command!r}: no program {words[0]!r}")

    async def __call__(self, task: AgentTask) -> str:
        """Run the program.

        Raises:
            AgentFailed: the program ended with another status than 0.
        """
        with tempfile.TemporaryDirectory(prefix="ludus-agent-") as folder:
            given, answer = Path(folder, "task.json"), Path(folder, "answer")
            row = msgspec.json.encode({"task": task.task, "messages": task.messages})
            await asyncio.to_thread(given.write_bytes, row)
            process = await asyncio.create_subprocess_exec(
                *shlex.split(self.command),
                env=self._environment(task, given, answer),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
            assert process.stdout is not None
            assert process.stderr is not None
            printed, complaints = bytearray(), bytearray()
            readers = [
                asyncio.create_task(_drain(process.stdout, printed)),
                asyncio.create_task(_drain(process.stderr, complaints)),
            ]
            try:
                await process.wait()
            finally:
                await _end_group(process)
                # The pipes end with the group. A process that has left it may hold them open.
                await asyncio.wait(readers, timeout=KILL_AFTER_S)
                for reader in readers:
                    reader.cancel()
                process._transport.close()  # type: ignore[attr-defined]  # nothing public does
            if process.returncode:
                tail = complaints.decode("utf-8", "replace").strip()[-400:]
                raise AgentFailed(f"the agent ended with status {process.returncode}: {tail}")
            return await asyncio.to_thread(_read_answer, answer, printed)

    def _environment(self, task: AgentTask, given: Path, answer: Path) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.endswith(SECRETS)
        }
        return inherited | {
            "OPENAI_BASE_URL": task.base_url,
            "OPENAI_API_BASE": task.base_url,
            "OPENAI_API_KEY": task.key,
            "OPENAI_MODEL": task.model,
            "ANTHROPIC_BASE_URL": task.anthropic_url,
            "ANTHROPIC_API_KEY": task.key,
            "LUDUS_PROMPT": task.prompt,
            "LUDUS_TASK": str(given),
            "LUDUS_ANSWER": str(answer),
            **self.variables,
        }


async def _drain(stream: asyncio.StreamReader, kept: bytearray) -> None:
    """Read a stream to its end, and keep the last part of what it said."""
    while piece := await stream.read(1 << 16):
        kept += piece
        del kept[:-MAX_ANSWER_BYTES]


def _read_answer(file: Path, printed: bytearray) -> str:
    if not file.is_file():
        return printed.decode("utf-8", "replace").strip()
    with file.open("rb") as written:
        return written.read(MAX_ANSWER_BYTES).decode("utf-8", "replace").strip()


class AgentFailed(LudusError, RuntimeError):
    """The agent's program or function failed."""


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """End a program and all that it started, and read its status."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), KILL_AFTER_S)
            if number is signal.SIGTERM and not _group_lives(process.pid):
                return


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


async def run_agent(
    env: Playable,
    agent: Agent,
    gateway: Gateway,
    *,
    task: str | None = None,
    split: str | None = None,
    seed: int = 0,
    sampling_seed: int = 0,
    limits: AgentLimits | None = None,
    options: Mapping[str, Any] | None = None,
) -> Episode:
    """Let an agent play one episode, however it ends.

    Args:
        env: a session, which takes the agent's answer as its only action.
        agent: the agent.
        gateway: serves the policy.
        task: an id; None lets the environment pick by `seed`.
        split: the split that the task is from.
        seed: the environment's seed; rollouts of a group share it.
        sampling_seed: the policy's seed; rollouts of a group differ in it.
        limits: the bounds.
        options: reset options that the environment declares.
    """
    started, bounds = time.perf_counter(), limits or AgentLimits()
    selection = {"task": task, "split": split}
    chosen = {name: value for name, value in selection.items() if value is not None}
    rollout = gateway.open(seed=sampling_seed, limits=bounds.rollout)
    run = _Run(env, agent, gateway, rollout, bounds)
    try:
        await run.play({**(options or {}), **chosen}, seed)
    finally:
        gateway.close(rollout, run.stop)
    return Episode(
        task=run.task or task or "",
        seed=seed,
        split=split or "train",
        trajectories=[run.trajectory()],
        wall_s=time.perf_counter() - started,
    )


class _Run:
    """One run of an agent."""

    def __init__(
        self, env: Playable, agent: Agent, gateway: Gateway, rollout: Rollout, limits: AgentLimits
    ) -> None:
        self.env, self.agent, self.gateway = env, agent, gateway
        self.rollout, self.limits = rollout, limits
        self.task = ""
        self.stop = Stop.TERMINATED
        self.verdict = Verdict.unavailable("the agent did not end")
        self.gold: Any = None
        self.closing: list[Message] = []

    async def play(self, options: dict[str, Any], seed: int) -> None:
        """Reset the environment, run the agent, and have its answer judged."""
        try:
            async with asyncio.timeout(self.limits.timeout_s):
                observation, info = await self.env.reset(seed=seed, options=options)
        except Exception as error:
            self._fail(Stop.ENV_ERROR, error)
            return
        self.task = str(info.get("task", ""))
        url = self.gateway.url
        given = AgentTask(
            base_url=f"{url}/v1",
            anthropic_url=url,
            key=self.rollout.key,
            task=self.task,
            messages=opening_of(info["briefing"], observation),
        )
        answer: Result = None
        clock = asyncio.timeout(self.limits.timeout_s)
        try:
            async with clock:
                answer = await self._call(given)
        except Exception as error:
            is_late = isinstance(error, TimeoutError) and clock.expired()
            self.stop = Stop.AGENT_TIMEOUT if is_late else Stop.AGENT_FAILED
            known = is_late or isinstance(error, LudusError)
            logger.warning(
                "agent, task %s: %s",
                self.task,
                f"no end within {self.limits.timeout_s:g} s" if is_late else error,
                exc_info=None if known else error,
            )
        self.rollout.end(self.stop)
        self.stop = self.rollout.stop or self.stop
        if fault := self._infrastructure():
            self._fail(Stop.POLICY_ERROR, fault)
            return
        await self._judge(answer if answer else self._last_words())

    async def _call(self, given: AgentTask) -> Result:
        call = self.agent
        is_async = isinstance(call, AgentCommand) or inspect.iscoroutinefunction(call)
        result = call(given) if is_async else await _on_thread(call, given)
        return await result if inspect.isawaitable(result) else result

    def _infrastructure(self) -> str:
        """Return what failed that neither policy nor agent is to blame for; "" if nothing did."""
        if failed := len(self.rollout.failed):
            return f"the policy could not answer {failed} requests of the agent"
        if not self.rollout.tree.calls:
            return "the agent never called the policy: look at its base URL and its key"
        return ""

    def _last_words(self) -> Message:
        """Return the last text that the policy has answered to any call."""
        shown = [call.shown for call in self.rollout.tree.calls if call.shown is not None]
        texts = [message.text for message in shown if message.text]
        return assistant(texts[-1] if texts else "")

    async def _judge(self, answer: str | Message) -> None:
        try:
            async with asyncio.timeout(self.limits.timeout_s):
                observation, reward, terminated, truncated, info = await self.env.step(answer)
        except RewardUnavailable as error:
            self.stop, self.verdict = Stop.REWARD_UNAVAILABLE, error.verdict
            return
        except Exception as error:
            self._fail(Stop.ENV_ERROR, error)
            return
        if not terminated and not truncated:
            self._fail(
                Stop.ENV_ERROR,
                f"{self.env.id} goes on after the agent's answer, its only action: take an "
                "environment that judges one answer",
            )
            return
        self.gold = info.get("gold")
        self.closing = [message for message in as_messages(observation) if message.content]
        own, parts = info.get("verdict"), {"env": (reward, 1.0)}
        self.verdict = Verdict.of(reward, parts=parts)
        if isinstance(own, Verdict):  # a failed verdict stands
            rebuilt = Verdict.of(reward, own.detail, parts=own.parts or parts, metrics=own.metrics)
            self.verdict = rebuilt if own.ok else own

    def _fail(self, stop: Stop, why: object) -> None:
        described = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
        temporary = not isinstance(why, Exception) or isinstance(why, RemoteError)
        self.stop = stop
        self.verdict = Verdict.unavailable(described) if temporary else Verdict.error(described)
        logger.warning("agent, task %s: %s", self.task or "unknown", described)

    def trajectory(self) -> Trajectory:
        """Return what the trainer learns from."""
        self.rollout.stop = self.stop
        trajectory = self.rollout.trajectory(self.verdict)
        return msgspec.structs.replace(trajectory, gold=self.gold, closing=self.closing)


async def _on_thread(call: Agent, given: AgentTask) -> Result | Awaitable[Result]:
    """Call a plain function on a thread of its own, so that no agent waits for another's thread.

    The thread of an agent that is out of time cannot be ended: its key is void, and it does not
    keep the process alive.
    """
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def settle(result: object, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result: object = None
        failure: BaseException | None = None
        try:
            result = call(given)
        except BaseException as error:
            failure = error if isinstance(error, Exception) else AgentFailed(repr(error))
        with suppress(RuntimeError):  # the loop has ended before the agent did
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name=f"agent {given.task}", daemon=True).start()
    answer: Result | Awaitable[Result] = await done
    return answer


class AgentMaker:
    """Makes episodes by an agent that calls the policy through a gateway of its own.

    async with AgentMaker(agent, writer, limits) as maker:
        episode = await maker.make(session, task="...", ...)
    """

    def __init__(self, agent: Agent, writer: RowWriter, limits: AgentLimits | None = None) -> None:
        self.agent, self.limits = agent, limits or AgentLimits()
        self.gateway = Gateway(writer)

    async def __aenter__(self) -> Self:
        await self.gateway.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.gateway.stop()

    async def make(
        self, env: Playable, *, task: str, split: str, seed: int, sampling_seed: int
    ) -> Episode:
        """Let the agent play the task."""
        return await run_agent(
            env,
            self.agent,
            self.gateway,
            task=task,
            split=split,
            seed=seed,
            sampling_seed=sampling_seed,
            limits=self.limits,
        )


def agent_of(name: str) -> Agent:
    """Return the agent that a setting names.

    Args:
        name: a command (`python agent.py`), or a function: `agent.py:run` or `package.module:run`.

    Raises:
        ConfigError: nothing of that name can be run.
    """
    place, separator, function = name.rpartition(":")
    if separator and function.isidentifier() and " " not in name:
        return _function_of(place, function)
    words = shlex.split(name)
    if words and words[0] in ("python", "python3"):  # the one that ludus runs in
        words[0] = sys.executable
    return AgentCommand(shlex.join(words))


def _function_of(place: str, name: str) -> Agent:
    try:
        if place.endswith(".py"):
            path = Path(place)
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None or not path.is_file():
                raise ConfigError(f"agent {place}:{name}: no such file")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise ConfigError(f"agent {place}:{name}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"agent {place}:{name}: {place} has no function {name!r}")
    agent: Agent = function
    return agent
