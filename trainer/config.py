"""The settings of `ludus train` and `ludus sft`, as frozen dataclasses.

Each field is an option of the command line and a key of the TOML file. A string below a field is
its help text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from ludus.agent.context import ContextSettings
from ludus.errors import ConfigError
from ludus.secret import NO_SECRET, Secret, refuse_credentials

from .learning.schedule import Decay

EngineName = Literal["local", "vllm"]


@dataclass(frozen=True)
class ModelConfig:
    """The model that is trained."""

    path: str = ""
    """A transformers causal-LM folder with a chat template, a .gguf file, a released model such as
    smollm2 (ludus model get), or a hub id; for ludus sft also "tiny", a small model from random
    weights.
    """
    device: str = "auto"
    """Device of the learner; auto takes CUDA where there is a CUDA device."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type in which the learner computes and the engine samples. In float16 the loss is scaled, so
    that small gradients are not rounded to 0.
    """
    weights: Literal["float32", "bfloat16"] = "float32"
    """Type in which the learner holds its weights. With bfloat16, which needs that dtype too, the
    optimizer moves float32 copies, and weights that an adapter leaves frozen take half the memory.
    """
    tool_format: str = "auto"
    """Format in which the model writes tool calls; auto takes the one that reads calls as the chat
    template writes them, and hermes where the template shows none.
    """
    template: str = "auto"
    """The chat template: stock is the model's own, repaired where it loses something; training is
    the project's template for that model, which keeps thoughts of earlier turns; training:NAME
    names one; a path names a .jinja file. auto takes stock if it loses nothing and rewrites no
    turn, else training where there is one.
    """
    max_image_pixels: int = 0
    """Largest number of pixels of an image as the model sees it; larger images are made smaller, at
    about one token for 1,024 pixels (Qwen3-VL). 0 leaves the bound of the model's processor.
    """

    def __post_init__(self) -> None:
        if self.weights != "float32" and self.weights != self.dtype:
            raise ConfigError(
                f"model.weights is {self.weights!r}, but model.dtype is {self.dtype!r}: weights "
                "in half precision are computed with as they are; set both"
            )


@dataclass(frozen=True)
class RolloutConfig:
    """Settings of the rollouts: how many, how long, and how to sample."""

    tasks_per_step: int = 16
    """Tasks in a step; each task is a group of rollouts."""
    group_size: int = 0
    """Rollouts of each task; 0 takes the recipe's value."""
    max_tokens: int = 256
    """Largest number of sampled tokens in a turn."""
    temperature: float = 0.0
    """Sampling temperature; 0 takes the recipe's value, since greedy rollouts of a group would all
    be the same.
    """
    window: int = 0
    """Context window in tokens; 0 takes the engine's own."""
    max_turns: int = 0
    """Largest number of turns in an episode, summaries counted; 0 takes the environment's own
    limit, or 256.
    """
    episode_timeout_s: float = 600.0
    concurrency: int = 256
    """Number of episodes that are played at the same time."""
    retries: int = 3
    """Number of times that an episode is played again after a failure that was not the policy's."""

    def __post_init__(self) -> None:
        for name in (
            "tasks_per_step",
            "max_tokens",
            "episode_timeout_s",
            "concurrency",
        ):
            _positive(f"rollout.{name}", getattr(self, name))
        for name in ("group_size", "temperature", "window", "max_turns", "retries"):
            _not_negative(f"rollout.{name}", getattr(self, name))


@dataclass(frozen=True)
class LoraConfig:
    """Settings of LoRA, which trains two small matrices beside each frozen weight (needs the extra
    lora).
    """

    rank: int = 0
    """Rank of the matrices; 0 trains all weights."""
    alpha: float = 0.0
    """What a pair of matrices adds is multiplied by alpha / rank; 0 takes twice the rank."""
    targets: str = "all"
    """Names of the linear layers that get matrices, such as q_proj,v_proj; all takes every linear
    layer of the decoder.
    """
    adapter: str = ""
    """Folder of a saved adapter to start from; empty starts a new one, which changes nothing yet.
    """
    publish: Literal["merged", "adapter"] = "merged"
    """What the engine is given after an update: whole merged weights, which any engine takes, or
    the matrices alone, which takes the local engine and costs it the two small products.
    """
    save: Literal["merged", "adapter"] = "merged"
    """What a checkpoint holds beside the adapter: the merged model, which any program loads, or
    nothing more than the name of the base model.
    """

    def __post_init__(self) -> None:
        _not_negative("trainer.lora.rank", self.rank)
        _not_negative("trainer.lora.alpha", self.alpha)
        if not self.targets.strip():
            raise ConfigError("trainer.lora.targets names no layer; leave it out to take all")
        changed = [name for name in ("alpha", "adapter") if getattr(self, name)]
        if changed and not self.rank:
            raise ConfigError(
                f"trainer.lora.{changed[0]} is set, but trainer.lora.rank is 0, which trains all "
                "weights; set the rank"
            )


