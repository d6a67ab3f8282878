"""What every bridge needs: episodes in killable worker processes, played by a policy of a peer.

    bridge = EnvBridge("ludus/arithmetic-v0")
    episode = bridge.episode()
    messages = await episode.begin(seed=7)     # what the policy is told
    answer = await episode.act("1909")         # what the environment answers
    episode.verdict                            # ok with the reward, or why there is none

An episode shows the briefing and the observations, and nothing else: `info`, where the gold is,
does not leave it. The bridges carry text, so an episode refuses an image that the policy would have
to answer, whichever bridge plays it. A failure ends it with a verdict that is not ok, and raises
nothing, so that each peer can be told in its own words that the episode counts for nothing.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, Self

import msgspec

from ludus.agent.loop import opening_of
from ludus.background import run_on_loop
from ludus.envs.protocol import Briefing, TextEnv
from ludus.envs.serving.client import RemoteSession, card_of
from ludus.envs.serving.connect import RemoteServer, connect
from ludus.envs.serving.env_wire import EnvCard
from ludus.envs.serving.own_server import OwnServer
from ludus.envs.serving.served import ServedEnv
from ludus.envs.tasks import Task
from ludus.envs.tools.spec import ToolSpec
from ludus.errors import (
    ConfigError,
    LudusError,
    MissingExtra,
    RemoteError,
    RewardUnavailable,
    UnknownName,
)
from ludus.messages import Message, ToolCall, as_messages, assistant, refuse_images
from ludus.verdict import Verdict

logger = logging.getLogger(__name__)
CALL_TIMEOUT_S = 60.0
PAGE = 1000


class EnvBridge:
    """Lets another project's trainer play an environment; worker processes start at the first use.

    Args:
        env: an id, with constructor arguments as in `me/env-v0?length=3`, or a `TextEnv` class of
            your own.
        url: the address of a `ludus serve` that offers the environment; without one the environment
            is played in worker processes of this machine.
        token: the token of that server.
        call_timeout_s: the limit in seconds for one reset, step or tool; past it the episode ends
            without a reward. A server has its own limit.
    """

    def __init__(
        self,
        env: str | type[TextEnv],
        *,
        url: str = "",
        token: str | None = None,
        call_timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        if isinstance(env, str):
            self.served = ServedEnv.parse(env)
        elif isinstance(env, type) and issubclass(env, TextEnv):
            self.served = ServedEnv(env.__name__, factory=env)
        else:
            raise ConfigError(f"a bridge takes an id or a TextEnv class, got {env!r:.80}")
        self.id = self.served.id
        self._url = url
        self._token = token
        self._call_timeout_s = call_timeout_s
        self._lock = threading.Lock()
        self._own: OwnServer | None = None
        self._server: RemoteServer | None = None
        self._card: EnvCard | None = None

    @property
    def card(self) -> EnvCard:
        """What the environment is: description, briefing, splits, options.

        Raises:
            LudusError: it cannot be built, or the server does not offer it.
        """
        self._start()
        assert self._card is not None
        return self._card

    @property
    def tools(self) -> list[ToolSpec]:
        """The tools that the environment declares for every episode."""
        return self.card.briefing.tools

    def episode(self) -> BridgedEpisode:
        """Return a new episode, not begun."""
        return BridgedEpisode(self._session())

    def tasks(self, split: str, count: int, *, offset: int = 0) -> list[Task]:
        """Return `count` tasks of a split in order, or all tasks of a smaller split.

        Raises:
            UnknownTask: no such split.
        """
        session, tasks = self._session(), list[Task]()
        while len(tasks) < count:
            limit = min(PAGE, count - len(tasks))
            page = run_on_loop(session.task_page(split, offset=offset + len(tasks), limit=limit))
            tasks += page.tasks
            if len(page.tasks) < limit:
                break
        return tasks

    def close(self) -> None:
        """Close the connection, and end the worker processes."""
        with self._lock:
            own, server = self._own, self._server
            self._own = self._server = self._card = None
        _open.discard(self)
        if own is not None:
            run_on_loop(own.stop())
        elif server is not None:
            run_on_loop(server.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _session(self) -> RemoteSession:
        self._start()
        assert self._server is not None
        return self._server.make_async(self.id)

    def _start(self) -> None:
        with self._lock:
            if self._server is not None:
                return
            if self._url:
                server = connect(self._url, token=self._token)
            else:
                self._own = OwnServer(self.served, call_timeout_s=self._call_timeout_s)
                server = run_on_loop(self._own.start())
            try:
                self._card = card_of(self.id, server.env_list())
            except BaseException:
                if self._own is not None:
                    run_on_loop(self._own.stop())
                    self._own = None
                raise
            self._server = server
            _close_at_exit(self)


_open: weakref.WeakSet[EnvBridge] = weakref.WeakSet()


def _close_at_exit(bridge: EnvBridge) -> None:
    """Close `bridge` before the interpreter ends its threads. `atexit` comes after that: worker
    processes cannot be ended any more by then.
    """

    def close_open() -> None:
        for open_bridge in list(_open):
            open_bridge.close()

    if not _open:
        register: Callable[[Callable[[], None]], None] = threading._register_atexit  # type: ignore[attr-defined]
        register(close_open)
    _open.add(bridge)


@lru_cache(maxsize=64)
def shared_bridge(env: str | type[TextEnv], url: str = "", token: str | None = None) -> EnvBridge:
    """Return this process's bridge to an environment, for peers that make an object per episode;
    it is never closed.
    """
    return EnvBridge(env, url=url, token=token)


class BridgedEpisode:
    """Plays episodes, one after another, with the actions of a policy that a peer samples.

    Args:
        session: plays the episodes.
    """

    def __init__(self, session: RemoteSession) -> None:
        self.env = session.id
        self.tools: list[ToolSpec] = []
        self.max_turns: int | None = None
        self.task = ""
        self.turn = 0
        """How many actions were played."""
        self.over = True
        self._session = session
        self._verdict = Verdict.invalid("no episode has begun")
        self._told: Verdict | None = None
        self._earned = 0.0
        self._turn = asyncio.Lock()

    @property
    def verdict(self) -> Verdict:
        """The verdict so far: ok with the sum of the rewards, or why the reward is missing."""
        return self._verdict

    async def begin(
        self,
        *,
        task: str | None = None,
        split: str | None = None,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> list[Message]:
        """Begin an episode, and return what the policy is told: the briefing and the first
        observation.

        A failure of the environment ends the episode at once: nothing is told, and the verdict says
        why.

        Raises:
            ConfigError: an option that the environment does not take, or an image at the start.
            UnknownName: no such task, split or environment.
        """
        self.turn, self.over, self._earned, self._told = 0, False, 0.0, None
        self._verdict = Verdict.of(0.0)
        named = {"task": task, "split": split}
        chosen = {name: value for name, value in named.items() if value is not None}
        async with self._turn:
            try:
                observation, info = await self._session.reset(
                    seed=seed, options={**(options or {}), **chosen}
                )
                refuse_images(observation)
            except (ConfigError, UnknownName) as error:
                self.over = True
                self._verdict = Verdict.error(f"{type(error).__name__}: {error}")
                raise
            except Exception as error:
                self._fail(error)
                return []
        briefing: Briefing = info["briefing"]
        self.task = str(info.get("task", ""))
        self.tools, self.max_turns = briefing.tools, briefing.max_turns
        return opening_of(briefing, observation)

    async def act(self, action: str | Message) -> list[Message]:
        """Play an action, and return the environment's answer; nothing once the episode is over.

        An answer with an image is a failure, unless it is the last, which the policy does not
        answer.
        """
        async with self._turn:
            if self.over:
                return []
            try:
                stepped = await self._session.step(action)
                if not (stepped[2] or stepped[3]):
                    refuse_images(stepped[0])
            except Exception as error:
                self._fail(error)
                return []
        observation, reward, terminated, truncated, info = stepped
        self.turn += 1
        self._earned += reward
        self._told = info.get("verdict", self._told)
        self.over = terminated or truncated
        verdict = self._told
        self._verdict = Verdict.of(
            self._earned,
            verdict.detail if verdict else "",
            parts=verdict.parts if verdict else None,
            metrics=verdict.metrics if verdict else None,
        )
        return [message for message in as_messages(observation) if message.content]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool, and return the result as text."""
        call = ToolCall(name=name, arguments=dict(arguments), id=f"call_{self.turn}")
        answer = await self.act(assistant("", [call]))
        if not self._verdict.ok:
            return "the environment has failed; this episode is over and does not count"
        if not answer and self.over:
            return "the episode is over"
        return "\n\n".join(message.text for message in answer)

    def give_up(self, why: str) -> None:
        """End the episode without a reward, for a failure that the peer tells of."""
        self.over = True
        self._verdict = Verdict.unavailable(why)

    async def close(self) -> None:
        """Release the session; a second call does nothing."""
        self.over = True
        await self._session.close()

    def _fail(self, error: Exception) -> None:
        self.over = True
        if isinstance(error, RewardUnavailable):
            self._verdict = error.verdict
            return
        reason = f"{type(error).__name__}: {error}"
        passing = isinstance(error, RemoteError)
        self._verdict = Verdict.unavailable(reason) if passing else Verdict.error(reason)
        unforeseen = None if isinstance(error, LudusError) else error
        logger.warning("an episode of %s failed: %s", self.env, reason, exc_info=unforeseen)


