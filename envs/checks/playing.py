"""Plays episodes for the checks and records what each step showed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain, repeat

import msgspec

from ludus.contract import NotApplicable
from ludus.errors import CheckFailed, RewardUnavailable
from ludus.messages import Message, Observation
from ludus.verdict import Status

from ..gym import GymEnv
from ..protocol import Info, TextEnv

MAX_STEPS = 256
"""An episode that has not ended after this many steps is abandoned."""

Choose = Callable[[], str | Message | None]


@dataclass
class Played:
    """The record of an episode."""

    seen: list[tuple[Observation, float, bool, bool]] = field(
        default_factory=list[tuple[Observation, float, bool, bool]]
    )
    """The first observation with reward 0, then what each step returned."""
    infos: list[Info] = field(default_factory=list[Info])
    actions: list[str | Message] = field(default_factory=list[str | Message])

    @property
    def total(self) -> float:
        """The return: the sum of the rewards."""
        return sum(reward for _, reward, _, _ in self.seen)

    @property
    def terminated(self) -> bool:
        """Whether the environment itself ended the episode."""
        return self.seen[-1][2]

    @property
    def ended(self) -> bool:
        """Whether the episode was terminated or truncated."""
        return self.seen[-1][2] or self.seen[-1][3]

    def lines(self) -> list[bytes]:
        """Return each step as JSON, so that two episodes can be compared."""
        return [msgspec.json.encode(step) for step in self.seen]


def play(gym: GymEnv, task_id: str, choose: Choose, *, seed: int = 0) -> Played:
    """Play `task_id` until the episode ends or `choose` returns None.

    Raises:
        NotApplicable: a judge or a server that the reward needs is not available now.
        CheckFailed: the reward could not be computed for another reason.
    """
    episode = Played()
    observation, info = gym.reset(seed=seed, options={"task": task_id})
    episode.seen.append((observation, 0.0, False, False))
    episode.infos.append(info)
    for _ in range(MAX_STEPS):
        action = choose()
        if action is None:
            break
        episode.actions.append(action)
        observation, reward, terminated, truncated, info = _step(gym, action)
        episode.seen.append((observation, reward, terminated, truncated))
        episode.infos.append(info)
        if episode.ended:
            break
    return episode


def _step(gym: GymEnv, action: str | Message) -> tuple[Observation, float, bool, bool, Info]:
    try:
        return gym.step(action)
    except RewardUnavailable as error:
        if error.verdict.status is Status.UNAVAILABLE:
            raise NotApplicable(str(error)) from None
        raise CheckFailed(
            f"the action {action!r:.60} led to {error}; if the policy is at fault, give it a low "
            "reward; if step() or its scorer is, repair that"
        ) from None


def expert(env: TextEnv) -> Choose:
    """Return the policy that says what `env.demonstrate()` says.

    Raises:
        CheckFailed: what `demonstrate` returns is not an action.
    """

    def choose() -> str | Message | None:
        answer: object = env.demonstrate()
        if answer is None or isinstance(answer, (str, Message)):
            return answer
        raise CheckFailed(
            "demonstrate() must return what the expert says as a str, a Message, or None, got "
            f"{type(answer).__name__}: {answer!r:.80}"
        )

    return choose


def scripted(actions: Iterable[str | Message]) -> Choose:
    """Return a policy that plays `actions` in order, then stops."""
    remaining = chain(actions, repeat(None))
    return lambda: next(remaining)


def always(action: str | Message) -> Choose:
    """Return a policy that repeats `action`."""
    return lambda: action
