"""The few calls that are made to a Docker engine; each blocks, has a timeout, and runs on a thread.

The engine must be on this machine: file descriptors go to a slot over a Unix socket.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Callable
from typing import Any, Self

from ludus.errors import ConfigError, MissingExtra

from ..owners import lives, owner

CALL_TIMEOUT_S = 60
OWNER = "ludus.sandbox.owner"
"""The label of every container that ludus makes; the value names the driver process."""

_GONE = (404, 409)
"""The engine's status codes for a container that does not exist, or is being removed."""

_NEEDED = {"MemoryLimit": "memory", "PidsLimit": "the number of processes"}


GVISOR_RECOMMENDED = "20240101"
"""The oldest recommended release of gVisor: its platform is systrap, not ptrace.

Release 20221219 is tested.
"""


class EngineFault(Exception):
    """The engine refused or did not answer: an infrastructure fault, never a program's."""


class DockerEngine:
    """A connection to a local Docker engine."""

    def __init__(self, host: str, version: str, info: dict[str, Any]) -> None:
        self.host = host
        self._version = version
        self.description = f"Docker {info['ServerVersion']}, {info['Driver']}"
        self.runtimes: dict[str, str] = {
            name: str(runtime.get("path", ""))
            for name, runtime in (info.get("Runtimes") or {}).items()
        }
        """The program of each OCI runtime, by name."""
        options = " ".join(info.get("SecurityOptions") or [])
        self.maps_users = "name=userns" in options or "name=rootless" in options
        """Whether the engine remaps user ids, so that containers have only a small range of ids."""

    @classmethod
    def connect(cls, host: str | None = None) -> Self:
        """Connect to the engine at `host` ("unix:///..."), by default as `DOCKER_HOST` says.

        Without that variable, the usual socket is tried.

        Raises:
            MissingExtra: the Docker SDK is not installed.
            ConfigError: no engine answers, or the engine lacks what this tier promises.
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
        # Refuse an engine that would silently ignore a bound.
        if (info.get("OSType"), info.get("Architecture")) != ("linux", "x86_64"):
            raise ConfigError(
                "the docker tier needs an engine on Linux x86-64, "
                f"not {info.get('OSType')} {info.get('Architecture')}"
            )
        missing = [need for key, need in _NEEDED.items() if not info.get(key)]
        if missing:
            raise ConfigError(f"the Docker engine cannot bound {' and '.join(missing)} here")
        return cls(host, version, info)

    def describe_runtime(self, name: str) -> str:
        """Return the name and version of a runtime; for an old gVisor, with a word of advice."""
        try:
            program = [self.runtimes[name], "--version"]
            shown = subprocess.run(program, capture_output=True, text=True, timeout=CALL_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError):
            return name
        version = shown.stdout.partition("\n")[0]
        release = re.search(r"\d{8}", version)
        if "runsc" not in version or not release or release[0] >= GVISOR_RECOMMENDED:
            return f"{name} ({version})"
        return (
            f"{name} ({version}; for tenants a release of {GVISOR_RECOMMENDED} or later is better)"
        )

    def create(self, config: dict[str, object]) -> str:
        """Make a container and return the id."""
        labelled = {**config, "Labels": {OWNER: owner()}}
        created = self._call(lambda client: client.create_container_from_config(labelled))
        return str(created["Id"])

    def start(self, container: str) -> None:
        """Start a container; on failure remove the container."""
        try:
            self._call(lambda client: client.start(container))
        except EngineFault:
            self.remove(container)
            raise

    def wait(self, container: str) -> int:
        """Wait for the end of a container and return the exit code."""
        wait_result = self._call(lambda client: client.wait(container, timeout=CALL_TIMEOUT_S))
        return int(wait_result["StatusCode"])

    def runs(self, container: str) -> bool:
        """Return whether a container exists and has not ended."""
        try:
            state = self._call(lambda client: client.inspect_container(container))["State"]
        except EngineFault:
            return False
        return bool(state["Running"])

    def kill(self, container: str) -> None:
        """Kill a container; do nothing if already ended."""
        try:
            self._call(lambda client: client.kill(container))
        except EngineFault:
            if self.runs(container):
                raise

    def remove(self, container: str) -> None:
        """Remove a container, running or not; do nothing if gone or going already."""
        try:
            self._call(lambda client: client.remove_container(container, force=True, v=True))
        except EngineFault as fault:
            if getattr(fault.__cause__, "status_code", None) not in _GONE:
                raise

    def limit_memory(self, container: str, memory_bytes: int) -> None:
        """Bound a container's memory from now on, without swap."""
        self._call(
            lambda client: client.update_container(
                container, mem_limit=memory_bytes, memswap_limit=memory_bytes
            )
        )

    def image(self, name: str) -> dict[str, Any] | None:
        """Return what the engine knows about an image; None if the image is missing. Never
        pulls.
        """
        try:
            details: dict[str, Any] = self._call(lambda client: client.inspect_image(name))
        except EngineFault as fault:
            if isinstance(fault.__cause__, _sdk().errors.ImageNotFound):
                return None
            raise
        return details

    def import_image(self, tar: bytes, repository: str, tag: str) -> None:
        """Make an image from the tar of a root file system."""
        self._call(lambda client: client.import_image_from_data(tar, repository, tag))

    def remove_leftovers(self) -> list[str]:
        """Remove the containers of drivers that died without cleaning up, and return the ids."""
        label = {"label": OWNER}
        containers = self._call(lambda client: client.containers(all=True, filters=label))
        leftovers = [
            str(listed_container["Id"])
            for listed_container in containers
            if not lives(listed_container["Labels"][OWNER])
        ]
        for container in leftovers:
            self.remove(container)
        return leftovers

    def own(self) -> list[str]:
        """Return the ids of this process's containers."""
        label = {"label": f"{OWNER}={owner()}"}
        containers = self._call(lambda client: client.containers(all=True, filters=label))
        return [str(container["Id"]) for container in containers]

    def _call(self, ask: Callable[[Any], Any]) -> Any:
        """Call the engine with a new client.

        Clients are not thread-safe, and making one costs 2 ms.

        Raises:
            EngineFault: the engine or the connection failed.
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
    """Fail at once where nobody listens (the SDK would leave a socket open then)."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(CALL_TIMEOUT_S)
        line.connect(path)
