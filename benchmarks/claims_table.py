"""The claims that are measured: what a paper says, in which world it is tried here, with what
budget, and when it holds. The table was committed before the first run of `claims.py` whose rows
are published; sizes of games and learning rates were set on seeds from 100 on, which no published
row has.

A check compares one number a seed with a bound. With the 95 % interval of its mean over the seeds
(Student's t), it holds if the whole interval is on the right side of the bound, does not if the
whole interval is on the other, and is undecided else. A claim holds if all its checks hold, and
does not if one of them does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Check:
    """A number of each seed, and the bound that it is compared with."""

    key: str
    """Its name in what a measure returns."""
    sense: Literal[">", "<"]
    bound: float
    says: str
    """What the number is."""


@dataclass(frozen=True)
class Claim:
    """A row of the page."""

    name: str
    says: str
    source: str
    world: str
    """The environment and the budget."""
    measure: str
    """module:function, called with a seed and a scale of the number of steps."""
    checks: tuple[Check, ...]
    tells: str = ""
    """What a reader should know of the way it was tried."""


GAMES = "claims_measures"
RUNS = "claims_runs"
LOCK = "8 tasks with a secret code of {length} symbols out of 4, rewarded as a whole"

CLAIMS = (
    Claim(
        name="token_baseline",
        says="The optimal token baseline with 4 rollouts of a task is as good as GRPO with 32",
        source="OTB, arXiv 2602.07078",
        world=f"{LOCK.format(length=4)}; 30 steps of 8 tasks; recipes `otb` and `grpo`",
        measure=f"{GAMES}:token_baseline",
        checks=(
            Check("to_32", ">", -0.05, "success of OTB with 4 minus that of GRPO with 32"),
            Check("to_4", ">", 0.0, "success of OTB with 4 minus that of GRPO with 4"),
        ),
    ),
    Claim(
        name="mismatch",
        says="A sampler that is not the learner costs reward, and corrections win it back",
        source="TIS and MIS; trust-region masking, arXiv 2512.23075; DPPO; dynamic vocabulary "
        "pruning",
        world=f"{LOCK.format(length=3)}; 30 steps of 8 x 8; weights that sample have 1 bit of "
        "mantissa; `grpo`; reward of the learner's own weights",
        measure=f"{GAMES}:mismatch",
        checks=(
            Check("lost", ">", 0.05, "reward without mismatch minus that with it, uncorrected"),
            Check("tis_gain", ">", 0.0, "what truncated importance sampling wins back"),
            Check("mis_gain", ">", 0.0, "what masked importance sampling wins back"),
            Check("trust_region_gain", ">", 0.0, "what trust-region masking wins back"),
            Check("dppo_gain", ">", 0.0, "what DPPO's mask wins back"),
            Check("pruned_gain", ">", 0.0, "what a pruned vocabulary wins back"),
        ),
        tells="The vocabulary is pruned to the likeliest tokens of the learner's weights that hold "
        "0.95, for sampler and learner alike; what is left is judged without pruning.",
    ),
    Claim(
        name="staleness",
        says="Rollouts eight steps old cost nothing if they are corrected; very old ones cost "
        "reward, and less with the correction",
        source="AReaL, arXiv 2505.24298; PipelineRL",
        world=f"{LOCK.format(length=3)}; 40 steps of 8 x 8 from the weights of 0, 8 and 32 "
        "steps ago; `grpo`, corrected as `overlap.correction` does",
        measure=f"{GAMES}:staleness",
        checks=(
            Check("cost_8", "<", 0.05, "fresh minus eight steps old and corrected"),
            Check("cost_32", ">", 0.05, "fresh minus 32 steps old, uncorrected"),
            Check("gain_32", ">", 0.0, "32 steps old, corrected minus uncorrected"),
        ),
    ),
    Claim(
        name="sequence_length",
        says="GSPO's answers get shorter although longer ones are better, and LUSPO's do not",
        source="LUSPO, arXiv 2602.05261",
        world="work tokens until an end, at most 12 tokens, right with 1 - .8^n; 30 steps of 8 x "
        "8; recipes `gspo` and `luspo`",
        measure=f"{GAMES}:sequence_length",
        checks=(
            Check("gspo_change", "<", 0.0, "change of GSPO's length, over that at first"),
            Check("difference", ">", 0.1, "LUSPO's length minus GSPO's, over that at first"),
        ),
    ),
    Claim(
        name="length_penalties",
        says="A length penalty shortens answers by a fifth or more, and costs no accuracy",
        source="Kimi k1.5, arXiv 2501.12599; LASER, arXiv 2505.15612; cosine, arXiv 2502.03373",
        world="tasks that need 1 to 4 work tokens, a demonstrator that mostly works too long, 12 "
        "tokens at most; 30 steps of 8 x 8; `grpo` with and without",
        measure=f"{GAMES}:length_penalties",
        checks=tuple(
            check
            for name in ("kimi", "laser", "cosine")
            for check in (
                Check(f"{name}_shorter", ">", 0.2, f"{name}: share of the length that is saved"),
                Check(f"{name}_lost", "<", 0.03, f"{name}: accuracy that is lost"),
            )
        ),
    ),
    Claim(
        name="reasoning_length",
        says="Accuracy is an inverted U of the reasoning length, and RL comes to its top: longer "
        "for hard tasks",
        source="When more is less, arXiv 2502.07266",
        world="the paper's law of errors for tasks of 1 and of 8 operations, lengths of 1 to 10 at "
        "first; 40 steps of 8 x 8; `grpo`",
        measure=f"{GAMES}:reasoning_length",
        checks=(
            Check("difference", ">", 0.3, "steps for hard tasks minus those for easy ones"),
            Check("easy_share", ">", 0.9, "accuracy at the lengths of easy tasks, over the best"),
            Check("hard_share", ">", 0.9, "accuracy at the lengths of hard tasks, over the best"),
        ),
    ),
    Claim(
        name="controls",
        says="Only accurate rewards help: random, inverted and format rewards do not",
        source="Spurious rewards, arXiv 2506.10947, and its critics",
        world="`claims/codes-v0`, codes of 3 letters, a turn each; 12 steps of 8 x 4 of the "
        "trainer with `control`; `grpo`",
        measure=f"{RUNS}:controls",
        checks=(
            Check("true_gain", ">", 0.1, "gain by the true reward"),
            Check("noise_gain", ">", 0.1, "gain where one reward of five is inverted"),
            Check("random_gain", "<", 0.05, "gain by random rewards"),
            Check("inverted_gain", "<", 0.05, "gain by inverted rewards"),
            Check("format_gain", "<", 0.05, "gain by rewards for the format"),
        ),
    ),
    Claim(
        name="echo_chamber",
        says="RL keeps one format of those that the demonstrations mix, mostly the better one",
        source="Echo chamber, arXiv 2504.07912",
        world="answers of four symbols (70 % of the demonstrations) or of two (30 %); 30 steps of "
        "8 x 8; `grpo`",
        measure=f"{GAMES}:echo_chamber",
        checks=(
            Check("kept_share", ">", 0.9, "share of the commoner format at the end"),
            Check("kept_the_better", ">", 0.5, "whether that was right more often at first"),
        ),
    ),
    Claim(
        name="changed_share",
        says="RL changes far fewer weights than supervised training does",
        source="RL finetunes small subnetworks, arXiv 2505.11711",
        world=f"{LOCK.format(length=3)}; 30 updates from one start at learning rates 1e-3 and "
        "1e-5; `grpo`, and perfect demonstrations; weights whose bfloat16 differs",
        measure=f"{GAMES}:changed_share",
        checks=(
            Check("ratio", "<", 0.5, "share changed by RL over that by demonstrations, at 1e-3"),
            Check("ratio_small_rate", "<", 0.5, "the same at 1e-5"),
        ),
        tells="At 1e-5 a tiny model learns little; the rate is that of large ones.",
    ),
    Claim(
        name="dense_rewards",
        says="Rewards of turns beat one at the end, whatever the algorithm",
        source="Practitioner's guide to multi-turn agentic RL, arXiv 2510.01132",
        world=f"{LOCK.format(length=4)} or a quarter for each right symbol; a turn a symbol, "
        "answered by whether it was right; 20 steps of 8 x 8; `ppo`, `grpo`, `rloo`",
        measure=f"{GAMES}:dense_rewards",
        checks=tuple(
            Check(f"{name}_gain", ">", 0.0, f"{name}: whole codes, dense minus sparse")
            for name in ("ppo", "grpo", "rloo")
        ),
    ),
    Claim(
        name="stages_and_mixing",
        says="RL on mathematics helps code; mathematics then code forgets nothing, and is no worse "
        "than both at once",
        source="AceReason-Nemotron, arXiv 2505.16400",
        world="`claims/codes-v0`: codes of 3 letters, and as code the same with a letter more; 24 "
        "steps of 8 x 4 in two `[[stage]]`, in two `[[environment]]`, or on code alone; `grpo`",
        measure=f"{RUNS}:stages_and_mixing",
        checks=(
            Check("transfer", ">", 0.0, "gain on code by mathematics alone"),
            Check("kept", ">", -0.05, "mathematics after code minus before it"),
            Check("staged_over_mixed", ">", -0.05, "mean of both, staged minus mixed"),
        ),
    ),
    Claim(
        name="hints",
        says="Hints raise pass@k where almost nothing is solved without",
        source="Guide, arXiv 2506.13923",
        world="`claims/codes-v0`, codes of 4 letters, a weak start; 24 steps of 8 x 4 of the "
        "trainer, 12 with `guide`, which plays failures again; pass@8",
        measure=f"{RUNS}:hints",
        checks=(
            Check("shown_gain", ">", 0.0, "pass@8 with `guide` minus without"),
            Check("played_gain", ">", 0.0, "pass@8 with `roll_in` minus without"),
        ),
    ),
    Claim(
        name="cyclic_preferences",
        says="Under cyclic preferences win rates against other answers lead to the minimax winner, "
        "and Bradley-Terry scores do not",
        source="SPO, arXiv 2401.04056",
        world="one of four answers: A, B, C beat each other in a circle (.9, .9, .7), D loses to "
        "all; 50 steps of 8 x 8; `rloo`; the mean policy of the run",
        measure=f"{GAMES}:cyclic_preferences",
        checks=(
            Check("gain", ">", 0.05, "worst duel with win rates minus that with scores"),
            Check("win_rate_worst", ">", 0.4, "worst duel with win rates; the winner's is .5"),
        ),
    ),
    Claim(
        name="turn_rewards",
        says="Rewards credited to their turns learn faster than their sum",
        source="MT-GRPO, arXiv 2505.11821",
        world="codes of 6 symbols, a turn and a noisy reward each (.8 if right, .2 else); 20 steps "
        "of 8 x 8; `reinforce_pp` with either, and `grpo` with the sum; share of right symbols",
        measure=f"{GAMES}:turn_rewards",
        checks=(
            Check("gain", ">", 0.0, "turns minus sum, with REINFORCE++"),
            Check("gain_over_grpo", ">", 0.0, "REINFORCE++ with turns minus GRPO"),
        ),
    ),
    Claim(
        name="trees",
        says="Trees beat groups at equal sampled tokens",
        source="SPO-tree, arXiv 2505.23564; TreePO, arXiv 2508.17445",
        world="`claims/codes-v0`, codes of 4 letters, and the same where chance changes the second "
        "half in the middle; the tokens of 17 steps of 8 x 4, or of 12 of 8 trees of 8 leaves; "
        "`grpo`, and `--sampling tree`",
        measure=f"{RUNS}:trees",
        checks=(
            Check("certain_gain", ">", 0.0, "reward at the end, tree minus group, certain"),
            Check("uncertain_gain", ">", 0.0, "the same, uncertain"),
        ),
    ),
)


def claim(name: str) -> Claim:
    """The claim of a name."""
    return next(each for each in CLAIMS if each.name == name)
