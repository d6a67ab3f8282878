"""The claims that are measured on games of tokens: each function plays one seed, and returns the
numbers that the checks of `claims_table` ask for, with others for the page.
"""

from __future__ import annotations

import copy
import random
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from claims_games import FIRST, LONG, SHORT, SYMBOLS, Duel, Formats, Lock, Work
from claims_play import LAST, TASKS, Arm, Played, fit, train, warmed

from ludus.trainer.algorithms import bradley_terry_loss, divide
from ludus.trainer.models.changed import changed_weights
from ludus.trainer.rollout.collect import Group
from ludus.verdict import Verdict

Numbers = dict[str, float]


def token_baseline(seed: int, scale: float) -> Numbers:
    """OTB with 4 rollouts of a task against GRPO with 32, and with 4."""
    game = Lock(4, 0.4, seed)
    start, steps = warmed(game, seed), round(30 * scale)
    arms = {
        "otb_4": Arm("otb", group=4, steps=steps),
        "grpo_4": Arm("grpo", group=4, steps=steps),
        "grpo_32": Arm("grpo", group=32, steps=steps),
    }
    ends = {name: train(game, arm, start, seed) for name, arm in arms.items()}
    success = {name: end.reward() for name, end in ends.items()}
    return {
        **success,
        "tokens_saved": 1 - ends["otb_4"].tokens / ends["grpo_32"].tokens,
        "to_32": success["otb_4"] - success["grpo_32"],
        "to_4": success["otb_4"] - success["grpo_4"],
    }


CORRECTIONS: dict[str, dict[str, Any]] = {
    "tis": {"weights": "tis_weights"},
    "mis": {"weights": "mis_weights"},
    "trust_region": {"filters": [{"name": "trust_region_mask", "options": {"threshold": 0.05}}]},
    "dppo": {"filters": [{"name": "dppo_mask", "options": {"delta": 0.15}}]},
}


def mismatch(seed: int, scale: float) -> Numbers:
    """A sampler with rounded weights, uncorrected and corrected, against the learner's own."""
    game = Lock(3, 0.3, seed)
    start, steps = warmed(game, seed), round(30 * scale)
    arms = {"same": Arm(steps=steps), "none": Arm(steps=steps, rounding=1)}
    for name, correction in CORRECTIONS.items():
        overrides = {"algorithm": {"corrections": correction}}
        arms[name] = Arm(steps=steps, rounding=1, overrides=overrides)
    arms["pruned"] = Arm(steps=steps, rounding=1, pruned=0.95)
    ends = {name: train(game, arm, start, seed) for name, arm in arms.items()}
    # what the sampler earns is not what was learned: the learner's own weights are played again
    success = {name: played_again(game, end, seed) for name, end in ends.items()}
    gains = {f"{name}_gain": success[name] - success["none"] for name in (*CORRECTIONS, "pruned")}
    return {**success, "lost": success["same"] - success["none"], **gains}


def played_again(game: Any, end: Played, seed: int) -> float:
    """The mean reward of the weights that a run has left, over 256 rollouts."""
    arm = Arm(steps=1, group=32, lr=1e-12)
    return train(game, arm, end.model, seed + 7919).rewards[0]


AGES = (8, 32)


def staleness(seed: int, scale: float) -> Numbers:
    """Weights that sample some steps behind those that learn, with and without a correction."""
    game = Lock(3, 0.3, seed)
    start, steps = warmed(game, seed), round(40 * scale)
    arms = {"age_0": Arm(steps=steps, lr=2e-3)}
    for age in AGES:
        arms[f"age_{age}"] = Arm(steps=steps, lr=2e-3, age=age)
        arms[f"age_{age}_corrected"] = Arm(steps=steps, lr=2e-3, age=age, corrects=True)
    success = {
        name: played_again(game, train(game, arm, start, seed), seed) for name, arm in arms.items()
    }
    return {
        **success,
        "cost_8": success["age_0"] - success["age_8_corrected"],
        "cost_32": success["age_0"] - success["age_32"],
        "gain_32": success["age_32_corrected"] - success["age_32"],
    }


def sequence_length(seed: int, scale: float) -> Numbers:
    """Lengths under GSPO and LUSPO, where longer work is right more often."""
    game = Work(lambda _, n: 1 - 0.8**n, lambda _, rng: rng.randint(2, 8), most=12)
    start, steps = warmed(game, seed), round(30 * scale)
    ends = {name: train(game, Arm(name, steps=steps), start, seed) for name in ("gspo", "luspo")}
    first = ends["gspo"].lengths[0]
    return {
        "start": first,
        **{f"{name}_length": end.length() for name, end in ends.items()},
        **{f"{name}_success": end.reward() for name, end in ends.items()},
        "gspo_change": ends["gspo"].length() / first - 1,
        "difference": (ends["luspo"].length() - ends["gspo"].length()) / first,
    }


