"""Files of a run are read back by a second child, which has no privileges.

The child starts after every process of the run has ended, so nothing changes the files meanwhile.
"""

from __future__ import annotations

import json

from ..guest.run.request import FETCH, Request
from ..protocol import ExecutionStatus, Limits
from .slots import Slot, SlotLost


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
