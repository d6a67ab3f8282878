"""Rollouts that are asked for more than their task: hints of the expert, notes in the prompt, other
budgets and temperatures.

The expert is the environment's own `demonstrate()`, played in this process, wherever the session of
the rollout is: a hint needs no more than the environment's class here. Steps of the expert that are
played are taken in the rollout's own session; what they earn belongs to nobody, and the policy
reads them as its own past.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from ludus.agent import Episode, EpisodeLimits, TokenPolicy, TurnKind, play
from ludus.agent.loop import opening_of
from ludus.agent.rows import MIN_ANSWER_TOKENS
from ludus.envs import Briefing, Info, Task, make_async
from ludus.envs.gym import Playable
from ludus.envs.session import Stepped, expert_action
from ludus.envs.tasks import TaskPage
from ludus.errors import TrainingFailed
from ludus.messages import Message, Observation, as_action, as_messages, user
from ludus.wire.address import parse_served

from .issues import Hint, RolloutTerms

DEMONSTRATION_S = 120.0
"""Seconds that a demonstration may take."""
MOST_STEPS = 4096
"""Steps after which a demonstration has no end."""
KEPT = 4096
"""Demonstrations that are kept; the oldest leave first."""


class Shows(Protocol):
    """Gives the actions of an environment's expert."""

    async def actions(self, task: Task, seed: int, options: dict[str, Any]) -> list[Message]:
        """Return the expert's actions on a task, from the first to the last."""
        ...


class Expert:
    """The expert of an environment, which is made in this process.

    Args:
        env: the environment with its arguments, `ludus/arithmetic-v0?max_operations=2`.

    Raises:
        ConfigError: the environment has no expert.
    """

    def __init__(self, env: str) -> None:
        env_id, arguments = parse_served(env)
        self._session = make_async(env_id, **arguments)
        self._known: dict[str, list[Message]] = {}
        self._playing = asyncio.Lock()

    async def actions(self, task: Task, seed: int, options: dict[str, Any]) -> list[Message]:
        """Return the expert's actions on a task, from the first to the last.

        Raises:
            ConfigError: the environment has no expert.
            TrainingFailed: the demonstration has no end.
        """
        key = f"{task.split}/{task.id}/{seed}/{sorted(options.items())}"
        async with self._playing:
            if key not in self._known:
                work = asyncio.to_thread(lambda: asyncio.run(self._played(task, seed, options)))
                try:
                    actions = await asyncio.wait_for(work, DEMONSTRATION_S)
                except TimeoutError:
                    raise TrainingFailed(
                        f"{self._session.id}: the demonstration of task {task.id!r} took more than "
                        f"{DEMONSTRATION_S:g} s"
                    ) from None
                while len(self._known) >= KEPT:
                    del self._known[next(iter(self._known))]
                self._known[key] = actions
            return self._known[key]

    async def _played(self, task: Task, seed: int, options: dict[str, Any]) -> list[Message]:
        session, actions = self._session, list[Message]()
        await session.reset(seed=seed, options={**options, "task": task.id, "split": task.split})
        for _ in range(MOST_STEPS):
            actions.append(as_action(expert_action(session)))
            _, _, terminated, truncated, _ = await session.step(actions[-1])
            if terminated or truncated:
                return actions
        raise TrainingFailed(
            f"{session.id}: the demonstration of task {task.id!r} has no end in {MOST_STEPS} steps"
        )

    async def check(self, split: str) -> None:
        """Play the demonstration of a split's first task.

        Raises:
            ConfigError: the environment has no expert.
        """
        await self.actions(self._session.tasks(split).at(0), 0, {})

    async def close(self) -> None:
        """Close the environment."""
        await self._session.close()


class AskedSession:
    """A session whose episodes begin with the hint and the note asked of the rollout; everything
    else is the session's.

    Args:
        session: the session of the rollout.
        asked: what was asked for.
        actions: the expert's actions, where a hint was asked for.
    """

    def __init__(
        self, session: Playable, asked: RolloutTerms, actions: Sequence[Message] = ()
    ) -> None:
        self.id = session.id
        self.plain: list[Message] = []
        """The opening without the hint."""
        self.briefing = Briefing()
        self._session, self._asked, self._actions = session, asked, actions

    @property
    def deterministic(self) -> bool:
        """Whether the same seed gives the same episode."""
        return self._session.deterministic

    async def task_page(self, split: str, *, offset: int = 0, limit: int = 100) -> TaskPage:
        """Return a page of tasks."""
        return await self._session.task_page(split, offset=offset, limit=limit)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin the episode, take the expert's steps, and write the note and the hint."""
        observation, info = await self._session.reset(seed=seed, options=options)
        messages = as_messages(observation)
        hint = self._asked.hint
        if hint is not None and hint.kind == "played":
            for action in played_part(self._actions, hint.share):
                observation, _, terminated, truncated, _ = await self._session.step(action)
                messages = [*messages, action, *as_messages(observation)]
                if terminated or truncated:
                    raise TrainingFailed(
                        f"{self.id}: the expert's first steps end the episode, though alone they "
                        "did not; is the environment deterministic?"
                    )
        messages = with_text(messages, self._asked.note)
        self.briefing = info["briefing"]
        self.plain = opening_of(self.briefing, messages)
        if hint is not None and hint.kind == "shown":
            shown = shown_part(self._actions, hint.share)
            messages = with_text(messages, f"{hint.told}\n{shown}" if shown else "")
        return messages, info

    async def step(self, action: str | Message) -> Stepped:
        """Take a step in the session."""
        return await self._session.step(action)

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()


