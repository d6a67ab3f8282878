# pyright: reportUnknownMemberType=false
"""The ranks of a learner: processes that hold a part of the weights each and run the same program.

A rank is started by torchrun, which names the process's place in environment variables. Everything
below is collective: each rank must make the same calls in the same order.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ludus.errors import ConfigError, LudusError, RankLost

from .control import Address, Control, Follower, Lead, Order, RankMember

SHARDS = "shards"
"""The key of a learner's state that says that ranks have written the weights beside it."""
DEFAULT_TIMEOUT_S = 120.0
TAKEN = "EADDRINUSE"
"""What torch says where it cannot listen at the port of the ranks."""
WAIT_S = 3.0
"""Seconds in which the death of a rank is known after a collective call has failed for it."""


@dataclass(frozen=True, slots=True)
class RankPlace:
    """The place of this process among the ranks, in the words of torchrun."""

    rank: int
    world: int
    local_rank: int
    local_world: int = 1
    """The number of ranks on this host."""


def place_of(environment: Mapping[str, str] = os.environ) -> RankPlace | None:
    """Return the place that torchrun has given to this process; None without torchrun.

    Raises:
        ConfigError: the variables of torchrun are incomplete, or are no numbers.
    """
    given = [name for name in ("RANK", "WORLD_SIZE") if name in environment]
    if not given:
        return None
    if len(given) == 1:  # alone, each process would train a run of its own
        raise ConfigError(
            f"{given[0]} is set, and of RANK and WORLD_SIZE the other is not; start the ranks by "
            "torchrun, or take it out of the environment"
        )
    place = RankPlace(
        _number("RANK", environment),
        _number("WORLD_SIZE", environment),
        _number("LOCAL_RANK" if "LOCAL_RANK" in environment else "RANK", environment),
        _number(
            "LOCAL_WORLD_SIZE" if "LOCAL_WORLD_SIZE" in environment else "WORLD_SIZE", environment
        ),
    )
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in environment]
    if missing:
        raise ConfigError(f"{', '.join(missing)} is not set; start the ranks by torchrun")
    if not 0 <= place.rank < place.world:
        raise ConfigError(f"RANK={place.rank} is not among WORLD_SIZE={place.world} ranks")
    return place


def _number(name: str, environment: Mapping[str, str]) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise ConfigError(
            f"{name}={environment[name]!r} must be a number; start the ranks by torchrun"
        ) from None


