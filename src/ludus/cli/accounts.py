"""`ludus accounts`: recompute from a run's files what became of every rollout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from ludus.errors import ConfigError

from .arguments import VerbHelp, parse
from .runs import run_place

NAMED = 10
"""Number of ordinals that are named."""


@dataclass(frozen=True, kw_only=True)
class AccountsOptions:
    """The options of `ludus accounts`."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder of a training run."""


def main(arguments: Sequence[str]) -> int:
    """Print the accounts; returns 0, or 1 if a rollout is missing, counted twice or unreadable."""
    options = parse(
        AccountsOptions,
        arguments,
        VerbHelp(
            verb="accounts",
            about="Recompute from rollouts.jsonl what became of every rollout of a run. Rollouts "
            "that wait or are in flight count as missing while a run goes on, or after an "
            "interruption.",
            example="ludus accounts runs/mine",
        ),
    )
    from ludus.trainer.stream.accounts import FILE, count_rollouts

    folder = run_place(options.run)
    if not (folder / FILE).is_file():
        raise ConfigError(f"{str(folder)!r} holds no {FILE}; name the folder of a training run")
    accounts = count_rollouts(folder)
    print(f"issued   {accounts.issued}\ntrained  {accounts.trained}")
    print(f"masked   {sum(accounts.masked.values())}")
    for reason, count in sorted(accounts.masked.items(), key=lambda item: -item[1]):
        print(f"         {count} {reason}")
    for name, ordinals in (("missing", accounts.missing), ("doubled", accounts.doubled)):
        if ordinals:
            more = ", ..." if len(ordinals) > NAMED else ""
            named = ", ".join(map(str, ordinals[:NAMED]))
            print(f"{name}  {len(ordinals)}: ordinals {named}{more}", file=sys.stderr)
    whole = (line for line in (folder / FILE).read_bytes().splitlines(True) if line.strip())
    lines = sum(line.endswith(b"\n") for line in whole)  # one that a crash cut is none
    unread = lines - accounts.trained - sum(accounts.masked.values())
    if unread > 0:
        print(f"unread   {unread} lines of {FILE}, which are no rollouts", file=sys.stderr)
    return 0 if accounts.holds and unread <= 0 else 1
