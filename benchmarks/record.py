"""The raw output behind a figure: run its command, and keep what it printed.

    python benchmarks/record.py maths-held-out
    python benchmarks/record.py                          # all that run without a peer's packages
    python benchmarks/record.py --list

`docs/results/NAME.txt` then says the command, the day, the machine and its load before the command
began, and holds what the command printed. A command that fails leaves the older file as it was.
Figures of a busy machine are worth less: beside a load above the number of cores nothing is
recorded, unless `--busy` is given.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
LONGEST_S = 1800
MAX_OUTPUT = 20_000
"""Characters of output that are kept: the end, where tables are."""

COMMANDS = {
    "async-virtual": "benchmarks/async_rollout.py virtual",
    "context": "benchmarks/context.py",
    "credit": "benchmarks/credit.py",
    "demo-seeds": "benchmarks/demo_seeds.py",
    "engine-turns": "benchmarks/engine_turns.py",
    "fleet-kill": "benchmarks/fleet.py kill",
    "gateway": "benchmarks/gateway.py",
    "grader-cases": "benchmarks/grader_cases.py",
    "grader-fuzz": "benchmarks/grader_fuzz.py --count 2000 --seed 7",
    "hops": "benchmarks/hops.py",
    "isolation-frames": "benchmarks/isolation.py frames",
    "kill-and-resume": "benchmarks/kill_and_resume.py --kills 20",
    "maths-fuzz": "benchmarks/maths_fuzz.py --seconds 60",
    "maths-held-out": "benchmarks/maths_held_out.py --classes",
    "maths-laws": "benchmarks/maths_laws.py",
    "maths-rate": "benchmarks/maths_rate.py",
    "one-post": "benchmarks/one_post.py",
    "plan": "benchmarks/plan.py",
    "sandbox": "benchmarks/sandbox.py",
    "service-soak": "benchmarks/service_soak.py --minutes 18 --kill-every-s 120",
    "strangers": "benchmarks/strangers.py",
    "thoughts": "benchmarks/thoughts.py",
    "tool-calls": "benchmarks/tool_calls.py",
}
"""Name of a result -> arguments of the interpreter that print it."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="results; all, if none is named")
    parser.add_argument("--list", action="store_true", help="print names and commands")
    parser.add_argument("--busy", action="store_true", help="record beside a load as well")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{name:18} python {command}" for name, command in COMMANDS.items()))
        return 0
    if unknown := sorted(set(arguments.names) - set(COMMANDS)):
        parser.error(f"no result is named {', '.join(unknown)}; --list has the names")
    failed = [name for name in arguments.names or COMMANDS if not record(name, arguments.busy)]
    if failed:
        print(f"not recorded: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def record(name: str, busy: bool) -> bool:
    """Run the command of a result and write its file; return whether a file was written."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores and not busy:
        print(f"{name}: the load is {load:.1f} on {cores} cores; --busy records all the same")
        return False
    command = COMMANDS[name]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        run = subprocess.run(
            [sys.executable, *command.split()],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_S,
        )
    except subprocess.TimeoutExpired:
        print(f"{name}: not finished after {LONGEST_S} s: python {command}")
        return False
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode:
        print(f"{name}: exit status {run.returncode}: python {command}\n{run.stdout[-2000:]}")
        return False
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    RESULTS.mkdir(parents=True, exist_ok=True)
    output = run.stdout.replace(str(ROOT), ".")
    (RESULTS / f"{name}.txt").write_text(
        f"$ python {command}\n"
        f"# {time.strftime('%Y-%m-%d')}, {machine()}\n"
        f"# load {load:.1f} before; {seconds:.0f} s of wall time, {cpu:.0f} s of CPU time\n\n"
        f"{output[-MAX_OUTPUT:]}"
    )
    print(f"{name}: {seconds:.0f} s")
    return True


def machine() -> str:
    """Return processor, cores, memory and interpreter in words."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if platform.system() == "Linux" else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores,"
        f" {memory:.0f} GiB, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    sys.exit(main())
