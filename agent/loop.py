"""The multi-turn loop: a policy plays an environment.

A broken episode is data: any failure outside the policy becomes a trajectory with a verdict that
is not ok, which the trainer leaves out of the loss and of the group baseline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Coroutine, Generator, Mapping
from copy import copy
from typing import Any, Protocol

import msgspec

from ludus.background import failing_where_given_up
from ludus.envs import Briefing, Info
from ludus.envs.gym import Playable
from ludus.errors import ConfigError, LudusError, RemoteError, RewardUnavailable
from ludus.messages import Message, Observation, as_messages, system
from ludus.verdict import Verdict

from .images import ImageRefused
from .policy import Player, Policy, ReadsOn
from .trajectory import FAILURES, TRUNCATED, Episode, Finish, Stop, Trajectory, TurnKind

logger = logging.getLogger(__name__)


MAX_SPANS = 256
"""The most sampled spans of an episode that neither the caller nor the environment bounds."""


ONLY_THOUGHTS = "the last turn is thoughts alone, which are no answer"
"""What the detail of a verdict says where a limit cut the thoughts, or the policy ended on them."""


class EpisodeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on an episode in addition to the environment's own."""

    max_turns: int = 0
    """H: how many spans are sampled at most, including summaries of the context. With 0 the
    environment decides: where it bounds its episodes, 256 more may be summaries, folds and
    chunks of a long document; where it does not, there are 256 in all.
    """
    max_idle_turns: int = 10
    """The most consecutive turns without an executable call, in environments with tools; 0 means no
    bound.
    """
    episode_timeout_s: float = 600.0
    """Seconds that an episode may take."""

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_idle_turns"):
            if (count := getattr(self, name)) < 0:
                raise ConfigError(f"{name} must be at least 0, got {count}; 0 sets no bound")
        if not 0 < self.episode_timeout_s < math.inf:
            raise ConfigError(
                f"episode_timeout_s must be seconds above 0, got {self.episode_timeout_s}"
            )


async def play(
    env: Playable,
    policy: Policy,
    *,
    task: str | None = None,
    split: str | None = None,
    seed: int = 0,
    sampling_seed: int = 0,
    limits: EpisodeLimits | None = None,
    options: Mapping[str, Any] | None = None,
    role: str = "policy",
) -> Episode:
    """Play an episode to the end, however the episode ends.

    Args:
        env: a session, local or remote; reset here, closed by the caller.
        policy: the policy that plays.
        task: an id; None lets the environment pick by `seed`.
        split: the split that the task is from.
        seed: the environment's seed; rollouts of a group share it.
        sampling_seed: the policy's seed; rollouts of a group differ in it.
        limits: bounds on turns and time.
        options: reset options that the environment declares.
        role: the role that this policy plays, in episodes with several.
    """
    started = time.perf_counter()
    bounds = limits or EpisodeLimits()
    game = GameInPlay(env, policy.begin(seed=sampling_seed), bounds)
    selection = {"task": task, "split": split}
    reset_options = {name: value for name, value in selection.items() if value is not None}
    work = game.run({**(options or {}), **reset_options}, seed)
    stop = await attempt(game, work, bounds.episode_timeout_s, task=task or "")
    assert stop is not None, "an episode that was run has ended"
    return Episode(
        task=game.task or task or "",
        seed=seed,
        split=split or "train",
        trajectories=[msgspec.structs.replace(game.trajectory(stop), role=role)],
        wall_s=time.perf_counter() - started,
    )


async def attempt(
    game: GameInPlay, work: Coroutine[Any, Any, Stop | None], timeout_s: float, *, task: str = ""
) -> Stop | None:
    """Continue the game and return the stop; a failure gives a stop of that kind, and a verdict.

    Args:
        game: the episode.
        work: a coroutine of the game.
        timeout_s: seconds that it may take.
        task: the id of the task, for the log.
    """
    env = game.env
    clock = asyncio.timeout(timeout_s)
    try:
        async with clock:
            with failing_where_given_up():
                return await work
    except Exception as error:
        if isinstance(error, TimeoutError) and clock.expired():  # and not a timeout of the env's
            late = f"no end within {timeout_s:g} s"
            stop = game.fail(Stop.TIMEOUT, Verdict.unavailable(late))
        else:
            stop = game.fail(*_stop_and_verdict(error))
            # An error if somebody has to repair something, a warning if the fault may pass; a
            # traceback only for bugs: an engine that drops a request or answers late is none.
            passing = isinstance(error, (_PolicyFailed, RewardUnavailable, RemoteError))
            raised = error.__cause__ if isinstance(error, _PolicyFailed) else error
            logger.log(
                logging.WARNING if passing else logging.ERROR,
                "%s, task %s: %s",
                env.id,
                game.task or task or "unknown",
                error,
                exc_info=None if isinstance(raised, KNOWN) else error,
            )
    return stop


