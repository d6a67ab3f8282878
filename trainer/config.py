"""The settings of `ludus train` and `ludus sft`, as frozen dataclasses.

Each field is an option of the command line and a key of the TOML file. A string below a field is
its help text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ludus.agent.context import ContextSettings
from ludus.agent.gateway import AgentSandbox
from ludus.errors import ConfigError
from ludus.secret import NO_SECRET, Secret, refuse_credentials

from .settings.cluster import ClusterConfig
from .settings.data import PreferenceConfig, RewardModelConfig, SupervisedConfig
from .settings.engines import EngineName, LocalConfig, VLLMConfig
from .settings.learner import LoraConfig, ModelConfig, RanksConfig, TrainerConfig
from .settings.parts import EnvironmentConfig, RoleConfig, StageConfig, refuse_doubles
from .settings.rollouts import AsyncConfig, AuditConfig, EvalConfig, RewardConfig, RolloutConfig
from .settings.run import RunConfig, keep_secret, not_negative, positive

__all__ = [
    "AsyncConfig",
    "AuditConfig",
    "ClusterConfig",
    "EngineName",
    "EnvironmentConfig",
    "EvalConfig",
    "LocalConfig",
    "LoraConfig",
    "ModelConfig",
    "PreferenceConfig",
    "RanksConfig",
    "RewardConfig",
    "RewardModelConfig",
    "RoleConfig",
    "RolloutConfig",
    "RunConfig",
    "SFTConfig",
    "StageConfig",
    "TrainConfig",
    "TrainerConfig",
    "VLLMConfig",
]


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a training run."""

    env: str = ""
    """Environment id, with constructor arguments as a query: ludus/arithmetic-v0?max_operations=2.
    """
    env_url: str = ""
    """Address of a ludus server with the environment, or several addresses separated by commas;
    empty plays in this process.
    """
    env_token: Secret = NO_SECRET
    """Bearer token of the environment's server, best given as env:NAME; empty takes the environment
    variable LUDUS_TOKEN.
    """
    environment: list[EnvironmentConfig] = field(default_factory=list)
    """Several environments instead of env, [[environment]] in a file."""
    role: list[RoleConfig] = field(default_factory=list)
    """Who plays which role, where a sampling policy has several, [[role]] in a file; without any
    the run's policy plays all.
    """
    stage: list[StageConfig] = field(default_factory=list)
    """Stages, one after the other, [[stage]] in a file; see docs/training.md."""
    agent: str = ""
    """An agent that plays instead of the loop of ludus: a command (python agent.py) or a function
    (agent.py:run). It calls the policy through a gateway, and its answer is the environment's only
    action; see docs/agents.md.
    """
    agent_sandbox: AgentSandbox = field(default_factory=AgentSandbox)
    recipe: str = "grpo"
    """Name of an algorithm (ludus recipes), or path of a TOML file."""
    sampling: str = ""
    """Sampling policies beside the recipe (ludus recipes policies), by name or as TOML files,
    separated by commas: dars,think_short.
    """
    engine: EngineName = "local"
    """Engine that samples the rollouts."""
    learner: str = ""
    """Address of a learner and sampler elsewhere that speak the Tinker API, as tinker://HOST:PORT;
    empty learns and samples here. model.path then brings the tokenizer. See docs/tinker.md.
    """
    learner_model: str = ""
    """What that server calls the model; empty is model.path as it is written."""
    learner_token: Secret = NO_SECRET
    """Key of that server, best given as env:TINKER_API_KEY."""
    steps: int = 100
    tokens: int = 0
    """Tokens after which the run ends, with the step that reaches them: those that the policy
    samples, and in supervised stages those that are trained. Stages share them; 0 has no bound.
    """
    split: str = "train"
    seed: int = 0
    model: ModelConfig = field(default_factory=ModelConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    context: ContextSettings = field(default_factory=ContextSettings)
    overlap: AsyncConfig = field(default_factory=AsyncConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    reward: list[RewardConfig] = field(default_factory=list)
    """Verifiers whose verdicts are added to the environment's reward, each with name (of a local
    one, or url#name), weight (1), timeout_s (60) and token; in a file, [[reward]] tables.
    """
    control: str = ""
    """Replaces the reward of training, to tell what a run owes to it: random (0 or 1), inverted
    (1 - reward), format (1 for an episode that comes to its own end and whose calls can be read)
    or noise=P (1 - reward with probability P). Held-out tasks keep theirs.
    """
    run: RunConfig = field(default_factory=RunConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    vllm: VLLMConfig = field(default_factory=VLLMConfig)
    ranks: RanksConfig = field(default_factory=RanksConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)

    def __post_init__(self) -> None:
        keep_secret(self, "env_token")
        keep_secret(self, "learner_token")
        refuse_credentials("learner", self.learner)
        refuse_credentials("env", self.env)
        refuse_credentials("env_url", self.env_url)
        if self.local.engines and self.trainer.lora.rank and self.trainer.lora.publish == "adapter":
            raise ConfigError(
                "trainer.lora.publish is 'adapter', which needs the base weights in the engine, "
                "and engine processes (local.engines) get all from the learner: take 'merged'"
            )
        positive("steps", self.steps)
        not_negative("tokens", self.tokens)
        refuse_doubles("environment", [each.title for each in self.environment])
        refuse_doubles("stage", [each.name for each in self.stage])
        averaged = self.trainer.ema_decay and self.trainer.ema_use == "evaluate"
        if averaged and self.eval.beside != "own":
            raise ConfigError(
                "trainer.ema_use is 'evaluate', which needs an engine for evaluations: set "
                "eval.beside to own"
            )
        if self.engine != "local" and self.trainer.lora.publish == "adapter":
            raise ConfigError(
                f"trainer.lora.publish is 'adapter', which the engine {self.engine!r} does not "
                "take; leave it at merged"
            )
        if self.eval.beside == "own" and self.engine != "local":
            raise ConfigError(
                f'eval.beside = "own" evaluates with a second engine in this process, and engine '
                f'is {self.engine}; take eval.beside = "shared"'
            )
        if self.trainer.updates_per_step > self.rollout.tasks_per_step:
            raise ConfigError(
                f"trainer.updates_per_step is {self.trainer.updates_per_step}, but a step has only "
                f"{self.rollout.tasks_per_step} groups (rollout.tasks_per_step) to share out"
            )

    def require_complete(self) -> None:
        """Raise ConfigError unless an environment and a model are named."""
        _require(self.env or ", ".join(each.env for each in self.environment), self.model)


@dataclass(frozen=True)
class SFTConfig(SupervisedConfig):
    """The settings of supervised training on demonstrations or on data."""

    env: str = ""
    """Environment that demonstrates, with arguments:
    ludus/arithmetic-v0?demo_fault=skip-calculator.
    """
    data: str = ""
    """Conversations instead of an environment: a .jsonl, .json or .parquet file, owner/name of a
    hub, or the folder of a run, whose recorded episodes are learned with the ids that were sampled.
    """
    min_reward: float | None = None
    """Least reward of a recorded episode that is learned; without it every one that has a reward.
    """
    epochs: float = 0.0
    """Passes over the data; 0 counts steps instead."""
    steps: int = 100
    stop_loss: float = 0.0
    """Mean loss of the last twenty updates, in nats per token, below which the run ends early; 0
    never ends early. No update sees a demonstration twice, so this is a held-out loss. With data it
    is the loss on what is held out.
    """
    tokens: int = 0
    """Trained tokens after which the run ends, with the update that reaches them; 0 has no bound.
    """
    batch_size: int = 64
    """Number of demonstrations, or conversations, in an update."""
    split: str = "train"
    window: int = 0
    """Context window in tokens in which the expert plays; 0 is unlimited. Of data, rows that are
    longer are left out; 0 takes what the model reads.
    """
    context: ContextSettings = field(default_factory=ContextSettings)
    """Context manager, as in training; the expert writes the summaries that the manager asks for.
    """
    trainer: TrainerConfig = field(default_factory=lambda: TrainerConfig(lr=1e-3, warmup_steps=10))

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("steps", self.steps)
        for name in ("stop_loss", "window", "tokens"):
            not_negative(name, getattr(self, name))
        if self.min_reward is not None and not math.isfinite(self.min_reward):
            raise ConfigError(f"min_reward must be finite, got {self.min_reward}")
        if self.env and self.data:
            raise ConfigError(
                f"env is {self.env!r} and data is {self.data!r}: a run learns from one of them"
            )
        if not self.data and (self.epochs or self.min_reward is not None):
            name = "epochs" if self.epochs else "min_reward"
            raise ConfigError(f"{name} is a setting of --data, which is not given")
        if self.context.manager != "none" and not self.window:
            raise ConfigError(
                f"context.manager is {self.context.manager!r}, but the expert's window has no end; "
                "set window to that of training (rollout.window)"
            )
        if self.context.manager != "none" and self.data:
            raise ConfigError(
                f"context.manager is {self.context.manager!r}, but data are learned as they are"
            )

    def require_complete(self) -> None:
        """Raise ConfigError unless an environment or data, and a model, are named."""
        if not self.env and not self.data:
            raise ConfigError("nothing to learn from; add --env ludus/arithmetic-v0 or --data FILE")
        _require(self.env or self.data, self.model)


def _require(env: str, model: ModelConfig) -> None:
    if not env:
        raise ConfigError("no environment named; add --env ludus/arithmetic-v0 (ludus list)")
    model.require_path()
