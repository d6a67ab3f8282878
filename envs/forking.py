"""Forks of an episode: the same state several times, each to be played on by itself.

An environment says how it can be forked (`TextEnv.forks`):

copy      `fork()` copies the object, by default deeply; right where it holds no process, file or
          connection, and costs a copy
replay    another object plays the same episode, and every answer must be the same, byte for byte;
          right where it is deterministic, and costs as many steps, no tokens
no        not at all

With `seed = None` a child goes on with the very randomness of its parent: two children that do the
same are answered the same (common random numbers). With a seed the child's `rng` begins anew at the
fork; what the environment had drawn before is part of the state. Values of a state take fresh
seeds: children that share the future's noise estimate the value given that noise.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from ludus.errors import EpisodeEnded, NotForkable, ReplayDiverged
from ludus.messages import Message, Observation

from .protocol import TextEnv
from .session import MAX_RECORD, EnvSession, Stepped


@dataclass(frozen=True, slots=True)
class Nursery:
    """Where the children of a session are made."""

    build: Callable[[], Awaitable[EnvSession]]
    """Makes another session of the environment, which has played nothing."""
    adopt: Callable[[TextEnv], EnvSession]
    """Makes a session of a copy."""


def how_it_forks(env: TextEnv) -> str:
    """Return `copy`, `replay` or `no`: what `forks` says, unless an environment that is not
    deterministic says `replay`.
    """
    return "no" if env.forks == "replay" and not env.deterministic else env.forks


async def fork_session(parent: EnvSession, nursery: Nursery, *, seed: int | None) -> EnvSession:
    """Return a session in the state of `parent`, which stays unchanged.

    Args:
        parent: a session within an episode.
        nursery: where the child is made.
        seed: seeds what the child's `rng` draws from now on; None lets it draw what the parent
            will.

    Raises:
        NotForkable: the environment cannot be forked, or the episode is too long to play again.
        EpisodeEnded: the episode is over, or has not begun.
        ReplayDiverged: the episode, played again, was answered otherwise.
    """
    how = how_it_forks(parent.env)
    if how == "no":
        reason = "it says forks = 'no'"
        if parent.env.forks == "replay":
            reason = "it is not deterministic, so that no replay reaches the same state"
        raise NotForkable(f"{parent.id} cannot be forked: {reason}")
    if not parent.is_open:
        raise EpisodeEnded(f"{parent.id}: the episode is over or has not begun: nothing to fork")
    if how == "copy":
        child = nursery.adopt(parent.env.fork())
        child.go_on_from(parent)
    else:
        if parent.record is None:
            raise NotForkable(
                f"{parent.id}: an episode of more than {MAX_RECORD} steps is not played again; an "
                "environment with forks = 'copy' would be copied"
            )
        child = await nursery.build()
        try:
            await _replay(parent, child)
        except BaseException:
            await child.close()  # nobody else knows it
            raise
    if seed is not None:
        task = child.env.task
        child.env.rng = random.Random(f"fork/{task.split}/{task.id}/{seed}")
    return child


async def _replay(parent: EnvSession, child: EnvSession) -> None:
    """Let the child play the parent's episode, and compare every answer."""
    assert parent.record is not None
    beginning, *steps = parent.record
    observation, _ = await child.reset(seed=beginning.seed, options=dict(beginning.options))
    _compare(parent, "reset", beginning.answer, (observation, 0.0, False, False, {}))
    for number, step in enumerate(steps, 1):
        assert step.action is not None
        _compare(parent, f"step {number}", step.answer, await child.step(step.action))


def _compare(parent: EnvSession, what: str, before: Stepped, now: Stepped) -> None:
    if essence(before) != essence(now):
        raise ReplayDiverged(
            f"{parent.id}: {what} of the episode, played again for a fork, was answered otherwise, "
            "though the environment says that it is deterministic"
        )


def essence(answer: Stepped) -> bytes:
    """Return the reproducible part of an answer as bytes: everything but `info`."""
    observation, reward, terminated, truncated, _ = answer
    shown: Observation | list[Message] = observation
    return msgspec.json.encode((shown, reward, terminated, truncated))


def digest_of_state(session: EnvSession) -> str:
    """Return 32 hexadecimal digits of what a deterministic environment's state follows from: task,
    seed, options, actions, and the answers to these; empty where the state follows from more.
    """
    if session.record is None or not session.env.deterministic:
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for step in session.record:
        digest.update(msgspec.json.encode((step.seed, step.options, step.action)))
        digest.update(essence(step.answer))
    digest.update(session.env.task.id.encode())
    return digest.hexdigest()
