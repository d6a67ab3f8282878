"""The sandbox of the tier `docker`: warm slots, each in a container.

Without an image, containers show this machine's own programs and libraries, so that nothing is
downloaded and every language works as in the slots tiers. With an image, programs see the commands
of that image, and its Python if it has one.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypedDict, Unpack

from ludus.errors import ConfigError

from ..guest.jail import policy
from ..guest.run import emptying
from ..guest.run.plan import DOCKER, JailPlan
from ..local.mounts import installed_places
from ..local.slot_sandbox import LIGHT, NETWORK, SlotSandbox
from ..local.slots import Slot
from ..local.supervisor import PYTHON
from ..local.user_ids import IDS_OF_PROCESS, user_ids
from ..network import NetworkPolicy
from ..owners import prefix_of_folders, stale_folders
from ..protocol import MIB
from . import roots
from .config import Container, guest_mount, line_mount
from .engine import DockerEngine, EngineFault
from .roots import Interpreter, of_image
from .slot import ContainerSlot, Suspects

_PREFIX = "ludus-docker-"
# Programs run as user ids of these ranges, above those of people and services. Where the engine
# maps users, a container has about 65,000 ids in all, so that its range has to begin lower.
_FIRST_UID = 100_000
_FIRST_MAPPED_UID = 10_000
_UIDS = 50_000


class DockerSettings(TypedDict, total=False):
    """Settings that are passed on to `SlotSandbox`."""

    size: int | None
    packages: Sequence[str]
    disk_bytes: int
    processes: int
    max_sessions: int
    network: NetworkPolicy | None
    readable: Sequence[str]


@dataclass(frozen=True, slots=True)
class Image:
    """The image from which containers are made."""

    id: str
    name: str
    """The operator's name for the image; "" for the image that shows this machine."""
    interpreter: Interpreter
    environment: Mapping[str, str]
    volumes: tuple[str, ...] = ()

    @property
    def is_host(self) -> bool:
        """Whether containers show this machine's programs."""
        return not self.name

    @property
    def has_own_python(self) -> bool:
        """Whether programs run in the image's Python and import the image's packages."""
        return bool(self.name) and not self.interpreter.is_brought