@dataclass(frozen=True)
class AsyncConfig:
    """Settings of rollouts that are played while the learner works."""

    max_staleness: int = 0
    """How many steps generation may run ahead of the learner (AReaL's eta); 0 plays the rollouts of
    a step with the weights that the step starts from, while the learner rests.
    """
    deadline: int = 0
    """Number of steps within which a rollout is trained after its issue, at least max_staleness;
    0 bounds the average only.
    """
    deadline_s: float = 0.0
    """Seconds from the issue of a group to the end of its late rollouts; 0 is no bound besides
    rollout.episode_timeout_s.
    """
    late: Literal["wait", "mask", "drop"] = "wait"
    """What becomes of rollouts that are not finished at the deadline: the learner waits for them,
    they are masked and their group goes on without them, or the whole group is dropped. The last
    two favour short answers; bias/length in the metrics says by how much.
    """
    min_group: int = 2
    """The smallest number of finished rollouts with which a group goes on without its late ones."""
    correction: Literal["auto", "none"] = "auto"
    """Whether a recipe without a correction for stale tokens gets truncated importance weights."""
    outage_s: float = 60.0
    """Seconds to wait for servers of the environment that cannot be reached, before the run saves a
    checkpoint and ends.
    """
    publish_timeout_s: float = 900.0
    """Seconds that the engine may take to install new weights."""
    stall_s: float = 120.0
    """Seconds without any progress after which a notice says what is waited for."""
    stall_limit_s: float = 0.0
    """Seconds without any progress after which the run saves a checkpoint and ends; 0 is never."""

    def __post_init__(self) -> None:
        for name in ("max_staleness", "deadline", "deadline_s", "outage_s", "stall_limit_s"):
            _not_negative(f"overlap.{name}", getattr(self, name))
        for name in ("min_group", "publish_timeout_s", "stall_s"):
            _positive(f"overlap.{name}", getattr(self, name))
        if self.deadline and self.deadline < self.max_staleness:
            raise ConfigError(
                f"overlap.deadline is {self.deadline} steps, but overlap.max_staleness = "
                f"{self.max_staleness} issues rollouts that are trained later than that in any "
                "case; lower max_staleness, or raise deadline"
            )
        if self.late == "wait" and self.deadline_s:
            raise ConfigError(
                f"overlap.deadline_s is {self.deadline_s:g}, and overlap.late = 'wait' waits "
                "beyond it: the setting would change nothing; set late to mask or drop, or bound "
                "episodes by rollout.episode_timeout_s"
            )
        if self.late != "wait" and not (self.deadline or self.deadline_s):
            raise ConfigError(
                f"overlap.late is {self.late!r}, but no rollout is ever late: set "
                "overlap.deadline (steps) or overlap.deadline_s"
            )


