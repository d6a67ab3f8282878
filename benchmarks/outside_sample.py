"""Draw environments of other projects at random, play them here and in the original, and compare.

python benchmarks/outside_sample.py SEED [--kinds reasoning-gym textarena gem inspect] [--count 12]

The original plays first, in its own interpreter and by its own functions
(`outside_originals.py`): the right answer where it tells one, random moves in games, and wrong,
malformed and empty answers. The same actions are then played through `ludus.make`; the first
observation and every reward have to be the same. The exit status is 1 where any differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import ludus
from ludus.envs.outside.home import python_of
from ludus.envs.outside.kinds import catalogue, find_kind
from ludus.errors import ConfigError, RewardUnavailable

ORIGINALS = Path(__file__).with_name("outside_originals.py")
TASKS = Path(__file__).parents[1] / "tests" / "peers" / "in_tasks" / "evaluations.py"
MANNERS = {
    "reasoning-gym": ("gold", "wrong", "malformed", "empty"),
    "textarena": ("random", "wrong", "malformed", "empty"),
    "gem": ("random", "wrong", "malformed", "empty"),
    "inspect": ("gold", "wrong", "malformed", "empty"),
}
Case = dict[str, Any]


def main() -> int:
    """Compare a sample of each kind, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--kinds", nargs="*", default=list(MANNERS), choices=list(MANNERS))
    parser.add_argument("--count", type=int, default=12)
    options = parser.parse_args()
    differing = 0
    for kind in options.kinds:
        try:
            python = python_of(find_kind(kind))
        except ConfigError as error:
            print(f"{kind}: {error}")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            chance = random.Random(f"{kind} {options.seed}")
            cases = drawn(kind, chance, options.count, scratch)
            counts = compare(cases, originals(python, cases))
        print(f"{kind}: {len({c['name'] for c in cases})} environments, {dict(counts)}", flush=True)
        differing += counts["differ"]
    return 1 if differing else 0


def drawn(kind: str, chance: random.Random, count: int, scratch: str) -> list[Case]:
    """Return the cases of a sample: an environment, a task, and a manner of answering."""
    cases: list[Case] = []
    for family, variant in chance.sample(pool := playable(kind), min(count, len(pool))):
        case: Case = {"kind": kind, "family": family, "variant": variant, "scratch": scratch}
        case["name"] = f"{kind}/{family}" + (f" {variant}" if variant else "")
        case["seed"] = chance.randrange(1 << 20)
        case["path"] = str(TASKS)
        if kind == "inspect":
            env = opened(case)
            case["seed"] %= env.tasks("train").size
            case["asked"] = str(env.reset(options={"task": f"train/{case['seed']}"})[0])
            env.close()
        if kind == "textarena":
            env = opened(case)
            case["players"] = env.session.env.about.players  # pyright: ignore
            env.close()
        cases += [{**case, "manner": manner} for manner in MANNERS[kind]]
    return cases


def playable(kind: str) -> list[tuple[str, str]]:
    """Return the families and variants that need nothing."""
    if kind == "inspect":  # the package's own evaluations all need a download
        return [("sums", ""), ("choices", ""), ("twice", "")]
    listed = catalogue(kind)
    assert listed is not None
    return [
        (family.name, variant)
        for family in listed.families
        if not family.needs and not family.problem
        for variant in family.variants or [""]
    ]


def originals(python: str, cases: list[Case]) -> list[Any]:
    """Have the package itself play the cases."""
    done = subprocess.run(
        [python, "-s", str(ORIGINALS)],
        input=json.dumps(cases),
        env={**os.environ, "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("case: ")]
    if len(lines) != len(cases):
        raise SystemExit(f"{len(lines)} of {len(cases)} answers: {done.stderr[-800:]}")
    return [json.loads(line.removeprefix("case: ")) for line in lines]


def opened(case: Case) -> Any:
    """Make an environment of a case, all of whose seats we play."""
    arguments = {"variant": case["variant"]} if case["variant"] else {}
    if case["kind"] == "inspect":
        return ludus.make(f"inspect/{case['family']}", path=case["path"])
    if case["kind"] == "textarena":
        arguments |= {"seat": -1, "observations": "full"}
    return ludus.make(f"{case['kind']}/{case['family']}-v0", **arguments)


def compare(cases: list[Case], recorded: list[Any]) -> Counter[str]:
    """Play each case as its original did; count what is the same, and print what differs."""
    counts: Counter[str] = Counter()
    env, name = None, ""
    for case, original in zip(cases, recorded, strict=True):
        if original is None:
            counts["without an answer"] += 1
            continue
        if "raised" in original:
            counts["the original raises"] += 1
            print(f"  the original raises: {case['name']} {case['manner']}: {original['raised']}")
            continue
        if case["name"] != name:
            if env is not None:
                env.close()
            env, name = opened(case), case["name"]
        verdict, detail = judged(env, case, original)
        counts[verdict] += 1
        if verdict == "differ":
            print(f"  differ: {name} seed {case['seed']} {case['manner']}: {detail}", flush=True)
    if env is not None:
        env.close()
    return counts


def judged(env: Any, case: Case, original: Case) -> tuple[str, str]:
    """Return how an episode here compares with the original's, and the numbers."""
    try:
        shown, rewards = played(env, case, original["actions"])
    except RewardUnavailable as error:
        return "differ", f"no reward here, {original['rewards']} there: {error}"
    if original["shown"].strip() not in shown.strip():
        return "differ", f"shows {shown[:150]!r}, the original {original['shown'][:150]!r}"
    if rewards != original["rewards"]:
        return "differ", f"{rewards} here, {original['rewards']} there"
    return "same", ""


def played(env: Any, case: Case, actions: list[str]) -> tuple[str, dict[str, float] | None]:
    """Play actions; return what was shown first, and the rewards by player if the episode ended."""
    observation, _ = env.reset(seed=0, options={"task": f"train/{case['seed']}"})
    shown = observation if isinstance(observation, str) else str(observation[-1].text)
    total, over = 0.0, False
    info: dict[str, Any] = {}
    for action in actions:
        if over:
            return shown, {"ended early": total}
        _, reward, ended, cut, info = env.step(action)
        total, over = total + float(reward), ended or cut
    if not over:
        return shown, None
    rewards = info.get("rewards")
    return shown, rewards if case["kind"] == "textarena" and rewards else {"0": total}


if __name__ == "__main__":
    sys.exit(main())