class DockerSandbox(SlotSandbox):
    """A pool of containers; made by `open`."""

    def __init__(
        self,
        engine: DockerEngine,
        image: Image,
        runtime: str | None,
        **settings: Unpack[DockerSettings],
    ) -> None:
        if not image.is_host:  # the host's packages need not suit the image's Python
            settings["packages"] = ()
        super().__init__(DOCKER, **settings)
        self._engine, self._image, self._runtime = engine, image, runtime
        self._suspects = Suspects()
        self._has_numpy = self._has_numpy or image.has_own_python
        for folder in stale_folders(_PREFIX):
            _remove_folder(folder)
        self._folder = Path(tempfile.mkdtemp(prefix=prefix_of_folders(_PREFIX)))

    @classmethod
    async def open(
        cls,
        *,
        image: str | None = None,
        runtime: str | None = None,
        docker_host: str | None = None,
        **settings: Unpack[DockerSettings],
    ) -> Self:
        """Find the engine, remove what killed drivers left behind, and prepare the image.

        No container is started yet.

        Args:
            image: the name of an image the engine has; by default this machine's own programs.
            runtime: an OCI runtime the engine knows, such as gVisor's "runsc".
            docker_host: "unix:///..."; by default `DOCKER_HOST` or the usual socket.
            settings: as for `SlotSandbox`; `packages` only without an image.

        Raises:
            ConfigError: there is no engine, image or runtime of that name.
            MissingExtra: the Docker SDK is not installed.
        """
        engine = await asyncio.to_thread(DockerEngine.connect, docker_host)
        if runtime and runtime not in engine.runtimes:
            runtimes = ", ".join(sorted(engine.runtimes))
            raise ConfigError(f"the Docker engine has no runtime {runtime!r}; it has: {runtimes}")
        try:
            await asyncio.to_thread(engine.remove_leftovers)
            prepared_image = await asyncio.to_thread(find_image, engine, image, runtime)
        except EngineFault as error:
            raise ConfigError(str(error)) from error
        return cls(engine, prepared_image, runtime, **settings)

    @property
    def notes(self) -> list[str]:
        """Return what the operator should know about the isolation, as lines of text."""
        image = self._image
        shows = "this machine's programs" if image.is_host else f"the image {image.name}"
        reason = image.interpreter.reason
        interpreter = f", with this interpreter ({reason})" if reason else ""
        name = self._runtime
        runtime = f", runtime {self._engine.describe_runtime(name)}" if name else ""
        return [f"{self._engine.description}{runtime}; containers show {shows}{interpreter}"]

    def _make(self, kind: str, number: int) -> Slot:
        """Describe a slot's container and the plan of the jail; the slot starts the container."""
        folder = self._folder / f"slot-{number}"
        with ExitStack() as taken:  # given back if the slot cannot be made
            folder.mkdir(mode=0o755)
            taken.callback(_remove_folder, folder)
            user_id = user_ids().take()
            taken.callback(user_ids().give_back, user_id)
            slot = self._described(kind, folder, user_id)
            taken.pop_all()
        user_ids().lend(user_id, slot)
        return slot

    def _described(self, kind: str, folder: Path, user_id: int) -> ContainerSlot:
        first_uid = _FIRST_MAPPED_UID if self._engine.maps_users else _FIRST_UID
        # The process id is part of the user id, so that drivers on one machine seldom share ids.
        uid = first_uid + (os.getpid() * IDS_OF_PROCESS + user_id) % _UIDS
        plan = JailPlan(
            tier=DOCKER,
            work="",
            uid=uid,
            gid=uid,
            readable=[],
            packages=[],
            preload=self._preload(kind),
            cgroup_procs=[],
            network=kind == NETWORK,
            own_packages=self._image.has_own_python,
        )
        if self._image.is_host:
            roots.write_etc(folder / "etc", plan.uid, plan.gid)
        image = self._image
        mounts = [*image.interpreter.mounts, guest_mount(), line_mount(folder)]
        if image.is_host:
            readable = self._readable(NETWORK if plan.network else LIGHT)
            mounts += roots.mounts(readable, self._packages, folder / "etc")
        hidden = [
            mount.target + place.removeprefix(mount.source)
            for mount in mounts
            for place in installed_places(self._shown)
            if place.startswith(f"{mount.source}/")
        ]
        container = Container(
            image=image.id,
            python=image.interpreter.command,
            mounts=mounts,
            processes=self._processes,
            disk_bytes=self._disk_bytes,
            runtime=self._runtime,
            environment=image.environment,
            covered=(*image.volumes, *hidden),
        )
        return ContainerSlot(plan, self._engine, folder, container, self._suspects)

    async def close(self) -> None:
        """End every container and remove the folders. Idempotent."""
        await super().close()
        if self._folder.exists():
            _remove_folder(self._folder)


def find_image(engine: DockerEngine, name: str | None, runtime: str | None) -> Image:
    """Return the image of the containers, with the interpreter to use.

    To find the interpreter of a named image, a container of that image is started and ended.

    Raises:
        ConfigError: the engine has no such image.
        EngineFault: the image does not work.
    """
    environment = {**policy.ENVIRONMENT, "LD_BIND_NOW": "1"}
    if name is None:
        return Image(roots.ensure_image(engine), "", Interpreter((PYTHON,)), environment)
    details = engine.image(name)
    if details is None:
        raise ConfigError(f"the Docker engine has no image {name!r}; try: docker pull {name}")
    config = details.get("Config") or {}
    if any(variable.startswith("PATH=") for variable in config.get("Env") or []):
        del environment["PATH"]  # the image's own PATH finds its programs
    # No program is graded in this container, so that the least of everything will do.
    trial = Container(
        image=str(details["Id"]),
        python=("python3",),
        mounts=(),
        processes=64,
        disk_bytes=MIB,
        runtime=runtime,
        covered=tuple(config.get("Volumes") or ()),
    )
    interpreter = of_image(engine, trial)
    return Image(trial.image, name, interpreter, environment, tuple(trial.covered))


def _remove_folder(folder: Path) -> None:
    emptying.empty(str(folder))
    folder.rmdir()
