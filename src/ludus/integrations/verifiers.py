"""ludus environments as tasksets and environments of verifiers, and so of prime-rl.

verifiers finds an environment by the name of an installed package. `ludus new env me/echo-v0 --for
verifiers` writes such a package; by hand it is a module of two lines:

    Taskset, Env = verifiers_plugin("me/echo-v0")
    __all__ = ["Env", "Taskset"]

The environment plays the user: the policy's turns are its actions, and tools are described in the
system prompt. A verdict that is not ok fails the episode, which verifiers and prime-rl do not
train on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ludus.background import on_background
from ludus.errors import RewardUnavailable
from ludus.messages import Role

from .bridge import BridgedEpisode, peer_package, shared_bridge, spoken
from .rows import TextReplies

PAGE = 1000


def verifiers_plugin(env_id: str, *, url: str = "", tool_format: str = "hermes") -> tuple[Any, Any]:
    """Return the classes of a verifiers package: a `Taskset` and an `Env`.

    The taskset's settings are `env`, `split`, `count` (0 for all tasks, which may be without end),
    `seed` and `url`, under `--env.taskset.*`; the environment has one agent, `player`, with the
    `null` harness in a subprocess.

    Args:
        env_id: the environment, with constructor arguments as in `me/env-v0?length=3`.
        url: the address of a `ludus serve` that offers it; without one it is played in worker
            processes of the machine that runs verifiers.
        tool_format: the format in which the policy writes calls.

    Raises:
        MissingExtra: verifiers is not installed.
    """
    vf: Any = peer_package("verifiers.v1", "verifiers")
    return (
        _placed(_taskset_class(vf, env_id, url, tool_format)),
        _placed(_env_class(vf, tool_format)),
    )


def _taskset_class(vf: Any, env_id: str, default_url: str, tool_format: str) -> type:
    class LudusConfig(vf.TasksetConfig):  # type: ignore[misc]
        """Which tasks of which environment."""

        env: str = env_id
        split: str = "train"
        count: int = 0
        seed: int = 0
        url: str = default_url

    class LudusData(vf.TaskData):  # type: ignore[misc]
        """A row: a task, and the environment and server on which the task is played."""

        env: str
        task: str
        seed: int
        url: str

    class LudusTask(vf.Task[LudusData]):  # type: ignore[misc]
        """A task whose reward the environment gives."""

    class LudusTaskset(vf.Taskset[LudusTask, LudusConfig]):  # type: ignore[misc]
        """The tasks of a split."""

        @property
        def INFINITE(self) -> bool:
            """Whether the tasks have no end; verifiers then asks how many to take (`-n`)."""
            config = self.config
            splits = shared_bridge(config.env, config.url).card.splits
            return not config.count and splits.get(config.split, 0) is None

        def load(self) -> Iterator[Any]:
            """Yield the tasks in order."""
            config = self.config
            # What the policy is told before its first turn: the instructions and the tools.
            bridge = shared_bridge(config.env, config.url)
            briefing = bridge.card.briefing
            tools = spoken(TextReplies(tool_format).opening([], briefing.tools))
            instructions = (briefing.system_prompt, briefing.answer_format, tools)
            system_prompt = "\n\n".join(part for part in instructions if part)
            offset, is_last = 0, False
            while not is_last and (not config.count or offset < config.count):  # 0 is all of them
                wanted = min(PAGE, config.count - offset) if config.count else PAGE
                page = bridge.tasks(config.split, wanted, offset=offset)
                offset += len(page)
                is_last = len(page) < wanted
                for task in page:
                    data = LudusData(
                        id=task.id,
                        name=f"{config.env}#{task.id}",
                        prompt=None,
                        system_prompt=system_prompt or None,
                        env=config.env,
                        task=task.id,
                        seed=config.seed,
                        url=config.url,
                    )
                    yield LudusTask(data, config.task)

    return LudusTaskset


class PlayedTask(Protocol):
    """A task in the form of verifiers, with the `LudusData` of the row."""

    data: Any


class AgentSegment(Protocol):
    """A turn of the agent: the last message, and whether the rollout has ended."""

    terminated: bool
    last_reply: str


class Interaction(Protocol):
    """A conversation of verifiers' agent, which answers turn by turn."""

    trace: Any

    async def turn(self, text: str) -> AgentSegment: ...


class PlayingAgent(Protocol):
    """The environment's only agent."""

    def interaction(self, task: PlayedTask) -> AbstractAsyncContextManager[Interaction]: ...


class Agents(Protocol):
    """The agents that verifiers makes for an episode."""

    player: PlayingAgent


def _env_class(vf: Any, tool_format: str) -> type:
    null: Any = peer_package("verifiers.v1.harnesses.null", "verifiers")
    agent: Any = vf.AgentConfig

    class LudusEnvConfig(vf.EnvConfig):  # type: ignore[misc]
        """Configures the environment's only agent."""

        player: agent = agent(  # pyright: ignore[reportInvalidTypeForm]
            harness=null.NullHarnessConfig(id="null"), runtime=vf.SubprocessConfig()
        )

    class LudusUserEnv(vf.Env[LudusEnvConfig]):  # type: ignore[misc]
        """Lets the environment play the user of the agent."""

        async def run(self, task: PlayedTask, agents: Agents) -> None:
            """Play the episode of a task.

            Raises:
                RewardUnavailable: the verdict is not ok; verifiers counts the episode as failed.
            """
            data, replies = task.data, TextReplies(tool_format)
            episode = shared_bridge(data.env, data.url).episode()
            try:
                begun = await on_background(episode.begin(task=data.task, seed=data.seed))
                _check(episode)
                shown = [message for message in begun if message.role is not Role.SYSTEM]
                async with agents.player.interaction(task) as interaction:
                    segment = await interaction.turn(spoken(replies.answer(shown)))
                    while not segment.terminated:
                        action = replies.action(segment.last_reply, episode.tools)
                        answer = await on_background(episode.act(action))
                        if episode.over:
                            break
                        segment = await interaction.turn(spoken(replies.answer(answer)))
                _check(episode)
            finally:
                await on_background(episode.close())
            interaction.trace.record_reward("ludus", episode.verdict.unwrap())

    return LudusUserEnv


def _check(episode: BridgedEpisode) -> None:
    if not episode.verdict.ok:
        raise RewardUnavailable(episode.verdict)


def _placed(cls: type) -> type:
    cls.__qualname__ = cls.__name__
    return cls
