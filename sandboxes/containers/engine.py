"""The few things a Docker engine is asked for. Every call blocks, has a timeout, and is made from a
thread.

Only an engine on this machine will do: descriptors go to a slot over a Unix socket.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from ludus.errors import ConfigError, MissingExtra

from ..control_groups import start_time

CALL_TIMEOUT_S = 60
OWNER = "ludus.sandbox.owner"
"""The label of every container of ours; its value names the driver process."""

_GONE = (404, 409)
"""What the engine answers about a container that is not there, or is being removed."""

_NEEDED = {"MemoryLimit": "memory", "PidsLimit": "the number of processes"}


class EngineFault(Exception):
    """The engine refused or did not answer: ours, never a program's."""


class Engine:
    """A local Docker engine."""

    def __init__(self, host: str, version: str, info: dict[str, Any]) -> None:
        self.host = host
        self._version = version
        self.description = f"Docker {info['ServerVersion']}, {info['Driver']}"
        self.runtimes = sorted(info.get("Runtimes") or {})
        options = " ".join(info.get("SecurityOptions") or [])
        self.maps_users = "name=userns" in options or "name=rootless" in options
        """Whether only a small range of user ids exists inside containers."""

    @classmethod
    def connect(cls, host: str | None = None) -> Self:
        """The engine at `host` ("unix:///..."); the one `DOCKER_HOST` names, or the usual socket.

        Raises:
            MissingExtra: the Docker SDK is not installed. ConfigError: no engine answers, or it
                cannot hold what this tier promises.
        """
        sdk = _sdk()
        host = host or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        if not host.startswith("unix://"):
            raise ConfigError(
                f"the Docker engine {host!r} is not on this machine's Unix socket; "
                "to run code on another machine use the remote tier"
            )
        try:
            _knock(host.removeprefix("unix://"))
            client = sdk.APIClient(base_url=host, version="auto", timeout=CALL_TIMEOUT_S)
            with client:
                info, version = client.info(), str(client.api_version)
        except (sdk.errors.DockerException, OSError) as error:
            raise ConfigError(f"no Docker engine answers at {host}: {error}") from error
        _check(info)
        return cls(host, version, info)

    def create(self, config: dict[str, object]) -> str:
        """Make a container; returns its id."""
        labelled = {**config, "Labels": {OWNER: owner()}}
        made = self._call(lambda client: client.create_container_from_config(labelled))
        return str(made["Id"])

    def start(self, container: str) -> None:
        """Start it; if that fails, remove it."""
        try:
            self._call(lambda client: client.start(container))
        except EngineFault:
            self.remove(container)
            raise

    def wait(self, container: str) -> int:
        """Wait for it to end; returns its exit code."""
        ended = self._call(lambda client: client.wait(container, timeout=CALL_TIMEOUT_S))
        return int(ended["StatusCode"])

    def runs(self, container: str) -> bool:
        """Whether it exists and has not ended."""
        try:
            state = self._call(lambda client: client.inspect_container(container))["State"]
        except EngineFault:
            return False
        return bool(state["Running"])

    def kill(self, container: str) -> None:
        """End it now, if it has not ended."""
        try:
            self._call(lambda client: client.kill(container))
        except EngineFault:
            if self.runs(container):
                raise

    def remove(self, container: str) -> None:
        """Remove it, running or not; nothing if it is gone or going already."""
        fault = _sdk().errors.APIError

        def remove(client: Any) -> None:
            try:
                client.remove_container(container, force=True, v=True)
            except fault as error:
                if error.status_code not in _GONE:
                    raise

        self._call(remove)

    def limit_memory(self, container: str, memory_bytes: int) -> None:
        """Bound its memory, without swap, from now on."""
        self._call(
            lambda client: client.update_container(
                container, mem_limit=memory_bytes, memswap_limit=memory_bytes
            )
        )

    def image(self, name: str) -> dict[str, Any] | None:
        """What the engine knows about an image it has; None if it has not. Never pulls."""
        missing = _sdk().errors.ImageNotFound

        def inspect(client: Any) -> dict[str, Any] | None:
            try:
                found: dict[str, Any] = client.inspect_image(name)
            except missing:
                return None
            return found

        about: dict[str, Any] | None = self._call(inspect)
        return about

    def import_image(self, tar: bytes, repository: str, tag: str) -> None:
        """Make an image of a root file system."""
        self._call(lambda client: client.import_image_from_data(tar, repository, tag))

    def remove_leftovers(self) -> list[str]:
        """Remove the containers of drivers that died without doing it; returns their ids."""
        label = {"label": OWNER}
        found = self._call(lambda client: client.containers(all=True, filters=label))
        left = [str(each["Id"]) for each in found if not _lives(each["Labels"][OWNER])]
        for container in left:
            self.remove(container)
        return left

    def own(self) -> list[str]:
        """The ids of this process's containers."""
        label = {"label": f"{OWNER}={owner()}"}
        found = self._call(lambda client: client.containers(all=True, filters=label))
        return [str(each["Id"]) for each in found]

    def _call(self, ask: Callable[[Any], Any]) -> Any:
        """Ask with a client of one's own: they are not made for threads, and cost 2 ms.

        Raises:
            EngineFault: whatever the engine or the way to it says.
        """
        sdk = _sdk()
        try:
            _knock(self.host.removeprefix("unix://"))
            with sdk.APIClient(
                base_url=self.host, version=self._version, timeout=CALL_TIMEOUT_S
            ) as client:
                return ask(client)
        except (sdk.errors.DockerException, OSError) as error:
            raise EngineFault(f"the Docker engine: {error}") from error


def _sdk() -> Any:
    try:
        import docker
    except ImportError as error:
        raise MissingExtra.of("docker", needed_for="the sandbox tier 'docker'") from error
    return docker


def _knock(path: str) -> None:
    """Fail at once where nobody listens (the SDK then leaves its socket open)."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(CALL_TIMEOUT_S)
        line.connect(path)


def _check(info: dict[str, Any]) -> None:
    """Refuse an engine that would ignore a bound instead of refusing it."""
    if (info.get("OSType"), info.get("Architecture")) != ("linux", "x86_64"):
        raise ConfigError(
            "the docker tier needs an engine on Linux x86-64, "
            f"not {info.get('OSType')} {info.get('Architecture')}"
        )
    missing = [what for key, what in _NEEDED.items() if not info.get(key)]
    if missing:
        raise ConfigError(f"the Docker engine cannot bound {' and '.join(missing)} here")


def owner() -> str:
    """This process, by a name that is never used twice on this machine."""
    pid = os.getpid()
    return f"{_boot()}/{_pid_namespace()}/{os.geteuid()}/{pid}-{start_time(pid)}"


def _lives(name: str) -> bool:
    """Whether the process `owner()` named so may still live. Nothing is known of processes in
    another pid namespace, nor, for an ordinary user, of other users'.
    """
    boot, *rest = name.split("/")
    found = re.fullmatch(r"(\d+)/(\d+)/(\d+)-(\d+)", "/".join(rest))
    if boot != _boot() or not found:
        return found is None
    namespace, uid, pid, started = found.groups()
    if namespace != _pid_namespace() or os.geteuid() not in (0, int(uid)):
        return True
    return start_time(int(pid)) == int(started)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)
