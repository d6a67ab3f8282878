"""Count the environments of other projects: families and variants listed, and played by `ludus
check`.

python benchmarks/outside.py                                      what is listed
python benchmarks/outside.py --play reasoning-gym textarena gem   each family, by `ludus check`
python benchmarks/outside.py --play gem --python gem=PYTHON

A family that needs a download is counted as listed and is not played.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from ludus.contract import RuleOutcome
from ludus.envs.checks import examine_env
from ludus.envs.outside.kinds import Catalogue, catalogue, kind_names
from ludus.errors import LudusError
from ludus.wire.address import format_served


def main() -> None:
    """Print a line for each kind, and with --play a line for each family that does not pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--play", nargs="*", default=[])
    parser.add_argument("--python", nargs="*", default=[], metavar="KIND=PYTHON")
    parser.add_argument("--all", action="store_true", help="variants too, not families alone")
    options = parser.parse_args()
    pythons = dict(item.split("=", 1) for item in options.python)
    total: Counter[str] = Counter()
    for kind in kind_names():
        listed = catalogue(kind)
        if listed is None:
            continue
        count = Counter(
            families=len(listed.families),
            variants=sum(max(1, len(family.variants)) for family in listed.families),
            needing=sum(bool(family.needs or family.problem) for family in listed.families),
        )
        if kind in options.play:
            count += play_all(kind, listed, pythons.get(kind, ""), variants=options.all)
        print(f"{kind} {listed.version}: {dict(count)}", flush=True)
        total += count
    print(f"total: {dict(total)}")


def play_all(kind: str, listed: Catalogue, python: str, *, variants: bool) -> Counter[str]:
    """Check each family that needs nothing; return how many were played, and passed."""
    count: Counter[str] = Counter()
    for family in listed.families:
        if family.needs or family.problem:
            continue
        named = family.variants if variants and family.variants else [""]
        results = [
            passes(kind, family.name, {"python": python, "variant": variant}) for variant in named
        ]
        count["environments played"] += len(results)
        count["environments that pass"] += sum(results)
        count["families played"] += 1
        count["families that pass"] += all(results)
    return count


def passes(kind: str, family: str, arguments: dict[str, str]) -> bool:
    """Check an environment; print what failed."""
    given = {name: value for name, value in arguments.items() if value}
    named, began = format_served(f"{kind}/{family}-v0", given), time.perf_counter()
    try:
        report = examine_env(named)
    except LudusError as error:
        print(f"  {family} {arguments['variant']}: {error}", flush=True)
        return False
    for finding in report.brief():
        if finding.outcome is RuleOutcome.FAILED:
            print(f"  {family} {arguments['variant']}: {finding.rule}: {finding.detail}")
    if (took := time.perf_counter() - began) > 30:
        print(f"  {family}: {took:.0f} s", flush=True)
    return report.ok


if __name__ == "__main__":
    main()
