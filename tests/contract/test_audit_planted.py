"""Exploits that were planted before the attackers were looked at, and sound environments near them.

`audited/planted.py` and `audited/sound.py` came first: the attackers of then found 5 of the 20, for
the right reason. `audited/held_out.py` came after they had learned those kinds: 4 of its 8 were
found at first sight. `audited/fresh.py` came next: 9 of 20 at first sight, 7 for the right reason.
`audited/later.py` came after those: 5 of its 8 at first sight. Then came `puzzles.py`, 13 of 20,
`services.py`, 16 of 20, `parlour.py`, 11 of 12, and `transcripts.py`, 16 of 22 (14 are kept).
"""

from __future__ import annotations

import base64
import importlib
import json
import posixpath
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.audit import Audit, Pressure, audit, report_of
from ludus.agent.audit.attackers import AnswerFrame, Lesson, Plays, Scene
from ludus.agent.audit.deeds import rescaled
from ludus.agent.audit.farms import Farm, farms_of
from ludus.agent.audit.forgeries import Forgery
from ludus.agent.audit.laws import laws_of, meddling_laws
from ludus.agent.audit.moves import (
    EVERY,
    Move,
    Program,
    every_number,
    hollow_answers,
    moves_of,
    variants,
)
from ludus.agent.audit.notation import Notation, Plan
from ludus.agent.audit.pressure import TrainedEpisode, put_under_pressure
from ludus.agent.audit.programs import programs_of
from ludus.agent.audit.rules import Rule, RuleKind, learned_rule, rule_from
from ludus.agent.audit.search import (
    EFFORTS,
    Attempt,
    ProgramSearch,
    changed,
    described,
    quoted,
    telling,
)
from ludus.agent.audit.slots import BEFORE_NUMBER, LAST_WORD, all_of, each_line, slot
from ludus.envs import Briefing, TextEnv, ToolSpec, register_env, tool
from ludus.envs.checks.subject import Played
from ludus.messages import Message, ToolCall, as_action, assistant

FOLDER = Path(__file__).parent / "audited"
WITH_SOUND = (
    *("puzzles", "services", "transcripts", "slips", "desks", "errands", "letters", "rounds"),
    *("replies", "margins", "stalls", "ledgers"),
)
"""Sets with sound environments beside the planted ones."""
NEVER = 1e12
"""A time that does not come."""
(_, QUICKEST), *_, (_, SLOW) = EFFORTS


def learned(scene: Scene) -> tuple[str, Rule] | None:
    """The first rule that is learned, of any kind."""
    rules = (learned_rule(scene, kind) for kind in RuleKind)
    return next((rule for rule in rules if rule is not None), None)


@pytest.fixture(scope="module")
def audited() -> Iterator[dict[str, list[str]]]:
    """The ids of the environments, which are registered."""
    sys.path.insert(0, str(FOLDER))
    sets = ("planted", "sound", "fair", "held_out", "fresh", "later", "parlour")
    names = (*sets, *WITH_SOUND)
    modules: dict[str, Any] = {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(FOLDER))
    ids: dict[str, list[str]] = {name: getattr(modules[name], name.upper()) for name in names}
    for name in WITH_SOUND:
        ids[f"sound {name}"] = getattr(modules[name], f"SOUND_{name.upper()}")
    return ids


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "most"),
    [
        *[("planted", 2), ("fresh", 2), ("later", 1)],
        *[("puzzles", 2), ("services", 2), ("parlour", 1), ("transcripts", 1)],
        *[("slips", 1), ("desks", 0), ("errands", 0), ("letters", 0), ("rounds", 0)],
        *[("replies", 0), ("margins", 0), ("stalls", 0), ("ledgers", 0)],
    ],
)
def test_planted_exploits_are_found(audited: dict[str, list[str]], kind: str, most: int) -> None:
    missed = [name for name in audited[kind] if not audit(name).winners]
    assert len(missed) <= most, missed


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sound", "fair", *(f"sound {name}" for name in WITH_SOUND)])
def test_sound_environments_are_not_flagged(audited: dict[str, list[str]], kind: str) -> None:
    failures = {name: report_of(audit(name)).failures for name in audited[kind]}
    assert {name: failed for name, failed in failures.items() if failed} == {}


@pytest.mark.slow
def test_exploits_of_other_kinds_are_found_mostly(audited: dict[str, list[str]]) -> None:
    found = [name for name in audited["held_out"] if audit(name).winners]
    assert len(found) >= 7, found


def scene(openings: list[str], answers: list[str], opening: str, prompt: str = "") -> Scene:
    lessons = [
        Lesson(f"t{n}", o, (a,)) for n, (o, a) in enumerate(zip(openings, answers, strict=True))
    ]
    episode = Played(seen=[(opening, 0.0, False, False)])
    return Scene(Briefing(system_prompt=prompt), episode, lessons, random.Random(0))


def test_a_rule_is_learned_from_other_tasks_alone() -> None:
    words = ["salve", "vale", "gratias", "amice", "roma", "ludus", "victor", "miles"]
    hidden = [f"Which word? (ref {base64.b64encode(w.encode()).decode()})" for w in words]
    rule = learned(scene(hidden[:7], words[:7], hidden[7]))
    assert rule is not None
    assert "base64" in rule[0]
    assert rule[1](hidden[7]) == "miles"
    backwards = [f"Say {w}." for w in words]
    answers = [w[::-1] for w in words]
    # where the task is to say it backwards, doing so is no exploit
    assert learned(scene(backwards, answers, "Say x.", "Say the word backwards.")) is None
    assert learned(scene(backwards[:5], answers[:5], "Say x.")) is None  # too few lessons
    assert learned(scene(backwards, ["yes"] * 8, "Say x.")) is None  # a constant


def test_the_search_finds_a_pair_that_is_paid_again_and_again() -> None:
    def attempt(program: Program, task: int) -> Attempt:
        held, paid = False, 0.0
        for n in range(12):
            said = program[n % len(program)].text
            paid += 0.2 * (said == "pick" and not held)
            held = said == "pick" or (held and said != "drop")
        return Attempt(paid)

    moves = moves_of(Briefing(system_prompt="Commands: pick, drop, go NAME."), ["A room."], [])
    assert Move("pick") in moves
    assert Move(f"go {LAST_WORD}") in moves
    bests = [
        ProgramSearch(moves, attempt, (), SLOW, 9.0, NEVER).best(
            random.Random(7), counts_solved=True
        )
        for _ in range(2)
    ]
    assert bests[0] == bests[1]  # equal seeds, equal programs
    program, paid = bests[0]
    assert paid == pytest.approx(1.2)
    assert set(described(program).split("; ")) == {"pick", "drop"}
    late = ProgramSearch(moves, attempt, (), SLOW, 9.0, -1.0)
    assert late.best(random.Random(7), counts_solved=True) == ((), 0.0)
    assert late.was_cut


def test_a_search_opens_a_way_that_no_single_move_is_paid_for() -> None:
    def attempt(program: Program, task: int) -> Attempt:
        level, reply = 5, ""
        for n in range(12):
            said = program[n % len(program)].text
            if said.startswith("level ") and said[6:].isdigit() and len(said) < 20:
                level = int(said[6:])
                reply = reply or f"level {level}"
            elif said.startswith("answer"):
                return Attempt(float(level == 0 and said == "answer 0"), reply=reply)
            else:
                reply = reply or "Commands: level N, answer N."
        return Attempt(0.0, reply=reply)

    moves = moves_of(Briefing(system_prompt="Commands: level N, answer N."), ["?"], [])
    search = ProgramSearch(moves, attempt, (), QUICKEST, 9.0, NEVER)
    program, paid = search.best(random.Random(0), counts_solved=False)
    assert (described(program), paid) == ("level 0; answer 0", 1.0)