@dataclass(frozen=True)
class TrainerConfig:
    """Settings of the optimizer and of updates."""

    lr: float = 1e-6
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.99
    warmup_steps: int = 0
    """Number of updates over which the learning rate rises linearly."""
    lr_decay: Decay = "constant"
    """Course of the learning rate after the warm-up: linear and cosine end near 0."""
    max_grad_norm: float = 1.0
    updates_per_step: int = 0
    """Optimizer updates on each batch of rollouts, which share its groups; 0 takes the recipe's
    value (ludus recipes), with no more mini-batches than rollout.tasks_per_step.
    """
    max_refused: int = 3
    """Number of refused updates in a row that ends the run. An update is refused if its loss or
    gradient is not finite.
    """
    tokens_per_pass: int | None = None
    """Largest number of tokens in one forward pass, counted as they are computed: without padding,
    and a shared beginning once. A smaller value needs less memory; the gradient is the same up to
    rounding. None follows the model's size and the free memory, up to 16,384.
    """
    packing: Literal["shared", "rows", "none"] = "shared"
    """How the rows of a pass are computed: one after the other without padding, where rows that
    begin alike (the rollouts of a prompt) compute that beginning once; without padding alone; or
    padded to the longest. The gradient is the same up to rounding. Rows with images, and models
    whose attention cannot be packed, are padded.
    """
    checkpoint_layers: bool = False
    """Whether a decoder layer keeps only its input for the backward pass and computes the rest once
    more there: much less memory for about a third more time, and the same gradient.
    """
    kernels: Literal["torch", "liger"] = "torch"
    """Kernels of norms, rotary positions and feed-forward products: torch's own, or the fused ones
    of liger-kernel (extra liger, CUDA alone; unmeasured).
    """
    compile: bool = False
    """Whether decoder layers are compiled by torch.compile, at the first passes; unmeasured."""
    critic: Literal["shared", "separate"] = "shared"
    """For recipes with values: whether the value head reads the policy's hidden states, or those of
    a copy of the policy that is trained for values alone.
    """
    critic_lr: float = 0.0
    """Learning rate of critic and value head; 0 takes trainer.lr."""
    value_updates: int = 0
    """Number of updates at the start of a run that train values alone, before the policy moves."""
    ema_decay: float = 0.0
    """Decay of a moving average of the policy's weights, such as 0.99; 0 keeps none."""
    ema_use: Literal["export", "evaluate"] = "export"
    """What the average is for: a folder `average` beside each checkpoint's model, or that and the
    weights that evaluations play with.
    """
    lora: LoraConfig = field(default_factory=LoraConfig)

    def __post_init__(self) -> None:
        for name in ("lr", "max_grad_norm", "max_refused"):
            _positive(f"trainer.{name}", getattr(self, name))
        if self.tokens_per_pass is not None:
            _positive("trainer.tokens_per_pass", self.tokens_per_pass)
        for name in (
            "weight_decay",
            "warmup_steps",
            "updates_per_step",
            "critic_lr",
            "value_updates",
        ):
            _not_negative(f"trainer.{name}", getattr(self, name))
        if not 0 <= self.ema_decay < 1:
            raise ConfigError(f"trainer.ema_decay must be in [0, 1), got {self.ema_decay}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"trainer.{name} must be in [0, 1), got {getattr(self, name)}")


@dataclass(frozen=True)
class EvalConfig:
    """Settings of the evaluation on held-out tasks."""

    every: int = 0
    """Steps between evaluations; 0 evaluates only before and after the run."""
    tasks: int = 128
    split: str = "test"
    temperature: float = 0.0
    """Sampling temperature of evaluation; 0 is greedy."""
    samples: int = 1
    """Episodes of each task; more than one also measures pass@k."""
    passing: float = 1.0
    """The reward from which an episode passes, for pass@k."""
    beside: Literal["auto", "no", "own", "shared"] = "auto"
    """Whether training goes on meanwhile: no stops for the evaluation, own evaluates one version
    with an engine and weights of its own, shared evaluates with the engine of training, whose
    weights may change meanwhile. auto is shared where rollouts run ahead of the learner
    (overlap.max_staleness), and no elsewhere.
    """
    keep_best: bool = True
    """Whether the checkpoint with the best mean reward is kept, as checkpoints/best."""
    stop_at: float | None = None
    """Mean reward from which the run ends early; None never ends early."""
    patience: int = 0
    """Evaluations in a row without a new best mean reward after which the run ends early; 0 never
    ends early.
    """

    def __post_init__(self) -> None:
        _positive("eval.tasks", self.tasks)
        _positive("eval.samples", self.samples)
        for name in ("every", "temperature", "patience"):
            _not_negative(f"eval.{name}", getattr(self, name))
        for name in ("passing", "stop_at"):
            if getattr(self, name) is not None and not math.isfinite(getattr(self, name)):
                raise ConfigError(f"eval.{name} must be finite, got {getattr(self, name)}")
        if self.samples > 1 and not self.temperature:
            raise ConfigError(
                f"eval.samples is {self.samples}, but eval.temperature is 0: greedy episodes of a "
                "task are all the same; raise eval.temperature, or take one sample"
            )
        early = self.patience or self.stop_at is not None
        if early and not self.every:
            raise ConfigError(
                "eval.stop_at and eval.patience end a run at an evaluation, but eval.every is 0: "
                "none is made before the end; set eval.every"
            )


@dataclass(frozen=True)
class RewardConfig:
    """A verifier whose verdict is part of the reward."""

    name: str
    """Name of a local verifier, or `url#name` of a served verifier."""
    weight: float = 1.0
    timeout_s: float = 60.0
    token: Secret = NO_SECRET
    """Bearer token of the verifier's server, best given as env:NAME; empty takes the environment
    variable LUDUS_TOKEN.
    """

    def __post_init__(self) -> None:
        _keep_secret(self, "token")
        refuse_credentials("reward.name", self.name)
        _positive("reward.timeout_s", self.timeout_s)
        if not math.isfinite(self.weight) or not self.weight:
            raise ConfigError(f"reward.weight must be finite and not 0, got {self.weight}")
        if self.token and "#" not in self.name:
            raise ConfigError(
                f"reward {self.name!r} is a verifier of this process: reward.token would change "
                "nothing"
            )


@dataclass(frozen=True)
class RunConfig:
    """Settings of the run folder."""

    folder: str = ""
    """Path of the run folder; empty is runs/<environment>-<recipe>, or runs/sft for ludus sft."""
    resume: bool = False
    """Continue from the newest checkpoint of the folder."""
    resume_changed: bool = False
    """Continue also where settings that change what is learned differ from those of the run."""
    save_every: int = 50
    """Steps between checkpoints; the last step is always saved."""
    keep: int = 2
    """Number of newest checkpoints that are kept."""
    max_failed_saves: int = 3
    """Number of checkpoints in a row that cannot be written, by a full disk for instance, which
    ends the run.
    """
    episodes_every: int = 10
    """Steps between files of whole episodes."""
    tensorboard: bool = True

    def __post_init__(self) -> None:
        _positive("run.keep", self.keep)
        _positive("run.max_failed_saves", self.max_failed_saves)
        _not_negative("run.save_every", self.save_every)
        _not_negative("run.episodes_every", self.episodes_every)


@dataclass(frozen=True)
class LocalConfig:
    """Settings of the local engine, in this process or in processes of its own."""

    engines: int = 0
    """Number of engine processes, which sample while the learner works and are started again when
    they die; 0 samples in this process.
    """
    threads: int = 0
    """Threads of each engine process; 0 shares the machine's cores evenly among the engine
    processes and the learner, which computes on what they leave.
    """
    keep_cache: bool = False
    """Whether running answers keep the keys and values of older weights when new weights arrive:
    faster, but later tokens are sampled from a mixture of policies.
    """

    kept_tokens: int | None = None
    """Number of tokens whose keys and values are kept between the turns of an episode. None follows
    the model's size and the free memory, up to 200,000.
    """
    prefill_tokens: int | None = None
    """Largest number of padded prompt tokens in one forward pass; a smaller value needs less
    memory. None follows the model's size and the free memory, up to 16,384.
    """

    def __post_init__(self) -> None:
        _not_negative("local.engines", self.engines)
        _not_negative("local.threads", self.threads)
        if self.threads and not self.engines:
            raise ConfigError(
                f"local.threads is {self.threads}, but there is no engine process to have them: "
                "set local.engines"
            )
        if self.kept_tokens is not None:
            _not_negative("local.kept_tokens", self.kept_tokens)
        if self.prefill_tokens is not None:
            _positive("local.prefill_tokens", self.prefill_tokens)


@dataclass(frozen=True)
class VLLMConfig:
    """Settings of the vLLM engine."""

    url: str = ""
    """Address of a running server, or several addresses separated by commas; empty starts a server
    on this machine.
    """
    api_key: Secret = NO_SECRET
    """API key of the running server, best given as env:NAME."""
    python: str = ""
    """Interpreter with vLLM and ludus that starts the server; empty is this interpreter."""
    arguments: str = ""
    """More arguments for the server, such as "--tensor-parallel-size 2"."""
    gpu_memory_utilization: float = 0.5
    """Share of the GPU's memory that the server takes; the learner needs the rest."""
    max_model_len: int = 8192
    """Largest number of tokens of prompt and answer; the model's own maximum bounds the value too.
    """
    startup_timeout_s: float = 600.0
    request_timeout_s: float = 600.0
    """Seconds to wait for an answer, and for weights to be loaded."""
    weights_folder: str = ""
    """Folder where new weights are handed over, visible to this process and the server; empty is
    /dev/shm, or the folder for temporary files.
    """
    keep_cache: bool = False
    """Whether running requests keep the keys and values of older weights when new weights arrive.
    """
    probe_every: int = 10
    """Number of publishes between comparisons of the server's log-probabilities with the learner's.
    """
    probe_tolerance: float = 0.0
    """Largest mean difference in nats that passes the probe; 0 chooses by the type in which the
    server computes.
    """

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of running servers."""
        return tuple(url.strip() for url in self.url.split(",")) if self.url.strip() else ()

    def __post_init__(self) -> None:
        _keep_secret(self, "api_key")
        for url in self.urls:
            refuse_credentials("vllm.url", url)
        if len(set(self.urls)) < len(self.urls) or "" in self.urls:
            raise ConfigError(f"vllm.url names a server twice, or none: {self.url!r}")
        _positive("vllm.probe_every", self.probe_every)
        _positive("vllm.request_timeout_s", self.request_timeout_s)
        if self.url and (self.python or self.arguments):
            raise ConfigError(
                f"vllm.url is {self.url!r}, a server that runs already: vllm.python and "
                "vllm.arguments would change nothing"
            )


@dataclass(frozen=True)
class RanksConfig:
    """Settings of a learner whose weights several processes share (torchrun)."""

    timeout_s: float = 120.0
    """Seconds after which a collective call that a rank has not joined fails. A rank that dies is
    known within a second, whatever this is.
    """
    offload: bool = False
    """Whether weights, gradients and moments stay in the memory of the CPU between their uses on a
    GPU.
    """

    def __post_init__(self) -> None:
        _positive("ranks.timeout_s", self.timeout_s)


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
    recipe: str = "grpo"
    """Name of an algorithm (ludus recipes), or path of a TOML file."""
    engine: EngineName = "local"
    """Engine that samples the rollouts."""
    steps: int = 100
    split: str = "train"
    seed: int = 0
    model: ModelConfig = field(default_factory=ModelConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    context: ContextSettings = field(default_factory=ContextSettings)
    overlap: AsyncConfig = field(default_factory=AsyncConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    reward: list[RewardConfig] = field(default_factory=list)
    run: RunConfig = field(default_factory=RunConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    vllm: VLLMConfig = field(default_factory=VLLMConfig)
    ranks: RanksConfig = field(default_factory=RanksConfig)

    def __post_init__(self) -> None:
        _keep_secret(self, "env_token")
        refuse_credentials("env", self.env)
        refuse_credentials("env_url", self.env_url)
        if self.local.engines and self.trainer.lora.rank and self.trainer.lora.publish == "adapter":
            raise ConfigError(
                "trainer.lora.publish is 'adapter', which needs the base weights in the engine, "
                "and engine processes (local.engines) get all from the learner: take 'merged'"
            )
        _positive("steps", self.steps)
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
        _require(self.env, self.model)


@dataclass(frozen=True)
class SFTConfig:
    """The settings of a supervised warm start on scripted demonstrations."""

    env: str = ""
    """Environment that demonstrates, with arguments:
    ludus/arithmetic-v0?demo_fault=skip-calculator.
    """
    steps: int = 100
    stop_loss: float = 0.0
    """Mean loss of the last twenty updates, in nats a token, below which the run ends early; 0
    never ends early. No update sees a demonstration twice, so this is a held-out loss.
    """
    batch_size: int = 64
    """Number of demonstrations in an update."""
    seed: int = 0
    split: str = "train"
    window: int = 0
    """Context window in tokens in which the expert plays; 0 is unlimited."""
    model: ModelConfig = field(default_factory=ModelConfig)
    context: ContextSettings = field(default_factory=ContextSettings)
    """Context manager, as in training; the expert writes the summaries that the manager asks for.
    """
    trainer: TrainerConfig = field(default_factory=lambda: TrainerConfig(lr=1e-3, warmup_steps=10))
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        _positive("steps", self.steps)
        _positive("batch_size", self.batch_size)
        _not_negative("stop_loss", self.stop_loss)
        if self.trainer.updates_per_step not in (0, 1):
            raise ConfigError(
                f"trainer.updates_per_step is {self.trainer.updates_per_step}, but a warm start "
                "makes one update a step, on new demonstrations each; raise steps instead"
            )
        if self.context.manager != "none" and not self.window:
            raise ConfigError(
                f"context.manager is {self.context.manager!r}, but the expert's window has no end; "
                "set window to that of training (rollout.window)"
            )

    def require_complete(self) -> None:
        """Raise ConfigError unless an environment and a model are named."""
        _require(self.env, self.model)


def _require(env: str, model: ModelConfig) -> None:
    if not env:
        raise ConfigError("no environment named; add --env ludus/arithmetic-v0 (ludus list)")
    if not model.path:
        raise ConfigError(
            "no model named; add --model.path FOLDER (a transformers causal LM), or smollm2"
        )


def _positive(name: str, value: float) -> None:
    if not value > 0:  # NaN too
        raise ConfigError(f"{name} must be positive, got {value}")
    if math.isinf(value):
        raise ConfigError(f"{name} must be finite, got {value}")


def _not_negative(name: str, value: float) -> None:
    if not value >= 0:
        raise ConfigError(f"{name} must not be negative, got {value}")


def _keep_secret(config: object, name: str) -> None:
    """Replace a secret that was given as text by a `Secret`, which is never printed."""
    object.__setattr__(config, name, Secret.of(getattr(config, name)))
