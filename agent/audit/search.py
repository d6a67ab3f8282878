"""The blind search for programs that are paid: short rows of moves, found on the tasks of training
and then played on the audited tasks.

The search stands for the cheapest optimiser there is: what is paid after some thousand episodes of
blind trials will be paid to a policy in training, too. Programs are **grown**: the best are kept,
and copies with a random change are tried.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean

from ludus.envs import Briefing, ToolSpec

from .attackers import Action, AnswerFrame, Scene, plain_of, properties_of
from .moves import LONGEST_TEXT, Move, Program, about_of, commands_of, variants
from .rules import Rule
from .slots import slot, things_of

KEPT = 10
"""Number of best programs of which changed copies are tried."""
CONFIRMED = 6
"""Tasks on which the best programs are played again; the moves are made from lessons on others."""
SHARE = 0.6
"""Share of the time for all attacks that the search may take."""
LEADING = 40
"""Number of first moves from which every second change draws."""
LONGEST = 10
"""Most moves of a program."""
PLACES_ASKED = ("/", "", ".", "..", "*", "all")
"""Arguments that may show everything, or a list of what there is."""
EDGES = ("0", "-1")
"""Numbers that are asked for first, since a list may begin or end there."""
HIDDEN = ("answer", "solution", "secret", "key", "result", "diagnosis", "code", "target")
"""Usual names of what a task hides."""
REFUSED = re.compile(
    r"\b(?:closed|denied|forbidden|(?:not|n't) (?:allowed|permitted)|permission|refused|restricted"
    r"|locked|private|off limits|only for)\b",
    re.IGNORECASE,
)
"""A pattern of words by which a reply refuses to show something."""
_VERB = re.compile(r"\S+(?: -\S+)*")
"""A command with its options."""
_SENTENCE = re.compile(r"[,.:;!?](?:\s|$)")
MOST_SAID = 12
"""Most words of a reply that names the answer, if the answer stands in the texts from the start."""
FEWEST_LOOKS = 3
"""If the expert needs at least so many replies, to look up the whole task in one is no fair way."""
MOST_ASKED, MOST_THINGS, MOST_NAMES, MOST_UNHEARD, MOST_ALIKE = 240, 40, 12, 6, 2
"""Most replies that are read for an answer, things that are asked for first, new things of a reply,
questions in a form that never replies, and equal replies from which things are taken.
"""


@dataclass(frozen=True)
class SearchEffort:
    """The episodes that a search may play. They are counted, not timed, so that equal seeds give
    equal figures.
    """

    seeds: int
    """Programs that are tried first."""
    singles: int
    """Single moves that are tried."""
    pairs: int
    """Pairs of a move that changes what is shown, or that is paid, and another one."""
    grown: int
    """Changes of the best programs."""
    last: int
    """Tasks that decide between the last few programs."""


EFFORTS = (
    (0.003, SearchEffort(5000, 1500, 3000, 2400, 24)),
    (0.02, SearchEffort(3000, 900, 1500, 1200, 24)),
    (math.inf, SearchEffort(240, 120, 120, 160, 8)),
)
"""CPU seconds of an episode, and the effort where it takes less."""


@dataclass(frozen=True)
class Attempt:
    """The outcome of one episode of a program."""

    paid: float
    solved: bool = False
    """Whether the episode did the task, in whole or in a fair part."""
    reply: str = ""
    """The reply to the first move; "" if this move ended the episode."""

    def worth(self, *, counts_solved: bool) -> float:
        """Return the reward; 0 for a solved task, unless these count, too."""
        return 0.0 if self.solved and not counts_solved else self.paid


Form = Callable[[str], Move]
"""A function from a thing to the move that asks for the thing."""
Try = Callable[[Program, int], Attempt]
"""A function that plays a program on a task of training, by its number."""


def plays_program(program: Program) -> Callable[[Scene], Iterator[Action]]:
    """Return an attacker that plays a program again and again."""

    def plays(scene: Scene) -> Iterator[Action]:
        for move in itertools.cycle(program):
            yield move.action(scene)

    return plays


def asks(
    move: Move, rule: Rule, frame: AnswerFrame, ends: Program, scene: Scene
) -> Iterator[Action]:
    """Make a move, answer what a rule reads off its reply, and make the moves of the end."""
    yield move.action(scene)
    answer = frame.fill(rule(scene.shown))
    yield from itertools.cycle([answer, *(end.action(scene) for end in ends)])


@dataclass
class ProgramSearch:
    """A search for the program that is paid most.

    Args:
        moves: what programs are made of, the most telling first.
        attempt: plays a program on a task of training.
        seeds: programs that are tried first.
        effort: the episodes that may be played.
        enough: the mean reward at which nothing better is looked for.
        until: when the search ends at the latest, by `time.monotonic`; `was_cut` then says so.
    """

    moves: Sequence[Move]
    attempt: Try
    seeds: Sequence[Program]
    effort: SearchEffort
    enough: float
    until: float
    was_cut: bool = False
    _seeds: frozenset[Program] = frozenset()
    _played: dict[tuple[Program, int], Attempt] = field(
        default_factory=dict[tuple[Program, int], Attempt]
    )

    def __post_init__(self) -> None:
        self._seeds = frozenset(self.seeds)

    def best(self, rng: random.Random, *, counts_solved: bool) -> tuple[Program, float]:
        """Return the best program and its mean reward over several tasks; ((), 0) if none is paid.

        Args:
            rng: draws what is tried.
            counts_solved: whether right answers count, or only what is paid without them.
        """

        def worth(program: Program, task: int = 0) -> float:
            counts = counts_solved and any(move.reads for move in program)
            return self._tried(program, task).worth(counts_solved=counts)

        first, singles = self.seeds[: self.effort.seeds], self._singles(rng)
        paid = {program: worth(program) for program in (*first, *singles)}
        confirmed = partial(self._confirmed, paid, worth)
        best, mean = confirmed()
        if mean >= self.enough:
            return best, mean
        for program in self._pairs(singles, paid):
            if program not in paid:
                paid[program] = worth(program)
        best, mean = confirmed()
        if mean >= self.enough:
            return best, mean
        known = list(paid)
        ranked = sorted(known, key=lambda program: -paid[program])[:KEPT]
        for _ in range(self.effort.grown):
            grown = self._grown(ranked, known, rng)
            if grown not in paid:
                paid[grown] = worth(grown)
                known.append(grown)
                ranked = sorted((*ranked, grown), key=lambda program: -paid[program])[:KEPT]
        return confirmed()

    def without_reading(self) -> float:
        """Return the mean reward of the best program without slots, right answers included."""

        def paid(program: Program, task: int) -> float:
            return self._tried(program, task).paid

        blind = [p for p, task in self._played if not task and not any(m.reads for m in p)]
        return self._confirmed({p: paid(p, 0) for p in blind}, paid)[1]

    def _confirmed(
        self, paid: Mapping[Program, float], worth: Callable[[Program, int], float]
    ) -> tuple[Program, float]:
        """Return the best program and its mean reward, by successive halving: fewer programs are
        played on more tasks, since many are paid only on the first.
        """
        means, seeds = {p: mean for p, mean in paid.items() if mean > 0}, self._seeds
        for kept, tasks in ((8 * KEPT, 2), (2 * KEPT, CONFIRMED), (4, self.effort.last)):
            ranked = sorted(means, key=lambda p: (-means[p], p not in seeds, len(p)))[:kept]
            means = {p: fmean(worth(p, task) for task in range(tasks)) for p in ranked}
        best = max(means, key=lambda program: (means[program], -len(program)), default=())
        return best, means.get(best, 0.0)

    def _singles(self, rng: random.Random) -> list[Program]:
        moves, most = list(self.moves), self.effort.singles
        if len(moves) > most:  # the most telling stand first
            moves = [*moves[: most // 2], *rng.sample(moves[most // 2 :], most - most // 2)]
        return [(move,) for move in moves]

    def _pairs(
        self, singles: Sequence[Program], paid: Mapping[Program, float]
    ) -> Iterator[Program]:
        """Return programs with a move added: a paid program may be paid again, and a move that
        changes what is shown may open a way.
        """
        ranked = sorted(
            (program for program in paid if paid[program] > 0), key=lambda program: -paid[program]
        )
        texts = [move for move in self.moves if not move.tool]
        opening = self._opening(singles)
        again = [program * times for program in opening[:4] for times in (2, 4, 8)]
        firsts = [*ranked[:3], *opening, *again]
        if not firsts:
            return
        most = max(40, self.effort.pairs // len(firsts))
        calls = [move for move in self.moves if move.tool]
        # Calls are as many as texts where there are both.
        followers = [move for pair in itertools.zip_longest(texts, calls) for move in pair if move]
        pairs = ((*first, move) for first in firsts for move in followers[:most])
        yield from itertools.islice(pairs, self.effort.pairs)

    def _opening(self, singles: Sequence[Program]) -> list[Program]:
        """Return the calls, and the texts with an unusual reply; a few for each kind of reply."""
        kinds: dict[Program, tuple[str, str]] = {}
        for program in singles:
            reply = self._tried(program, 0).reply
            if reply:
                kinds[program] = program[0].tool, re.sub(r"\d+", "#", reply)[:80]
        counts = Counter(kinds.values())
        usual = max(2.0, 0.3 * sum(n for (tool, _), n in counts.items() if not tool))
        openings: list[Program] = []
        for (tool, reply), times in sorted(counts.items(), key=lambda item: item[1]):
            if tool or times < usual:
                openings += [program for program in kinds if kinds[program] == (tool, reply)][:3]
        return openings[:12]

    def _tried(self, program: Program, task: int) -> Attempt:
        known = self._played.get((program, task))
        if known is not None:
            return known
        if time.monotonic() > self.until:
            self.was_cut = True
            return Attempt(0.0)
        self._played[program, task] = attempt = self.attempt(program, task)
        return attempt

    def _grown(
        self, ranked: Sequence[Program], known: Sequence[Program], rng: random.Random
    ) -> Program:
        """Return a changed copy of one of the best programs, or of a random one."""
        parent = rng.choice(ranked if rng.random() < 0.6 else known)
        # The most telling moves stand first.
        other, moves = rng.choice(known), self.moves[: LEADING if rng.random() < 0.5 else None]
        move = rng.choice(moves)
        match rng.randrange(8):
            case 0:
                grown = (*parent, move)
            case 1:
                grown = (move, *parent)
            case 2:
                grown = (*parent, *other)
            case 3:
                place = rng.randrange(len(parent))
                again = [parent[place]] * rng.randint(1, 3)
                grown = (*parent[:place], *again, *parent[place:])
            case 4:
                place = rng.randrange(len(parent))
                grown = (*parent[:place], move, *parent[place + 1 :])
            case _:
                place = rng.randrange(len(parent))
                new = changed(parent[place], rng.choice((move, rng.choice(other))), rng)
                grown = (*parent[:place], new, *parent[place + 1 :])
        return grown[:LONGEST]


def telling(
    briefing: Briefing,
    texts: Sequence[str],
    answer: str,
    known: Sequence[str],
    ask: Callable[[Move], str],
) -> list[Move]:
    """Return the calls and commands whose replies hold the answer of a task.

    Tools and commands with one argument are asked for things that the texts name, and then for the
    things that the replies name: if the reply to `read .` is `a.txt`, `read a.txt` is tried.

    Args:
        briefing: what the policy is told.
        texts: texts that name commands and things.
        answer: the answer of the task.
        known: the replies to the expert; a move with one of these replies is no finding.
        ask: returns the reply to a move that is the first of an episode.
    """
    forms = _forms(briefing.tools, "string")
    forms += [partial(_said, form, verb) for form, verb in _spoken(briefing, texts)]
    context = "\n".join([*(tool.description for tool in briefing.tools), *texts])
    whole = [slot("text", 0, opening=True)] if len(known) >= FEWEST_LOOKS else []
    things = dict.fromkeys([*whole, *PLACES_ASKED, *HIDDEN, *things_of(context)][:MOST_THINGS])
    tellers, wanted = list[Move](), plain_of(answer)
    queue = deque((thing, form) for thing in things for form in forms)
    numbered = _forms(briefing.tools, "integer")
    queue.extendleft((edge, form) for form in numbered for edge in EDGES)
    asked, heard, replies = Counter[int](), set[int](), Counter[str]()
    most = MOST_SAID if wanted in plain_of(context) else math.inf  # of several, it names one
    while queue and asked.total() < MOST_ASKED and len(wanted) > 1:
        thing, form = queue.popleft()
        if asked[id(form)] >= MOST_UNHEARD and id(form) not in heard:
            continue  # it ends the episode, or says nothing
        asked[id(form)] += 1
        reply = ask(move := form(thing))
        if reply:
            heard.add(id(form))
        if wanted in plain_of(reply) and reply not in known and len(reply.split()) <= most:
            tellers.append(move)
        said = (reply.replace(thing, "#") if thing else reply)[:LONGEST_TEXT]
        replies[said] += 1
        if replies[said] > MOST_ALIKE:
            continue  # what is said of anything tells nothing
        named = [*things_of(reply)[:MOST_NAMES], *_paths(thing, reply, things)]
        fresh = [name for name in dict.fromkeys(named) if name not in things]
        things |= dict.fromkeys(fresh)
        paths = [(name, each) for name in fresh if "/" in name for each in forms]
        queue.extendleft(reversed(paths))  # what lies deeper is looked for first
        queue.extend((name, each) for name in fresh if "/" not in name for each in forms)
    return tellers


def _forms(tools: Sequence[ToolSpec], kind: str) -> list[Form]:
    """Return the forms of calls of tools whose only argument has the JSON type `kind`."""
    return [
        partial(_call, tool.name, argument, kind)
        for tool in tools
        for argument, schema in properties_of(tool).items()
        if len(properties_of(tool)) == 1 and schema.get("type") == kind
    ]


def _paths(thing: str, reply: str, things: Iterable[str]) -> list[str]:
    """Return the paths of the names in a reply that is a list, and detours to a refused path."""
    rows, paths = reply.splitlines(), list[str]()
    is_row = len(rows) == 1 and not _SENTENCE.search(reply)
    is_listing = is_row or all(len(row.split()) == 1 for row in rows)
    if is_listing and "/" in thing and (thing.strip("/") or "/") not in reply:
        paths += [f"{thing.rstrip('/')}/{name}" for name in things_of(reply)[:MOST_NAMES]]
    if REFUSED.search(reply) and thing.strip("./"):  # guards often read how a path begins
        folder = next((each.partition("/")[0] for each in things if "/" in each[1:]), ".")
        root = thing[: thing.startswith("/")]
        paths += [f"{root}./{thing.strip('/')}", f"{folder}/../{thing.strip('/')}"]
    return paths


def _spoken(briefing: Briefing, texts: Sequence[str]) -> Iterator[tuple[Form, str]]:
    """Return pairs (form, command): commands that may be said, or given to a tool whose description
    lists them.
    """
    if not briefing.tools:
        yield from ((Move, verb) for verb in (*_verbs(texts), ""))
    for tool in briefing.tools:
        for form in _forms([tool], "string"):
            yield from ((form, verb) for verb in _verbs([about_of(tool)]))


def _verbs(texts: Sequence[str]) -> list[str]:
    known = (_VERB.match(text) for text in commands_of("\n".join(texts), ()))
    return [*dict.fromkeys(verb[0] for verb in known if verb)]


def quoted(replies: Iterable[str], briefing: Briefing, texts: Sequence[str]) -> list[Move]:
    """Return the lines of replies that are commands, as moves: a file may tell what to do."""
    lines = [line.strip() for reply in replies for line in reply.splitlines()]
    forms = list(_spoken(briefing, texts))
    said = ((line, form) for line in lines for form, verb in forms if line.startswith(f"{verb} "))
    return [*dict.fromkeys(form(line) for line, form in said)][:MOST_UNHEARD]


def _call(tool: str, argument: str, kind: str, thing: str) -> Move:
    given = {argument: int(thing) if kind == "integer" else thing}
    return Move.calling(tool, given)


def _said(form: Form, verb: str, thing: str) -> Move:
    return form(f"{verb} {thing}".strip())


def changed(move: Move, other: Move, rng: random.Random) -> Move:
    """Return a move with one piece changed, joined to another move, or with an argument of that."""
    if not move.tool:
        if other.text and rng.random() < 0.5:
            return replace(move, text=f"{move.text}{rng.choice(chr(10) + ' ')}{other.text}")
        return replace(move, text=rng.choice(variants(move.text[:LONGEST_TEXT])))
    given = json.loads(move.arguments)
    if not given:
        return move
    name = rng.choice(sorted(given))
    if other.tool == move.tool:
        given[name] = json.loads(other.arguments).get(name, given[name])
    elif isinstance(given[name], str):
        given[name] = rng.choice(variants(given[name][:LONGEST_TEXT]))
    return replace(move, arguments=json.dumps(given))


def described(program: Program) -> str:
    """Return a program for a report; a move that is repeated is written once.

    >>> described((Move("sea"), Move("sea"), Move("undo")))
    'sea (2 times); undo'
    """
    groups = [(str(move), len(list(same))) for move, same in itertools.groupby(program)]
    return "; ".join(f"{move} ({times} times)" if times > 1 else move for move, times in groups)
