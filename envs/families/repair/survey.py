"""Finds out which test cases each mistake fails, by running all mistakes in a sandbox.

    python -m ludus.envs.families.repair.survey > envs/families/repair/kills.json

A mistake is useful if at least two test cases fail (one may be shown) and the function still
ends. This is worked out beforehand, so that drawing a task runs nothing and is reproducible.
"""

from __future__ import annotations

import asyncio
import json
import sys

from ludus.sandboxes import ExecutionStatus, execute_async

from .cases import LibraryFunction, library
from .mutations import mutants

ENDLESS = "----"
"""Stands in the place of a mask where the function does not end on a case."""

_CPU_S = 2.0
_AT_ONCE = 4

_TRY = """
import sys
sys.setrecursionlimit(2000)
mask = 0
for place, (call, result) in enumerate(CASES):
    try:
        right = eval(call) == eval(result)
    except Exception as error:
        right = type(error).__name__ == result
    mask |= (not right) << place
print(f"{mask:04x}")
"""


async def survey() -> dict[str, list[str]]:
    """Return, by function name, the mask of failing cases of each mistake, or `ENDLESS`.

    A mask is written in hexadecimal; bit k is set where case k fails.
    """
    room = asyncio.Semaphore(_AT_ONCE)

    async def check_one(function: LibraryFunction, source: str) -> str:
        async with room:
            cases = list(zip(function.calls, function.results, strict=True))
            program = f"{source}\nCASES = {cases!r}\n{_TRY}"
            execution = await execute_async(program, timeout_s=10 * _CPU_S, cpu_s=_CPU_S)
            if execution.status is ExecutionStatus.OK:
                return execution.stdout.strip()
            if execution.status in (ExecutionStatus.TIMEOUT, ExecutionStatus.OOM):
                return ENDLESS
            raise RuntimeError(
                f"a mistake could not be tried: {execution.status} {execution.stderr}"
            )

    return {
        name: list(
            await asyncio.gather(*(check_one(function, m.source) for m in mutants(function.source)))
        )
        for name, function in library().items()
    }


if __name__ == "__main__":
    table = {name: " ".join(masks) for name, masks in asyncio.run(survey()).items()}
    sys.stdout.write(json.dumps(table, indent=0) + "\n")
