"""The native routes of sandboxes over HTTP, and the services of `ludus serve 'sandbox?slots=8'`."""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import logging
from functools import partial

import msgspec

from ludus.errors import ConfigError, LudusError
from ludus.wire.faults import Fault, Refused, fault_of, status_of
from ludus.wire.routes import Context, Load, Nothing, Path, Route, Service, delete, get, post
from ludus.wire.strict import read_item

from ..fusion.routes import FusionService
from ..languages import LANGUAGES
from ..local.slot_sandbox import SESSION, SlotSandbox
from ..network import NetworkPolicy
from ..open import refuse_unknown
from ..protocol import Execution, Limits
from ..repl.session import Session
from ..settings import SandboxSettings
from .repls import Repls, Snapshots
from .runner import Runner
from .sandbox_wire import (
    Bounds,
    CellBody,
    CellReply,
    ExecuteBatchBody,
    ExecuteBatchReply,
    ExecuteBatchRequest,
    ExecuteBody,
    ExecuteItem,
    FileReply,
    Forgotten,
    GradeBody,
    GradeReply,
    GradeResult,
    ReadBody,
    ReplBody,
    ReplEnded,
    ReplReply,
    RestoreBody,
    SandboxCard,
    SnapshotBody,
    SnapshotReply,
    WriteBody,
    Written,
)

logger = logging.getLogger(__name__)