def spoken(messages: Sequence[Message]) -> str:
    """Return the text of messages, joined."""
    return "\n\n".join(message.text for message in messages if message.text)


def as_chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Return messages as the dictionaries of a chat."""
    return [{"role": message.role.value, "content": message.text} for message in messages]


def tool_call(name: str, arguments: str, identity: str) -> ToolCall:
    """Return the call that a policy wrote; arguments that are no JSON object become its error, and
    the call is not executed.
    """
    try:
        decoded = msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.DecodeError as error:
        return ToolCall(name=name, id=identity, error=f"the arguments are no object: {error}")
    return ToolCall(name=name, arguments=decoded, id=identity)


PLAYED_WITH = {
    "inspect": ("inspect-ai", "0.3.285"),
    "skyrl": ("skyrl-gym", "0.4.0"),
    "tinker": ("tinker-cookbook", "0.6.1"),
    "trl": ("trl", "1.16.0"),
    "verifiers": ("verifiers", "0.4.0"),
    "verl": ("verl", "0.9.1"),
}
"""Extra -> the distribution of the peer, and the version that the tests have played with."""


def peer_package(name: str, extra: str, *needed: str) -> ModuleType:
    """Import a package of a peer.

    Args:
        name: the module to import.
        extra: the extra of ludus that installs it.
        needed: what the bridge takes from the module when it is imported itself.

    Raises:
        MissingExtra: it is not installed, or another version is that lacks the module or what is
            needed of it; the message names the extra.
    """
    top = name.partition(".")[0]
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or top != error.name.partition(".")[0]:
            raise
        if error.name == top:
            raise MissingExtra.of(extra, needed_for=f"ludus.integrations.{extra}") from None
        raise _other_version(extra, error.name) from None
    for attribute in needed:
        if not hasattr(module, attribute):
            raise _other_version(extra, f"{name}.{attribute}")
    return module


def _other_version(extra: str, lacking: str) -> MissingExtra:
    distribution, played = PLAYED_WITH[extra]
    try:
        here = version(distribution)
    except PackageNotFoundError:
        here = "of unknown version"
    return MissingExtra(
        f"ludus.integrations.{extra} was played with {distribution} {played}, and the one here "
        f"({here}) has no {lacking}: pip install --upgrade 'ludus-rl[{extra}]'"
    )
