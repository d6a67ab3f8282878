"""Decides whether a missing command is the fault of the program or of a machine that lacks a
tool.
"""

from __future__ import annotations

import msgspec

from ..guest.run.command import NOT_FOUND
from ..protocol import Execution, ExecutionStatus, Sandbox

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
