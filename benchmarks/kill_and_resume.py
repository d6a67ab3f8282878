"""Kills a training run again and again, resumes it, and recomputes the accounting law from the
files that it leaves.

    python benchmarks/kill_and_resume.py                          # 20 kills, synchronous
    python benchmarks/kill_and_resume.py --staleness 2
    python benchmarks/kill_and_resume.py --staleness 2 --recipe dapo
    python benchmarks/kill_and_resume.py --check runs/mine        # the law of any run

The run is killed by SIGKILL at random moments: after a random time, in the middle of a save, right
after a line of metrics. Without a filter the multiset of trained ordinals must be that of a run
that nobody killed, and a synchronous run must end with the same weights, bit by bit. With a filter
no ordinal may be missing or doubled, and each is trained, or masked with its reason.

The law is recomputed from `rollouts.jsonl`, `metrics.jsonl` and the last checkpoint by code that
shares nothing with the trainer's accounts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

GROUP_SIZE = 3
TIMEOUT_S = 600.0


# --- the law, from files alone ----------------------------------------------------------------


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a JSONL file, without one that a kill has cut short."""
    parsed: list[dict[str, Any]] = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            parsed.append(json.loads(line))
        except ValueError:
            continue
    return parsed


def breaches(folder: Path) -> list[str]:
    """Return every breach of the law in the folder of a run that has ended."""
    import torch

    fates, metrics = rows(folder / "rollouts.jsonl"), rows(folder / "metrics.jsonl")
    steps = [row for row in metrics if "rollouts/issued" in row]
    if not steps:
        return ["metrics.jsonl has no step with accounts"]
    violations: list[str] = []
    for row in steps:
        terms = [row[f"rollouts/{name}"] for name in ("trained", "masked", "waiting", "in_flight")]
        if row["rollouts/issued"] != sum(terms):
            violations.append(
                f"step {row['step']:.0f}: {row['rollouts/issued']} issued, not {terms}"
            )
        final = [fate for fate in fates if fate["step"] <= row["step"]]
        reasons = Counter(fate.get("reason") for fate in final if fate["fate"] == "masked")
        masked = {name[16:]: row[name] for name in row if name.startswith("rollouts/masked/")}
        if masked != reasons or row["rollouts/trained"] != len(final) - reasons.total():
            violations.append(
                f"step {row['step']:.0f}: its row and the final rollouts differ: {masked}"
            )
    numbers = Counter(int(row["step"]) for row in steps)
    if numbers != Counter(range(1, max(numbers) + 1)):
        violations.append(
            f"steps are missing or doubled in metrics.jsonl: {sorted(numbers.elements())}"
        )
    scored = Counter(int(row["step"]) for row in metrics if "eval/episodes" in row)
    if again := sorted(step for step, count in scored.items() if count > 1):
        violations.append(f"steps that were evaluated twice: {again}")
    times = Counter(fate["ordinal"] for fate in fates)
    if doubled := sorted(ordinal for ordinal, count in times.items() if count > 1):
        violations.append(f"ordinals with two fates: {doubled[:10]}")
    if nameless := [fate for fate in fates if fate["fate"] != "trained" and not fate.get("reason")]:
        violations.append(f"masked without a reason: {[fate['ordinal'] for fate in nameless][:10]}")
    # what has no fate must be in the last checkpoint, to be played or used later
    newest = max((folder / "checkpoints").glob("step-*"))
    state = torch.load(newest / "trainer.pt", weights_only=True)["stream"]
    tickets = [*state["unfinished"], *(group["ticket"] for group in state["finished"])]
    size = round(steps[-1]["rollouts/issued"] / max(1, state["frontier"]))
    open_ = {ticket["ordinal"] * size + index for ticket in tickets for index in range(size)}
    every = set(range(state["frontier"] * size))
    if lost := sorted(every - set(times) - open_):
        violations.append(f"lost ordinals: {lost[:10]}")
    if twice := sorted(open_ & set(times)):
        violations.append(f"ordinals that are final and open: {twice[:10]}")
    if strange := sorted(set(times) - every):
        violations.append(f"ordinals that were never issued: {strange[:10]}")
    trained = sum(fate["fate"] == "trained" for fate in fates)
    if trained != state["trained"] or len(fates) - trained != sum(state["masked"].values()):
        violations.append(
            f"{trained} of {len(fates)} are trained; the checkpoint counts another number"
        )
    return violations


def trained(folder: Path) -> Counter[tuple[int, str]]:
    """Return the multiset of trained ordinals, each with its task."""
    fates = rows(folder / "rollouts.jsonl")
    return Counter((fate["ordinal"], fate["task"]) for fate in fates if fate["fate"] == "trained")


def weights(folder: Path) -> str:
    """Return a digest of the weights of the last checkpoint."""
    newest = max((folder / "checkpoints").glob("step-*"))
    return hashlib.sha256((newest / "model.safetensors").read_bytes()).hexdigest()


# --- kill and resume ---------------------------------------------------------------------------


def start(arguments: list[str], log: Path) -> int:
    """Run `ludus train` in a child of this process, which has loaded what takes long; return its
    number.
    """
    child = os.fork()
    if child:
        return child
    with log.open("ab") as file:  # the child
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    from ludus.cli.main import main

    code = 1
    try:
        code = main(["train", *arguments])
    finally:
        sys.stdout.flush()
        os._exit(code)


def ended(child: int) -> bool:
    return os.waitpid(child, os.WNOHANG) != (0, 0)


