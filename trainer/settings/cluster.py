"""The settings of a run on a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass

from ludus.errors import ConfigError

from .run import not_negative, positive

LOCAL, AUTO = "local", "auto"


@dataclass(frozen=True)
class ClusterConfig:
    """Settings of a run whose processes Ray places, and starts again when they die (needs the extra
    ray). Without an address they change nothing.
    """

    address: str = ""
    """Where Ray runs: HOST:PORT of its head; auto for the cluster of this machine; local starts one
    on this machine. `--cluster auto` is short for this setting.
    """
    learner_ranks: int = 1
    """Number of processes that share the learner's weights, each with its own resources."""
    environments: int = 0
    """Number of servers of the environment, spread over the cluster; 0 plays beside rank 0."""
    rewards: int = 0
    """Number of servers of the verifiers that `reward` names; 0 scores beside rank 0."""
    engines: int = 0
    """Number of engines that Ray places, local ones or vLLM servers as `engine` says, each with its
    own resources; 0 samples as without a cluster: in rank 0, in its processes, or by vLLM.
    """
    cpus_of_rank: float = 1.0
    """CPUs that a rank is given. Rank 0 plays and samples too."""
    gpus_of_rank: float = 0.0
    """GPUs that a rank is given. With less than 1, others share its GPU."""
    cpus_of_server: float = 1.0
    """CPUs that a server of environments or verifiers is given."""
    cpus_of_engine: float = 1.0
    """CPUs that an engine is given, and threads that it computes with."""
    gpus_of_engine: float = 0.0
    """GPUs that an engine is given; at 0 it computes on CPUs. With less than 1, others share its
    GPU.
    """
    restarts: int = 3
    """How often the learner is started again, from its newest checkpoint, after a rank or its node
    was lost. Servers are started again by Ray, however often they die.
    """
    wait_s: float = 0.0
    """Seconds to wait for nodes that are yet to join; 0 refuses at once what the cluster lacks."""
    start_timeout_s: float = 300.0
    """Seconds in which servers and ranks must have started."""

    def __post_init__(self) -> None:
        if self.address.startswith("ray://"):
            raise ConfigError(
                f"cluster is {self.address!r}: over Ray's client every object goes through one "
                "proxy, and the run would end with this connection; submit the run to the cluster "
                "instead: ray job submit -- ludus train FILE.toml --cluster auto"
            )
        host, _, port = self.address.rpartition(":")
        is_port = port.isascii() and port.isdigit() and 0 < int(port[:9]) < 1 << 16
        if self.address and self.address not in (LOCAL, AUTO) and not (host and is_port):
            raise ConfigError(
                f"cluster is {self.address!r}: give auto, local, or the HOST:PORT of Ray's head"
            )
        if self.learner_ranks < 1:
            raise ConfigError(
                f"cluster.learner_ranks is {self.learner_ranks}: a run needs a learner of at least "
                "one rank"
            )
        counts = ("environments", "rewards", "engines", "restarts")
        for name in (*counts, "gpus_of_rank", "gpus_of_engine", "wait_s"):
            not_negative(f"cluster.{name}", getattr(self, name))
        for name in ("cpus_of_rank", "cpus_of_server", "cpus_of_engine", "start_timeout_s"):
            positive(f"cluster.{name}", getattr(self, name))
