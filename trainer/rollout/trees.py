"""Trees of rollouts: ways that share their beginnings, and a leaf for every end.

A leaf is an episode like any other. Its record has the whole way from the root, and every turn says
its node (`1/0/2`) and whether it was sampled for another leaf (`shared`). What is trained follows
from the nodes and never from the ids of tokens: two siblings that sampled the same are two samples.

One mechanism serves every method. A way is played segment by segment (a turn, or a part of one),
and at the end of a segment a rule says what happens:

- it forks: at every place, at places that are further apart the deeper they are, or where probes
  find the policy uncertain (ARPO, ROSE);
- it goes on, and continuations from there are played for its value (VinePPO, SPO-chain);
- it goes on, and the place is kept, to be chosen later at random (Tree-GRPO) or by a search
  (DeepSearch).

The first two choose by the way to a fork alone: the level, the tokens that are left, and what the
policy would say there, of which nothing is kept. A rule that looked at what came of the branches
would make means optimistic; the search does, and its credit says so.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ludus.agent import Episode, EpisodeLimits, TokenPolicy, TurnKind
from ludus.agent.loop import GameInPlay, attempt
from ludus.agent.rows import SegmentCut
from ludus.agent.token_policy import TokenPlayer
from ludus.agent.trajectory import Stop, Trajectory
from ludus.envs import Task
from ludus.envs.gym import Playable
from ludus.errors import LudusError, NotForkable, TrainingFailed
from ludus.verdict import Verdict

from .hints import AskedSession, policy_asked, written
from .issues import BranchShape, Growth, RolloutTerms
from .source import EnvSource

logger = logging.getLogger(__name__)

VALUED = "continuation"
"""The mark of a leaf that is played for the value of the state it began in."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A way that is being played."""

    game: GameInPlay
    session: Playable
    """The session of its source, which is what can be forked."""
    node: str
    left: int
    """Tokens that may still be sampled here and below."""
    seed: int
    """Seeds what comes of forks."""
    level: int = 0
    """Forks on the way here."""
    ends: int = 0
    """Segments on the way here that have ended."""
    for_value: bool = False

    @property
    def player(self) -> TokenPlayer:
        """The player, with the tokens of the way."""
        assert isinstance(self.game.player, TokenPlayer)
        return self.game.player


@dataclass(slots=True)
class ForkPlace:
    """The end of a segment, kept to be gone on from."""

    branch: Branch
    children: int = 1
    """Ways that went on from here."""


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
        valued = shape.for_value
        branch = Branch(game, session, str(root), shape.tokens, seeds[1], for_value=valued)
        branch.player.cut = SegmentCut(shape.cut, shape.below)
        tree = _Tree(self, task, shape, seeds[0], started)
        try:
            if stop is not None:
                tree.end(branch, stop)
            else:
                await tree.play(branch)
        finally:
            for kept in tree.sessions:
                await self.source.release(kept)
        leaves = tree.in_order()
        for leaf in leaves:
            leaf.trajectories[0].asked.update(terms.marks)
        if tree.probed:
            leaves[0].trajectories[0].metrics["probe_tokens"] = float(tree.probed)
        return leaves


