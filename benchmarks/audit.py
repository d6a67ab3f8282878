"""What an audit says about environments: a line of JSON for each, and the pages made of them.

python benchmarks/audit.py pages FILE             # measure what FILE lacks, and write both pages
python benchmarks/audit.py own FILE [ID]...       # measure our environments, or those named
python benchmarks/audit.py cards FILE             # measure our environments, and write their page
python benchmarks/audit.py families FILE [ID]...  # reasoning-gym's and TextArena's, if installed
python benchmarks/audit.py write FILE             # write the pages of what FILE has

The pages are docs/cards.md and docs/families.md. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median

import msgspec

from ludus.agent.audit import AttackTally, Audit, audit, report_of
from ludus.agent.audit.measures import TASKS
from ludus.envs import env_ids, make
from ludus.envs.outside.kinds import catalogue
from ludus.envs.tasks import TaskSet
from ludus.errors import UnknownTask

COUNTED = 100
"""Tasks of a split that are compared and counted."""
BOUND = 0.05
"""The share of the expert's reward that an attack may earn without solving."""
BUDGET_S = 3000.0
"""Seconds for the attacks on one of ours; a search that was cut short is told on its card."""
FAMILY_BUDGET_S = 240.0
"""The same for somebody else's: some draw each task for seconds."""
FAMILY_TASKS = 6
"""Tasks that each attacker plays in somebody else's environments, which are many."""
SLOW_TASKS = 12
SANDBOXED = ("coding-tools", "coding", "files", "maths-tools", "repair", "verilog")
"""Environments whose steps run programs: each attacker plays fewer tasks."""
STEP_S = 60.0
"""Seconds of a reset or step: some draw a puzzle by search."""
FAMILIES = ("reasoning-gym", "textarena")
MOST_NAMED = 6
"""Winners that are named in a row of a table."""
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
    unplayed: str = ""
    """Why it was not audited; empty if it was."""

    @property
    def best(self) -> Attack | None:
        """The attack that earns most without the right answer."""
        return max(self.attacks, key=lambda attack: attack.unsolved, default=None)


def card_of(env: str, *, tasks: int, searches: bool, budget_s: float, counted: int = 0) -> Card:
    """Audit an environment, and count that many tasks of each split."""
    started = time.process_time()
    audited = audit(env, tasks=tasks, searches=searches, budget_s=budget_s, step_timeout_s=STEP_S)
    report = report_of(audited)
    counts, difficulty, about = _counted(env, counted)
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
    env: str, most: int
) -> tuple[dict[str, tuple[int | None, int, int]], tuple[float, float, float] | None, str]:
    gym = make(env)
    counts: dict[str, tuple[int | None, int, int]] = {}
    difficulties: list[float] = []
    for split in ("train", "validation", "test"):
        try:
            tasks: TaskSet = gym.tasks(split)
        except UnknownTask:
            continue
        looked = most if tasks.size is None else min(most, tasks.size)
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


def measure_own(path: Path, ids: Sequence[str] = ()) -> None:
    """Append a card for each environment of ours that the file does not have yet."""
    for env in ids or [name for name in env_ids() if name.startswith("ludus/")]:
        slow = env.removeprefix("ludus/")[:-3] in SANDBOXED
        tasks = SLOW_TASKS if slow else TASKS
        measured = partial(
            card_of, env, tasks=tasks, searches=True, budget_s=BUDGET_S, counted=COUNTED
        )
        _append(path, env, measured)


def measure_families(path: Path, ids: Sequence[str] = ()) -> None:
    """Append a card for each family of reasoning-gym and TextArena, also for those that cannot be
    played here.
    """
    for kind in FAMILIES:
        listed = catalogue(kind)
        for family in listed.families if listed is not None else ():
            env, why = f"{kind}/{family.name}-v0", family.problem or family.needs
            if ids and env not in ids:
                continue
            if why:
                _append(path, env, partial(unplayed_card, env, why))
                continue
            measured = partial(
                card_of, env, tasks=FAMILY_TASKS, searches=False, budget_s=FAMILY_BUDGET_S
            )
            _append(path, env, measured)


