"""The settings of learning from preferences: `ludus train dpo` and its relatives, and `ludus train
reward`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ludus.errors import ConfigError

from .learner import ModelConfig, TrainerConfig
from .run import RunConfig, not_negative, positive

Method = Literal[
    "dpo", "rdpo", "ipo", "slic", "kto", "simpo", "orpo",
    "sppo", "inpo", "copg", "hypo", "modpo", "rso",
]  # fmt: skip
STRENGTHS: dict[Method, float] = {
    "dpo": 0.1, "rdpo": 0.1, "ipo": 0.1, "slic": 0.1, "kto": 0.1, "simpo": 2.0, "orpo": 0.1,
    "sppo": 2.0, "inpo": 0.005, "copg": 0.1, "hypo": 0.1, "modpo": 0.1, "rso": 0.1,
}  # fmt: skip
"""The methods, with beta where the settings name none; tau in IPO, lambda in ORPO, eta in SPPO and
INPO.
"""
WITH_REFERENCE: frozenset[Method] = frozenset(STRENGTHS) - {"simpo", "orpo"}
"""The methods that compare the policy with a reference."""
NUMBERS: dict[Method, str] = {
    "sppo": "win_rates",
    "copg": "rewards",
    "rso": "rewards",
    "modpo": "other_rewards",
}
"""The column with a number for each answer, in methods that read one."""
_OWN: dict[str, tuple[Method, float | str]] = {
    "label_smoothing": ("dpo", 0.0),
    "flip_rate": ("rdpo", 0.1),
    "gamma": ("simpo", 0.5),
    "good_weight": ("kto", 1.0),
    "bad_weight": ("kto", 1.0),
    "tau": ("inpo", 0.001),
    "kl": ("hypo", 0.05),
    "samples": ("hypo", 2),
    "sample_tokens": ("hypo", 64),
    "weight": ("modpo", 0.5),
    "wish": ("modpo", ""),
    "keep": ("rso", 2),
    "rso_beta": ("rso", 0.5),
}
"""Settings of a single method, with their defaults."""


@dataclass(frozen=True)
class SupervisedConfig:
    """The settings that every run on data has."""

    models: ClassVar[str] = "a transformers folder, a run, smollm2 or tiny"
    """What `model.path` may name."""

    data: str = ""
    """What is learned."""
    fields: tuple[str, ...] = ()
    """The data's own names of fields and roles, OURS=THEIRS each: see docs/data.md."""
    epochs: float = 1.0
    """Passes over the data; 0 counts steps instead."""
    steps: int = 0
    """Number of updates, where epochs is 0."""
    batch_size: int = 32
    """Number of examples in an update: conversations, pairs, rankings, rated answers."""
    held_out: float = 0.05
    """Share of the data's prompts that are held out, at most 512 examples."""
    eval_every: int = 25
    """Updates between two measurements on what is held out; 0 measures at the end alone."""
    seed: int = 0
    model: ModelConfig = field(default_factory=ModelConfig)
    trainer: TrainerConfig = field(default_factory=lambda: TrainerConfig(lr=1e-6, warmup_steps=10))
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        positive("batch_size", self.batch_size)
        for name in ("epochs", "steps", "eval_every"):
            not_negative(name, getattr(self, name))
        if not 0 <= self.held_out < 1:
            raise ConfigError(f"held_out is a share below 1, got {self.held_out}")
        refuse_several(self.trainer)

    def count_once(self) -> None:
        """Raise ConfigError where both passes and updates are counted, or neither is."""
        if not self.epochs and not self.steps:
            raise ConfigError("epochs and steps are both 0; set one of them")
        if self.epochs and self.steps:
            raise ConfigError(
                f"epochs is {self.epochs:g} and steps is {self.steps}, set one of them: set epochs "
                "to 0 to count updates instead of passes"
            )

    def require_complete(self) -> None:
        """Raise ConfigError unless data and a model are named."""
        if not self.data:
            raise ConfigError("no data named; add --data FILE (--help tells which)")
        self.model.require_path(self.models)


