"""`ludus sandbox`: report which isolation works on this machine, or open a prompt in a sandbox."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from ludus.errors import ConfigError, SessionGone
from ludus.sandboxes import TIERS, Sandbox, Session, SlotSandbox, TierFinding, examine
from ludus.sandboxes.open import is_address, open_with, refuse_unknown
from ludus.sandboxes.protocol import REMOTE
from ludus.sandboxes.remote import RemoteSandbox
from ludus.sandboxes.serving.remote_repl import RemoteRepl
from ludus.sandboxes.settings import TIER_VARIABLE, SandboxSettings

from .arguments import Action, VerbHelp, parse, run_action

USAGE = """\
usage: ludus sandbox doctor [TIER]    probe every tier by doing, and say which one is chosen
       ludus sandbox shell [TIER]     a Python prompt in a sandbox; an empty line ends a block

LUDUS_SANDBOX_IMAGE and LUDUS_SANDBOX_RUNTIME set the tier docker; LUDUS_SANDBOX_NETWORK names the
hosts that runs with a network may reach ('example.org,*.example.net', '*').

A server is named by its address, 'remote:http://host:port', here as in LUDUS_SANDBOX; to run one:
ludus serve sandbox. A sandbox of your own is named as 'module:attribute'.

examples:
  ludus sandbox doctor
  LUDUS_TOKEN=secret ludus sandbox shell remote:http://10.0.0.7:8765"""


def main(arguments: list[str]) -> int:
    """Run `doctor` or `shell` as `arguments` say, and return the exit status."""
    return run_action("sandbox", ACTIONS, arguments, usage=USAGE)


@dataclass(frozen=True)
class DoctorOptions:
    """The options of `ludus sandbox doctor`."""

    tier: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TIER")] = ""
    """The tier that is to be used: a name, the address of a sandbox server, or a sandbox of your
    own (module:attribute); by default that of LUDUS_SANDBOX.
    """


def run_doctor(arguments: Sequence[str]) -> int:
    """Probe the tiers; returns 0 if code can be isolated, else 1."""
    options = parse(
        DoctorOptions,
        arguments,
        VerbHelp(
            verb="sandbox doctor",
            about="Probe every tier by doing, and say which one is chosen.",
            example="ludus sandbox doctor remote:http://10.0.0.7:8765",
        ),
    )
    tier = options.tier or os.environ.get(TIER_VARIABLE, "")
    if tier:
        refuse_unknown(tier)
    return asyncio.run(doctor(tier))


@dataclass(frozen=True)
class ShellOptions:
    """The options of `ludus sandbox shell`."""

    tier: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TIER")] = ""
    """The tier or address of the sandbox; by default that of LUDUS_SANDBOX, or else the strongest
    tier that holds.
    """


def run_shell(arguments: Sequence[str]) -> int:
    """Open a Python prompt in a sandbox, and return the exit status."""
    options = parse(
        ShellOptions,
        arguments,
        VerbHelp(
            verb="sandbox shell",
            about="Open a Python prompt in a sandbox; an empty line ends a block.",
            example="ludus sandbox shell slots-userns",
        ),
    )
    return asyncio.run(shell(options.tier or None))


async def doctor(tier_named: str) -> int:
    """Probe every tier, and print what holds and which tier is chosen.

    Args:
        tier_named: the tier, server or sandbox that the operator has named; empty if the strongest
            tier that holds is to be used.

    Returns:
        0 if code can be isolated in the chosen tier, else 1.
    """
    settings = SandboxSettings.from_environment()
    findings = {tier: await examine(tier, settings) for tier in TIERS}
    isolating = [tier for tier in TIERS[:-1] if findings[tier].holds]
    for tier, finding in findings.items():
        _show(tier, "holds" if tier in isolating else "not chosen", finding)
    if not is_address(tier_named):
        print(f"{REMOTE:16} by address only: {TIER_VARIABLE}=remote:http://host:port")
    if tier_named and tier_named not in TIERS:
        finding = await examine(tier_named)
        _show(finding.tier, "runs programs" if finding.holds else "does not run", finding)
        isolating = [finding.tier] if finding.holds else []
    elif tier_named:
        isolating = [tier_named] if tier_named in isolating else []
    if not isolating:
        where = f"in {tier_named}" if tier_named else "in any tier here"
        print(f"nothing is chosen: code cannot be run in isolation {where}")
        return 1
    reason = "by its name" if tier_named else "the strongest that holds"
    print(f"chosen: {isolating[0]}, {reason}")
    return 0


def _show(tier: str, summary: str, finding: TierFinding) -> None:
    print(f"{tier:16} {summary}")
    for line in [*finding.problems, *finding.notes]:
        print(f"    {visible(line)}")


async def shell(tier: str | None) -> int:
    """Read cells from the terminal and run each in a sandbox, until end of input.

    Args:
        tier: the tier or address of the sandbox; None takes the environment's choice, or else the
            strongest tier that holds.

    Returns:
        0; 1 if the session ended by itself.
    """
    tier = tier or os.environ.get(TIER_VARIABLE) or None
    sandbox = await open_with(tier, SandboxSettings.from_environment())
    print(f"Python in {sandbox.tier}; end with Ctrl-D")
    try:
        async with await open_session(sandbox) as session:
            while (cell := await asyncio.to_thread(read_cell)) is not None:
                execution = await session.run(cell)
                print(visible(execution.stdout + execution.stderr), end="")
    except SessionGone as error:
        print(error)
        return 1
    finally:
        await sandbox.close()
    return 0


async def open_session(sandbox: Sandbox) -> Session | RemoteRepl:
    """Open a session in a sandbox of any tier.

    Raises:
        ConfigError: the tier has no sessions.
    """
    if isinstance(sandbox, SlotSandbox):
        return await Session.open(sandbox)
    if isinstance(sandbox, RemoteSandbox):
        return await sandbox.open_repl()
    raise ConfigError(f"the tier {sandbox.tier!r} has no sessions")


def read_cell() -> str | None:
    """Read a cell from the terminal, which may span several lines; None at end of input."""
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
    r"""Write control characters out, since the output of a program must not drive the terminal.

    >>> visible("a\x1b[2J")
    'a\\x1b[2J'
    """
    return "".join(
        letter
        if letter.isprintable() or letter in "\n\t"
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


ACTIONS: dict[str, Action] = {"doctor": run_doctor, "shell": run_shell}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