class SandboxService:
    """Runs programs, gradings and REPLs for clients.

    Args:
        runner: runs the work; started and stopped with this service.
    """

    name = "sandbox"

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._instance = ""
        self._repls: Repls | None = None
        self._snapshots: Snapshots | None = None

    @property
    def repls(self) -> Repls:
        """The table of REPLs; available once the server has started."""
        assert self._repls is not None, "start the server first"
        return self._repls

    @property
    def snapshots(self) -> Snapshots:
        """The table of snapshots; available once the server has started."""
        assert self._snapshots is not None, "start the server first"
        return self._snapshots

    def routes(self) -> list[Route]:
        """Return the routes that `docs/http.md` lists."""
        repl, snapshot = "/v1/repls/{repl}", "/v1/snapshots/{snapshot}"
        routes = [
            get("/v1/sandbox", self.card, Nothing, SandboxCard, "What runs code here"),
            post("/v1/execute", self.execute, ExecuteBody, Execution, "Run a program"),
            post(
                "/v1/execute_batch",
                self.batch,
                ExecuteBatchBody,
                ExecuteBatchReply,
                "Run many programs",
                documented=ExecuteBatchRequest,
            ),
            post("/v1/grade", self.grade, GradeBody, GradeReply, "Grade a solution by tests"),
            post("/v1/repls", self.create, ReplBody, ReplReply, "Make a REPL"),
            post(f"{repl}/run", self.run, CellBody, CellReply, "Run one cell"),
            post(f"{repl}/write", self.write, WriteBody, Written, "Put files into a REPL"),
            post(f"{repl}/read", self.read, ReadBody, FileReply, "Get a file of a REPL"),
            delete(repl, self.delete, Nothing, ReplEnded, "End a REPL"),
            post(f"{repl}/snapshot", self.snapshot, SnapshotBody, SnapshotReply, "Keep a REPL"),
            post(f"{snapshot}/restore", self.restore, RestoreBody, ReplReply, "Branch from it"),
            delete(snapshot, self.forget, Nothing, Forgotten, "Forget a snapshot"),
        ]
        return [dataclasses.replace(route, scope="execute") for route in routes]

    async def start(self, context: Context) -> None:
        """Open the sandbox; a tier that does not work fails here."""
        self._instance = context.instance
        await self.runner.start(context)
        sandbox, max_repls = self.runner.sandbox, self.runner.bounds.max_repls
        self._repls = Repls(
            self._open_session,
            self.runner.bounds,
            max_repls=min(max_repls, sandbox.pool(SESSION).size)
            if isinstance(sandbox, SlotSandbox)
            else max_repls,
            instance=context.instance,
            count=self.runner.count,
        )
        self._snapshots = Snapshots(self._repls, self.runner.bounds, instance=context.instance)
        self.runner.metrics.watch("repls", "Open REPLs", partial(len, self._repls))
        self.runner.metrics.watch("snapshots", "Snapshots", partial(len, self._snapshots))
        await self._repls.start()
        await self._snapshots.start()

    async def stop(self) -> None:
        """End every REPL and snapshot, and close the sandbox."""
        if self._repls is not None and self._snapshots is not None:
            await self._snapshots.stop()
            await self._repls.stop()
        await self.runner.stop()

    def load(self) -> Load:
        """Return the load; a full queue makes the service unready."""
        gate = self.runner.gate
        problem = ""
        if gate.waiting >= gate.max_waiting:
            problem = f"all {gate.max_waiting} places in line for a slot are taken"
        return Load(
            queue_depth=gate.waiting + gate.busy,
            limit=gate.max_waiting + gate.width,
            problem=problem,
        )

    # --- handlers -------------------------------------------------------------------------------

    async def card(self, path: Path, query: Nothing) -> SandboxCard:
        """Answer `GET /v1/sandbox`: tier, languages and bounds."""
        return SandboxCard(
            instance=self._instance,
            tier=self.runner.sandbox.tier,
            languages=sorted(LANGUAGES),
            slots=self.runner.slots,
            sessions=isinstance(self.runner.sandbox, SlotSandbox),
            bounds=self.runner.bounds,
        )

    async def execute(self, path: Path, body: ExecuteBody) -> Execution:
        """Answer `POST /v1/execute`: run a program."""
        return await self.runner.execute(body)

    async def batch(self, path: Path, body: ExecuteBatchBody) -> ExecuteBatchReply:
        """Answer `POST /v1/execute_batch`: run many programs."""
        room = _Room(self.runner.bounds)
        items = await asyncio.gather(*(self._item(item, room) for item in body.items))
        return ExecuteBatchReply(items=list(items))

    async def grade(self, path: Path, body: GradeBody) -> GradeReply:
        """Answer `POST /v1/grade`: grade a solution."""
        grading = await self.runner.grade(body)
        results = [
            GradeResult(passed=result.passed, detail=result.detail, seconds=result.seconds)
            for result in grading.results
        ]
        return GradeReply(verdict=grading.verdict, results=results, tier=grading.tier)

    async def create(self, path: Path, body: ReplBody) -> ReplReply:
        """Answer `POST /v1/repls`: make a REPL."""
        limits = body.limits(self.runner.bounds)
        self.runner.check_room(limits)
        await self.repls.create(body)
        return ReplReply(repl=body.repl, instance=self._instance)

    async def run(self, path: Path, body: CellBody) -> CellReply:
        """Answer `POST /v1/repls/{repl}/run`: run a cell."""
        self.runner.check_time("timeout_s", body.timeout_s or 0.0)
        return await self.repls.run(path["repl"], body)

    async def write(self, path: Path, body: WriteBody) -> Written:
        """Answer `POST /v1/repls/{repl}/write`: write files."""
        await self.repls.session(path["repl"], lambda session: session.write(body.files))
        return Written(repl=path["repl"], written=list(body.files))

    async def read(self, path: Path, body: ReadBody) -> FileReply:
        """Answer `POST /v1/repls/{repl}/read`: read a file."""
        data = await self.repls.session(path["repl"], lambda session: session.read(body.path))
        return FileReply(repl=path["repl"], path=body.path, data=data)

    async def delete(self, path: Path, query: Nothing) -> ReplEnded:
        """Answer `DELETE /v1/repls/{repl}`: end a REPL."""
        return ReplEnded(repl=path["repl"], ended=self.repls.delete(path["repl"]))

    async def snapshot(self, path: Path, body: SnapshotBody) -> SnapshotReply:
        """Answer `POST /v1/repls/{repl}/snapshot`: take a snapshot."""
        await self.snapshots.take(path["repl"], body)
        return SnapshotReply(snapshot=body.snapshot, repl=path["repl"], instance=self._instance)

    async def restore(self, path: Path, body: RestoreBody) -> ReplReply:
        """Answer `POST /v1/snapshots/{snapshot}/restore`: start a REPL from a snapshot."""
        await self.snapshots.restore(path["snapshot"], body)
        return ReplReply(repl=body.repl, instance=self._instance)

    async def forget(self, path: Path, query: Nothing) -> Forgotten:
        """Answer `DELETE /v1/snapshots/{snapshot}`: delete a snapshot."""
        name = path["snapshot"]
        return Forgotten(snapshot=name, ended=self.snapshots.forget(name))

    async def _open_session(self, limits: Limits, idle_ttl_s: float) -> Session:
        sandbox = self.runner.sandbox
        if not isinstance(sandbox, SlotSandbox):
            raise ConfigError(f"REPLs need slots; the sandbox here is {sandbox.tier!r}")
        return await Session.open(sandbox, limits=limits, idle_ttl_s=idle_ttl_s)

    async def _item(self, item: object, room: _Room) -> ExecuteItem:
        try:
            execution = await self.runner.execute(read_item(item, ExecuteBody))
            room.take(execution)
        except LudusError as error:
            fault = fault_of(error)
            self.runner.metrics.refuse(fault)
            return _failed(fault)
        except Exception as error:  # one item must not spoil the others
            logger.exception("an item of a batch failed")
            return _failed(fault_of(error))
        return ExecuteItem(status=200, execution=execution)