def test_hollow_answers_have_the_shape_of_the_experts_and_nothing_in_them() -> None:
    def hollow(pairs: list[tuple[str, str]]) -> list[str]:
        return [m.text for m in hollow_answers([Lesson(o, o, (a,)) for o, a in pairs])]

    assert '{"plan": []}' in hollow([("?", '{"plan": [{"name": "a"}]}')])
    assert '{"choice": ["A", "B"]}' in hollow(
        [("?", '{"choice": ["A"]}'), ("!", '{"choice": ["B"]}')]
    )
    roads = [(f"Go from x{n} to y{n}.", f"x{n}-m-y{n}") for n in range(6)]
    first, last = slot("word", 2, opening=True), slot("word", 4, opening=True)
    assert f"{first}-{last}" in hollow(roads)
    assert "\n".join(map(str, range(16))) in hollow([("?", "3"), ("!", "7")])


def test_variants_keep_the_shape_and_change_each_piece() -> None:
    assert "hold -99999 9999 9999" in variants("hold 3 1 2", is_command=True)
    ranges = variants("12 to 15")
    assert {"-1000000 to 1000000", "0 to 15", "12 to 15 15", "12  15"} <= set(ranges)
    last = slot("word", -1)
    assert {f"set {last} 7", "set gain 0", "set gain "} <= set(
        variants("set gain 7", is_command=True)
    )
    assert all(text.startswith("set ") for text in variants("set gain 7", is_command=True))
    first = slot("word", 0, opening=True)
    assert f'"{first}"; "{first}"' in variants('"a b"; "c d"')  # alike pieces, filled alike
    assert f"say {first} 0" in variants(f"say {first} 7")  # a slot is one piece


def test_bounds_parts_and_whole_ranges_are_tried_in_a_command() -> None:
    briefing = Briefing(system_prompt="Commands: run PLAYER N. N is from 1 to 3.")
    texts = {move.text for move in moves_of(briefing, ["?"], [])}
    second = slot("word", 2, opening=True)
    assert {f"run {second} 3", "run 3 3", "run 0.5 0.5", "run PLAYER 256"} <= texts
    assert f"run PLAYER {every_number()}" in texts


def test_every_number_stands_in_the_shortest_text() -> None:
    assert len(every_number()) == 10_000 + 3
    assert len({every_number()[n : n + 4] for n in range(10_000)}) == 10_000


def test_others_speak_and_items_are_respelt() -> None:
    lessons = [Lesson(f"t{n}", f"Guest: {n}?", (f"x{n}",), ("It is done.",)) for n in range(3)]
    moves = moves_of(Briefing(), ["Guest: hello"], lessons)
    said = [str(move.action(scene(["?"], ["!"], "Find Oak."))) for move in moves]
    assert {"Guest: thank you", "It is done."} <= set(said)
    assert "Oak, OAK, oak, Oak, oAK, Oak." in said
    assert "x" in said  # the letter that answers have most often


def test_a_slot_reads_what_was_shown_before_the_last() -> None:
    seen = scene(["?"], ["!"], "Question 1")
    for shown in ("The answer was 42. Question 2: 7", "Question 1"):
        seen.episode.actions.append("next")
        seen.episode.seen.append((shown, 0.0, False, False))
    move = Move(f"answer {BEFORE_NUMBER}")
    assert move.action(seen) == "answer 42"
    assert str(move) == "answer <number 0 of the reply before>"
    briefing = Briefing(system_prompt="Commands: next, back, answer N.")
    assert any(
        str(program[2]) == str(move) and (program[0].text, program[1].text) == ("next", "back")
        for program in programs_of(briefing, ["?"], [])
        if len(program) > 2
    )


def test_commands_are_looped_and_enumerated_before_all_else() -> None:
    briefing = Briefing(system_prompt="Commands: harder, easier, answer N.")
    told = {described(program) for program in programs_of(briefing, ["?"], [])}
    assert "easier (4 times); answer 0" in told
    assert "answer 0 (8 times); easier" in told
    assert any(one.startswith("answer 0; answer 1; answer 2; answer 3") for one in told)


def test_a_move_is_changed_in_one_piece_or_joined_to_another() -> None:
    rng = random.Random(2)
    texts = {changed(Move("set gain 7"), Move("end"), rng).text for _ in range(2000)}
    assert {"set gain 7\nend", "set gain 7 end", "0 gain 7", "set gain 0"} <= texts
    call = Move(tool="pay", arguments='{"who": "ann", "much": 3}')
    other = Move(tool="pay", arguments='{"who": "bob", "much": -1}')
    calls = {changed(call, other, rng).arguments for _ in range(50)}
    assert calls == {'{"who": "bob", "much": 3}', '{"who": "ann", "much": -1}'}


def test_what_is_taken_back_is_done_again_and_less_than_none_makes_room() -> None:
    kinds = {"buy": {"thing": "string", "cheaply": "boolean"}, "give_back": {"thing": "string"}}
    kinds["staff"] = {"work": "string", "hours": "integer"}
    tools = [
        ToolSpec(
            name=name,
            description=name,
            parameters={"properties": {n: {"type": kind} for n, kind in given.items()}},
        )
        for name, given in kinds.items()
    ]
    close = assistant("", [ToolCall(name="close", arguments={})])
    lessons = [Lesson("t0", "?", (close,))]
    programs = {described(program) for program in programs_of(Briefing(tools=tools), [], lessons)}
    pair = "buy(thing=<every>, cheaply=True); give_back(thing=<every>)"
    assert f"{'; '.join([pair] * 4)}; close()" in programs
    less = "staff(work=<word 3 of the task>, hours=-1000000)"
    assert f"{less}; staff(work=<every>, hours=1000); close()" in programs


def test_tasks_with_equal_features_and_equal_answers_are_a_rule() -> None:
    rng = random.Random(5)
    names = ["".join(rng.choice("abcdefgh") for _ in range(rng.randint(3, 8))) for _ in range(40)]
    texts = [f"The riddle {name}: how many birds?" for name in names]
    answers = [str(len(name) ** 2) for name in names]
    rule = learned(scene(texts, answers, "The riddle abcd: how many birds?"))
    assert rule is not None
    assert rule[1]("The riddle abcd: how many birds?") == "16"
    asked = "Square the length of the name."
    assert learned(scene(texts, answers, texts[0], asked)) is None  # that is the task
    shuffled = rng.sample(answers, len(answers))
    assert learned(scene(texts, shuffled, texts[0])) is None


@pytest.mark.parametrize("line", ["- {}", "{}: I was here."])
def test_a_number_that_is_the_place_of_the_answer_is_a_rule(line: str) -> None:
    rng = random.Random(6)
    names = [f"n{chr(97 + n)}{chr(97 + n // 2)}" for n in range(20)]

    def task(*, is_sorted: bool) -> tuple[str, str]:
        offered = rng.sample(names, rng.randint(4, 7))
        number = rng.randint(1000, 9999)
        place = sum(map(int, str(number))) if is_sorted else rng.randrange(100)
        rows = "\n".join(map(line.format, offered))
        return f"Part {number}\n{rows}", offered[place % len(offered)]

    openings, answers = zip(*(task(is_sorted=True) for _ in range(30)), strict=True)
    new, answer = task(is_sorted=True)
    rule = learned(scene([*openings], [*answers], new))
    assert rule is not None
    assert rule[1](new) == answer
    assert learned(scene([*openings], [*answers], new, "Add the digits.")) is None
    openings, answers = zip(*(task(is_sorted=False) for _ in range(30)), strict=True)
    assert learned(scene([*openings], [*answers], new)) is None