class Ranks:
    """The process group of this process.

    Args:
        place: the rank of this process, and the number of ranks.
        device: the type of device that holds the weights, cpu or cuda.
        timeout_s: seconds after which a collective call that a rank has not joined fails.

    Raises:
        ConfigError: the port of the ranks is taken.
        RankLost: a rank did not start in time.
    """

    def __init__(
        self, place: RankPlace, *, device: str = "cpu", timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self.rank, self.world = place.rank, place.world
        self.device = torch.device(device, place.local_rank) if device == "cuda" else device
        if device == "cuda":
            torch.cuda.set_device(self.device)
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
                rank=place.rank,
                world_size=place.world,
                timeout=timedelta(seconds=timeout_s),
            )
        except dist.DistError as error:
            if TAKEN in str(error):
                raise ConfigError(
                    f"port {os.environ.get('MASTER_PORT')} of {os.environ.get('MASTER_ADDR')} is "
                    "taken, by another run or program; name another one (torchrun --master_port, "
                    "or --standalone, which finds one)"
                ) from error
            raise RankLost(
                f"rank {place.rank} waited {timeout_s:g} s for all {place.world} ranks to start: "
                f"{error}; start all of them (torchrun --nproc_per_node {place.world}), each with "
                "the same settings"
            ) from error
        self.mesh: DeviceMesh = init_device_mesh(device, (place.world,))
        me = RankMember(place.rank, socket.gethostname(), os.getpid())
        self.members: list[RankMember] = [
            msgspec.convert(member, RankMember) for member in self.gather(msgspec.to_builtins(me))
        ]
        self.control: Control | None = None
        """The connections between rank 0 and the others; None where every rank makes all calls by
        itself.
        """
        self._ordered = threading.RLock()
        """Held during an order: all ranks must make the same collective calls in the same order, so
        that threads of rank 0 give orders one after the other.
        """
        self._depth = 0
        """How many blocks of `together` the thread that holds the lock is in."""

    @property
    def me(self) -> RankMember:
        """The member that this process is."""
        return self.members[self.rank]

    def connect(self) -> None:
        """Connect all ranks to rank 0, which drives, and let every rank know of a lost rank.

        Raises:
            RankLost: a rank does not connect.
        """
        lead = Lead(self.members, os.environ["MASTER_ADDR"]) if self.rank == 0 else None
        encoded = self.broadcast(None if lead is None else msgspec.msgpack.encode(lead.address))
        if lead is None:
            address = msgspec.msgpack.decode(encoded, type=Address)
            self.control = Follower(self.members, self.me, address)
        else:
            lead.accept()
            self.control = lead

    @contextmanager
    def together(self, name: str, payload: bytes = b"", **arguments: Any) -> Generator[None]:
        """Order the other ranks, on rank 0, to do what the block does; blocks inside are part of
        the same order. On other ranks, and without connections, nothing is ordered.

        Args:
            name: the order; see `follower.py`.
            payload: data that all ranks need for it.
            arguments: small plain values.

        Raises:
            RankLost: a rank died or failed before or during the block.
        """
        lead = self.control
        if not isinstance(lead, Lead):
            yield
            return
        with self._ordered:
            self._depth += 1
            try:
                # A block inside another one is a call that the other ranks make by themselves when
                # they obey the outer order.
                if self._depth == 1:
                    lead.send(Order(name, arguments))
                    self.broadcast(payload)
                yield
            except LudusError:
                raise  # the other ranks computed the same, and came to the same end
            except Exception as error:
                lead.refuse_lost(WAIT_S)
                lead.lose(f"{self.me} failed: {type(error).__name__}: {error}")
                raise
            finally:
                self._depth -= 1
            lead.refuse_lost()

    def lost_by(self, error: BaseException) -> RankLost | None:
        """Return the loss of a rank that has made a call here fail, if that is the cause."""
        if (
            self.control is None
            or isinstance(error, LudusError)
            or not isinstance(error, Exception)
        ):
            return None
        return self.control.loss(WAIT_S)

    def fail(self, error: BaseException) -> None:
        """Tell the other ranks that this rank ends by an error, and leave the group."""
        if self.control is not None:
            message = f"{type(error).__name__}: {error}"
            self.control.end(message if str(error) else type(error).__name__)
        dist.destroy_process_group()

    def close(self) -> None:
        """Leave the group; on rank 0, tell the others that the run is over."""
        if self.control is not None:
            self.control.close()
        dist.destroy_process_group()

    def sums(self, *numbers: float) -> tuple[float, ...]:
        """Sum each number over all ranks, in float64."""
        return tuple(self.summed(torch.tensor(numbers, dtype=torch.float64)).tolist())

    def summed(self, tensor: Tensor) -> Tensor:
        """Sum a CPU tensor over all ranks, in place."""
        dist.all_reduce(tensor)
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks in the order of ranks; values are plain data."""
        # `all_gather` takes tensors of one size, so the encoded values are padded to the longest.
        mine = torch.frombuffer(bytearray(msgspec.msgpack.encode(value)), dtype=torch.uint8)
        sizes = torch.zeros(self.world, dtype=torch.long)
        sizes[self.rank] = len(mine)
        counts: list[int] = self.summed(sizes).tolist()
        padded = torch.zeros(max(counts), dtype=torch.uint8)
        padded[: len(mine)] = mine
        parts = [torch.zeros_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return [
            msgspec.msgpack.decode(bytes(part[:count].numpy()))
            for part, count in zip(parts, counts, strict=True)
        ]

    def broadcast(self, data: bytes | None) -> bytes:
        """Return on every rank the bytes that rank 0 gives."""
        size = torch.tensor([0 if data is None else len(data)])
        dist.broadcast(size, 0)
        buffer = bytearray(int(size)) if data is None else bytearray(data)
        if buffer:
            dist.broadcast(torch.frombuffer(buffer, dtype=torch.uint8), 0)
        return bytes(buffer)
