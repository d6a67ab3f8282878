"""One policy in two roles: a proposer asks questions, a solver answers them, and both learn.

python examples/04_self_play.py                        about a minute of one core
python examples/04_self_play.py --steps 60 --folder runs/self-play
ludus view runs/self-play/step-000040.jsonl            proposals with their solvers, side by side

After Search Self-Play (arXiv 2510.18821), in a world so small that a tiny model can play it: an
atlas in which the page of each letter names another letter. `b3` asks where three steps from b
lead.

    proposer   ?b   b>f      looks pages up, then asks a question and claims its answer:
               ?f   f>a
               b2=a
    solver     b2            is told the question alone, and looks the pages up again:
               ?b   b>f
               ?f   f>a
               =a            reward 1

A question is valid if the pages its proposer looked up lead to the answer it claims: the check that
the paper makes by giving a model the proposer's documents. The proposer of a valid question earns
the share of solvers that fail on it; that of an invalid one earns nothing, and nobody solves it.

Each role has advantages of its own, because groups are per role: proposals about one world are
compared with each other, answers to one question with each other.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import msgspec
import torch

import ludus
from ludus.agent import Episode, play
from ludus.envs import Briefing, EnvSession, Task
from ludus.trainer import (
    EvalConfig,
    Group,
    ModelConfig,
    Parts,
    RolloutConfig,
    RunConfig,
    SFTConfig,
    TrainConfig,
    TrainerConfig,
    assemble,
    gather,
    run_sft,
    write_tiny_policy,
)

ENV = "example/atlas-v0"
LETTERS = "abcdefgh"
MAX_HOPS = 4
QUESTION = re.compile(r"([a-h])([1-4])")
CLAIM = re.compile(r"([a-h][1-4])=([a-h])")
LOOK = re.compile(r"\?([a-h])")


@ludus.register(ENV)
class Atlas(ludus.TextEnv):
    """Look up pages, then ask a question (proposer) or answer one (solver).

    Args:
        slips: how often the demonstrator claims or says a wrong answer.
    """

    max_turns = MAX_HOPS + 3
    reset_options: ClassVar[Mapping[str, type]] = {"role": str, "question": str}

    def __init__(self, slips: float = 0.0) -> None:
        self.slips = slips
        self.pages: dict[str, str] = {}
        self.seen: dict[str, str] = {}
        """The pages looked up in this episode."""
        self.role, self.question, self.claim = "proposer", "", ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Draw the atlas from the task, the role and the question from the options."""
        draw = random.Random(f"atlas/{self.task.seed}")
        self.pages = {one: draw.choice(LETTERS.replace(one, "")) for one in LETTERS}
        given = options or {}
        self.role = given.get("role") or self.rng.choice(("proposer", "solver"))
        drawn = f"{self.rng.choice(LETTERS)}{self.rng.randint(1, MAX_HOPS)}"
        self.question, self.claim, self.seen = given.get("question") or drawn, "", {}
        self.slip = self.rng.random() < self.slips
        shown = self.question[0] if self.role == "proposer" else self.question
        return shown, {"briefing": Briefing(system_prompt=self.role, max_turns=self.max_turns)}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Show a page, or end with a question or an answer."""
        if looked := LOOK.fullmatch(action):
            self.seen[looked[1]] = self.pages[looked[1]]
            return f"{looked[1]}>{self.pages[looked[1]]}", 0.0, False, False, {}
        if self.role == "proposer":
            self.claim = action
            return "", 0.0, True, False, {}
        return "", float(action == f"={walked(self.pages, self.question)}"), True, False, {}

    def gold(self) -> str | None:
        """What a solver is to say."""
        return f"={walked(self.pages, self.question)}" if self.role == "solver" else None

    def demonstrate(self) -> str:
        """Look up the pages on the way, then ask or answer; a slip stops a step short."""
        at, hops = self.question[0], int(self.question[1])
        for _ in range(hops - int(self.slip and hops > 1)):
            if at not in self.seen:
                return f"?{at}"
            at = self.pages[at]
        return f"{self.question}={at}" if self.role == "proposer" else f"={at}"


def walked(pages: dict[str, str], question: str) -> str:
    """Where the question leads; nowhere if a page on the way is missing.

    >>> walked({"b": "f", "f": "a"}, "b2")
    'a'
    """
    at = question[0]
    for _ in range(int(question[1])):
        if at not in pages:
            return ""
        at = pages[at]
    return at


def valid_question(env: Atlas) -> str:
    """The question a proposer asked, if the pages it has seen lead to the answer it claims."""
    made = CLAIM.fullmatch(env.claim)
    if made is None or walked(env.seen, made[1]) != made[2]:
        return ""
    return made[1]


@dataclass
class Round:
    """What one step of self-play was."""

    proposals: list[Group]
    """One group a world."""
    answers: list[Group]
    """One group a valid question."""
    matches: list[Episode]
    """For people: each proposal with its solvers, a role each."""

    def numbers(self) -> dict[str, float]:
        """What to watch."""
        asked = [one.trajectories[0] for group in self.proposals for one in group.episodes]
        said = [one.trajectories[0] for group in self.answers for one in group.episodes]
        hops = [int(group.task.id[-1]) for group in self.answers]
        return {
            "valid": len(self.answers) / max(1, len(asked)),
            "hops": fmean(hops) if hops else 0.0,
            "proposer": fmean(one.verdict.unwrap() for one in asked),
            "solver": fmean(one.verdict.unwrap() for one in said) if said else 0.0,
        }


class SelfPlay:
    """Plays rounds with the policy of a training run, and learns from them."""

    def __init__(self, parts: Parts, *, proposals: int, solvers: int) -> None:
        self.parts = parts
        self.proposals, self.solvers = proposals, solvers
        self.step = 0

    async def round(self, worlds: Sequence[Task]) -> Round:
        """Propose, check, solve, and give each side its reward."""
        made = Round([], [], [])
        for asked in await asyncio.gather(*[self._world(world, made) for world in worlds]):
            made.proposals.append(asked)
        return made

    async def _world(self, world: Task, made: Round) -> Group:
        """Proposals about one world, and answers to those that are valid."""
        asking = [self._propose(world, index) for index in range(self.proposals)]
        proposed = await asyncio.gather(*asking)
        solving = [self._solve(world, question, i) for i, (_, question) in enumerate(proposed)]
        solved = await asyncio.gather(*solving)
        for (episode, question), answers in zip(proposed, solved, strict=True):
            reward_proposer(episode, question, answers)
            both = [one.trajectories[0] for one in (episode, *answers)]
            made.matches.append(msgspec.structs.replace(episode, trajectories=both))
            if answers:
                asked = msgspec.structs.replace(world, id=f"{world.id}/{question}")
                made.answers.append(Group(asked, answers, 0))
        return Group(world, [episode for episode, _ in proposed], 0)

    async def _propose(self, world: Task, index: int) -> tuple[Episode, str]:
        env = Atlas()
        episode = await self._play(env, world, index, {"role": "proposer"})
        return episode, valid_question(env) if episode.trajectories[0].verdict.ok else ""

    async def _solve(self, world: Task, question: str, index: int) -> list[Episode]:
        if not question:
            return []
        asked = {"role": "solver", "question": question}
        seats = [self.proposals + index * self.solvers + one for one in range(self.solvers)]
        return await asyncio.gather(*[self._play(Atlas(), world, one, asked) for one in seats])

    async def _play(self, env: Atlas, world: Task, seat: int, options: dict[str, str]) -> Episode:
        return await play(
            EnvSession(env, ENV),
            self.parts.collector.policy,
            task=world.id,
            split=world.split,
            seed=self.step,  # rollouts of a group share it, and differ in the next one
            sampling_seed=(self.step * 1_000_003 + world.seed * 1_009 + seat) & 0x7FFFFFFF,
            options=options,
            role=options["role"],
        )

    async def learn(self, played: Round) -> dict[str, float]:
        """One step of the weights, from both roles."""
        experience = gather([*played.proposals, *played.answers])
        metrics: dict[str, float] = {}
        if experience is not None:
            generator = torch.Generator().manual_seed(self.step)
            update = self.parts.updater.step
            metrics = await asyncio.to_thread(update, experience, generator=generator)
        self.step += 1
        await self.parts.engine.set_weights(self.parts.learner.source(), self.step)
        return metrics


def reward_proposer(episode: Episode, question: str, answers: Sequence[Episode]) -> None:
    """The share of solvers that failed; a lost solver says nothing about the question."""
    trajectory = episode.trajectories[0]
    if not trajectory.verdict.ok:
        return
    earned = [one.trajectories[0].verdict.reward for one in answers]
    known = [reward for reward in earned if reward is not None]
    failed = 1 - fmean(known) if known else 0.0
    parts = {"valid": (float(bool(question)), 0.0), "unsolved": (failed, 1.0)}
    why = "" if question else "the pages it looked up do not lead to what it claims"
    trajectory.verdict = ludus.Verdict.of(failed, why, parts=parts)


async def train(
    folder: Path, *, steps: int, warm_steps: int, worlds: int = 12, rollouts: int = 4
) -> list[dict[str, float]]:
    """Warm start on demonstrations of both roles that slip, then self-play.

    Args:
        folder: of models, runs and matches.
        steps: of self-play.
        warm_steps: of supervised training before it.
        worlds: a step.
        rollouts: proposals a world, and solvers a valid question.

    Returns:
        Numbers of each step.
    """
    torch.set_num_threads(1)
    phrases = ["proposer", "solver", "system\n", "user\n", "assistant\n"]
    phrases += ["\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"]
    model = write_tiny_policy(folder / "model", phrases=phrases, hidden=64, layers=2, heads=4)
    warm = await run_sft(
        SFTConfig(
            env=f"{ENV}?slips=0.5", steps=warm_steps, batch_size=32,
            model=ModelConfig(path=str(model), device="cpu"),
            trainer=TrainerConfig(lr=3e-3, warmup_steps=20),
            run=RunConfig(folder=str(folder / "warm"), tensorboard=False),
        )
    )  # fmt: skip
    parts = await assemble(
        TrainConfig(
            env=ENV, recipe="grpo", steps=steps,
            model=ModelConfig(path=str(warm), device="cpu"),
            rollout=RolloutConfig(tasks_per_step=worlds, group_size=rollouts, max_tokens=6),
            trainer=TrainerConfig(lr=1e-3),
            eval=EvalConfig(tasks=64),
            run=RunConfig(folder=str(folder / "run"), tensorboard=False),
        )
    )  # fmt: skip
    try:
        game = SelfPlay(parts, proposals=rollouts, solvers=rollouts)
        return await _rounds(game, folder, steps, worlds)
    finally:
        await parts.closing.aclose()


async def _rounds(game: SelfPlay, folder: Path, steps: int, worlds: int) -> list[dict[str, float]]:
    numbers: list[dict[str, float]] = []
    for step in range(steps):
        played = await game.round(await game.parts.tasks.take(worlds))
        numbers.append(played.numbers() | await game.learn(played))
        shown = "  ".join(f"{name} {numbers[-1][name]:.2f}" for name in played.numbers())
        print(f"step {step + 1:3}  {shown}", flush=True)
        if (step + 1) % 20 == 0 or step + 1 == steps:
            lines = [msgspec.json.encode(one) + b"\n" for one in played.matches]
            (folder / f"step-{step + 1:06d}.jsonl").write_bytes(b"".join(lines))
    return numbers


def main() -> None:
    """Train, and say where the matches are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warm-steps", type=int, default=400)
    parser.add_argument("--folder", default="")
    given = parser.parse_args()
    folder = Path(given.folder or tempfile.mkdtemp(prefix="self-play-"))
    asyncio.run(train(folder, steps=given.steps, warm_steps=given.warm_steps))
    print(f"matches: ludus view {folder}/step-{given.steps:06d}.jsonl")


if __name__ == "__main__":
    main()