class _Room:
    """The room that is left in the largest reply that a batch may have."""

    def __init__(self, bounds: Bounds) -> None:
        self._most = self._left = bounds.max_reply_bytes

    def take(self, execution: Execution) -> None:
        """Count the output of an execution.

        Raises:
            Refused: the output does not fit into the reply.
        """
        size = (
            len(execution.stdout) + len(execution.stderr) + sum(map(len, execution.files.values()))
        )
        if size > self._left:
            raise Refused(
                f"the output of this item does not fit the {self._most} bytes of one reply; "
                "send it alone",
                "too_large",
            )
        self._left -= size


def _failed(fault: Fault) -> ExecuteItem:
    return ExecuteItem(status=status_of(fault), error=fault)


NAME = "sandbox"


class SandboxServeOptions(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a sandbox server: the bounds, and the following."""

    tier: str | None = None
    """The name of the tier; by default the strongest that works."""
    slots: int | None = None
    """How many programs run at a time; by default twice the number of cores."""
    image: str | None = None
    """An image for the tier `docker`, which is then the default tier."""
    runtime: str | None = None
    """An OCI runtime for the tier `docker` (gVisor's "runsc"), which is then the default tier."""
    network: str | None = None
    """The hosts that programs with a network may reach ("example.org,*.example.net")."""
    fusion: bool = True
    """Whether SandboxFusion's routes are served too."""


def sandbox_services(**arguments: object) -> list[Service]:
    """Return the services of a sandbox server.

    Raises:
        ConfigError: an argument is unknown, or its value cannot work.
    """
    options = _read(arguments)
    if options.tier:
        refuse_unknown(options.tier)
    if options.slots is not None and options.slots < 1:
        raise ConfigError(f"slots must be at least 1, got {options.slots}")
    bounds = Bounds(**{name: getattr(options, name) for name in Bounds.__struct_fields__})
    network = NetworkPolicy.parse(options.network) if options.network else None
    runner = Runner(
        options.tier,
        SandboxSettings(image=options.image, runtime=options.runtime, network=network),
        slots=options.slots,
        bounds=bounds,
    )
    services: list[Service] = [SandboxService(runner)]
    return [*services, FusionService(runner)] if options.fusion else services


def _read(arguments: dict[str, object]) -> SandboxServeOptions:
    option_names = SandboxServeOptions.__struct_fields__
    for name in arguments:
        if name not in option_names:
            close_names = difflib.get_close_matches(name, option_names, n=1)
            hint = (
                f"did you mean {close_names[0]!r}?"
                if close_names
                else f"known: {', '.join(option_names)}"
            )
            raise ConfigError(f"a sandbox server has no setting {name!r}; {hint}")
    try:
        return msgspec.convert(arguments, SandboxServeOptions)
    except msgspec.ValidationError as error:
        raise ConfigError(f"sandbox: {error}") from None