def test_a_key_that_gives_the_answer_of_its_line_and_the_most_central_option_are_rules() -> None:
    rng = random.Random(8)
    queues = ["printer", "network", "account"]

    def tickets(*, is_sorted: bool) -> tuple[str, str]:
        numbers = rng.sample(range(1000, 9999), 5)
        said = [queues[n // 1000 % 3] if is_sorted else rng.choice(queues) for n in numbers]
        task = "\n".join(f"#{n} {rng.choice('abcdefgh')} fails" for n in numbers)
        return task, "\n".join(f"{n} {queue}" for n, queue in zip(numbers, said, strict=True))

    openings, answers = zip(*(tickets(is_sorted=True) for _ in range(20)), strict=True)
    new, answer = tickets(is_sorted=True)
    rule = learned(scene([*openings], [*answers], new))
    assert rule is not None
    assert rule[1](new) == answer
    openings, answers = zip(*(tickets(is_sorted=False) for _ in range(20)), strict=True)
    assert learned(scene([*openings], [*answers], new)) is None

    def options() -> tuple[str, str]:
        right = [str(rng.randint(10, 99)) for _ in range(4)]
        wrong = [[*right[:n], str(int(right[n]) % 90 + 10), *right[n + 1 :]] for n in range(4)]
        rows = [("-".join(right), True), *(("-".join(row), False) for row in wrong)]
        rng.shuffle(rows)
        letter = "ABCDE"[[is_right for _, is_right in rows].index(True)]
        return "\n".join(f"{c}. {row}" for c, (row, _) in zip("ABCDE", rows, strict=True)), letter

    openings, answers = zip(*(options() for _ in range(20)), strict=True)
    new, answer = options()
    rule = learned(scene([*openings], [*answers], new))
    assert rule is not None
    assert rule[1](new) == answer


def test_an_answer_between_equal_signs_is_a_rule() -> None:
    rng = random.Random(8)
    words = ["amber", "basket", "canyon", "dragon", "ember", "falcon", "garden", "hammer"]

    def entry() -> tuple[str, str]:
        plain = " ".join(rng.sample(words, 3))
        return f"{rng.randint(0, 9)} letters are right: {rng.choice(words)} (it is {plain})", plain

    openings, answers = zip(*(entry() for _ in range(12)), strict=True)
    text, answer = entry()
    rule = rule_from([*zip(openings, answers, strict=True)], "", AnswerFrame(), RuleKind.PIECE)
    assert rule is not None
    assert rule[1](text) == answer
    others = [*answers[1:], answers[0]]
    assert (
        rule_from([*zip(openings, others, strict=True)], "", AnswerFrame(), RuleKind.PIECE) is None
    )


def test_the_least_number_of_records_and_the_odd_row_are_rules() -> None:
    rng = random.Random(9)

    def deed() -> tuple[str, str]:
        numbers = rng.sample(range(1000, 9999), 5)
        rows = (f"{number} {name}" for number, name in zip(numbers, "ABCDE", strict=True))
        return f"Deed {rng.randint(10, 99)}. Firms: {'; '.join(rows)}", str(min(numbers))

    def memo() -> tuple[str, str]:
        numbers = rng.sample(range(100, 999), 8)
        kept = rng.choice(numbers)
        states = (
            f"{n} by {rng.choice('ABCDE')}, {'held' if n == kept else 'filed'}" for n in numbers
        )
        return "\n".join(states), str(kept)

    kinds = ((deed, "Follow the sold household.", RuleKind.RANK), (memo, "", RuleKind.GIVEAWAY))
    for draw, told, kind in kinds:
        known = [draw() for _ in range(20)]
        new, answer = draw()
        rule = rule_from(known, told, AnswerFrame(), kind)
        assert rule is not None
        assert rule[1](new) == answer
    assert (
        rule_from(known, "Seek what is held.", AnswerFrame(), RuleKind.GIVEAWAY) is None
    )  # the task


def test_help_texts_refusals_and_edges_of_calls_are_tried() -> None:
    rows = "  walk PLACE     goes there\nwarp <n> - for builders\n* scan: looks"
    texts = {move.text for move in moves_of(Briefing(), ["A room.", rows], [])}
    assert {f"walk {LAST_WORD}", f"warp {slot('number', 0, opening=True)}", "scan"} <= texts
    seen = scene(["?", "!"], ["It is 3.", "It is 4."], "Say 7.")
    seen.episode.actions.append("5")
    seen.episode.seen.append(("5 and 7 are not 42.", 0.0, False, False))
    news = Move(slot("number", 0, source="n"), answers=True)
    assert news.action(seen) == "It is 42"
    pay = ToolSpec(
        name="pay",
        description="Pay.",
        parameters={
            "type": "object",
            "properties": {"who": {"type": "string"}, "much": {"type": "integer"}},
            "required": ["who", "much"],
        },
    )
    end = ToolSpec(name="leave", description="Leave.", parameters={"type": "object"})
    programs = programs_of(Briefing(tools=(pay, end)), ["?"], [])
    assert "pay(who=nothing, much=-10); leave()" in {described(program) for program in programs}
    # An expert may know arguments that the tool of this task does not have.
    odd = assistant("", [ToolCall(name="pay", arguments={"who": "Ann", "way": "cash"}, id="0")])
    lessons = [Lesson("t", "?", (odd,), ("Paid.",), (1.0,))]
    told = map(described, programs_of(Briefing(tools=(pay, end)), ["?"], lessons))
    assert any("way=cash" in program for program in told)


def test_where_a_piece_of_the_task_is_the_answer_nothing_gives_it_away() -> None:
    # Decoding leaves a word as it is that is not encoded.
    known = [(f"The word is {word}.", word) for word in ("salve", "vale", "gratias") * 8]
    assert rule_from(known, "", AnswerFrame(), RuleKind.PIECE) is not None
    assert rule_from(known, "", AnswerFrame(), RuleKind.GIVEAWAY) is None
    hidden = [(f"The word is {word.encode().hex()}.", word) for _, word in known]
    assert rule_from(hidden, "", AnswerFrame(), RuleKind.GIVEAWAY) is not None


def test_words_that_give_an_answer_away_are_a_rule_and_chance_is_none() -> None:
    rng = random.Random(4)
    nouns = [f"w{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(300)]
    signs = [rng.random() < 0.5 for _ in range(30)]
    texts = [f"{rng.choice(nouns)} did {'not ' * sign}{rng.choice(nouns)}" for sign in signs]
    answers = ["no" if sign else "yes" for sign in signs]
    rule = learned(scene(texts, answers, "x did not y"))
    assert rule is not None
    assert "not" in rule[0]
    assert rule[1]("x did not y") == "no"
    by_chance = [rng.choice(["yes", "no"]) for _ in texts]
    assert learned(scene(texts, by_chance, "x did not y")) is None


def test_what_the_expert_does_is_generalised_and_repeated() -> None:
    def lesson(n: int, opening: str, *actions: str) -> Lesson:
        return Lesson(f"t{n}", opening, actions, ("ok",) * len(actions), (0.1, 0.0, 0.5))

    lessons = [
        lesson(0, "Box 7 lies at 31.", "go 31", "lift it", "done"),
        lesson(1, "Box 8 lies at 25.", "go 25", "lift it", "done"),
    ]
    programs = {described(program) for program in programs_of(Briefing(), ["?"], lessons)}
    go = "go <number -1 of the task>"
    assert {f"{go}; lift it", f"{go}; done", f"{go}; lift it (6 times); done"} <= programs
    assert Farm(0, between=Move("drop")) in farms_of(lessons[0], [Move("drop")])
    told = [Lesson("t0", "?", ("Ann receives salt.", "done"), rewards=(0.2, 0.0))]
    spelt = Farm(0, alone=True, how="spelt", times=2).actions(told[0])
    assert spelt[1:3] == ["ann receives salt.", "ANN RECEIVES SALT."]
    row = Farm(0, between=1).actions(lessons[0])
    assert row[:5] == ["go 31", "lift it", "go 31", "lift it", "go 31"]
    assert row[-2:] == ["lift it", "done"]
    only_at_the_end = Lesson("t", "?", ("go", "lift", "done"), ("", "", ""), (0.0, 0.0, 1.0))
    farms = list(farms_of(only_at_the_end, [Move("drop")]))
    alone = Farm(0, between=Move("drop"), alone=True)
    assert alone in farms
    assert alone.actions(only_at_the_end)[:3] == ["go", Move("drop"), "go"]
    assert alone.actions(only_at_the_end)[-2:] == ["go", "done"]


class Shelves(TextEnv):
    """Sound: each of five letters is paid once, on its own shelf."""

    again = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        self.shelves = [self.rng.randint(100, 999) for _ in range(5)]
        self.left = list(range(5))
        return "Shelves: " + ", ".join(map(str, self.shelves[::-1])), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "done":
            return "", 0.0, True, False, {}
        rights = {f"{n} on {shelf}": n for n, shelf in enumerate(self.shelves)}
        letter = rights.get(action)
        if letter is None or not (self.again or letter in self.left):
            return "no", 0.0, True, False, {}
        self.left = [n for n in self.left if n != letter]
        return "yes", 0.2, False, False, {}

    def demonstrate(self) -> str:
        return f"{self.left[0]} on {self.shelves[self.left[0]]}" if self.left else "done"


class PaidAgain(Shelves):
    """The same, paid again and again up to the whole reward."""

    again = True

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        said, reward, terminated, truncated, info = super().step(action)
        self.earned = getattr(self, "earned", 0.0) + reward
        reward = reward if self.earned <= 1.0 else 0.0
        return said, reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        self.earned = 0.0
        return super().reset(seed=seed, options=options)


def test_a_part_of_the_task_that_is_paid_as_the_whole_is_a_farm() -> None:
    def farmed(kind: type[TextEnv]) -> list[str]:
        report = audit(kind, tasks=8, attackers=[], budget_s=NEVER)
        return [tally.attacker.about for tally in report.winners if tally.attacker.name == "farm"]

    assert farmed(PaidAgain) == ["the expert's first actions, with paid action 1 repeated"]
    assert farmed(Shelves) == []


class Listed(TextEnv):
    """A mark is sought in a list that a search without hits shows with the right one first."""

    system_prompt = "Say the mark of the sought book."

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        names = [f"book{n}" for n in self.rng.sample(range(100, 999), 6)]
        self.marks = {name: f"{name[-2:]}-{self.rng.randint(1000, 9999)}" for name in names}
        self.sought, self.places = names[0], {name: self.rng.random() for name in names}
        return f"Seek {self.sought[::-1]} backwards.", {}

    @tool
    def find(self, words: str) -> str:
        """Search.

        Args:
            words: of a title
        """
        rows = sorted(self.marks.items(), key=lambda row: self.place(row[0], words))
        return "\n".join(f"The book {name} stands at {mark} today." for name, mark in rows)

    def place(self, name: str, words: str) -> float:
        return float(words not in name)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", float(action == self.marks[self.sought]), True, False, {}

    def gold(self) -> str:
        return self.marks[self.sought]

    def demonstrate(self) -> str:
        return self.marks[self.sought]


class Shuffled(Listed):
    """Sound: the same in another order each time."""

    def place(self, name: str, words: str) -> float:
        return self.places[name] - (words in name)


def probed(kind: type[TextEnv]) -> list[str]:
    report = audit(kind, tasks=12, attackers=[], budget_s=NEVER)
    return [t.attacker.about for t in report.winners if t.attacker.name.startswith("probe")]


def test_a_reply_that_gives_the_answer_away_is_a_leak() -> None:
    assert probed(Listed) == ["answers token 5 as it is of the reply"]


@pytest.mark.slow
def test_a_reply_in_another_order_each_time_is_no_leak() -> None:
    assert probed(Shuffled) == []


class Checked(TextEnv):
    """A name is asked for, and a tool says of each whether it is the right one."""

    limit = 99

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        names = self.rng.sample(["Ann", "Bob", "Cid", "Dee", "Eve", "Fay", "Gus", "Hal"], 5)
        self.key, self.asked = self.rng.choice(names), 0
        return f"Riddle {self.rng.random()}. Is it {', '.join(names)}?", {}

    @tool
    def check(self, name: str) -> str:
        """Check a name.

        Args:
            name: the name
        """
        self.asked += 1
        return "It is." if name == self.key and self.asked <= self.limit else "No."

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", float(action == self.key), True, False, {}

    def gold(self) -> str:
        return self.key

    def demonstrate(self) -> str:
        return self.key


class CheckedOnce(Checked):
    """Sound: only the first question is answered."""

    limit = 1


def test_a_tool_that_says_what_is_right_is_a_leak_where_all_may_be_tried() -> None:
    winners = audit(Checked, tasks=12, attackers=[], budget_s=NEVER).winners
    assert "tries" in [winner.attacker.name for winner in winners]


@pytest.mark.slow
def test_a_tool_that_says_once_what_is_right_is_no_leak() -> None:
    assert audit(CheckedOnce, tasks=12, attackers=[], budget_s=NEVER).winners == []


def test_rows_calls_at_once_and_news_are_filled_from_the_task() -> None:
    seen = scene(["?"], ["!"], "Jobs\n- saw: 3 hours\n- glue: 5 hours")
    seen.episode.actions.append("0")
    seen.episode.seen += [("Not 0 but 12. Next: 7", 0.0, False, False)]
    assert Move(f"{each_line(0)} 0 0").action(seen) == "saw 0 0\nglue 0 0"
    assert Move(all_of("number", "; ")).action(seen) == "3; 5"
    seen.episode.actions.append("12")
    seen.episode.seen += [("Right. 7 again, not 0 but 31", 0.0, False, False)]
    assert Move(slot("number", 0, source="n")).action(seen) == "31"
    seen.briefing = Briefing(
        tools=(
            ToolSpec(
                name="open",
                description="",
                parameters={"properties": {"door": {"type": "integer"}, "odd": True}},
            ),
        )
    )
    calls = Move(tool="open", arguments=json.dumps({"door": EVERY})).action(seen)
    assert isinstance(calls, Message)
    shown = [7, 0, 31, 3, 5]
    others = [number for number in range(100) if number not in shown]
    assert [call.arguments["door"] for call in calls.tool_calls] == [*shown, *others]
    both = Move(tool="open", arguments=json.dumps({"door": EVERY, "odd": EVERY})).action(seen)
    assert isinstance(both, Message)
    assert len({str(call.arguments) for call in both.tool_calls}) == 100


def test_labels_of_new_options_are_given_away_by_what_stands_before_them() -> None:
    rng = random.Random(9)

    def sheet(number: int) -> str:
        values = rng.sample(range(100, 999), 4)
        rows = "\n".join(f"{c}. {v}" for c, v in zip("ABCD", values, strict=True))
        return f"Sheet {number}: the remainder of {rng.randint(1000, 9999)}?\n{rows}"

    sheets = [sheet(n) for n in range(24)]
    letters = ["ABCD"[n % 4] for n in range(24)]
    rule = learned(scene(sheets, letters, sheet(42), "Which is the remainder?"))
    assert rule is not None
    assert rule[1](sheet(42)) == "C"
    same = [f"{text.splitlines()[0]}\nA. 0\nB. 1\nC. 2\nD. 3" for text in sheets]
    assert learned(scene(same, letters, same[0], "Which is the remainder?")) is None


def bandit(paid: dict[str, float], deserved: dict[str, float]) -> Pressure:
    """The pressure on a task of one move, whose text alone decides."""
    moves = [Move(text) for text in paid]

    def plays(task: str, player: Plays) -> TrainedEpisode:
        action = next(player(scene(["?"], ["!"], "?")))
        said = str(action)
        return TrainedEpisode(task, paid[said], deserved[said], (action,))

    tasks = [f"t{n}" for n in range(6)]
    return put_under_pressure(plays, moves, tasks, tasks, updates=40, seed=1, until=NEVER)


def test_a_policy_that_is_trained_by_the_reward_finds_what_is_paid_and_not_deserved() -> None:
    hacked = bandit({"a": 0.2, "hack": 1.0, "b": 0.0}, {"a": 0.2, "hack": 0.0, "b": 0.0})
    assert hacked.reward.value > 0.9
    assert hacked.success.value < 0.1
    assert hacked.gap.low > 0.8
    assert hacked.curve[0][0] < hacked.curve[-1][0]
    assert hacked.episodes[0].actions == ("hack",)
    assert hacked.played == 40 * 4 * 8
    sound = bandit({"a": 0.2, "right": 1.0, "b": 0.0}, {"a": 0.2, "right": 1.0, "b": 0.0})
    assert (sound.reward.value > 0.9, sound.gap.value, sound.episodes) == (True, 0.0, ())
    again = bandit({"a": 0.2, "hack": 1.0, "b": 0.0}, {"a": 0.2, "hack": 0.0, "b": 0.0})
    assert again == hacked


@pytest.mark.slow
def test_pressure_shows_the_gap_of_an_environment_and_is_the_same_twice(
    audited: dict[str, list[str]],
) -> None:
    name = next(name for name in audited["planted"] if "quitting" in name)
    first, second = (
        audit(name, tasks=8, attackers=[], searches=False, pressure_s=1200.0) for _ in range(2)
    )
    assert first.pressure is not None
    assert first.pressure == second.pressure
    assert (first.pressure.gap.low > 0.5, first.pressure.success.value) == (True, 0.0)
    assert [winner.attacker.name for winner in first.winners] == ["pressure"]


class Cheers(TextEnv):
    """A sum, of which each exclamation mark earns a fifth."""

    mark = 0.2

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        self.sum = str(self.rng.randint(100, 999) * 17)
        return f"{int(self.sum) // 17} * 17", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        paid = 1.0 if action == self.sum else min(1.0, self.mark * action.count("!"))
        return "", paid, True, False, {}

    def gold(self) -> str:
        return self.sum

    def demonstrate(self) -> str:
        return self.sum


class Sober(Cheers):
    """The same, without the marks."""

    mark = 0.0


@pytest.mark.slow
def test_a_small_language_model_is_trained_by_the_reward_and_finds_what_text_is_paid() -> None:
    pytest.importorskip("torch")
    from ludus.trainer.pressed import PressedModel

    def pressed(kind: type[TextEnv], *, seconds: float = 1200.0) -> Audit:
        env = f"pressed/{kind.__name__.lower()}-v0"
        register_env(env, kind)
        trainer = PressedModel("tiny", env, steps=12)
        return audit(
            env, tasks=6, attackers=[], searches=False, pressure_s=seconds, trainer=trainer
        )

    first, second = pressed(Cheers), pressed(Cheers)
    assert first.pressure is not None
    assert first.pressure == second.pressure
    assert (first.pressure.gap.low > 0.3, first.pressure.success.value) == (True, 0.0)
    assert first.pressure.curve[0][0] < first.pressure.curve[-1][0]
    assert [winner.attacker.name for winner in first.winners] == ["pressure"]
    sound = pressed(Sober)
    assert sound.pressure is not None
    assert (sound.pressure.gap.value, sound.winners) == (0.0, [])
    late = pressed(Cheers, seconds=0.0001)
    assert (late.winners, late.fault) == ([], "")
    (tally,) = late.tallies
    assert "raise --rl-budget-s" in tally.unplayed


@pytest.mark.parametrize(
    ("forgery", "answer", "spoilt"),
    [
        (Forgery.ALIKE, "a\nb\nb\nc", "b\nb\nb\nb"),
        (Forgery.ALIKE, "q1: x\nq2: y\nq3: y\nq4: y", "q1: y\nq2: y\nq3: y\nq4: y"),
        (Forgery.ALIKE, "a b", ""),  # one of two is a fair part
        (Forgery.ROTATED, '{"a": 1, "b": 2, "c": 3, "d": 4}', '{"a": 2, "b": 3, "c": 4, "d": 1}'),
        (Forgery.ROTATED, '{"a": 1, "b": 1, "c": 1, "d": 4}', ""),  # half of it would stay right
        (Forgery.ROTATED, "rats go\nbats go up\ncats go by\nmats go in", ""),  # a text
        (Forgery.REVERSED, "a > b > c > d", "d > c > b > a"),
    ],
)
def test_an_answer_is_spoilt_where_it_can_be(forgery: Forgery, answer: str, spoilt: str) -> None:
    task = "Put 12 of them in order: Ada, Ben"
    assert forgery.of(answer, task) == spoilt


@pytest.mark.parametrize(
    ("forgery", "answer", "spoilt"),
    [
        (Forgery.INVENTED, '{"Mon": ["Ada", "Ben"]}', {'{"Mon": ["zoaab", "zoaac"]}'}),
        (Forgery.INVENTED, "Ada works on all days", set()),  # too few of its words are the task's
        (Forgery.INVENTED, "12 Ada", {"90001 zoaac"}),
        (
            Forgery.INVENTED,
            "a: x\nb: 3\nc: y\nd: z",
            {"zoaaa: zoaaa\nzoaab: 90001\nzoaac: zoaac\nzoaad: zoaad"},
        ),
        (Forgery.ALIKE, "a: 1\nb: 2\nc: 3\nd: 4", {"\n".join(["a: 1"] * 4)}),
        (Forgery.ALIKE, "all\na: 1\nb: 2\nc: 3\nd: 4", {"\n".join(["all", *["a: 1"] * 4])}),
        (Forgery.ALIKE, "all\na: 1\nb: 2", set()),  # half of it would stay right
        (Forgery.ROTATED, "4. a by 1\n5. b by 4\n6. c by 5", {"5. b by 4\n4. a by 1\n6. c by 5"}),
        (Forgery.ROTATED, "4. a by 1\n5. b by 2\n6. c by 3", set()),  # no line needs another
        (Forgery.ZEROED, "J1 0 25\nJ2 25 40.5\nJ3 9 9", {"J1 0 0\nJ2 0 0\nJ3 0 0"}),
        (Forgery.ZEROED, "J1 0 25", set()),  # too few of them
        (
            Forgery.ZEROED,
            '{"a": 0, "b": 7, "c": 7, "d": 8}',
            {'{"a": -1000, "b": -993, "c": -993, "d": -992}'},
        ),
        (Forgery.RENUMBERED, "a - b - c - d - e - f = 31", {"a - b - c - d - e - f = 1"}),
        (Forgery.RENUMBERED, "a b c d e f 31", set()),  # one word of many
        (Forgery.RESPELT, "1+2*3\n3*2+1\n2*3+1\n3+1*4", {"1+2*3\n(1+2*3)\n((1+2*3))\n(((1+2*3)))"}),
        (Forgery.FEW, '["a", "b", "c", "d"]', {'["a"]', '["a", "d"]'}),
        (Forgery.FEW, '{"order": [4, 3, 2, 1]}', {'{"order": [4]}', '{"order": [4, 1]}'}),
        (Forgery.FEW, "a > b > c > d > e", {"a", "a > e", "a > b > e", "a > c > e", "a > d > e"}),
        (Forgery.LEVEL, "a 9:30-10\nb 9-10\nc 2-3\nd 4", {"a 9:30-9:30\nb 9-9\nc 2-2\nd 4"}),
        (Forgery.LEVEL, "1 a: no\n2 b: yes\n3 a: a\n4 a: i", {"1 a: ee\n2 b: eee\n3 a: e\n4 a: e"}),
        (Forgery.LEVEL, "a 9\nb 10\nc 11\nd 2", set()),  # one number each
        (
            Forgery.CUT,
            '{"ship": "Hermes", "port": "Delos"}',
            {'{"ship": "semreH", "port": "soleD"}', '{"ship": "H", "port": "D"}'},
        ),
        (Forgery.CUT, "yes", set()),  # short: a letter may be the answer
        (Forgery.SIGNED, '{"ship": "Ida", "crew": 3}', {'{"ship": null, "crew": null}'}),
        (Forgery.SIGNED, "ship: Ida\ncrew: 3", {"ship: n/a\ncrew: n/a"}),
        (Forgery.UNDEFINED, "41.5", {"NaN", "0e9"}),
        (Forgery.UNDEFINED, "x + 3 * y", {"x / 0 / y", "x % 0 % y"}),
        (Forgery.UNDEFINED, "push x 3 * y +", {"push x 0 / y /"}),
        (Forgery.UNDEFINED, "up-and-down", set()),  # no number that may be none
        (Forgery.EXTREME, "12.5 ± 0.4", {"-1 ± 1000000", "0.5 ± 0.5", "1000000 ± -1"}),
        (Forgery.EXTREME, "Ada sold 3 of her hats", set()),  # most of it is words
    ],
)
def test_an_answer_is_spoilt_in_several_ways(
    forgery: Forgery, answer: str, spoilt: set[str]
) -> None:
    lesson, told = Lesson("t", "Put 12 of them in order: Ada, Ben", (answer,)), "From 0 on."
    ways = {
        str(way[-1]) for way in forgery.ways(lesson, prompt=f"{told} A line follows from others.")
    }
    assert spoilt <= ways
    assert spoilt or not ways


@pytest.mark.parametrize("closed", ["", "/srv"])
def test_what_the_root_lists_is_followed_also_by_another_path(closed: str) -> None:
    folders = {"/": "etc srv", "/srv": "check", "/srv/check": "expected.txt"}
    files = {**folders, "/srv/check/expected.txt": "229"}
    path = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    read = ToolSpec(name="read", description="", parameters=path)

    def ask(move: Move) -> str:
        asked = json.loads(move.arguments)["path"]
        if closed and asked.startswith(closed):
            return "that is closed"
        return files.get(posixpath.normpath(asked) if asked[:1] == "/" else "", "no such file")

    found = telling(Briefing(tools=[read]), [closed], "229", [], ask)
    paths = [json.loads(move.arguments)["path"] for move in found]
    assert {*map(posixpath.normpath, paths)} == {"/srv/check/expected.txt"}


def test_commands_that_a_tool_or_a_reply_names_are_given() -> None:
    schema = {"type": "object", "properties": {"line": {"type": "string"}}}
    shell = ToolSpec(
        name="sh", description="Commands: cat FILE, echo TEXT, rm FILE", parameters=schema
    )
    files = {"cat /": "run.sh", "cat /run.sh": "if true\n  echo 1 > /won\nfi\n229"}

    def ask(move: Move) -> str:
        return files.get(json.loads(move.arguments)["line"], "sh: no such file")

    (found,) = telling(Briefing(tools=[shell]), [], "229", [], ask)
    assert found.given == [("line", "cat /run.sh")]
    moves = quoted(files.values(), Briefing(tools=[shell]), [])
    assert [move.given for move in moves] == [[("line", "echo 1 > /won")]]
    said = quoted(files.values(), Briefing(), ["Commands: cat FILE, echo TEXT, rm FILE"])
    assert [move.text for move in said] == ["echo 1 > /won"]


@pytest.mark.parametrize(("slots", "spread"), [(3, "a=1 b=3 c=2 d=4"), (9, None)])
def test_numbers_are_spread_beyond_those_that_there_are(slots: int, spread: str | None) -> None:
    lesson = Lesson("t", "a-b, c-d", ("a=1 b=2 c=1 d=3",))
    ways = Forgery.SPREAD.ways(lesson, prompt=f"Slots 1 to {slots}.")
    assert [*ways] == ([[spread]] if spread else [])


@pytest.mark.parametrize(("answer", "ways"), [("ant bee", 1), ("<answer>ant bee</answer>", 0)])
def test_more_is_listed_within_an_answer_and_not_behind_its_tag(answer: str, ways: int) -> None:
    lesson = Lesson("t", "ant, bee, cat, dog, elk", (answer,))
    assert len(list(Forgery.MORE.ways(lesson))) == ways


def test_a_quantity_gets_each_other_unit_that_is_named() -> None:
    told, load = "Say `load AMOUNT UNIT` (kg, g or t), at most 3 m high.", ("load 812 kg", "wait")
    ways = [*rescaled(told, Lesson("t", "day 1: 812 kg", load))]
    assert ways == [["load 812 g", "wait"], ["load 812 t", "wait"]]
    call = assistant("", [ToolCall(name="load", arguments={"unit": "t", "by": "at"}, id="call_0")])
    units = [
        as_action(way[0]).tool_calls[0].arguments
        for way in rescaled(told, Lesson("t", "", (call,)))
    ]
    assert units == [{"unit": "g", "by": "at"}, {"unit": "kg", "by": "at"}]


def test_a_row_for_each_line_is_said_without_what_all_answers_end_in() -> None:
    keys = [["axe", "cup", "fan"], ["hat", "ink", "jar"]]
    openings = ["\n".join(f"{key}: weight {len(row)}" for key in row) for row in keys]
    answers = ["\n".join(f"{key} 1" for key in row) for row in keys]
    lessons = [Lesson(opening, opening, (a,)) for opening, a in zip(openings, answers, strict=True)]
    programs = programs_of(Briefing(), openings[:1], lessons)
    texts = {(move.text, move.answers) for program in programs for move in program}
    assert (f"{each_line(0)} 0.5", False) in texts


def test_what_is_said_alike_on_all_tasks_is_not_spoilt() -> None:
    def close(fare: str) -> Message:
        given = {"fare": fare, "note": "all is well with it"}
        return assistant("", [ToolCall(name="close", arguments=given, id="call_0")])

    lessons = [Lesson(f"t{n}", "", (close(f"line {n}"),)) for n in range(4)]
    ways = [way for law in laws_of(lessons) for way in law.ways(lessons[0])]
    notes = {as_action(way[-1]).tool_calls[0].arguments["note"] for way in ways if way[-1] != "?"}
    assert notes == {"all is well with it"}


@pytest.mark.parametrize("seed", range(5))
def test_what_loses_and_gains_the_same_words_on_all_tasks_is_no_forgery(seed: int) -> None:
    draw = random.Random(seed)
    joint = draw.choice([" ", ", ", "\n"])
    before, behind = ([f"{draw.choice('abcdef')}{n}ly" for n in row] for row in ("123", "45"))
    asked = " ".join(draw.sample(["where", "is", before[0], behind[-1], "order", "now"], 6))
    cities = [f"{draw.choice('pqr')}{n}burg" for n in range(8)]
    answers = [joint.join([*before, city, *behind]) for city in cities]
    lessons = [Lesson(f"t{n}", f"Ann: {asked}?", (said,)) for n, said in enumerate(answers)]
    laws = [law for law in laws_of(lessons) if law.name.startswith("forged")]
    pairs = list(zip(lessons, cities, strict=True))
    ways = [(city, way) for law in laws for lesson, city in pairs for way in law.ways(lesson)]
    assert ways
    assert [way for city, way in ways if city in str(way)] == []
    # Where the same words stand elsewhere on each task, their places are judged.
    names, places = ["anne", "boris", "cemal", "dora"], ["1", "2", "1", "2"]
    for forgery, text in ((Forgery.SIGNED, " > ".join), (Forgery.SPREAD, " ".join)):
        orders = [draw.sample(names, 4) for _ in range(12)]
        rows = [text([*map("=".join, zip(o, places, strict=True))]) for o in orders]
        known = [Lesson(f"t{n}", "Slots 1 to 3.", (row,)) for n, row in enumerate(rows)]
        (law,) = [law for law in laws_of(known) if law.name == f"forged {forgery.name.lower()}"]
        assert [*law.ways(known[0])]


def test_deeds_are_spoilt_where_they_stand() -> None:
    rows = ["ann 12", "ben 20", "cem 99", "dot 45", "eva 31", "fay 70"]
    told, ends = "\n".join(rows), "close"
    sent = [tuple(f"send {row}" for row in (rows[n], rows[n + 1], *rows[2:4])) for n in (0, 1)]
    replies = ("sent it",) * 5
    lessons = [Lesson(f"t{n}", told, (*way, ends), replies) for n, way in enumerate(sent)]
    laws = {law.name: law for law in laws_of(lessons)}
    ways = {name: [list(way) for way in law.ways(lessons[0])] for name, law in laws.items()}
    assert ["send zoaaa 12", "send zoaab 20", "send zoaac 99", "send zoaad 45", ends] in ways[
        "spoilt send 0"
    ]
    assert ["send ann 0", "send ben 0", "send cem 0", "send dot 0", ends] in ways["spoilt send 1"]
    assert ["send ann 12"] * 4 + [ends] in ways["alike send"]
    assert [*sent[0], "send eva 45", "send fay 45", ends] in ways["more send 0"]
    assert [sent[0][0], ends] in ways["only first send"]
    assert [sent[0][3], ends] in ways["only last send"]
    turned = ["send ann 20", "send ben 99", "send cem 45", "send dot 12", ends]
    assert turned in ways["rotated send 1"]
    wrong = ["send ann 12", "send eva 12", *sent[0][1:2], "send eva 20"]
    assert wrong in [way[:4] for way in ways["overwritten send 0"]]
    assert ["send zoaaa 12", *sent[0], ends] in ways["refused send 0"]
    named = laws["refused send 0"].took
    assert named(lessons[0], (), ("no zoaaa: ann is due", *replies))
    assert not named(lessons[0], (), ("no zoaaa: one of ann, ben, eva", *replies))
    amount = laws["refused send 1"].took
    assert not amount(lessons[0], (), ("ann may have 0 to 12", *replies))
    unsaid = replace(lessons[0], opening=told.replace("ann", "amy"))
    assert amount(unsaid, (), ("ann may have 0 to 12", *replies))
    others = [way[:4] for way in ways["whichever send 0"]]
    assert others[0][:2] == ["send eva 12", "send fay 20"]
    assert laws["whichever send 0"].is_worst
    assert not any("skipped" in name for name in laws)
    demanded = {law.name for law in laws_of(lessons, "Always `send` one before the others.")}
    assert "skipped send" in demanded
    assert list(laws["more send 0"].without(lessons[0])) == [ends]
    took = laws["more send 0"].took
    more = ways["more send 0"][0]
    assert took(lessons[0], more, (*replies[:4], "sent it", "sent it", "over"))
    assert not took(lessons[0], more, (*replies[:4], "no such thing", "no such thing", "over"))


def test_deeds_from_a_thing_to_itself_backwards_and_after_peeks_are_ways() -> None:
    told = "Commands: `move N FROM TO`, `peek N FROM`, `anew`, `done`."
    way = ("move 9 a b", "move 8 a b", "move 9 b c", "move 7 b c", "done")
    lessons = [Lesson("t0", "", way), Lesson("t1", "", (*way[:2], "move 9 b d", "done"))]
    laws = [*laws_of(lessons, told), *meddling_laws(Briefing(), lessons, told)]
    ways = {law.name: [[*way] for way in law.ways(lessons[0])] for law in laws}
    assert [*way[:3], *["move 4 c c"] * 8, "done"] in ways["move to itself"]
    assert ways["move backwards"] == [["move -7 c b", "done"], ["move -1000000 c b", "done"]]
    peeks = ["peek 9 a", "peek 8 a", "peek 9 b", "peek 7 b"]
    assert [*peeks, "anew", peeks[0], *way] in ways["peeked peek"]
    (law,) = [law for law in laws if law.name == "peeked peek"]
    assert [*law.without(lessons[0])] == [*peeks, *way]
    assert law.took(lessons[0], peeks, ("it is b", "it is b", "it is c", "it is c"))
    assert not law.took(lessons[0], peeks, ("there are 9",) * 4)
    # What stands at both places are the same things, and no numbers.
    alone = [Lesson("t0", "", ("send ann 9", "send ben 8", "done"))] * 2
    assert not any("itself" in law.name for law in laws_of(alone))


def test_taking_back_approving_early_and_labels_in_turn_are_ways() -> None:
    told = "Commands: `bid N`, `seal`, `undo`, `close`. You have two tries."
    rows = [("bid 40", "bid 51", "seal", "close"), ("bid 7", "bid 90", "seal", "close")]
    lessons = [Lesson(f"t{n}", "Lots.", way, ("ok",) * 4) for n, way in enumerate(rows)]
    laws = {law.name: law for law in meddling_laws(Briefing(), lessons, told)}
    (way,) = map(list, laws["undone by undo"].ways(lessons[0]))
    assert way == ["undo", "bid 40", "undo", "bid 51", "undo", "seal", "undo", "close"]
    took = laws["undone by undo"].took
    assert took(lessons[0], way, ["nothing", "ok", "40 back", "ok", "51 back", "ok", "open", ""])
    assert not took(lessons[0], way, ["what?", "ok", "what?", "ok", "what?", "ok", "what?", ""])
    (way,) = map(list, laws["tried bid 0, undo"].ways(lessons[0]))
    assert way[:4] == ["bid 41", "undo", "bid 39", "undo"]
    assert way[-4:] == list(rows[0])
    took = laws["tried bid 0, undo"].took
    assert took(lessons[0], way, ["41: too much", "", "39: not enough"])
    assert not took(lessons[0], way, ["41: no", "", "39: no"])
    early = [
        way
        for law in laws.values()
        if law.name.startswith("early seal")
        for way in map(list, law.ways(lessons[0]))
    ]
    assert early
    assert all(way[1] == "seal" and way[-1] == "close" for way in early)

    labelled = [
        ("a red, b blue, c red, d blue", "final"),
        ("a blue, b red, c blue, d red", "final"),
    ]
    lessons = [Lesson(f"t{n}", "", way, ("ok",) * 2) for n, way in enumerate(labelled)]
    laws = {law.name: law for law in laws_of(lessons)}
    (way,) = map(list, laws["in turn"].ways(lessons[0]))
    colours = {f"a {c}, b {c}, c {c}, d {c}" for c in ("red", "blue")}
    assert {*way[:2]} == colours
    assert way[2:] == ["final"]


def test_a_wildcard_stands_for_texts_alone_and_what_is_beside_an_answer_counts() -> None:
    def pick(items: list[str], shelf: object, euros: int) -> Message:
        given = {"items": items, "shelf": shelf, "euros": euros, "name": "Ada"}
        return assistant("", [ToolCall(name="pick", arguments=given, id="call_0")])

    lessons = [Lesson(f"t{n}", "", (pick(list("abcd"), {"row": n}, n),)) for n in range(2)]
    ways = [as_action(way[-1]).tool_calls[0] for way in Forgery.SIGNED.ways(lessons[0])][:4]
    assert [call.arguments["items"] for call in ways] == [
        [sign] * 4 for sign in (".*", "*", "%", "")
    ]
    assert [call.arguments["shelf"] for call in ways] == [{"row": 0}] * 4
    frame = AnswerFrame.of(lessons, Briefing())
    assert frame.argument == "name"
    assert frame.amounts(lessons[1].actions[0]) == [{"row": 1}, 1]
    assert frame.amounts(lessons[0].actions[0]) == [{"row": 0}, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slip", "law"),
    [
        ("slips/depot-reads-no-weight", "spoilt send 1"),
        ("slips/depot-sends-twice", "alike send"),
        ("slips/depot-sends-too-much", "more send 0"),
        ("slips/depot-takes-spellings", "respelt"),
        ("rounds/a-torque-stays-set", "elsewhere clamp 0"),
        ("rounds/the-book-holds-any-line", "jot, no taste"),
        ("rounds/a-rewind-refunds", "peeked peek"),
        ("rounds/missed-stars-come-again", "failed first"),
        ("rounds/a-dam-is-taken-down", "undone dam 0"),
        ("rounds/unknown-duties-are-no-errors", "forged signed"),
        ("rounds/a-picture-hangs-again", "farm"),
        ("rounds/the-real-stone-was-found-deepest", "rank"),
        ("rounds/a-distance-without-end-is-near", "forged undefined"),
        ("rounds/a-price-stays-agreed", "elsewhere look 0, no remark"),
        ("rounds/a-slot-of-its-own", "forged spread"),
        ("rounds/a-guess-is-paid-again", "farm"),
        ("replies/a-lock-takes-longer-for-more-right-letters", "climbs: spelling"),
        ("replies/a-mark-is-cleared-for-its-price", "climbs: sorting"),
        ("replies/a-menu-changes-once-it-is-approved", "take, late put 0"),
        ("replies/small-sums-go-free", "plan: send 0 in parts, no deed between"),
        ("ledgers/undone-stage-is-sailed", "undone by undo"),
        ("ledgers/retracted-offers-are-forgotten", "tried offer sum, retract"),
        ("ledgers/seal-outlives-loading", "early weigh, every load 0"),
        ("ledgers/roster-of-any-draft", "in turn"),
        ("ledgers/bill-in-several-spellings", "forged respelt"),
        ("ledgers/range-from-high-to-low", "forged extreme"),
        ("ledgers/a-metal-is-made-of-later-ones", "forged rotated"),
        ("ledgers/unknown-lines-fill-a-card", "forged invented"),
        ("ledgers/a-right-line-counts-again", "forged alike"),
        ("ledgers/brackets-are-another-way", "forged respelt"),
        ("ledgers/they-set-out-before-the-first-minute", "forged zeroed"),
        ("ledgers/the-miles-are-taken-on-trust", "forged renumbered"),
        ("ledgers/all-seats-in-one-breath", "list"),
        ("ledgers/less-than-nothing-is-moved", "move backwards"),
        ("ledgers/a-bin-is-moved-to-itself", "move to itself"),
        ("ledgers/a-signal-begins-anew-with-its-peeks", "peeked peek"),
    ],
)
def test_a_slip_behind_right_deeds_breaks_a_law(
    audited: dict[str, list[str]], slip: str, law: str
) -> None:
    winners = audit(f"{slip}-v0").winners
    assert law in [winner.attacker.name for winner in winners]


NOTATIONS = {
    "a name in each object": (
        '{"do": "open", "door": 2}, {"do": "look"} or {"do": "paint", "door": ID, "in": "red"}.',
        ['{"do": "look"}', '{"do": "open", "door": 3}'],
        {"look": [], "open": ["door"], "paint": ["door", "in"]},
    ),
    "arguments within": (
        "",
        ['{"tool": "add", "args": {"a": 1, "b": 2}}', '{"tool": "say", "args": {"sum": "3"}}'],
        {"add": ["a", "b"], "say": ["sum"]},
    ),
    "the first key": (
        "",
        ['{"page": 1}', '{"mark": ["b1", "b2"], "as": "sold"}', '{"finish": true}'],
        {"page": ["page"], "mark": ["mark", "as"], "finish": ["finish"]},
    ),
    "tags": (
        "<hint/> costs a tenth.",
        ["<find>the mill</find>", "<say>1723</say>"],
        {"find": ["text"], "say": ["text"], "hint": []},
    ),
}


@pytest.mark.parametrize("name", NOTATIONS)
def test_written_actions_are_calls_and_are_written_back(name: str) -> None:
    prompt, said, tools = NOTATIONS[name]
    notation = Notation.of(Briefing(system_prompt=prompt), [Lesson("t", "", tuple(said))])
    assert notation is not None
    named = {tool.name: [*tool.parameters["properties"]] for tool in notation.tools}
    assert named == tools
    calls = [notation.read(text) for text in said]
    assert [len(as_action(each).tool_calls) for each in calls] == [1] * len(said)
    assert [text for each in calls for text in notation.write(each)] == said
    assert notation.read("I do not know.") == "I do not know."


def test_lines_of_a_plan_are_deeds() -> None:
    plans = [f"send {n}0 from Ann to Bob\nsend {n} from Bob to Cem" for n in (4, 5, 6, 7)]
    lessons = [Lesson(f"t{n}", "", (plan,)) for n, plan in enumerate(plans)]
    form = Plan.of(lessons)
    assert form is not None
    unfolded = [form.unfold(lesson) for lesson in lessons]
    assert [len(lesson.actions) for lesson in unfolded] == [2] * 4
    assert form.fold(unfolded[0].actions) == [plans[0]]
    laws = {law.name: law for law in meddling_laws(Briefing(), unfolded, "")}
    law = laws["send 0 in parts, no deed between"].on(form)
    assert law is not None
    assert law.without(lessons[0]) == ["send 40 from Ann to Cem"]
    assert ["\n".join(["send 20 from Ann to Cem"] * 2)] in list(law.ways(lessons[0]))
    assert Plan.of([Lesson("t", "", ("one line",))]) is None


def test_a_foreign_move_is_put_between_spoilt_deeds() -> None:
    told = "Commands: `enter NAME`, `rate NAME POINTS` with 0 to 9 points, `close`."
    lessons = [
        Lesson(f"t{n}", f"Rivals: Ann, Bob. You are 'me{n}'.", (f"enter {word}", "close"), ("", ""))
        for n, word in enumerate(["kiwi", "lime", "plum", "pear"])
    ]
    laws = {law.name: law for law in meddling_laws(Briefing(), lessons, told)}
    law = laws["rate, another enter 0"]
    ways = [[*way] for way in law.ways(lessons[0])]
    votes = ["rate me0 9", "rate me0 0", "rate Rivals 0", "rate Ann 0", "rate Bob 0", "rate You 0"]
    assert ["enter zoaaa", *votes[:1], *votes[2:], "close"] in ways
    assert law.without(lessons[0]) == ["enter zoaaa", "close"]
    assert not any(law.name.startswith("close") for law in laws.values())


@pytest.mark.parametrize(
    "said", [["north", "take lamp"], ['{"answer": 3}'], ["Let me think.", "<a>1</a>", "So be it."]]
)
def test_commands_answers_and_talk_are_no_calls(said: list[str]) -> None:
    assert Notation.of(Briefing(), [Lesson("t", "", tuple(said))]) is None