def kill_at(child: int, folder: Path, moment: str, after_s: float) -> bool:
    """Kill a run at a moment; False if the run ended before."""
    started, lines = time.monotonic(), len(rows(folder / "metrics.jsonl"))
    while True:
        passed = time.monotonic() - started
        saving = any((folder / "checkpoints").glob(".*-*"))
        wrote = len(rows(folder / "metrics.jsonl")) > lines
        due = {"time": passed > after_s, "saving": saving, "line": wrote}[moment]
        if (due and passed > min(after_s, 0.05)) or passed > 20 * after_s + 5:
            break
        if ended(child):
            return False
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def finish(child: int) -> int:
    """Wait for the end of a run, and return its exit status."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    raise SystemExit(f"a run did not end within {TIMEOUT_S:g} s")


def prepare(work: Path) -> Path:
    """Load what takes long, make a tiny policy, and register a reward that a policy without skill
    earns now and then.
    """
    import ludus
    from ludus.rewards import Sample
    from ludus.trainer.models.tiny import write_tiny_policy
    from ludus.trainer.train import run_training
    from ludus.verdict import Verdict

    assert run_training  # loaded before any fork

    @ludus.verifier("bench/parity")
    class Parity:  # pyright: ignore[reportUnusedClass]
        """A reward of 0 or 1 by a digest of what the policy said."""

        async def score(self, sample: Sample) -> Verdict:
            said = repr(sample).encode()
            return Verdict.of(float(hashlib.sha256(said).digest()[0] % 2))

    return write_tiny_policy(work / "model", hidden=16, layers=1, heads=2)


def settings(options: argparse.Namespace, work: Path, model: Path, name: str) -> list[str]:
    config = work / f"{name}.toml"
    config.write_text(
        f"""
recipe = "{options.recipe}"
env = "ludus/arithmetic-v0"
steps = {options.steps}
[model]
path = "{model}"
[rollout]
tasks_per_step = 3
group_size = {GROUP_SIZE}
max_tokens = 12
max_turns = 2
[trainer]
lr = 1e-3
[overlap]
max_staleness = {options.staleness}
late = "{options.late}"
deadline_s = {0.0 if options.late == "wait" else options.deadline_s}
[eval]
tasks = 2
every = 4
[run]
folder = "{work / name}"
tensorboard = false
save_every = 1
episodes_every = 0
[[reward]]
name = "bench/parity"
"""
    )
    return [str(config)]


def measure(options: argparse.Namespace, work: Path) -> list[str]:
    """Run, kill, resume; print what was seen, and return the breaches."""
    model = prepare(work)
    if code := finish(start(settings(options, work, model, "whole"), work / "whole.log")):
        return [f"the run that nobody killed ended with {code}; see {work / 'whole.log'}"]
    arguments, folder = settings(options, work, model, "cut"), work / "cut"
    rng, kills, log = random.Random(options.seed), Counter[str](), work / "cut.log"
    while sum(kills.values()) < options.kills:
        resume = ["--run.resume"] if (folder / "config.toml").exists() else []
        child = start([*arguments, *resume], log)
        moment = rng.choice(["time", "time", "saving", "line"])
        if not kill_at(child, folder, moment, rng.expovariate(1 / options.life_s)):
            break  # it ended before it could be killed: more steps are needed
        kills[moment] += 1
        last = sorted(path.name for path in (folder / "checkpoints").glob("step-*"))[-1:]
        print(f"kill {sum(kills.values()):>2} ({moment}): newest {last}", flush=True)
    resume = ["--run.resume"] if (folder / "config.toml").exists() else []
    if sum(kills.values()) == options.kills:
        if code := finish(start([*arguments, *resume], log)):
            return [f"the resumed run ended with {code}; see {log}"]
    else:
        return [f"the run ended after {sum(kills.values())} kills: raise --steps or lower --life-s"]
    violations = [f"whole: {text}" for text in breaches(work / "whole")]
    violations += [f"cut: {text}" for text in breaches(folder)]
    whole, cut = trained(work / "whole"), trained(folder)
    filters = options.recipe != "grpo" or options.late != "wait"
    if not filters and whole != cut:
        violations.append(
            f"other ordinals were trained: {sorted((whole - cut) + (cut - whole))[:10]}"
        )
    same = weights(work / "whole") == weights(folder)
    if not options.staleness and not filters and not same:
        violations.append("a synchronous run that was resumed ended with other weights")
    reasons = Counter(fate.get("reason", "") for fate in rows(folder / "rollouts.jsonl"))
    print(
        f"{sum(kills.values())} kills {dict(kills)}; {options.steps} steps, recipe "
        f"{options.recipe}, max_staleness {options.staleness}\n"
        f"trained: {sum(whole.values())} whole, {sum(cut.values())} cut; the same multiset: "
        f"{whole == cut}; the same weights: {same}\n"
        f"fates by reason ('' is trained): {dict(reasons)}"
    )
    return violations


def main() -> int:
    """Print the figures, and return 1 if the law is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--recipe", default="grpo")
    parser.add_argument("--late", default="wait", help="mask or drop what is late (with staleness)")
    parser.add_argument("--deadline-s", type=float, default=0.25, help="for --late")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--life-s", type=float, default=1.5, help="mean seconds before a kill")
    parser.add_argument("--keep", help="a folder for the runs, which stays")
    parser.add_argument("--check", help="check the folder of a run that has ended, and run nothing")
    options = parser.parse_args()
    if options.check:
        violations = breaches(Path(options.check))
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        work = Path(options.keep or tempfile.mkdtemp(prefix="kill-and-resume-"))
        work.mkdir(parents=True, exist_ok=True)
        try:
            violations = measure(options, work.absolute())
        finally:
            if not options.keep:
                shutil.rmtree(work, ignore_errors=True)
    for text in violations:
        print(f"BROKEN: {text}")
    print("the law holds" if not violations else f"the law is broken in {len(violations)} ways")
    return bool(violations)


if __name__ == "__main__":
    raise SystemExit(main())
