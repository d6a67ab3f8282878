"""The sandbox that runs code in slots: tiers slots-root, slots-userns, slots-landlock and
unsafe.

The child starts after every process of the run has ended, so nothing changes the files meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import ClassVar, Unpack

import msgspec

from ludus.errors import ConfigError

from ..guest.jail import syscalls
from ..guest.run import emptying
from ..guest.run.command import NOT_FOUND
from ..guest.run.plan import DOCKER, LANDLOCK, ROOT, UNSAFE, USERNS, JailPlan
from ..guest.run.request import COMMAND, FETCH, PYTHON, Request
from ..languages import Language, find_language
from ..network import EgressProxy, NetworkNotAllowed, NetworkPolicy
from ..paths import as_bytes, check_fetch, check_files
from ..protocol import (
    DEFAULT_LIMITS,
    MIB,
    Execution,
    ExecutionStatus,
    Limits,
    Program,
    ProgramInputs,
    Sandbox,
)
from .control_groups import ControlGroup, ControlGroups
from .mounts import (
    certificate_places,
    installed_places,
    package_folders,
    readable_places,
    shown_place,
)
from .runs import refusal
from .slot_pool import Companions, SlotPool, default_size
from .slots import Slot, SlotLost
from .user_ids import first_user_id, user_ids

SLOT_TIERS = (ROOT, USERNS, LANDLOCK, UNSAFE)

LIGHT, NUMERIC, NETWORK, PROVING, SESSION = "light", "numeric", "network", "proving", "session"
"""The kinds of slot, each with a pool of its own.

Light slots have the usual standard-library modules loaded. Numeric slots have numpy as well, which
makes a fork dearer. Network slots have a way out to a network. Proving slots run the tests' side of
gradings, and session slots hold sessions.
"""

_POOLS = (LIGHT, NUMERIC, NETWORK, PROVING, SESSION)

NETWORK_TIERS = (ROOT, USERNS, DOCKER)
"""The tiers whose slots have a network namespace, into which a single way out can be given."""

DEFAULT_PACKAGES = (
    "numpy",
    "pytest",
    "_pytest",
    "pluggy",
    "iniconfig",
    "packaging",
    "pygments",
    "py",
)
"""The packages that programs and tests may import besides the standard library, where installed:
numpy, and pytest with its dependencies.
"""

_PRELOAD = """
    re collections functools itertools math random json traceback typing heapq string bisect
    datetime operator copy