def unplayed_card(env: str, why: str) -> Card:
    """Return the card of an environment that was not audited."""
    return Card(env, "", {}, None, None, 0.0, [], "", [], "", [], 0.0, 0, why)


def _append(path: Path, env: str, measured: Callable[[], Card]) -> None:
    if any(card.env == env for card in read(path)):
        return
    try:
        card = measured()
    except Exception as error:  # of somebody else's packages, too
        card = unplayed_card(env, f"{type(error).__name__}: {error}")
    with path.open("ab") as file:
        file.write(msgspec.json.encode(card) + b"\n")
    best = card.best
    print(env, card.verdict or card.unplayed, best and (best.name, round(best.unsolved, 3)))
    sys.stdout.flush()


def read(path: Path) -> list[Card]:
    """Read the lines of a file; none where there is no file."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Card) for line in lines]


def row_of(card: Card) -> str:
    """Return the row of a table."""
    if card.unplayed:
        return f"| {card.env} | not audited: {card.unplayed.replace('|', '/')} |{' |' * 6}"
    expert = "none" if card.expert is None else f"{card.expert:.2f}"
    cells = [card.env, expert, f"{card.floor:.2f}"]
    for name in ("unsolved", "counts"):
        figures = {attack.name: float(getattr(attack, name)) for attack in card.attacks}
        best = max(figures, key=lambda each: figures[each], default="")
        most = figures.get(best, 0.0)
        cells.append(f"{most:.2f} ({best})" if most > 0.005 else "0.00")
    winning = [attack.name for attack in card.attacks if attack.wins]
    winners = ", ".join(winning) or "none"
    if len(winning) > MOST_NAMED:
        winners = f"{len(winning)} of {len(card.attacks)}"
    if card.skipped:
        winners += f"; no time for {len(card.skipped)}"
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
    splits = dict[tuple[int | None, int, int], list[str]]()
    for split, counts in card.tasks.items():
        splits.setdefault(counts, []).append(split)
    for (size, looked, distinct), names in splits.items():
        total = "without end" if size is None else f"{size}"
        yield f"| tasks of {', '.join(names)} | {total}; {distinct} of the first {looked} differ |"
    if card.difficulty is not None:
        least, middle, most = card.difficulty
        yield f"| difficulty | {least:g} to {most:g}, median {middle:g} |"
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
    if card.failed:
        yield f"| failed | {', '.join(card.failed)} |"
    yield ""
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


CARDS = f"""\
# Cards

A table and a card for each environment of ours, made by `python benchmarks/audit.py pages FILE`
with the attackers of [audit.md](audit.md), the search included. The bound: an attack that does not
solve a task ("unsolved") earns at most {BOUND} of the expert's reward. Licence: {LICENCE}.

Three earn more, and why: `number-quiz` pays 0.1 for any number, so that format is learned first.
The forgeries of `repair` and `files` know the answer and spoil a part of it on which nothing
depends: numbers in a docstring, words of a command that 2 of 12 tasks do not need.
Luck is no attack, but a floor: of `shapes` a guess by the kind of question is right in 0.28 of 200
tasks; of `wikigame` a random walk that takes the target when it sees it arrives in 0.31 of 300.

"""
OTHERS = f"""\
# Families of other projects

What the attackers of [audit.md](audit.md), without the search and the learned rules, earn in every
family of reasoning-gym and TextArena: {FAMILY_TASKS} tasks each, `python benchmarks/audit.py pages
FILE`. An id is `KIND/NAME-v0`. TextArena has neither expert nor gold: every reward counts, and each
family fails for want of an expert.