class EpisodeMaker(Protocol):
    """Makes an episode of a task, however the episode is played."""

    async def make(
        self, env: Playable, *, task: str, split: str, seed: int, sampling_seed: int
    ) -> Episode:
        """Play the task on a session, which is reset here and closed by the caller."""
        ...


class PolicyMaker:
    """Makes episodes by `play`: the loop of this module."""

    def __init__(self, policy: Policy, limits: EpisodeLimits | None = None) -> None:
        self.policy, self.limits = policy, limits

    async def make(
        self, env: Playable, *, task: str, split: str, seed: int, sampling_seed: int
    ) -> Episode:
        """Play the task with the policy."""
        return await play(
            env,
            self.policy,
            task=task,
            split=split,
            seed=seed,
            sampling_seed=sampling_seed,
            limits=self.limits,
        )


KNOWN = (LudusError, TimeoutError, ConnectionError, type(None))
"""Failures that say all there is to say in a line; None is a request that was dropped."""


class _PolicyFailed(Exception):
    """The engine or the model's server failed."""


@contextlib.contextmanager
def _failures_of_the_policy() -> Generator[None]:
    """Mark exceptions as the policy's, to be told from the environment's."""
    try:
        with failing_where_given_up():
            yield
    except ImageRefused:  # shown by the environment, whose failure it is
        raise
    except Exception as error:
        raise _PolicyFailed(f"{type(error).__name__}: {error}") from error


def _stop_and_verdict(error: Exception) -> tuple[Stop, Verdict]:
    """Return the stop and the verdict of an episode that broke."""
    if isinstance(error, _PolicyFailed):
        return Stop.POLICY_ERROR, Verdict.unavailable(str(error))
    if isinstance(error, RewardUnavailable):
        return Stop.REWARD_UNAVAILABLE, error.verdict
    description = f"{type(error).__name__}: {error}"
    if isinstance(error, RemoteError):
        return Stop.ENV_ERROR, Verdict.unavailable(description)
    return Stop.ENV_ERROR, Verdict.error(description)