""".split()  # noqa: SIM905 - a list literal would take a line a name
_WANTS_NUMPY = re.compile(rb"\b(numpy|scipy|pandas)\b")
_COMPILE_LIMITS = Limits(memory_bytes=1024 * MIB, output_bytes=16 * MIB)
_COMPILED_KEPT = 64
_TRIES = 2


class SlotSandbox(Sandbox):
    """A sandbox that runs programs in pools of slots, all of the same isolation tier.

    Args:
        tier: one of `SLOT_TIERS`, or `docker` for the subclass that runs slots in containers.
        size: slots of each kind but sessions, at least 2; twice the cores this process may use if
            left out.
        packages: names of the installed packages a program may import.
        disk_bytes: room in a run's work directory.
        processes: how many processes and threads a run may have at once, where control groups or
            the kernel's user limits count them.
        max_sessions: how many sessions may be open at once.
        network: what runs with `network=True` may reach; if left out, such runs are refused.
        readable: files and folders of this machine that programs may read, at the same paths.

    Raises:
        ConfigError: the tier is unknown, or cannot be used on this system or by this user.
        NetworkNotAllowed: slots of this tier cannot be given a network.
    """

    _numbers_taken: ClassVar[int] = 0
    """How many slot numbers were given out in this process: every sandbox continues from here, so
    that the names of folders and control groups are unique.
    """

    def __init__(
        self,
        tier: str = ROOT,
        *,
        size: int | None = None,
        packages: Sequence[str] = DEFAULT_PACKAGES,
        disk_bytes: int = 64 * MIB,
        processes: int = 64,
        max_sessions: int = 32,
        network: NetworkPolicy | None = None,
        readable: Sequence[str] = (),
    ) -> None:
        if tier not in (*SLOT_TIERS, DOCKER):
            raise ConfigError(f"no slot tier named {tier!r}; known: {', '.join(SLOT_TIERS)}")
        if not syscalls.supported():
            raise ConfigError(
                "slots need Linux on x86-64; use the docker or remote sandbox elsewhere"
            )
        if tier == USERNS and os.getuid() == 0:
            raise ConfigError("slots-userns is for ordinary users; root has slots-root")
        if network and tier not in NETWORK_TIERS:
            raise NetworkNotAllowed.by_tier(tier, NETWORK_TIERS)
        self._tier = tier
        self._disk_bytes, self._processes = disk_bytes, processes
        self._packages = [folder for name in packages for folder in package_folders(name)]
        self._shown = [shown_place(place) for place in readable]
        self._has_numpy = "numpy" in packages and bool(package_folders("numpy"))
        groups = ControlGroups.find() if tier in (ROOT, LANDLOCK, USERNS) else ""
        self.groups: ControlGroups | None = None if isinstance(groups, str) else groups
        self.no_groups = groups if isinstance(groups, str) else ""
        self._egress = EgressProxy(network) if network else None
        self._work = Path(tempfile.mkdtemp(prefix="ludus-")) if tier in (LANDLOCK, UNSAFE) else None
        self._size = max(2, size or default_size())  # a grading holds two at once
        self._max_sessions = max_sessions
        self._first = SlotSandbox._numbers_taken
        SlotSandbox._numbers_taken += len(_POOLS) * self._size + max_sessions
        self._pools: dict[str, SlotPool] = {}
        self.companions = Companions()
        self._compiled: OrderedDict[bytes, bytes] = OrderedDict()

    @property
    def tier(self) -> str:
        """The name of the isolation tier, such as `slots-root`."""
        return self._tier

    @property
    def offers_network(self) -> bool:
        """Whether the operator allows runs with a network."""
        return self._egress is not None

    @property
    def notes(self) -> list[str]:
        """Notes to the operator about weaker isolation, such as why control groups are missing."""
        return [f"a development tier: {self.development}"] if self.development else []

    @property
    def development(self) -> str:
        """Why this is a tier for development, which no server chooses on its own; else "".

        Without control groups, memory and CPU time are watched and not bounded.
        """
        if self._tier == UNSAFE:
            return "it does not isolate"
        return f"{self.no_groups}; using resource limits and a watcher" if self.no_groups else ""

    def pool(self, kind: str = LIGHT) -> SlotPool:
        """Return the pool of a kind of slot, in which slots are started on demand."""
        if kind not in self._pools:
            first = self._first + _POOLS.index(kind) * self._size
            size = self._max_sessions if kind == SESSION else self._size
            self._pools[kind] = SlotPool(lambda number: self._make(kind, first + number), size)
        return self._pools[kind]

    def kind_for(self, *sources: bytes) -> str:
        """Return the kind of slot for these sources: numeric if a source names numpy, scipy or
        pandas.
        """
        return NUMERIC if self._has_numpy and any(map(_WANTS_NUMPY.search, sources)) else LIGHT

    async def run(self, program: Program) -> Execution:
        """Run a program in a free slot, and compile the source first where the language is
        compiled.

        A run whose slot breaks is tried a second time in another slot; after that the execution has
        the status INFRA_ERROR.

        Raises:
            ConfigError: a file path, the code or an argument cannot be passed on.
            UnknownLanguage: no such language.
            NetworkNotAllowed: the program wants a network without the operator's leave.
        """
        name, language = find_language(program.language)
        source = as_bytes(program.code, "code")
        uploads = self._uploads(program)
        if name == "python":
            request = Request(
                mode=PYTHON,
                blobs=[source],
                files=uploads,
                options={"argv": list(program.argv)} if program.argv else {},
            )
            return await self._run(request, program, self.kind_for(source, *uploads.values()))
        if language.compile:
            built = await self._compile(language, source, uploads, program.limits.compile_s)
            if isinstance(built, Execution):
                return built
            uploads = {**uploads, language.product: built}
        else:
            uploads = {**uploads, language.source: source}
        steps = [[*language.run, *program.argv]]
        request = Request(mode=COMMAND, files=uploads, options={"steps": steps})
        execution = await self._run(request, program)
        return await blame_missing_tool(self, language.run[0], execution)

    async def run_command(
        self,
        command: Sequence[str],
        *,
        limits: Limits = DEFAULT_LIMITS,
        **inputs: Unpack[ProgramInputs],
    ) -> Execution:
        """Run a command in the work directory; any program that the sandbox (or container image)
        has will do.

        Args:
            command: the program and its arguments.
            limits: what it may use.
            inputs: what else it is given; see `Program`.

        Raises:
            ConfigError: as `run`; the command is empty.
            NetworkNotAllowed: as `run`.
        """
        if not command:
            raise ConfigError("the command is empty; give a program and its arguments")
        program = Program(code="", limits=limits, **inputs)
        words = [as_bytes(word, "command").decode() for word in [*command, *program.argv]]
        request = Request(mode=COMMAND, files=self._uploads(program), options={"steps": [words]})
        return await self._run(request, program)

    def _uploads(self, program: Program) -> dict[str, bytes]:
        if program.network and not self._egress:
            raise NetworkNotAllowed.by_operator(self._tier, NETWORK_TIERS)
        if not program.files:
            return {}
        return check_files(program.files, room_bytes=self._disk_bytes // 2)

    async def _compile(
        self, language: Language, source: bytes, files: dict[str, bytes], seconds: float
    ) -> bytes | Execution:
        """Return the compiled program, from the cache or from a compiler run in a slot.

        If the compiler refuses, its execution is returned instead. The cache is keyed by content
        and written here, outside the slots, so that no run can put a program into it.
        """
        files = {name: data for name, data in files.items() if name != language.product}
        key = hashlib.sha256(repr((language, source, sorted(files.items()))).encode()).digest()
        if key in self._compiled:
            self._compiled.move_to_end(key)
            return self._compiled[key]
        request = Request(
            mode=COMMAND,
            files={**files, language.source: source},
            options={"steps": [list(language.compile)]},
        )
        limits = msgspec.structs.replace(_COMPILE_LIMITS, timeout_s=seconds, cpu_s=seconds)
        compiler = Program(code="", limits=limits, fetch_files=[language.product])
        execution = await self._run(request, compiler)
        execution = await blame_missing_tool(self, language.compile[0], execution)
        if not execution.ok or language.product not in execution.files:
            status = ExecutionStatus.ERROR if execution.ok else execution.status
            missing = (
                execution.refused.get(language.product, "") if execution.ok else execution.detail
            )
            return msgspec.structs.replace(
                execution,
                status=status,
                compiled=False,
                detail=f"not compiled; {missing}".rstrip("; "),
            )
        self._compiled[key] = execution.files[language.product]
        while len(self._compiled) > _COMPILED_KEPT:
            self._compiled.popitem(last=False)
        return self._compiled[key]

    async def _run(self, request: Request, program: Program, kind: str = LIGHT) -> Execution:
        """Run a request with the limits, input and network of a program, and read the wanted files
        back.
        """
        limits, stdin = program.limits, as_bytes(program.stdin, "stdin")
        fetch = check_fetch(program.fetch_files) if program.fetch_files else []
        kind = NETWORK if program.network else kind
        asked_at = time.monotonic()
        problem = ""
        for _ in range(_TRIES):
            try:
                async with self.pool(kind).take() as (slot,):
                    waited = time.monotonic() - asked_at
                    async with self._ways_out(kind) as peers:
                        outcome = await slot.run(
                            request, limits, stdin=stdin, peers=peers, preserve=bool(fetch)
                        )
                    fetched = await fetch_back(slot, fetch, limits) if fetch else ({}, {})
                return outcome.as_execution(self._tier, waited, *fetched)
            except SlotLost as error:
                problem = str(error)
            except OSError as error:
                problem = refusal("the line to the network cannot be opened", error)
        return Execution(status=ExecutionStatus.INFRA_ERROR, detail=problem, tier=self._tier)

    @asynccontextmanager
    async def _ways_out(self, kind: str) -> AsyncGenerator[list[tuple[str, int]]]:
        """Open the descriptors by which a run of this kind reaches a network, if any."""
        if kind != NETWORK or not self._egress:
            yield []
            return
        async with self._egress.open() as line:
            yield [line]

    def _make(self, kind: str, number: int) -> Slot:
        group, borrowed_id = None, None
        with ExitStack() as taken:  # given back if the slot cannot be made
            if self.groups:
                # The slot's own process is in the group as well.
                group = self.groups.make(f"slot-{number}", processes=self._processes + 1)
                taken.callback(group.remove)
            uid, gid = os.getuid(), os.getgid()
            if uid == 0 and self._tier != UNSAFE:
                borrowed_id = user_ids().take()
                taken.callback(user_ids().give_back, borrowed_id)
                uid = gid = first_user_id() + borrowed_id
            slot = Slot(self._plan(kind, number, uid, gid, group), group)
            taken.pop_all()
        if borrowed_id is not None:
            user_ids().lend(borrowed_id, slot)
        return slot

    def _plan(
        self, kind: str, number: int, uid: int, gid: int, group: ControlGroup | None
    ) -> JailPlan:
        return JailPlan(
            tier=self._tier,
            work=self._work_folder(number, gid),
            uid=uid,
            gid=gid,
            readable=self._readable(kind),
            hidden=tuple(installed_places(self._shown)),
            packages=self._packages,
            preload=self._preload(kind),
            scoped_signals=uid == os.getuid()
            and self._tier != UNSAFE
            and syscalls.landlock_version() >= 6,
            cgroup_procs=group.procs_files if group else [],
            disk_bytes=self._disk_bytes,
            # RLIMIT_NPROC is used where no control group counts processes. For an ordinary user
            # it would count all of the user's processes, unless a user namespace counts apart.
            processes=self._processes
            if not group and (uid != os.getuid() or self._tier == USERNS)
            else 0,
            address_space_bytes=0 if group or self._tier == UNSAFE else 4096 * MIB,
            network=kind == NETWORK,
            strangers=kind == SESSION,
        )

    def _readable(self, kind: str) -> list[str]:
        places = readable_places() + self._shown
        return places + (certificate_places() if kind == NETWORK else [])

    def _preload(self, kind: str) -> list[str]:
        numeric = kind in (NUMERIC, SESSION) and self._has_numpy
        return [*_PRELOAD, *(("numpy",) if numeric else ())]

    def _work_folder(self, number: int, gid: int) -> str:
        if self._work is None:
            return ""
        self._work.chmod(0o711)
        folder = self._work / f"slot-{number}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if os.getuid() == 0:
            # The program may write to the folder but does not own it: an owner could close the
            # folder to others, or leave attributes on it for the next run.
            os.chown(folder, 0, gid)
            folder.chmod(0o1770)
        return str(folder)

    async def close(self) -> None:
        """End all slots and remove control groups and work folders. A second call does nothing."""
        await self.companions.close()
        for pool in self._pools.values():
            await pool.close()
        if self._egress:
            self._egress.close()
        if self.groups:
            self.groups.remove()
        if self._work:
            emptying.empty(str(self._work))
            self._work.rmdir()
            self._work = None


async def fetch_back(
    slot: Slot, paths: list[str], limits: Limits
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the content of the files a run left at `paths`, and the reasons why others are
    refused.

    Both are keyed by path. All files together may have `limits.output_bytes`.

    Raises:
        SlotLost: the child failed, or the slot ended.
    """
    room = limits.output_bytes
    request = Request(mode=FETCH, options={"paths": paths, "limit_bytes": room})
    overhead = sum(6 * len(path) + 256 for path in paths)
    reading = Limits(
        timeout_s=30,
        cpu_s=30,
        memory_bytes=limits.memory_bytes + 2 * room,
        output_bytes=room + overhead,
    )
    outcome = await slot.run(request, reading)
    if outcome.status is not ExecutionStatus.OK:
        raise SlotLost(
            f"the files could not be read back: {outcome.detail} {outcome.stderr[-200:]!r}"
        )
    data = outcome.stdout
    files: dict[str, bytes] = {}
    refused_files: dict[str, str] = {}
    while data:
        line, _, data = data.partition(b"\n")
        answer = json.loads(line)
        if "refused" in answer:
            refused_files[answer["path"]] = answer["refused"]
        else:
            files[answer["path"]], data = data[: answer["size"]], data[answer["size"] :]
    return files, refused_files


_PACKAGES = {"gcc": "gcc", "g++": "g++", "iverilog": "iverilog", "vvp": "iverilog", "bash": "bash"}
"""The Debian package of each tool that languages use."""

_ABSENT = 9
_LOOK = f"import shutil, sys\nsys.exit(0 if shutil.which(sys.argv[1]) else {_ABSENT})"


async def blame_missing_tool(sandbox: Sandbox, tool: str, execution: Execution) -> Execution:
    """Return `execution`, or, if the sandbox lacks `tool`, an infra error that names the package to
    install.

    A program may end with the same exit code, so the tool is looked for in a run of its own.
    """
    if execution.exit_code != NOT_FOUND or tool.startswith("./"):
        return execution
    probe = await sandbox.execute(_LOOK, argv=[tool])
    if probe.exit_code != _ABSENT:
        return execution
    package = _PACKAGES.get(tool, tool)
    reason = f"{tool} is not installed where programs run: apt-get install {package}"
    return msgspec.structs.replace(execution, status=ExecutionStatus.INFRA_ERROR, detail=reason)