def played_part(actions: Sequence[Message], share: float) -> Sequence[Message]:
    """Return the first actions, rounded down, and always without the last, which ends the task."""
    return actions[: min(math.floor(share * len(actions) + 1e-9), len(actions) - 1)]


def shown_part(actions: Sequence[Message], share: float) -> str:
    """Return the first `ceil(share * words)` words of the actions as text.

    >>> shown_part([Message(role="assistant", content="4 plus 5 is 9")], 0.5)
    '4 plus 5'
    """
    text = "\n".join(written(action) for action in actions)
    words = text.split(" ")
    return " ".join(words[: math.ceil(share * len(words) - 1e-9)])


def written(action: Message) -> str:
    """Return an action as text, with calls as `name(arguments)`."""
    calls = [
        f"{call.name}({msgspec.json.encode(call.arguments).decode()})" for call in action.tool_calls
    ]
    return "\n".join(filter(None, [action.text, *calls]))


def with_text(messages: Sequence[Message], text: str) -> list[Message]:
    """Return the messages with `text` appended to the last message."""
    if not text:
        return list(messages)
    *before, last = messages or [user("")]
    if not isinstance(last.content, str) or last.role == "assistant":
        return [*messages, user(text)]
    content = f"{last.content}\n\n{text}" if last.content else text
    return [*before, msgspec.structs.replace(last, content=content)]


def policy_asked(policy: TokenPolicy, asked: RolloutTerms) -> TokenPolicy:
    """Return the policy with the budgets and the temperature that were asked for."""
    return policy.asking(
        max_tokens=asked.max_tokens,
        temperature=asked.temperature,
        thoughts=asked.thoughts,
        phrase=asked.phrase,
    )


class AskedMaker:
    """Makes the episodes of a sampling policy in the loop of `agent.play`.

    Args:
        policy: the policy that plays.
        limits: bounds on an episode.
        expert: knows the expert's actions, where rules give hints.
        others: policies of roles that the run's own does not play, by role.
        frozen: those of these roles whose policies do not learn.
    """

    def __init__(
        self,
        policy: TokenPolicy,
        limits: EpisodeLimits,
        expert: Shows | None = None,
        others: Mapping[str, TokenPolicy] = MappingProxyType({}),
        frozen: Collection[str] = (),
    ) -> None:
        self.policy, self.limits, self.expert = policy, limits, expert
        self.others, self.frozen = others, frozen

    async def make(
        self, session: Playable, task: Task, asked: RolloutTerms, *, seed: int, sampling_seed: int
    ) -> Episode:
        """Play a task as asked, on a session that is reset here and closed by the caller.

        Raises:
            TrainingFailed: the hint leaves no room in the window.
        """
        actions: Sequence[Message] = ()
        if asked.hint is not None:
            assert self.expert is not None, "refused at the start"
            actions = await self.expert.actions(task, seed, asked.options)
        begun = AskedSession(session, asked, actions)
        episode = await play(
            begun,
            policy_asked(self.others.get(asked.role, self.policy), asked),
            task=task.id,
            split=task.split,
            seed=seed,
            sampling_seed=sampling_seed,
            limits=self.limits,
            options=asked.options,
            role=asked.role or "policy",
        )
        (trajectory,) = episode.trajectories
        trajectory.about = asked.about
        if asked.role in self.frozen:
            trajectory.exclude_from_loss = True
            for turn in trajectory.turns:
                turn.versions = []  # not of the weights that learn
        trajectory.asked = dict(asked.marks)
        if asked.temperature:
            trajectory.asked["temperature"] = asked.temperature
        interrupted = sum(turn.kind is TurnKind.THOUGHT for turn in trajectory.turns)
        if interrupted:
            trajectory.metrics["interrupted"] = float(interrupted)
        if asked.max_tokens:
            trajectory.asked["budget"] = float(asked.max_tokens)
        if asked.hint is not None:
            trajectory.asked["hint"] = asked.hint.share
            self._hinted(episode, task, asked.hint, begun)
        return episode

    def _hinted(self, episode: Episode, task: Task, hint: Hint, begun: AskedSession) -> None:
        """Refuse a hint that left no room, and take an untrained hint out of the row."""
        (trajectory,) = episode.trajectories
        segments = trajectory.segments
        window = self.policy.window
        if not segments and trajectory.verdict.ok:
            raise TrainingFailed(
                f"the hint for task {task.id!r} ({hint.share:.0%} of the expert's work) leaves no "
                f"{MIN_ANSWER_TOKENS} tokens of the window of {window}: lower share, or raise "
                "rollout.window"
            )
        if not hint.plain or not segments:
            return
        # What was sampled behind the hint is trained as if it had stood behind the task alone.
        if len(segments) > 1:
            trajectory.exclude_from_loss = (
                True  # a template that rewrites history shows the hint on
            )
            return
        prompt = self.policy.chat_format.prompt(begun.plain, begun.briefing.tools)
        segments[0].prompt_ids = prompt