PENALTIES: dict[str, list[dict[str, object]]] = {
    "none": [],
    "kimi": [{"name": "kimi_length_rewards", "combine": "add", "weight": 0.5}],
    "laser": [{"name": "laser_rewards", "combine": "replace", "options": {"wrong": 0.0}}],
    "cosine": [
        {
            "name": "cosine_rewards",
            "combine": "replace",
            "options": {
                "max_length": "max_tokens",
                "right": [1.0, 0.5],
                "wrong": [-0.5, 0.0],
                "exceeded": -0.5,
            },
        }
    ],
}


def length_penalties(seed: int, scale: float) -> Numbers:
    """Accuracy and length under length penalties, after a demonstrator that works too long."""
    need = [1 + task % 4 for task in range(TASKS)]

    def worked(task: int, rng: random.Random) -> int:
        return need[task] + rng.randint(0, 6) if rng.random() < 0.75 else rng.randint(0, need[task])

    game = Work(lambda task, n: float(n >= need[task]), worked, most=12)
    start, steps = warmed(game, seed), round(30 * scale)
    numbers: Numbers = {}
    for name, shaping in PENALTIES.items():
        rules = [{"name": "length_target"}] if name == "laser" else []
        overrides = {"shaping": shaping, "sampling": {"rules": rules}}
        arm = Arm(steps=steps, overrides=overrides, marks={"target": 5.0} if rules else {})
        end = train(game, arm, start, seed)
        numbers |= {f"{name}_accuracy": end.reward(), f"{name}_length": end.length()}
    for name in [each for each in PENALTIES if each != "none"]:
        numbers[f"{name}_shorter"] = 1 - numbers[f"{name}_length"] / numbers["none_length"]
        numbers[f"{name}_lost"] = numbers["none_accuracy"] - numbers[f"{name}_accuracy"]
    return numbers


def reasoning_length(seed: int, scale: float) -> Numbers:
    """Which lengths are right most often, and which RL comes to, for easy and hard tasks."""

    def chance(task: int, steps: int) -> float:
        operations, capability, noise = (1, 8)[task % 2], 10, 0.1
        if steps < 1:
            return 0.0
        return ((1 - operations / (steps * capability)) * (1 - noise)) ** steps

    game = Work(chance, lambda _, rng: rng.randint(1, 10), most=12)
    start = warmed(game, seed)
    end = train(game, Arm(steps=round(40 * scale)), start, seed)
    numbers: Numbers = {}
    for kind in (0, 1):
        last = [len(each) - 2 for step in end.said[-LAST:] for each in step if each[0] % 2 == kind]
        best = max(range(1, 13), key=lambda n: chance(kind, n))
        name = ("easy", "hard")[kind]
        earned = statistics.fmean(chance(kind, n) for n in last)
        numbers |= {
            f"{name}_best": float(best),
            f"{name}_length": statistics.fmean(last),
            f"{name}_share": earned / chance(kind, best),
        }
    return {**numbers, "difference": numbers["hard_length"] - numbers["easy_length"]}


def echo_chamber(seed: int, scale: float) -> Numbers:
    """Which of two formats of the demonstrations RL keeps."""
    game = Formats(seed, long=0.7, sure=(0.75, 0.65))
    start = warmed(game, seed)
    end = train(game, Arm(steps=round(30 * scale)), start, seed)
    first, last = end.said[0], [each for step in end.said[-LAST:] for each in step]

    def right(first_token: int) -> float:
        mine = [each for each in first if each[1] == first_token]
        matches = [list(each[2:]) == game.wanted(each[0], each[1]) for each in mine]
        return sum(matches) / max(1, len(matches))

    shares = {kind: statistics.fmean(each[1] == kind for each in last) for kind in (LONG, SHORT)}
    kept = max(shares, key=lambda kind: shares[kind])
    better = max((LONG, SHORT), key=right)
    return {
        "long_at_first": statistics.fmean(each[1] == LONG for each in first),
        "long_right_at_first": right(LONG),
        "short_right_at_first": right(SHORT),
        "success": end.reward(),
        "kept_share": shares[kept],
        "kept_the_better": float(kept == better),
    }


def changed_share(seed: int, scale: float) -> Numbers:
    """Weights that RL and supervised training change, with the same optimizer and learning rate."""
    game, steps = Lock(3, 0.3, seed), round(30 * scale)
    start = warmed(game, seed)
    teacher = Lock(3, 1.0, seed)
    numbers: Numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        first, last = Path(folder, "first"), Path(folder, "last")
        start.save_pretrained(first)
        for name, lr in (("", 1e-3), ("_small_rate", 1e-5)):
            end = train(game, Arm(steps=steps, lr=lr), start, seed)
            end.model.save_pretrained(last)
            numbers[f"rl{name}"] = changed_weights(first, last).share_bfloat16
            taught = copy.deepcopy(start)
            fit(taught, teacher, random.Random(f"teach/{seed}"), steps=steps, lr=lr)
            taught.save_pretrained(last)
            numbers[f"sft{name}"] = changed_weights(first, last).share_bfloat16
            numbers[f"ratio{name}"] = numbers[f"rl{name}"] / numbers[f"sft{name}"]
            numbers[f"rl_success{name}"] = end.reward()
    return numbers