class GameInPlay:
    """The state of an episode while being played.

    Args:
        env: the session.
        player: plays the episode.
        limits: bounds on turns.
    """

    def __init__(self, env: Playable, player: Player, limits: EpisodeLimits) -> None:
        self.env = env
        self.player = player
        self.limits = limits
        self.task = ""
        self.gold: Any = None
        self.closing: list[Message] = []
        self.verdict: Verdict | None = None
        self.terminated = False
        self.metrics: dict[str, float] = {}
        self.idle = 0
        self.only_thought = False
        self.messages: list[Message] = []
        self.briefing = Briefing()
        self.spans = self.most_spans = 0
        """The spans that were sampled, and the most of them."""

    def fork(self, env: Playable, player: Player) -> GameInPlay:
        """Return the episode in the same state, to be played on by other hands."""
        twin = copy(self)
        twin.env, twin.player = env, player
        twin.messages, twin.metrics = list(self.messages), dict(self.metrics)
        return twin

    async def run(self, options: dict[str, Any], seed: int) -> Stop:
        """Play until the environment, the policy or a limit ends the episode."""
        await self.begin(options, seed)
        while True:
            if (stop := await self.turn()) is not None:
                return stop

    async def begin(self, options: dict[str, Any], seed: int) -> None:
        """Begin the episode."""
        observation, info = await self.env.reset(seed=seed, options=options)
        self.task = str(info.get("task", ""))
        briefing = self.briefing = info["briefing"]
        self.messages = opening_of(briefing, observation)
        if briefing.tools:
            self.metrics["tools_offered"] = float(len(briefing.tools))
        # What is read and summarised between actions is no turn of the environment: a document of
        # many chunks would end an episode of few turns before its answer.
        self.most_spans = self.limits.max_turns or MAX_SPANS + (briefing.max_turns or 0)

    async def turn(self) -> Stop | None:
        """Let the policy write a span, and play a finished action; return the stop if the episode
        ended.
        """
        if self.spans >= self.most_spans:
            return self._cut()
        self.spans += 1
        with _failures_of_the_policy():
            turn = await self.player.act(self.messages, self.briefing.tools)
        if isinstance(turn, Stop):
            return turn
        if turn.finish is Finish.ABORT:  # half an answer is not the policy's answer
            raise _PolicyFailed("the engine dropped the request")
        if turn.kind is not TurnKind.ACT:  # counts as a step, is not for the environment
            return None
        action = turn.action or turn.message
        if action is None:
            raise RuntimeError("a policy returned a turn without a message")
        observation, reward, terminated, truncated, info = await self.env.step(action)
        turn.reward = reward
        self._note(action, info)
        self.messages += [action, *as_messages(observation)]
        if terminated or truncated:
            self.closing = [message for message in as_messages(observation) if message.content]
        if terminated:
            self.terminated = True
            return Stop.LENGTH if turn.finish is Finish.LENGTH else Stop.TERMINATED
        if truncated:
            return self._cut()
        has_called = any(not call.error for call in action.tool_calls)
        has_called = has_called and info.get("tool_errors", 0) < info.get("tool_calls", math.inf)
        self.idle = 0 if has_called or not self.briefing.tools else self.idle + 1
        return Stop.NO_CALLS if 0 < self.limits.max_idle_turns <= self.idle else None

    def _cut(self) -> Stop:
        """End the episode at a limit."""
        messages, briefing = self.messages, self.briefing
        if isinstance(self.player, ReadsOn):  # keeps the state at which a limit cut the episode
            with _failures_of_the_policy():
                self.player.read_on(messages, briefing.tools)
        return Stop.MAX_TURNS

    def fail(self, stop: Stop, verdict: Verdict) -> Stop:
        """Record the verdict of a failure, and return `stop`."""
        self.verdict = verdict
        return stop

    def trajectory(self, stop: Stop) -> Trajectory:
        """Return the trajectory of the episode so far."""
        trajectory = Trajectory(
            verdict=Verdict.of(0.0),
            terminated=self.terminated,
            stop=stop,
            segments=[
                segment for segment in self.player.segments if segment.turns or segment.discarded
            ],
            closing=self.closing,
            gold=self.gold,
        )
        if stop in TRUNCATED and isinstance(self.player, ReadsOn):
            trajectory.state_ids = self.player.state_ids
            trajectory.state_images = self.player.state_images
        trajectory.metrics = self.metrics | _context_counts(trajectory)
        verdict = self.verdict or Verdict.of(0.0)
        if verdict.ok:  # rebuilt from the rewards that were earned; a failed verdict stands
            earned = trajectory.ret
            parts = verdict.parts or {"env": (earned, 1.0)}
            details = [verdict.detail, ONLY_THOUGHTS if self.only_thought else ""]
            detail = "; ".join(filter(None, details))
            verdict = Verdict.of(earned, detail, parts=parts, metrics=verdict.metrics)
        trajectory.verdict = verdict
        trajectory.exclude_from_loss = trajectory.exclude_from_baseline = (
            stop in FAILURES or not trajectory.verdict.ok
        )
        return trajectory

    def _note(self, action: Message, info: Info) -> None:
        self.gold = info.get("gold", self.gold)
        if isinstance(info.get("verdict"), Verdict):
            self.verdict = info["verdict"]
        self.only_thought = action.only_thinks
        counts = {
            "thoughts_alone": float(action.only_thinks),
            "tool_calls": float(len(action.tool_calls)),
            "tool_errors": float(info.get("tool_errors", 0)),
            "parse_errors": float(sum(bool(call.error) for call in action.tool_calls)),
        }
        faults: dict[str, int] = info.get("tool_faults") or {}
        counts |= {f"tool_{fault}": float(count) for fault, count in faults.items()}
        for name, count in counts.items():
            if count:
                self.metrics[name] = self.metrics.get(name, 0.0) + count


def _context_counts(trajectory: Trajectory) -> dict[str, float]:
    """Return counts of the context manager's actions, without zeros."""
    summary_turns = [turn for turn in trajectory.turns if turn.kind is TurnKind.SUMMARY]
    summaries = [turn.message for turn in summary_turns if turn.message is not None]
    counts = {
        "summaries": len(summary_turns),
        "summaries_cut": sum(turn.finish is Finish.LENGTH for turn in summary_turns),
        "summaries_empty": sum(not message.text.strip() for message in summaries),
        "summaries_with_calls": sum(bool(message.tool_calls) for message in summaries),
        "drifts": sum(segment.break_reason == "drift" for segment in trajectory.segments),
        "discarded_turns": len(trajectory.discarded),
        "folds": sum(segment.break_reason == "fold" for segment in trajectory.segments),
        "context_calls": sum(turn.kind is TurnKind.FOLD for turn in trajectory.turns),
    }
    return {name: float(count) for name, count in counts.items() if count}


def opening_of(briefing: Briefing, observation: Observation) -> list[Message]:
    """Return the messages that a policy sees before the first action: s_1."""
    text = "\n".join(part for part in (briefing.system_prompt, briefing.answer_format) if part)
    return [*([system(text)] if text else []), *as_messages(observation)]