"""
HEAD_OF_FAMILIES = "| family | nothing | best attack | winners |\n|---|---|---|---|"


def best_of(card: Card) -> Attack | None:
    """Return the attack whose reward counts most, or None where nothing counts."""
    best = max(card.attacks, key=lambda attack: attack.counts, default=None)
    return best if best is not None and best.counts > 0 else None


def row_of_family(card: Card) -> str:
    """Return the row of a family in which an attacker wins."""
    winning = [attack.name for attack in card.attacks if attack.wins]
    winners = ", ".join(winning)
    if len(winning) > MOST_NAMED:
        winners = f"{len(winning)} of {len(card.attacks)}"
    if card.skipped:
        winners += f"; no time for {len(card.skipped)}"
    best = best_of(card)
    most = f"{best.counts:.2f} ({best.name})" if best else "0.00"
    return (
        f"| {card.env.split('/')[1].removesuffix('-v0')} | {card.floor:.2f} | {most} | {winners} |"
    )


def lists_of(cards: Sequence[Card]) -> Iterator[str]:
    """Yield the families in which nobody wins, by what was measured, each with what an attacker
    earns above the bound; and those that were not audited, by the reason.
    """
    groups = dict[str, list[str]]()
    for card in cards:
        name = card.env.split("/")[1].removesuffix("-v0")
        if card.unplayed:
            said = f"Not audited: {card.unplayed}"
        else:
            expert = "no expert" if card.expert is None else f"expert {card.expert:.2f}"
            nothing = f", nothing {card.floor:.2f}" if card.floor < 0 else ""
            said = f"Nobody wins, {expert}{nothing}, verdict {card.verdict}"
            best = best_of(card)
            name += f" {best.counts:.2f}" if best and best.counts >= BOUND + 0.005 else ""
        groups.setdefault(said, []).append(name)
    for said, names in sorted(groups.items(), reverse=True):
        yield f"- **{said}**: {', '.join(names)}"


def page_of_families(cards: Sequence[Card]) -> str:
    """Return the page of the families of other projects."""
    parts = [OTHERS.rstrip()]
    for kind in FAMILIES:
        mine = [card for card in cards if card.env.startswith(f"{kind}/")]
        won = [card for card in mine if any(attack.wins for attack in card.attacks)]
        rows = "\n".join([HEAD_OF_FAMILIES, *map(row_of_family, won)])
        lists = "\n".join(lists_of([card for card in mine if card not in won]))
        parts += [
            f"## {kind}",
            rows,
            f"A figure is the most that an attacker earns, if above {BOUND}.",
            lists,
        ]
    return "\n\n".join(parts) + "\n"


def write_pages(path: Path, docs: Path) -> None:
    """Write the pages of the environments that were measured: that of families only if any was."""
    cards = sorted(read(path), key=lambda card: card.env)
    own = [card for card in cards if card.env.startswith("ludus/")]
    others = [card for card in cards if card.env.split("/")[0] in FAMILIES]
    details = ["\n".join(page_of(card)) for card in own if not card.unplayed]
    table = "\n".join([HEAD, *map(row_of, own)])
    text = f"{CARDS}{table}\n\n" + "\n".join(details)
    (docs / "cards.md").write_text(text.rstrip("\n") + "\n")
    if others:
        (docs / "families.md").write_text(page_of_families(others))


def main() -> None:
    """Measure, and write pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("pages", "own", "cards", "families", "write"))
    parser.add_argument("file", type=Path, help="the measurements, a line of JSON each")
    parser.add_argument("ids", nargs="*", metavar="ID", help="environments; all without any")
    given = parser.parse_args()
    verb, path, ids = given.verb, given.file, given.ids
    if verb in ("own", "cards", "pages"):
        measure_own(path, ids)
    if verb in ("families", "pages"):
        measure_families(path, ids)
    if verb in ("cards", "pages", "write"):
        write_pages(path, Path(__file__).parents[1] / "docs")


if __name__ == "__main__":
    main()
