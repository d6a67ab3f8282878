"""What an audit says about environments: a line of JSON for each, and the pages made of them.

python benchmarks/audit.py measure FILE [ID]...     # our own environments, or those that are named
python benchmarks/audit.py families FILE            # reasoning-gym's and TextArena's, if installed
python benchmarks/audit.py cards FILE > docs/cards.md
python benchmarks/audit.py table FILE               # the rows of a table
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median

import msgspec

from ludus.agent.audit import AttackTally, Audit, audit, report_of
from ludus.envs import env_ids, make
from ludus.envs.outside.kinds import catalogue
from ludus.envs.tasks import TaskSet
from ludus.errors import UnknownTask

COUNTED = 300
"""Tasks of a split that are compared and counted."""
BOUND = 0.05
"""The share of the expert's reward that an attack may earn without solving."""
BUDGET_S = 240.0
"""Seconds for the attacks on one; a search that was cut short is told on its card."""
FAMILY_TASKS = 6
"""Tasks that each attacker plays in somebody else's environments, which are many."""
SANDBOXED = ("coding-tools", "coding", "files", "maths-tools", "repair", "verilog")
"""Environments whose steps run programs: fewer tasks, and no search."""
CURVES = {
    "ludus/arithmetic-v0": "[vision.md](vision.md), [training.md](training.md)",
    "ludus/image-prompt-v0": "[environments.md](environments.md): 0.138, 0.279 and 0.061 rose to "
    "0.997, 1.000 and 1.000",
}
REASONS = {
    "ludus/number-quiz-v0": "a number of the right kind earns 0.1, so that format is learned first"
}
LICENCE = "Apache-2.0, drawn here; a file that is given as source keeps its own"


class Attack(msgspec.Struct):
    """What an attacker earned."""

    name: str
    kind: str
    mean: float
    counts: float
    low: float
    high: float
    unsolved: float
    """Mean share of the expert's reward that was paid without the right answer."""
    wins: bool


class Card(msgspec.Struct):
    """What is measured of an environment."""

    env: str
    about: str
    tasks: dict[str, tuple[int | None, int, int]]
    """Split -> size (None without end), tasks that were looked at, distinct ones among them."""
    difficulty: tuple[float, float, float] | None
    expert: float | None
    floor: float
    attacks: list[Attack]
    verdict: str
    failed: list[str]
    fault: str
    skipped: list[str]
    """Attackers that found no time."""
    cpu_s: float
    attacked: int
    """Tasks that each attacker played."""

    @property
    def best(self) -> Attack | None:
        """The attack that earns most without the right answer."""
        return max(self.attacks, key=lambda attack: attack.unsolved, default=None)


def card_of(env: str, *, tasks: int = 24, searches: bool = True) -> Card:
    """Audit an environment and count its tasks."""
    started = time.process_time()
    audited = audit(env, tasks=tasks, searches=searches, budget_s=BUDGET_S)
    report = report_of(audited)
    counts, difficulty, about = _counted(env)
    return Card(
        env=env,
        about=about,
        tasks=counts,
        difficulty=difficulty,
        expert=audited.oracle if audited.expert else None,
        floor=audited.floor,
        attacks=[_attack(audited, tally) for tally in audited.tallies],
        verdict=report.verdict,
        failed=[result.check_id for result in report.failures],
        fault=audited.fault,
        skipped=audited.skipped,
        cpu_s=time.process_time() - started,
        attacked=len(audited.tasks),
    )


def _attack(audited: Audit, tally: AttackTally) -> Attack:
    oracle = audited.oracle or 1.0
    shares = [
        0.0 if trial.solved else min(1.0, max(0.0, trial.reward / oracle)) for trial in tally.trials
    ]
    gain = tally.gain
    return Attack(
        tally.attacker.name,
        str(tally.attacker.kind),
        tally.mean,
        gain.value,
        gain.low,
        gain.high,
        fmean(shares) if shares else 0.0,
        tally.wins,
    )


def _counted(
    env: str,
) -> tuple[dict[str, tuple[int | None, int, int]], tuple[float, float, float] | None, str]:
    gym = make(env)
    counts: dict[str, tuple[int | None, int, int]] = {}
    difficulties: list[float] = []
    for split in ("train", "validation", "test"):
        try:
            tasks: TaskSet = gym.tasks(split)
        except UnknownTask:
            continue
        looked = COUNTED if tasks.size is None else min(COUNTED, tasks.size)
        shown = set[str]()
        for task in map(tasks.at, range(looked)):
            shown.add(repr(gym.reset(seed=0, options={"task": task.id})))
            if task.difficulty is not None:
                difficulties.append(float(task.difficulty))
        counts[split] = tasks.size, looked, len(shown)
    session = gym.session
    doc = (type(getattr(session, "env", session)).__doc__ or "").strip().splitlines()
    gym.close()
    spread = (min(difficulties), median(difficulties), max(difficulties)) if difficulties else None
    return counts, spread, doc[0] if doc else ""


def _families() -> Iterator[str]:
    """Yield the families of reasoning-gym and TextArena that can be played here."""
    for kind in ("reasoning-gym", "textarena"):
        listed = catalogue(kind)
        for family in listed.families if listed is not None else ():
            if not family.needs and not family.problem:
                yield f"{kind}/{family.name}-v0"