def dense_rewards(seed: int, scale: float) -> Numbers:
    """Whole codes under rewards for each turn and for the end alone, with three algorithms."""
    numbers: Numbers = {}
    start = warmed(Lock(4, 0.4, seed, shown=True), seed)
    for recipe in ("ppo", "grpo", "rloo"):
        for pays in ("turn", "end"):
            game = Lock(4, 0.4, seed, pays, shown=True)
            arm = Arm(recipe, steps=round(20 * scale), lr=2e-3, turns=True)
            end = train(game, arm, start, seed)
            last = [game.solved(each) for step in end.said[-LAST:] for each in step]
            numbers[f"{recipe}_{pays}"] = statistics.fmean(last)
        numbers[f"{recipe}_gain"] = numbers[f"{recipe}_turn"] - numbers[f"{recipe}_end"]
    return numbers


def cyclic_preferences(seed: int, scale: float) -> Numbers:
    """The worst duel of what is learned from win rates, and from Bradley-Terry scores."""
    game, draw = Duel(), torch.Generator().manual_seed(seed)
    start = warmed(game, seed, steps=60)
    scores = bradley_terry_scores(draw)

    def by_score(groups: Sequence[Group]) -> None:
        grade(groups, lambda mine, _: scores[mine])

    def by_wins(groups: Sequence[Group]) -> None:
        grade(groups, lambda mine, others: statistics.fmean(game.WINS[mine][o] for o in others))

    numbers: Numbers = {}
    for name, regrade in (("win_rate", by_wins), ("bradley_terry", by_score)):
        arm = Arm("rloo", steps=round(50 * scale), regrade=regrade, lr=2e-3)
        end = train(game, arm, start, seed)
        for part, steps in (("", end.said), ("_last", end.said[-1:])):
            law = law_of([each[1] for step in steps for each in step])
            duels = [sum(law[i] * game.WINS[i][j] for i in range(4)) for j in range(4)]
            numbers[f"{name}{part}_worst"] = min(duels)
        numbers[f"{name}_largest_share"] = max(law)
    numbers["gain"] = numbers["win_rate_worst"] - numbers["bradley_terry_worst"]
    return numbers


def law_of(tokens: Sequence[int]) -> list[float]:
    """The share of each symbol among those that were said."""
    symbols = [token for token in tokens if token in SYMBOLS]
    return [symbols.count(symbol) / max(1, len(symbols)) for symbol in SYMBOLS]


def bradley_terry_scores(draw: torch.Generator) -> list[float]:
    """Scores of the four answers, fitted to 4,000 comparisons of answers drawn alike."""
    pairs = torch.randint(4, (4000, 2), generator=draw)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    wins = (
        torch.rand(len(pairs), generator=draw) < torch.tensor(Duel.WINS)[pairs[:, 0], pairs[:, 1]]
    )
    groups = torch.arange(len(pairs)).repeat_interleave(2)
    ranks = torch.stack([~wins, wins], 1).flatten().long()
    scores = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.LBFGS([scores], max_iter=100)

    def loss() -> Any:
        optimizer.zero_grad()
        total = divide(*bradley_terry_loss(scores[pairs.flatten()], groups, ranks))
        total.backward()
        return total

    optimizer.step(loss)
    return scores.detach().tolist()


def grade(groups: Sequence[Group], reward: Any) -> None:
    """Give each answer the reward of its symbol beside the symbols of the others."""
    for group in groups:
        said = [each.trajectories[0].turns[0].out_ids[0] - FIRST for each in group.episodes]
        known = [0 <= symbol < 4 for symbol in said]
        for number, episode in enumerate(group.episodes):
            others = [o for n, o in enumerate(said) if n != number and known[n]]
            given = reward(said[number], others) if known[number] and others else -2.0
            episode.trajectories[0].verdict = Verdict.of(given)


def turn_rewards(seed: int, scale: float) -> Numbers:
    """Right symbols, learned from noisy rewards of turns and from the sum of the same rewards."""
    game = Lock(6, 0.3, seed, "noisy", shown=True)
    start, numbers = warmed(game, seed), Numbers()
    arms = {
        "turns": ("reinforce_pp", True),
        "sum": ("reinforce_pp", False),
        "grpo": ("grpo", False),
    }
    for name, (recipe, turns) in arms.items():
        arm = Arm(recipe, steps=round(20 * scale), lr=2e-3, turns=turns)
        end = train(game, arm, start, seed)
        numbers[name] = statistics.fmean(
            game.share(each) for step in end.said[-LAST:] for each in step
        )
    return {
        **numbers,
        "gain": numbers["turns"] - numbers["sum"],
        "gain_over_grpo": numbers["turns"] - numbers["grpo"],
    }
