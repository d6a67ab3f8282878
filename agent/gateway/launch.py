"""An agent that ludus does not run, a command or a Python callable, plays one episode.

The environment gives the task and judges the answer; the agent does whatever it does in between,
and calls the policy through the gateway. How it ends is typed. Only failures of infrastructure
leave the loss: an agent that crashes or hangs is judged by what the policy has answered so far, so
that a policy cannot escape a bad task by breaking its agent.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, Self

import msgspec

from ludus.background import failing_where_given_up
from ludus.envs.gym import Playable
from ludus.errors import ConfigError, LudusError, RemoteError, RewardUnavailable
from ludus.messages import Message, as_messages, assistant
from ludus.verdict import Verdict

from ..loop import opening_of
from ..rows import PolicyWriter
from ..trajectory import Episode, Stop, Trajectory
from .programs import (
    Agent,
    AgentCommand,
    AgentFailed,
    AgentHostFailed,
    AgentSandbox,
    AgentTask,
    AgentTimeout,
    Result,
    SandboxedCommand,
    sandboxed,
)
from .rollout import Rollout, RolloutLimits
from .service import Gateway

logger = logging.getLogger(__name__)


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of an agent's run."""

    timeout_s: float = 600.0
    rollout: RolloutLimits = RolloutLimits()


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
    """Let an agent play an episode, and return the episode however the agent ends.

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
    """A run of an agent in an environment."""

    def __init__(
        self, env: Playable, agent: Agent, gateway: Gateway, rollout: Rollout, limits: AgentLimits
    ) -> None:
        self.env, self.agent, self.gateway = env, agent, gateway
        self.rollout, self.limits = rollout, limits
        self.task = ""
        self._fault = ""  # what the agent itself failed of
        self.stop = Stop.TERMINATED
        self.verdict = Verdict.unavailable("the agent did not end")
        self.gold: Any = None
        self.closing: list[Message] = []

    async def play(self, options: dict[str, Any], seed: int) -> None:
        """Reset the environment, run the agent, and have the answer judged."""
        try:
            async with asyncio.timeout(self.limits.timeout_s):
                with failing_where_given_up():
                    observation, info = await self.env.reset(seed=seed, options=options)
        except Exception as error:
            self._fail(Stop.ENV_ERROR, self._env_fault("reset", error))
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
        except AgentHostFailed as error:
            self._fail(Stop.POLICY_ERROR, str(error))
            return
        except Exception as error:
            is_late = isinstance(error, AgentTimeout) or (
                isinstance(error, TimeoutError) and clock.expired()
            )
            self.stop = Stop.AGENT_TIMEOUT if is_late else Stop.AGENT_FAILED
            self._fault = str(error) if isinstance(error, LudusError) else repr(error)
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
        """Return what the agent returns.

        Raises:
            AgentFailed: the agent would have left this process, has cancelled itself, or returns
                what is no answer. Whatever else it raises is raised as it is.
        """
        call = self.agent
        is_program = isinstance(call, AgentCommand | SandboxedCommand)
        is_async = is_program or inspect.iscoroutinefunction(call)
        try:
            result = call(given) if is_async else await _on_thread(call, given)
            answer: object = await result if inspect.isawaitable(result) else result
        except SystemExit as error:
            raise AgentFailed(repr(error)) from error
        except asyncio.CancelledError as error:
            running = asyncio.current_task()
            if running is None or running.cancelling():  # we are cancelled, by a clock or a caller
                raise
            raise AgentFailed(repr(error)) from error
        if answer is None or isinstance(answer, str | Message):
            return answer
        raise AgentFailed(f"it returned {answer!r:.200}: return a text, a message or None")

    def _infrastructure(self) -> str:
        """Return what failed that neither policy nor agent is to blame for; "" if nothing did."""
        if failed := len(self.rollout.failed):
            return f"the policy could not answer {failed} requests of the agent"
        if not self.rollout.tree.calls:
            hint = self._fault or "look at its base URL and its key"
            return f"the agent never called the policy: {hint}"
        return ""

    def _last_words(self) -> Message:
        """Return the last text that the policy has answered to any call."""
        shown = [call.shown for call in self.rollout.tree.calls if call.shown is not None]
        texts = [message.text for message in shown if message.text]
        return assistant(texts[-1] if texts else "")

    async def _judge(self, answer: str | Message) -> None:
        try:
            async with asyncio.timeout(self.limits.timeout_s):
                with failing_where_given_up():
                    observation, reward, terminated, truncated, info = await self.env.step(answer)
        except RewardUnavailable as error:
            self.stop, self.verdict = Stop.REWARD_UNAVAILABLE, error.verdict
            return
        except Exception as error:
            self._fail(Stop.ENV_ERROR, self._env_fault("judge the answer", error))
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

    def _env_fault(self, what: str, error: Exception) -> object:
        """Return why the environment failed; a timeout by itself has no words."""
        if isinstance(error, TimeoutError) and not str(error):
            return f"{self.env.id} did not {what} within {self.limits.timeout_s:g} s"
        return error

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
            # A future takes no StopIteration: the agent would never end.
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            failure = error if is_plain else AgentFailed(repr(error))
        with suppress(RuntimeError):  # the loop has ended before the agent did
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name=f"agent {given.task}", daemon=True).start()
    answer: Result | Awaitable[Result] = await done
    return answer


class AgentMaker:
    """Makes episodes by an agent, with a gateway through which the agent calls the policy.

        async with AgentMaker(agent, writer, limits) as maker:
            episode = await maker.make(session, task="...", ...)

    Args:
        agent: the agent.
        writer: continues the rows.
        limits: the bounds of one run.
        sandbox: where a program runs; by default as a process of this machine.
        agents: how many sandboxed programs run at once; others wait.

    Raises:
        ConfigError: as the maker is entered: no such sandbox, or the agent is a function.
    """

    def __init__(
        self,
        agent: Agent,
        writer: PolicyWriter,
        limits: AgentLimits | None = None,
        *,
        sandbox: AgentSandbox | None = None,
        agents: int = 16,
    ) -> None:
        self.agent, self.limits = agent, limits or AgentLimits()
        self.gateway = Gateway(writer)
        self._sandbox, self._agents = sandbox or AgentSandbox(), agents
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.gateway)
            if self._sandbox.is_wanted:
                if not isinstance(self.agent, AgentCommand):
                    raise ConfigError(
                        "agent_sandbox: a function runs in this process; give the agent as a "
                        "command, such as 'python agent.py'"
                    )
                self.agent = await stack.enter_async_context(
                    sandboxed(
                        self.agent,
                        self._sandbox,
                        gateway=f"127.0.0.1:{self.gateway.port}",
                        agents=self._agents,
                        timeout_s=self.limits.timeout_s,
                    )
                )
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

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
