"""`ludus sandbox`: say which isolation holds here, or open a prompt behind it."""

from __future__ import annotations

import asyncio
import sys

from ludus.errors import ConfigError, SessionGone
from ludus.sandboxes import TIERS, Session, SlotSandbox, examine, open_sandbox

USAGE = """\
usage: ludus sandbox doctor           probe every tier by doing, and say which one is chosen
       ludus sandbox shell [TIER]     a Python prompt in a sandbox; an empty line ends a block

example:
  ludus sandbox doctor"""


def main(arguments: list[str]) -> int:
    """Run the verb; returns the exit status."""
    match arguments:
        case ["doctor"]:
            return asyncio.run(doctor())
        case ["shell"]:
            return asyncio.run(shell(None))
        case ["shell", tier]:
            return asyncio.run(shell(tier))
        case [] | ["-h"] | ["--help"]:
            print(USAGE)
            return 0
        case _:
            raise ConfigError(f"ludus sandbox does not know {' '.join(arguments)!r}\n{USAGE}")


async def doctor() -> int:
    """Probe every tier; returns 0 if one holds."""
    chosen = ""
    for tier in TIERS:
        finding = await examine(tier)
        isolating = tier != TIERS[-1]
        if finding.holds and isolating:
            chosen = chosen or tier
        print(f"{tier:16} {'holds' if finding.holds and isolating else 'not chosen'}")
        for line in [*finding.problems, *finding.notes]:
            print(f"    {visible(line)}")
    if not chosen:
        print("no tier holds here: code cannot be run in isolation")
        return 1
    print(f"chosen: {chosen}, the strongest that holds")
    return 0


async def shell(tier: str | None) -> int:
    """A prompt in a sandbox until end of input."""
    sandbox = await open_sandbox(tier)
    if not isinstance(sandbox, SlotSandbox):
        raise ConfigError(f"the tier {sandbox.tier!r} has no sessions")
    print(f"Python in {sandbox.tier}; end with Ctrl-D")
    try:
        async with await Session.open(sandbox) as session:
            while (cell := await asyncio.to_thread(read_cell)) is not None:
                done = await session.run(cell)
                print(visible(done.stdout + done.stderr), end="")
    except SessionGone as error:
        print(error)
        return 1
    finally:
        await sandbox.close()
    return 0


def read_cell() -> str | None:
    """One cell from the terminal; None at end of input."""
    lines: list[str] = []
    while True:
        try:
            line = input("... " if lines else ">>> ")
        except EOFError:
            return "\n".join(lines) if lines else None
        lines.append(line)
        if not line or (len(lines) == 1 and not line.rstrip().endswith((":", "\\"))):
            return "\n".join(lines)


def visible(text: str) -> str:
    """`text` with control characters written out: what a program prints must not drive a terminal.

    >>> visible("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    return "".join(
        letter
        if letter.isprintable() or letter in "\n\t"
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
