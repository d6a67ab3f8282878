"""What an audit says about every environment of ours, as the table of docs/audit.md.

python benchmarks/audit.py [ID]...
"""

from __future__ import annotations

import sys
import time

from ludus.agent.audit import AttackKind, audit, report_of
from ludus.envs import env_ids
from ludus.errors import MissingExtra


def main() -> None:
    """Print a row for each environment."""
    print("| environment | expert | nothing | best cheat | best rule | CPU s | verdict |")
    print("|---|---|---|---|---|---|---|")
    for env_id in sys.argv[1:] or [name for name in env_ids() if name.startswith("ludus/")]:
        started = time.process_time()
        try:
            audited = audit(env_id)
        except MissingExtra:
            continue
        best: list[str] = []
        for kinds in ((AttackKind.CHEAT,), (AttackKind.LEAK, AttackKind.SHORTCUT)):
            tallies = [tally for tally in audited.tallies if tally.attacker.kind in kinds]
            most = max(tallies, key=lambda tally: tally.gain.value)
            name = most.attacker.name if most.gain.value else "none"
            best.append(f"{most.gain.value:.2f} ({name})")
        cells = [env_id, f"{audited.oracle:.2f}", f"{audited.floor:.2f}", *best]
        cells += [f"{time.process_time() - started:.0f}", report_of(audited).verdict]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
