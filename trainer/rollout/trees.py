"""Trees of rollouts: a root that forks at the ends of turns, and a leaf for every end.

A leaf is an episode like any other. Its record has the whole way from the root, and every turn says
its node (`1/0/2`) and whether it was sampled for another leaf (`shared`). What is trained follows
from the nodes and never from the ids of tokens: two siblings that sampled the same are two samples.

Forks are chosen by the way to them alone: the level, the tokens that are left, and whether the
episode goes on. A rule that looked at what came of the branches would make means optimistic.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ludus.agent import Episode, EpisodeLimits, TokenPolicy, TurnKind
from ludus.agent.loop import GameInPlay, attempt
from ludus.agent.token_policy import TokenPlayer
from ludus.agent.trajectory import Stop
from ludus.envs import Task
from ludus.envs.gym import Playable
from ludus.errors import LudusError, NotForkable, TrainingFailed
from ludus.verdict import Verdict

from .hints import AskedSession, policy_asked
from .issues import BranchShape, RolloutTerms
from .source import EnvSource


@dataclass(frozen=True, slots=True)
class Branch:
    """A way that is being played."""

    game: GameInPlay
    session: Playable
    """The session of its source, which is what can be forked."""
    node: str
    level: int
    left: int
    """Tokens that may still be sampled here and below."""
    seed: int
    """Seeds what comes of forks."""


class TreeMaker:
    """Plays the trees of a sampling policy.

    Args:
        source: forks sessions.
        policy: the policy that plays.
        limits: bounds on each way from a root to a leaf.
        places: bounds the turns that are played at the same time.
    """

    def __init__(
        self,
        source: EnvSource,
        policy: TokenPolicy,
        limits: EpisodeLimits,
        places: asyncio.Semaphore,
    ) -> None:
        self.source, self.policy, self.limits, self.places = source, policy, limits, places

    async def grow(
        self,
        session: Playable,
        task: Task,
        terms: RolloutTerms,
        *,
        root: int,
        seeds: tuple[int, int],
    ) -> list[Episode]:
        """Return the leaves below a root, in the order of their nodes.

        Args:
            session: a session of the source, released by the caller.
            task: the task.
            terms: what is asked for; its `tree` says how to branch.
            root: the number of the root in its group.
            seeds: of the environment and of the sampling.

        Raises:
            TrainingFailed: the environment cannot be forked.
        """
        shape, started = terms.tree, time.perf_counter()
        assert shape is not None
        policy = policy_asked(self.policy, terms)
        game = GameInPlay(AskedSession(session, terms), policy.begin(seed=seeds[1]), self.limits)
        options = {**terms.options, "task": task.id, "split": task.split}
        work = game.begin(options, seeds[0])
        stop = await attempt(game, work, self.limits.episode_timeout_s, task=task.id)
        branch = Branch(game, session, str(root), 0, shape.tokens, seeds[1])
        grown = _Grown(self, task, shape, seeds[0], started)
        leaves = [grown.leaf(branch, stop)] if stop is not None else await grown.below(branch)
        for leaf in leaves:
            leaf.trajectories[0].asked.update(terms.marks)
        return leaves


@dataclass(frozen=True, slots=True)
class _Grown:
    """A tree while it grows."""

    maker: TreeMaker
    task: Task
    shape: BranchShape
    env_seed: int
    started: float

    async def below(self, branch: Branch) -> list[Episode]:
        """Play on from a branch, and return its leaves."""
        game, player = branch.game, branch.game.player
        left = branch.left
        while True:
            before = [turn for segment in player.segments for turn in segment.turns]
            left_s = self.maker.limits.episode_timeout_s - (time.perf_counter() - self.started)
            async with self.maker.places:
                stop = await attempt(game, game.turn(), max(left_s, 0.001), task=self.task.id)
            fresh = [turn for segment in player.segments for turn in segment.turns][len(before) :]
            for turn in fresh:
                turn.node = branch.node
                left -= len(turn.out_ids)
            if stop is not None:
                return [self.leaf(branch, stop)]
            said = bool(fresh) and fresh[-1].kind is TurnKind.ACT
            branch = replace(branch, left=left)
            if said and self._forks(branch):
                return await self._fork(branch)

    def _forks(self, branch: Branch) -> bool:
        enough = branch.left // self.shape.branch >= self.shape.least
        return branch.level < self.shape.levels and enough

    async def _fork(self, branch: Branch) -> list[Episode]:
        """Return the leaves of a branch's children. The first goes on in the branch's own session,
        the others in forks of it with fresh randomness.
        """
        game, player = branch.game, branch.game.player
        assert isinstance(player, TokenPlayer)
        draw = random.Random(f"tree/{branch.seed}/{branch.node}")
        count = self.shape.branch - 1
        forked = await self.maker.source.fork(
            branch.session, [draw.randrange(1 << 31) for _ in range(count)], count
        )
        if refused := next((one for one in forked if isinstance(one, NotForkable)), None):
            raise TrainingFailed(f"a tree of rollouts needs forks: {refused}") from refused
        left = branch.left // self.shape.branch
        sessions: list[Playable | LudusError] = [branch.session, *forked]
        children: list[Branch] = []
        dead: dict[int, Episode] = {}
        for number, session in enumerate(sessions):
            seed = draw.randrange(1 << 31)
            hands = player.fork(seed)
            node = f"{branch.node}/{number}"
            if isinstance(session, LudusError):
                lost = game.fork(game.env, hands)
                stop = lost.fail(Stop.ENV_ERROR, Verdict.unavailable(f"no child: {session}"))
                dead[number] = self.leaf(replace(branch, game=lost, node=node), stop)
                continue
            twin = game.fork(game.env if number == 0 else session, hands)
            children.append(Branch(twin, session, node, branch.level + 1, left, seed))
        if children and children[0].node.endswith("/0"):  # it goes on with what was sampled for it
            self._take_over(player, children[0])
        try:
            grown = await asyncio.gather(*(self.below(child) for child in children))
        finally:
            for session in forked:
                if not isinstance(session, LudusError):
                    await self.maker.source.release(session)
        alive = [number for number in range(len(sessions)) if number not in dead]
        leaves = dict(zip(alive, grown, strict=True)) | {n: [leaf] for n, leaf in dead.items()}
        return [leaf for number in sorted(leaves) for leaf in leaves[number]]

    def _take_over(self, player: TokenPlayer, child: Branch) -> None:
        """Let the first child keep the turns that were sampled for the parent as its own."""
        own = [turn for segment in player.segments for turn in segment.turns]
        turns = [turn for segment in child.game.player.segments for turn in segment.turns]
        for turn, before in zip(turns, own, strict=True):
            turn.shared = before.shared

    def leaf(self, branch: Branch, stop: Stop) -> Episode:
        """Return the episode that ends here."""
        trajectory = branch.game.trajectory(stop)
        trajectory.node = branch.node
        return Episode(
            task=branch.game.task or self.task.id,
            seed=self.env_seed,
            split=self.task.split,
            trajectories=[trajectory],
            wall_s=time.perf_counter() - self.started,
        )


def tree_numbers(groups: Sequence[Sequence[Episode]]) -> dict[str, float]:
    """Describe the trees of a step; empty where there is none.

    `tree/roots`, `tree/leaves` and `tree/nodes` of a group, `tree/mixed` (the share of forks whose
    children's leaves do not all earn the same), `tree/saved` (tokens of all ways over tokens that
    were sampled).
    """
    roots = leaves = nodes = forks = mixed = ways = sampled = 0
    for episodes in groups:
        ends = [episode.trajectories[0] for episode in episodes if episode.trajectories[0].node]
        below: dict[str, set[float]] = {}
        for end in ends:
            steps = end.node.split("/")
            for depth in range(1, len(steps) + 1):
                below.setdefault("/".join(steps[:depth]), set()).update(
                    [end.verdict.unwrap()] if end.verdict.ok else []
                )
            ways += sum(len(turn.out_ids) for turn in end.turns)
            sampled += end.sampled_tokens
        inner = [node for node in below if any(other.startswith(f"{node}/") for other in below)]
        roots += sum("/" not in node for node in below)
        leaves, nodes, forks = leaves + len(ends), nodes + len(below), forks + len(inner)
        mixed += sum(len(below[node]) > 1 for node in inner)
    count = len(groups)
    if not leaves:
        return {}
    return {
        "tree/roots": roots / count,
        "tree/leaves": leaves / count,
        "tree/nodes": nodes / count,
        "tree/mixed": mixed / forks if forks else 0.0,
        "tree/saved": ways / sampled if sampled else 1.0,
    }