@dataclass(frozen=True)
class PreferenceConfig(SupervisedConfig):
    """The settings of a run that learns from preferences."""

    method: Method = "dpo"
    """The loss, or what chooses its pairs: see docs/data.md."""
    data: str = ""
    """Pairs, or for kto labelled answers: a .jsonl, .json or .parquet file, owner/name of a hub, or
    the folder of a run, whose groups give the best and the worst rollout.
    """
    max_tokens: int = 0
    """Most tokens of a prompt with an answer; longer ones are left out. 0 takes what the model
    reads.
    """
    beta: float = 0.0
    """Strength of the loss: beta, but tau of ipo, lambda of orpo, eta of sppo and inpo; 0 takes 2
    for simpo and sppo, 0.005 for inpo, and 0.1 for the others.
    """
    reference: str = ""
    """The model that the policy is compared with; empty takes the one that training starts from.
    For inpo the latter has sampled the answers, and the reference is an earlier one.
    """
    label_smoothing: float = 0.0
    """For dpo: the share of labels that are taken to be wrong (cDPO)."""
    flip_rate: float = 0.1
    """For rdpo: the share of labels that are known to be flipped, below one half."""
    gamma: float = 0.5
    """For simpo: the margin."""
    good_weight: float = 1.0
    """For kto: the weight of good answers."""
    bad_weight: float = 1.0
    """For kto: the weight of bad answers."""
    tau: float = 0.001
    """For inpo: strength of the pull towards the reference, at most eta (beta)."""
    kl: float = 0.05
    """For hypo: weight of the divergence from the reference, of answers that are sampled anew."""
    samples: int = 2
    """For hypo: answers that are sampled for a pair's prompt in each update."""
    sample_tokens: int = 64
    """For hypo: the most tokens of an answer that is sampled."""
    weight: float = 0.5
    """For modpo: the weight of the wish by which the pairs are ordered."""
    wish: str = ""
    """For modpo on the folder of a run: the part of the reward that orders pairs; the other parts,
    by their weights, are the other rewards.
    """
    keep: int = 2
    """For rso: how many answers of a prompt are accepted; each two make a pair."""
    rso_beta: float = 0.5
    """For rso: small values accept the best alone, large ones any."""
    passing: float = 1.0
    """For kto on the folder of a run: the least reward of a good answer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in STRENGTHS:
            raise ConfigError(f"method must be one of {', '.join(STRENGTHS)}, got {self.method!r}")
        for name in ("max_tokens", "beta"):
            not_negative(name, getattr(self, name))
        self.count_once()
        if not 0 <= self.label_smoothing < 0.5:
            raise ConfigError(f"label_smoothing must be in [0, 0.5), got {self.label_smoothing}")
        for name, (method, usual) in _OWN.items():
            if getattr(self, name) != usual and self.method != method:
                raise ConfigError(f"{name} is a setting of {method}, and method is {self.method}")
        if self.method == "kto" and self.batch_size < 2:
            raise ConfigError("batch_size is 1, and kto compares with answers to other prompts")
        for setting in ("samples", "sample_tokens", "weight", "rso_beta"):
            positive(setting, getattr(self, setting))
        not_negative("kl", self.kl)
        if not 0 <= self.flip_rate < 0.5:
            raise ConfigError(f"flip_rate must be in [0, 0.5), got {self.flip_rate}")
        if self.method == "inpo" and not 0 <= self.tau <= self.strength:
            raise ConfigError(f"tau is {self.tau:g}, and at most eta (beta), {self.strength:g}")
        if self.keep < 2:
            raise ConfigError(f"keep is {self.keep}, and a pair takes 2 answers")
        if self.reference and self.method not in WITH_REFERENCE:
            raise ConfigError(
                f"reference is {self.reference!r}, and {self.method} compares with none"
            )

    @property
    def strength(self) -> float:
        """The loss's beta."""
        return self.beta or STRENGTHS[self.method]


Objective = Literal["bradley-terry", "plackett-luce", "rating", "steps"]


@dataclass(frozen=True)
class RewardModelConfig(SupervisedConfig):
    """The settings of a run that trains a reward model."""

    models: ClassVar[str] = "a transformers folder, or for kind image an ImageReward.pt"

    data: str = ""
    """Rankings, pairs, ratings or steps with labels: a .jsonl, .json or .parquet file, or
    owner/name of a hub.
    """
    kind: Literal["text", "process", "image"] = "text"
    """What is trained: a head for whole conversations, a head for every step, or ImageReward's head
    over its own network.
    """
    objective: Objective = "bradley-terry"
    """The loss: bradley-terry over the pairs of rankings, plackett-luce over whole rankings, rating
    for least squares, steps for labelled steps.
    """
    held_out: float = 0.1
    """Share of prompts that are held out, at most 2,048 examples."""
    eval_every: int = 50
    """Updates between two measurements on what is held out; 0 measures at the end alone."""
    max_tokens: int = 0
    """Most tokens of a conversation; longer ones are left out. 0 takes what the model reads."""
    margins: bool = False
    """For bradley-terry: whether the column margin says by how much the better answer shall win."""
    length_control: bool = False
    """Whether a multiple of the length explains preferences besides the score: what annotators owe
    to length is learned apart, and left out of the score.
    """
    separator: str = "\n\n"
    """For kind process: the text that ends a step."""
    vocab: str = ""
    """For kind image: vocab.txt of bert-base-uncased; empty takes the file beside the checkpoint.
    """
    frozen: float = 0.7
    """For kind image: the share of each encoder's layers, from the bottom, that is not trained; 1
    trains the head alone.
    """
    trainer: TrainerConfig = field(default_factory=lambda: TrainerConfig(lr=1e-5, warmup_steps=10))

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("max_tokens", self.max_tokens)
        self.count_once()
        if not 0 <= self.frozen <= 1:
            raise ConfigError(f"frozen is a share, got {self.frozen}")
        if (self.kind == "process") != (self.objective == "steps"):
            raise ConfigError(
                f"kind is {self.kind} and objective is {self.objective}: labelled steps and kind "
                "process belong together"
            )
        if self.kind == "image" and self.objective == "rating":
            raise ConfigError("kind image learns from rankings; take bradley-terry")
        if self.margins and self.objective != "bradley-terry":
            raise ConfigError(f"margins is a setting of bradley-terry, not of {self.objective}")
        if self.length_control and self.kind != "text":
            raise ConfigError(f"length_control is a setting of kind text, and kind is {self.kind}")
        if self.trainer.lora.rank:
            raise ConfigError("trainer.lora.rank is set, but reward models are trained whole")


def refuse_several(trainer: TrainerConfig) -> None:
    """Raise ConfigError where settings ask for several updates on a batch, or for a reference that
    moves.
    """
    if trainer.reference_every:
        raise ConfigError(
            f"trainer.reference_every is {trainer.reference_every}, but only reinforcement "
            "learning resets its reference; leave it at 0"
        )
    if trainer.updates_per_step not in (0, 1):
        raise ConfigError(
            f"trainer.updates_per_step is {trainer.updates_per_step}, but supervised training "
            "makes one update a step, on new data each; raise steps instead"
        )
