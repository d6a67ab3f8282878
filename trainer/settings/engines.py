"""The settings of what samples: engines in this process, in processes of their own, and vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ludus.errors import ConfigError
from ludus.secret import NO_SECRET, Secret, refuse_credentials

from .run import keep_secret, not_negative, positive, refuse_unproven

EngineName = Literal["local", "vllm"]


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
        not_negative("local.engines", self.engines)
        not_negative("local.threads", self.threads)
        if self.threads and not self.engines:
            raise ConfigError(
                f"local.threads is {self.threads}, but there is no engine process to have them: "
                "set local.engines"
            )
        if self.kept_tokens is not None:
            not_negative("local.kept_tokens", self.kept_tokens)
        if self.prefill_tokens is not None:
            positive("local.prefill_tokens", self.prefill_tokens)


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
    gpus: str = ""
    """Devices of the server that is started, such as "6,7", by their names in CUDA_VISIBLE_DEVICES.
    Empty takes those that no rank of the learner has; a learner in one process shares all of its.
    """
    environment: str = ""
    """Names of variables that the server inherits besides those of its libraries, separated by
    commas.
    """
    gpu_memory_utilization: float = 0.5
    """Share of the GPU's memory that the server takes; the learner needs the rest."""
    max_model_len: int = 8192
    """Largest number of tokens of prompt and answer; the model's own maximum bounds the value too.
    """
    startup_timeout_s: float = 600.0
    """Seconds to wait until a server is ready, also after a server was lost."""
    request_timeout_s: float = 600.0
    """Seconds to wait for an answer, and for weights to be loaded."""
    weights_folder: str = ""
    """Folder where new weights are handed over, visible to this process and the server; empty is
    /dev/shm, or the folder for temporary files.
    """
    transfer: Literal["file", "nccl", "ipc"] = "file"
    """How new weights reach the server: by a file, or by vLLM's own transfer over NCCL (between
    GPUs) or CUDA IPC (on one GPU), which have not been run yet. The last two need vLLM in this
    process's environment, and a server of somebody else's has to be started for them
    (--weight-transfer-config).
    """
    keep_cache: bool = False
    """Whether running requests keep the keys and values of older weights when new weights arrive.
    """
    sleep: bool = False
    """Whether the server frees its memory while the learner works (vLLM's sleep mode). Refused
    until it has been run on GPUs.
    """
    replay_experts: bool = False
    """Whether the learner sends the tokens of a model of experts where the server has sent them
    (routing replay). Refused until it has been run on GPUs.
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
        keep_secret(self, "api_key")
        for url in self.urls:
            refuse_credentials("vllm.url", url)
        if len(set(self.urls)) < len(self.urls) or "" in self.urls:
            raise ConfigError(f"vllm.url names a server twice, or none: {self.url!r}")
        positive("vllm.probe_every", self.probe_every)
        asleep = self.sleep or "--enable-sleep-mode" in self.arguments
        refuse_unproven(
            "vllm.sleep",
            asleep,
            "give learner and server devices of their own (vllm.gpus), or each a share "
            "(vllm.gpu_memory_utilization)",
        )
        refuse_unproven(
            "vllm.replay_experts",
            self.replay_experts or "--enable-return-routed-experts" in self.arguments,
            "leave it out: the importance weights of the recipe correct what differs, and the "
            "probe (vllm.probe_every) tells how much it is",
        )
        positive("vllm.request_timeout_s", self.request_timeout_s)
        positive("vllm.startup_timeout_s", self.startup_timeout_s)
        positive("vllm.max_model_len", self.max_model_len)
        not_negative("vllm.probe_tolerance", self.probe_tolerance)
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigError(
                "vllm.gpu_memory_utilization is a share above 0 and at most 1, got "
                f"{self.gpu_memory_utilization}"
            )
        idle = [
            name for name in ("python", "arguments", "gpus", "environment") if getattr(self, name)
        ]
        if self.urls and idle:
            raise ConfigError(
                f"vllm.url is {self.url!r}, a server that runs already: vllm.{idle[0]} would "
                "change nothing"
            )