def measure(path: Path, ids: Sequence[str], *, tasks: int, searches: bool) -> None:
    """Append a line for each environment that the file does not have yet."""
    known = {card.env for card in read(path)}
    for env in ids:
        if env in known:
            continue
        try:
            card = card_of(env, tasks=tasks, searches=searches)
        except Exception as error:  # of somebody else's packages, too
            print(f"{env}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            continue
        with path.open("ab") as file:
            file.write(msgspec.json.encode(card) + b"\n")
        best = card.best
        print(env, card.verdict, best and (best.name, round(best.unsolved, 3)), flush=True)


def read(path: Path) -> list[Card]:
    """Read the lines of a file; none where there is no file."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Card) for line in lines]


def row_of(card: Card) -> str:
    """Return the row of a table."""
    expert = "none" if card.expert is None else f"{card.expert:.2f}"
    cells = [card.env, expert, f"{card.floor:.2f}"]
    for name in ("unsolved", "counts"):
        figures = {attack.name: float(getattr(attack, name)) for attack in card.attacks}
        best = max(figures, key=lambda each: figures[each], default="")
        most = figures.get(best, 0.0)
        cells.append(f"{most:.2f} ({best})" if most > 0.005 else "0.00")
    winners = ", ".join(attack.name for attack in card.attacks if attack.wins) or "none"
    return f"| {' | '.join([*cells, winners, f'{card.cpu_s:.0f}', card.verdict])} |"


HEAD = (
    "| environment | expert | nothing | best unsolved | best that counts | winners | CPU s | "
    "verdict |\n|---|---|---|---|---|---|---|---|"
)


def page_of(card: Card) -> Iterator[str]:
    """Yield the lines of a card."""
    yield f"## {card.env}\n"
    yield f"{card.about}\n"
    yield "| | |\n|---|---|"
    for split, (size, looked, distinct) in card.tasks.items():
        total = "without end" if size is None else f"{size}"
        yield f"| tasks of {split} | {total}; {distinct} of the first {looked} differ |"
    if card.difficulty is not None:
        least, middle, most = card.difficulty
        yield f"| difficulty | {least:g} to {most:g}, median {middle:g} |"
    yield f"| expert | {'none' if card.expert is None else f'{card.expert:.3f}'} |"
    yield f"| nothing done | {card.floor:.3f} |"
    chance = next((attack for attack in card.attacks if attack.name == "random calls"), None)
    yield f"| random | {chance.mean if chance else 0.0:.3f} |"
    best = card.best
    if best is not None:
        within = "within" if best.unsolved <= BOUND else "above"
        reason = f": {REASONS[card.env]}" if best.unsolved > BOUND and card.env in REASONS else ""
        yield (
            f"| best attack that does not solve | {best.unsolved:.3f} ({best.name}), {within} "
            f"{BOUND}{reason} |"
        )
    if card.env in CURVES:
        yield f"| learning curve | {CURVES[card.env]} |"
    yield f"| tasks of each attacker | {card.attacked} |"
    yield f"| licence | {LICENCE} |"
    yield f"| audit | {card.verdict}{': ' * bool(card.failed)}{', '.join(card.failed)} |\n"
    paid = sorted((a for a in card.attacks if a.mean > 0), key=lambda attack: -attack.mean)
    if paid:
        yield "| attacker | kind | mean reward | counts | interval | unsolved |"
        yield "|---|---|---|---|---|---|"
        for a in paid:
            figures = (f"{a.mean:.3f}", f"{a.counts:.3f}", f"{a.low:.2f} to {a.high:.2f}")
            yield f"| {a.name} | {a.kind} | {' | '.join(figures)} | {a.unsolved:.3f} |"
    if card.skipped:
        yield f"\nNo time for: {', '.join(card.skipped)}."
    nothing = len(card.attacks) - len(paid)
    yield f"\n{nothing} of {len(card.attacks)} attackers earn nothing on any task.\n"


def main() -> None:
    """Measure, or print pages."""
    verb, file, *ids = sys.argv[1:]
    path = Path(file)
    if verb == "measure":
        own = ids or [name for name in env_ids() if name.startswith("ludus/")]
        slow = [name for name in own if name.removeprefix("ludus/")[:-3] in SANDBOXED]
        measure(path, [name for name in own if name not in slow], tasks=24, searches=True)
        measure(path, slow, tasks=8, searches=False)
    elif verb == "families":
        measure(path, ids or list(_families()), tasks=FAMILY_TASKS, searches=False)
    elif verb == "table":
        print(HEAD, *map(row_of, read(path)), sep="\n")
    else:
        print("# Cards\n")
        print(
            "A card for each environment of ours, generated by `python benchmarks/audit.py measure "
            f"FILE` and `cards FILE`, with the attackers of [audit.md](audit.md). The "
            f"bound: an attack that does not solve a task earns at most {BOUND} of the expert's "
            "reward.\n"
        )
        for card in sorted(read(path), key=lambda card: card.env):
            print("\n".join(page_of(card)))


if __name__ == "__main__":
    main()