@dataclass(slots=True)
class _Tree:
    """A growing tree."""

    maker: TreeMaker
    task: Task
    shape: BranchShape
    env_seed: int
    started: float
    leaves: dict[str, Episode] = field(default_factory=dict[str, Episode])
    """By node."""
    places: list[ForkPlace] = field(default_factory=list[ForkPlace])
    """Places that are kept, in the order in which they were reached."""
    sessions: list[Playable] = field(default_factory=list[Playable])
    """Forked sessions, to be released."""
    sampled: int = 0
    """Tokens, probes included."""
    probed: int = 0
    entropy: float | None = None
    """The policy's before the first turn, where probes ask for it."""

    async def play(self, branch: Branch) -> None:
        """Play a root and all that is below."""
        if self.shape.probe is not None:
            self.entropy = await self._entropy(branch)
        await self.below(branch)
        if self.shape.growth is not None:
            await self._grow(self.shape.growth)

    async def below(self, branch: Branch) -> None:
        """Play on from a branch to the leaves below."""
        while True:
            stop, branch = await self._segment(branch)
            if stop is not None:
                self.end(branch, stop)
                return
            if branch.for_value or not self._ended(branch):
                continue
            if self.shape.growth is not None:
                branch = await self._keep(branch)
            elif await self._forks(branch):
                await self._fork(branch)
                return

    async def _segment(self, branch: Branch) -> tuple[Stop | None, Branch]:
        """Play a segment; return the stop of a last segment, and the branch behind the segment."""
        game, player = branch.game, branch.player
        before = sum(len(segment.turns) for segment in player.segments)
        left_s = self.maker.limits.episode_timeout_s - (time.perf_counter() - self.started)
        async with self.maker.places:
            stop = await attempt(game, game.turn(), max(left_s, 0.001), task=self.task.id)
        fresh = [turn for segment in player.segments for turn in segment.turns][before:]
        for turn in fresh:
            turn.node = branch.node
            turn.trained = turn.trained and not branch.for_value
            self.sampled += len(turn.out_ids)
        if fresh and fresh[-1].kind is TurnKind.THOUGHT:
            game.spans -= 1  # a part of a turn is none
        left = branch.left - sum(len(turn.out_ids) for turn in fresh)
        return stop, replace(branch, left=left, ends=branch.ends + bool(fresh))

    def _ended(self, branch: Branch) -> bool:
        """Return whether the branch stands at the end of a segment where a fork is allowed."""
        turns = [turn for segment in branch.player.segments for turn in segment.turns]
        kind = turns[-1].kind if turns else TurnKind.SUMMARY
        return kind is TurnKind.ACT or kind is TurnKind.THOUGHT

    async def _forks(self, branch: Branch) -> bool:
        shape = self.shape
        if branch.left // shape.branch < shape.least:
            return False
        if not shape.forks(branch.level, branch.ends):
            return False
        if (probe := shape.probe) is None:
            return True
        rise = await self._entropy(branch) - (self.entropy or 0.0)
        return probe.base + probe.slope * rise > probe.threshold

    async def _entropy(self, branch: Branch) -> float:
        """Return the entropy of what the policy would say next, in nats: of a token on average, or
        of the beginning as a whole. The beginnings are thrown away, so that a fork does not choose
        what stands behind it.
        """
        probe, game = self.shape.probe, branch.game
        assert probe is not None
        draw = random.Random(f"probe/{branch.seed}/{branch.node}/{branch.ends}")
        beginnings: list[str] = []
        logprobs: list[float] = []
        for _ in range(probe.count):
            twin = branch.player.fork(draw.randrange(1 << 31), answer=probe.tokens)
            twin.cut = SegmentCut()
            async with self.maker.places:
                try:
                    turn = await twin.act(game.messages, game.briefing.tools)
                except (LudusError, ConnectionError, TimeoutError) as error:
                    logger.warning("a probe failed, and its place is not forked: %s", error)
                    return -math.inf  # the turn itself will say what the engine has
            if isinstance(turn, Stop):
                continue
            self.probed += len(turn.out_ids)
            self.sampled += len(turn.out_ids)
            logprobs += turn.logprobs
            said = "" if turn.message is None else written(turn.message)
            beginnings.append(" ".join(said.lower().split()))
        if not probe.meaning:
            return -sum(logprobs) / len(logprobs) if logprobs else 0.0
        shares = [count / len(beginnings) for count in Counter(beginnings).values()]
        return -sum(share * math.log(share) for share in shares)

    async def _fork(self, branch: Branch) -> None:
        """Play the children of a branch. The first goes on in the branch's own session, the others
        in forks of it with fresh randomness.
        """
        valued = self.shape.continuations
        count = valued or self.shape.branch - 1
        left = branch.left if valued else branch.left // self.shape.branch
        node, level = branch.node, branch.level + 1
        twins = await self._children(branch, count, first=1)
        children = [replace(twin, level=level, left=left, for_value=bool(valued)) for twin in twins]
        for child in children:
            if valued:  # nobody forks it again
                child.player.cut = SegmentCut()
        own = replace(branch, node=f"{node}/0", level=level, left=left)
        await asyncio.gather(*(self.below(child) for child in [own, *children]))

    async def _children(self, branch: Branch, count: int, *, first: int) -> list[Branch]:
        """Return forks of a branch as child nodes; a failed fork is a leaf.

        Args:
            branch: a branch at the end of a segment.
            count: the forks.
            first: the number of the first.
        """
        draw = random.Random(f"tree/{branch.seed}/{branch.node}/{first}")
        seeds = [draw.randrange(1 << 31) for _ in range(count)]
        forked = await self.maker.source.fork(branch.session, seeds, count)
        self.sessions += [each for each in forked if not isinstance(each, LudusError)]
        children: list[Branch] = []
        for number, session in enumerate(forked, first):
            seed, node = draw.randrange(1 << 31), f"{branch.node}/{number}"
            hands = branch.player.fork(seed)
            if isinstance(session, NotForkable):
                raise TrainingFailed(f"a tree of rollouts needs forks: {session}") from session
            if isinstance(session, LudusError):
                lost = branch.game.fork(branch.game.env, hands)
                stop = lost.fail(Stop.ENV_ERROR, Verdict.unavailable(f"no child: {session}"))
                self.end(replace(branch, game=lost, node=node), stop)
                continue
            game = branch.game.fork(session, hands)
            children.append(replace(branch, game=game, session=session, node=node, seed=seed))
        return children

    def end(self, branch: Branch, stop: Stop) -> None:
        """Keep the episode that ends here."""
        trajectory = branch.game.trajectory(stop)
        trajectory.node = branch.node
        if branch.for_value:
            trajectory.asked[VALUED] = 1.0
        self.leaves[branch.node] = Episode(
            task=branch.game.task or self.task.id,
            seed=self.env_seed,
            split=self.task.split,
            trajectories=[trajectory],
            wall_s=time.perf_counter() - self.started,
        )

    def in_order(self) -> list[Episode]:
        """Return the leaves in the order of their nodes."""
        names = sorted(self.leaves, key=lambda node: [int(step) for step in node.split("/")])
        return [self.leaves[name] for name in names]

    # --- places that are chosen after whole ways --------------------------------------------------

    async def _keep(self, branch: Branch) -> Branch:
        """Keep the place, and return the branch that goes on behind it, as a node of its own."""
        draw = random.Random(f"keep/{branch.seed}/{branch.node}")
        (session,) = await self.maker.source.fork(branch.session, [draw.randrange(1 << 31)], 1)
        if isinstance(session, NotForkable):
            raise TrainingFailed(f"a tree of rollouts needs forks: {session}") from session
        if not isinstance(session, LudusError):  # or the place is lost, and the way goes on
            self.sessions.append(session)
            game = branch.game.fork(session, branch.player.fork(draw.randrange(1 << 31)))
            self.places.append(ForkPlace(replace(branch, game=game, session=session)))
        return replace(branch, node=f"{branch.node}/0", level=branch.level + 1)

    async def _grow(self, growth: Growth) -> None:
        """Play further ways from places, in rounds."""
        for number in range(growth.rounds):
            over = growth.search and any(self._right(leaf) for leaf in self.leaves.values())
            if over or not self.places or self.sampled >= self.shape.tokens:
                return
            draw = random.Random(f"grow/{self.env_seed}/{self.places[0].branch.seed}/{number}")
            if growth.search:
                ranked = sorted(self.places, key=lambda place: -self._score(place, growth))
                chosen = ranked[: growth.nodes]
            else:
                chosen = draw.choices(self.places, k=growth.nodes)
            for place in chosen:
                count, first = self.shape.branch - 1, place.children
                place.children += count
                children = await self._children(place.branch, count, first=first)
                ways = [replace(child, level=child.level + 1) for child in children]
                await asyncio.gather(*(self.below(way) for way in ways))

    def _right(self, leaf: Episode) -> bool:
        verdict = leaf.trajectories[0].verdict
        return verdict.ok and verdict.unwrap() > 0

    def _score(self, place: ForkPlace, growth: Growth) -> float:
        """Return how much a place of a search promises: `a tanh(q) + b H + c sqrt(depth)`, q being
        right ends minus wrong ends below, over the ways tried from here, and H the entropy of the
        segment before. Source: the frontier score of DeepSearch, arXiv 2509.25454.
        """
        node, (quality, entropy, depth) = place.branch.node, growth.weights
        ends = [leaf for name, leaf in self.leaves.items() if name.startswith(f"{node}/")]
        worth = sum(1 if self._right(leaf) else -1 for leaf in ends) / place.children
        turns = [turn for segment in place.branch.player.segments for turn in segment.turns]
        logprobs = turns[-1].logprobs
        surprise = -sum(logprobs) / max(len(logprobs), 1)
        deepest = max((other.branch.ends for other in self.places), default=1)
        share = place.branch.ends / max(deepest, 1)
        return quality * math.tanh(worth) + entropy * surprise + depth * math.sqrt(share)


def tree_numbers(groups: Sequence[Sequence[Episode]]) -> dict[str, float]:
    """Describe the trees of a step; empty where there is none.

    `tree/roots`, `tree/leaves` and `tree/nodes` of a group, `tree/mixed` (the share of forks whose
    children's leaves do not all earn the same), `tree/saved` (tokens of all ways over tokens that
    were sampled), `tree/error` (the standard error of the mean reward, of roots and not of leaves,
    which share what is before them; in steps whose groups have two roots or more).
    """
    variances: list[float] = []
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
        means = [statistics.fmean(rewards) for rewards in _by_root(ends).values()]
        variances += [statistics.variance(means) / len(means)] if len(means) > 1 else []
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
        **({"tree/error": math.sqrt(sum(variances)) / len(variances)} if variances else {}),
    }


def _by_root(ends: Sequence[Trajectory]) -> dict[str, list[float]]:
    """Return the rewards of each root's scored leaves."""
    rewards: dict[str, list[float]] = {}
    for end in ends:
        if end.verdict.ok:
            rewards.setdefault(end.node.partition("/")[0], []).append(end.verdict.unwrap())
    return rewards
