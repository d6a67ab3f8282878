"""The settings of learning from preferences: `ludus train dpo` and its relatives, and `ludus train
reward`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ludus.errors import ConfigError

from .learner import ModelConfig, TrainerConfig
from .run import RunConfig, not_negative, positive

Method = Literal["dpo", "ipo", "kto", "simpo", "orpo"]
STRENGTHS: dict[Method, float] = {"dpo": 0.1, "ipo": 0.1, "kto": 0.1, "simpo": 2.0, "orpo": 0.1}
"""The methods, with beta where the settings name none; tau in IPO and lambda in ORPO."""
WITH_REFERENCE: frozenset[Method] = frozenset({"dpo", "ipo", "kto"})
"""The methods that compare the policy with the model it started from."""
_OWN: dict[str, tuple[Method, float]] = {
    "label_smoothing": ("dpo", 0.0),
    "gamma": ("simpo", 0.5),
    "good_weight": ("kto", 1.0),
    "bad_weight": ("kto", 1.0),
}
"""Settings of a single method, with their defaults."""


@dataclass(frozen=True)
class PreferenceConfig:
    """The settings of a run that learns from preferences."""

    method: Method = "dpo"
    """The loss: dpo, ipo, kto, simpo or orpo."""
    data: str = ""
    """Pairs, or for kto labelled answers: a .jsonl, .json or .parquet file, owner/name of a hub, or
    the folder of a run, whose groups give the best and the worst rollout.
    """
    epochs: float = 1.0
    """Passes over the data; 0 takes steps instead."""
    steps: int = 0
    """Number of updates, where epochs is 0."""
    batch_size: int = 32
    """Number of pairs, or of labelled answers, in an update."""
    held_out: float = 0.05
    """Share of prompts that are held out, at most 512 examples."""
    eval_every: int = 25
    """Updates between two measurements on what is held out; 0 measures at the end alone."""
    max_tokens: int = 0
    """Most tokens of a prompt with an answer; longer ones are left out. 0 takes what the model
    reads.
    """
    beta: float = 0.0
    """Strength of the loss: beta of dpo, kto and simpo, tau of ipo, lambda of orpo; 0 takes 2 for
    simpo and 0.1 for the others.
    """
    label_smoothing: float = 0.0
    """For dpo: the share of labels that are taken to be wrong (cDPO)."""
    gamma: float = 0.5
    """For simpo: the margin."""
    good_weight: float = 1.0
    """For kto: the weight of good answers."""
    bad_weight: float = 1.0
    """For kto: the weight of bad answers."""
    passing: float = 1.0
    """For kto on the folder of a run: the least reward of a good answer."""
    seed: int = 0
    model: ModelConfig = field(default_factory=ModelConfig)
    trainer: TrainerConfig = field(default_factory=lambda: TrainerConfig(lr=1e-6, warmup_steps=10))
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if self.method not in STRENGTHS:
            raise ConfigError(f"method must be one of {', '.join(STRENGTHS)}, got {self.method!r}")
        positive("batch_size", self.batch_size)
        for name in ("epochs", "steps", "eval_every", "max_tokens", "beta"):
            not_negative(name, getattr(self, name))
        if not self.epochs and not self.steps:
            raise ConfigError("epochs and steps are both 0; set one of them")
        if self.epochs and self.steps:
            raise ConfigError(
                f"epochs is {self.epochs:g} and steps is {self.steps}: set epochs to 0 to count "
                "updates instead of passes"
            )
        check_held_out(self.held_out)
        if not 0 <= self.label_smoothing < 0.5:
            raise ConfigError(f"label_smoothing must be in [0, 0.5), got {self.label_smoothing}")
        for name, (method, usual) in _OWN.items():
            if getattr(self, name) != usual and self.method != method:
                raise ConfigError(f"{name} is a setting of {method}, and method is {self.method}")
        if self.method == "kto" and self.batch_size < 2:
            raise ConfigError("batch_size is 1, and kto compares with answers to other prompts")
        refuse_several(self.trainer)

    @property
    def strength(self) -> float:
        """The loss's beta."""
        return self.beta or STRENGTHS[self.method]

    def require_complete(self) -> None:
        """Raise ConfigError unless data and a model are named."""
        if not self.data:
            raise ConfigError(f"no data named; add --data FILE (ludus train {self.method} --help)")
        if not self.model.path:
            raise ConfigError(
                "no model named; add --model.path with a transformers folder, a run, smollm2 or "
                "tiny"
            )


Objective = Literal["bradley-terry", "plackett-luce", "rating", "steps"]


@dataclass(frozen=True)
class RewardModelConfig:
    """The settings of a run that trains a reward model."""

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
    epochs: float = 1.0
    """Passes over the data; 0 takes steps instead."""
    steps: int = 0
    """Number of updates, where epochs is 0."""
    batch_size: int = 32
    """Number of rankings, rated answers or solutions in an update."""
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
    seed: int = 0
    model: ModelConfig = field(default_factory=ModelConfig)
    trainer: TrainerConfig = field(default_factory=lambda: TrainerConfig(lr=1e-5, warmup_steps=10))
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        positive("batch_size", self.batch_size)
        for name in ("epochs", "steps", "eval_every", "max_tokens"):
            not_negative(name, getattr(self, name))
        if bool(self.epochs) == bool(self.steps):
            raise ConfigError(
                f"epochs is {self.epochs:g} and steps is {self.steps}: set one of them, and the "
                "other to 0"
            )
        check_held_out(self.held_out)
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
        refuse_several(self.trainer)

    def require_complete(self) -> None:
        """Raise ConfigError unless data and a model are named."""
        if not self.data:
            raise ConfigError("no data named; add --data FILE (ludus train reward --help)")
        if not self.model.path:
            raise ConfigError(
                "no model named; add --model.path: a transformers folder, or for kind image an "
                "ImageReward.pt"
            )


def check_held_out(share: float) -> None:
    """Raise ConfigError where a share of prompts cannot be held out."""
    if not 0 <= share < 1:
        raise ConfigError(f"held_out is a share below 1, got {share}")


def refuse_several(trainer: TrainerConfig) -> None:
    """Raise ConfigError where settings ask for several updates on a batch."""
    if trainer.updates_per_step not in (0, 1):
        raise ConfigError(
            f"trainer.updates_per_step is {trainer.updates_per_step}, but supervised training "
            "makes one update a step, on new data each; raise steps instead"
        )
