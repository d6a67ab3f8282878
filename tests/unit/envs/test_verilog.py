"""Screening of designs, models of outputs by hand, and the modules drawn from them."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from ludus.envs.families.verilog.modules import Module, ModuleTasks, draw, draw_stimuli
from ludus.envs.families.verilog.problems import (
    CLOCKED,
    COMBINATIONAL,
    Clause,
    Inputs,
    rotated,
    signed,
)
from ludus.envs.families.verilog.simulation import (
    MAX_LETTERS,
    RefusedDesign,
    bench_of,
    expected_output,
    screened,
)
from ludus.envs.tasks import GeneratedTasks, distinct

KINDS = ["combinational", "clocked"]
MAKERS = {make.__name__: make for make in (*COMBINATIONAL, *CLOCKED)}


def tokens(source: str) -> str:
    return " ".join(screened(f"module m;{source}\nendmodule").split()[3:-1])


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("assign y=a<=b?c:~&d;", "assign y = a <= b ? c : ~& d ;"),
        ("x<=4'b10_1x;", "x <= 4'b10_1x ;"),
        ("x <= 4 'h F;", "x <= 4 'h F ;"),
        ("x = 'sd3 + '1 + 8'('0);", "x = 'sd3 + '1 + 8 '( '0 ) ;"),
        ("a>>>2; a<<<2; a**b; a===b;", "a >>> 2 ; a <<< 2 ; a ** b ; a === b ;"),
        ("x=a[3+:2];", "x = a [ 3 +: 2 ] ;"),
        ("always @(*) y=$signed(a);", "always @ ( * ) y = $signed ( a ) ;"),
        ("always @* y=0;", "always @ * y = 0 ;"),
        ("/* $display */ x=1; // `include\ny=2;", "x = 1 ; y = 2 ;"),
        ("x = a /* \" */ / /* // */ b;", "x = a / b ;"),
        ("unique case (a)", "case ( a )"),
        ("(* full_case, keep = 1 *) case (a)", "case ( a )"),
        ("m u(.a(b), .c, .d());", "m u ( . a ( b ) , . c , . d ( ) ) ;"),
        ("m u(.*);", "m u ( .* ) ;"),
        ("typedef enum logic [1:0] {A, B} t;", "typedef enum logic [ 1 : 0 ] { A , B } t ;"),
        ("x = 1'b0fork_x;", "x = 1'b0 fork_x ;"),
    ],
)  # fmt: skip
def test_designs_are_read_as_tokens(source: str, read: str) -> None:
    assert tokens(source) == read


def test_harmless_directives_are_taken_out_and_lines_kept() -> None:
    source = (
        "`timescale 1ns / 1ps // x\r\n`default_nettype none\r\nmodule m;\nendmodule\n`resetall\n"
    )
    assert screened(source) == "\n\nmodule m ;\nendmodule\n\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("\n\n$finish;", "line 3: $finish is not allowed"),
        ("x = \"a\";", "line 1: strings are not allowed"),
        ("`P", "line 1: '`' is not allowed"),
        ("\\x ;", r"line 1: '\\\\' is not allowed"),
        ("x = é;", "line 1: 'é' is not allowed"),
        ("x = a.b;", "line 1: hierarchical names are not allowed"),
        ("x = a\n.b;", "line 2: hierarchical names are not allowed"),
        ("force x = 1;", "line 1: force is not allowed"),
        ("/* a", "line 1: the comment is never closed"),
        ("module n; endmodule", "line 1: a module inside a module"),
        ("endmodule\nwire x; module n;", "line 2: 'wire' stands outside of a module"),
        ("endmodule : m n; module n;", "line 1: 'n' stands outside of a module"),
        ("endmodule m; module n;", "line 1: 'm' stands outside of a module"),
        ("endmodule\nmodule n;\nendmodule\nmodule o;\nwire", "the last module is never closed"),
        ("a$b = 1;", "line 1: names with \\$ are not allowed"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named_with_its_line(source: str, said: str) -> None:
    closing = "" if "never closed" in said else "\nendmodule"
    with pytest.raises(RefusedDesign, match=said.replace("$f", r"\$f")):
        screened(f"module m;{source}{closing}")


def test_a_long_design_is_refused_and_a_hostile_one_costs_little(
    costs_at_most: Callable[[int], AbstractContextManager[None]],
) -> None:
    with pytest.raises(RefusedDesign, match="letters"):
        screened("x" * (MAX_LETTERS + 1))
    with costs_at_most(200):
        for text in (
            "(* a," * 12_000,
            "1" * 60_000,
            "/*" * 30_000,
            "1 " * 30_000,
            "(*" + " " * 60_000,
        ):
            with pytest.raises(RefusedDesign):
                screened(text)


# --- models, by hand ------------------------------------------------------------------------------


def made(name: str, width: int, seed: int = 0) -> Clause:
    return MAKERS[name](random.Random(seed), width)


def value(name: str, width: int, **inputs: int) -> int:
    return made(name, width).model()({"a": 0, "b": 0, "s": 0, **inputs})


@pytest.mark.parametrize(
    ("name", "inputs", "result"),
    [
        ("total", {"a": 15, "b": 3}, 18),
        ("saturated", {"a": 15, "b": 3}, 15),
        ("saturated", {"a": 9, "b": 3}, 12),
        ("distance", {"a": 3, "b": 12}, 9),
        ("larger_signed", {"a": 0b1111, "b": 0b0001}, 1),  # -1 and 1
        ("larger_signed", {"a": 0b1000, "b": 0b1001}, 0b1001),  # -8 and -7
        ("ones", {"a": 0b1011}, 3),
        ("reversed_bits", {"a": 0b0010}, 0b0100),
        ("turned", {"a": 0b1001, "b": 0b1111}, 0b0011),  # by 1, the lowest bit of b
        ("to_gray", {"a": 6}, 0b0101),
        ("from_gray", {"a": 0b0101}, 6),
        ("leading_zeros", {"a": 0b0010}, 2),
        ("leading_zeros", {"a": 0}, 4),
        ("compared", {"a": 3, "b": 3}, 0b010),
        ("compared", {"a": 2, "b": 3}, 0b100),
        ("compared", {"a": 4, "b": 3}, 0b001),
    ],
)
def test_outputs_without_a_clock_by_hand(name: str, inputs: Inputs, result: int) -> None:
    assert value(name, 4, **inputs) == result


def test_outputs_with_constants_by_hand() -> None:
    def found(name: str, says: str) -> Clause:
        clauses = (made(name, 4, seed) for seed in range(10_000))
        return next(clause for clause in clauses if says in clause.says)

    scaled = found("scaled", "of 5 * a + 3").model()
    assert scaled({"a": 7}) == 38 % 16
    divides = found("divides", "divisible by 3").model()
    assert [divides({"a": a}) for a in range(7)] == [1, 0, 0, 1, 0, 0, 1]
    between = found("between", "from 3 to 9,").model()
    assert [between({"a": a}) for a in (2, 3, 9, 10)] == [0, 1, 1, 0]
    merged = found("merged", "the bits 0, 2 taken").model()
    assert merged({"a": 0b0110, "b": 0b1001}) == 0b1100
    shifted = found("shifted_signed", "right by 2").model()
    assert [shifted({"a": a}) for a in (0b1000, 0b0111)] == [0b1110, 0b0001]
    odd = found("odd_ones", "bits 0, 3 of").model()
    assert [odd({"a": a}) for a in (0b0001, 0b1001, 0b0110, 0b1000)] == [1, 0, 0, 1]
    chosen = found("chosen", "a - b if s is 1, NOT a if s is 0").model()
    assert [chosen({"a": 3, "b": 5, "s": s}) for s in (1, 0)] == [14, 12]


def run(clause: Clause, **series: str) -> list[int]:
    """What a register shows after each edge; a reset comes first. `a` and `b` in hexadecimal."""
    model = clause.model()
    length = max(map(len, series.values()))
    assert model({"rst": 1, "en": 0, "a": 0, "b": 0, "s": 0}) is not None
    rows = [{name: int(digits[k], 16) for name, digits in series.items()} for k in range(length)]
    return [model({"rst": 0, "en": 1, "a": 0, "b": 0, "s": 0, **row}) for row in rows]


def clocked(name: str, says: str) -> Clause:
    clauses = (made(name, 4, seed) for seed in range(10_000))
    return next(clause for clause in clauses if says in f"{clause.says}.")


def test_outputs_with_a_clock_by_hand() -> None:
    counter = clocked("counter", "1, ... 4 and from there")
    assert run(counter, en="1101111") == [1, 2, 2, 3, 4, 0, 1]
    both = clocked("up_and_down", "never above 4 nor below 0; reset to 2.")
    assert run(both, s="1110000000") == [3, 4, 4, 3, 2, 1, 0, 0, 0, 0]
    assert run(made("accumulated", 4), a="9873", en="1101") == [9, 1, 1, 4]
    assert run(made("shift_register", 4), s="1011010") == [1, 2, 5, 11, 6, 13, 10]
    assert run(clocked("delayed", "had one edge"), a="5793") == [0, 5, 7, 9]
    assert run(clocked("delayed", "had three edges"), a="57931") == [0, 0, 0, 5, 7]
    assert run(clocked("risen", "s is 1 and at"), s="0110101") == [0, 1, 0, 0, 1, 0, 1]
    assert run(clocked("risen", "s is 0 and at"), s="0110101") == [0, 0, 0, 1, 0, 1, 0]
    assert run(clocked("pattern_seen", "are 1, 0, 1 in"), s="10101101") == [0, 0, 1, 0, 1, 0, 0, 1]
    assert run(clocked("pattern_seen", "are 0, 0, 1 in"), s="1001") == [1, 0, 0, 1]
    ring = clocked("feedback", "bits 3 and 0 as they were; reset to 1.")
    assert run(ring, en="11011") == [0b0011, 0b0111, 0b0111, 0b1111, 0b1110]
    assert run(made("highest", 4), a="392b5") == [3, 9, 9, 11, 11]
    assert run(made("toggled", 4), a="2531", b="1441") == [1, 0, 0, 0]
    assert run(clocked("run_of_ones", "at most 5"), s="110111111") == [1, 2, 0, 1, 2, 3, 4, 5, 5]
    assert run(clocked("steadied", "at 2 edges"), s="1011001000") == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    assert run(clocked("steadied", "at 3 edges"), s="1101110") == [0, 0, 0, 0, 0, 1, 1]
    assert run(clocked("kept", "reset to 6."), a="5f3", b="3f5", en="011") == [6, 0, 6]


def test_a_state_machine_goes_as_it_is_told() -> None:
    clause = made("machine", 4)
    told = [part.split("; ")[0] for part in clause.says.split("from ")[1:]]
    table = [(int(part.rstrip("; ")[-1]), int(part.split(" to ")[1][0])) for part in told]
    state, expected = 0, list[int]()
    for s in "0110100111010":
        state = table[state][int(s)]
        expected.append(state)
    assert run(clause, s="0110100111010") == expected


def test_a_reset_starts_a_register_again() -> None:
    for make in CLOCKED:
        clause = make(random.Random(1), 5)
        model, fresh = clause.model(), clause.model()
        reset: Inputs = {"rst": 1, "en": 1, "a": 7, "b": 1, "s": 1}
        start = fresh(reset)
        for _ in range(9):
            model({**reset, "rst": 0})
        assert model(reset) == start, clause.says


def test_numbers_read_as_asked() -> None:
    assert [signed(v, 4) for v in (7, 8, 15)] == [7, -8, -1]
    assert [rotated(0b1001, k, 4) for k in (0, 1, 4, 5)] == [9, 3, 9, 3]


# --- modules --------------------------------------------------------------------------------------


def module_of(*names: str, width: int = 4) -> Module:
    return Module(width, {f"y{k}": made(name, width) for k, name in enumerate(names)})


def test_ports_are_those_that_are_needed() -> None:
    plain = module_of("total", "compared")
    assert list(plain.inputs) == ["a", "b", "s"]
    assert "clk" not in plain.question
    both = module_of("total", "toggled", width=5)
    assert both.inputs == {"rst": 1, "en": 1, "a": 5, "b": 5, "s": 1}
    for port in ("input clk", "input [4:0] a", "output [5:0] y0", "output y1"):
        assert f"    {port}\n" in both.question + "\n"
    assert "output reg y1" in both.reference


def test_what_is_shown_with_a_clock_is_what_stands_before_and_after_each_edge() -> None:
    module = module_of("total", "toggled")
    stimuli: list[Inputs] = [
        {"rst": 1, "en": 0, "a": 1, "b": 1, "s": 0},
        {"rst": 0, "en": 0, "a": 3, "b": 1, "s": 0},
        {"rst": 0, "en": 0, "a": 2, "b": 9, "s": 0},
    ]
    shown = [(row["y0"], row["y1"]) for row in module.shows(stimuli)]
    assert shown == [(2, 0), (4, 0), (4, 1), (11, 1), (11, 1)]
    assert expected_output(module, module.shows(stimuli)).splitlines()[1] == "00100 0"
    assert bench_of(module, stimuli).source.count("$display") == 5


def test_all_values_of_a_are_tried_and_registers_come_to_their_ends() -> None:
    for width in (4, 8):
        plain = draw_stimuli(random.Random(1), module_of("total", width=width))
        assert {one["a"] for one in plain} == set(range(1 << width))
        counting = module_of("counter", "run_of_ones", width=width)
        stimuli = draw_stimuli(random.Random(1), counting)
        tops = [max(row[name] for row in counting.shows(stimuli)) for name in ("y0", "y1")]
        end = int(counting.outputs["y0"].says.split("... ")[1].split()[0])
        most = int(counting.outputs["y1"].says.split("at most ")[1][0])
        assert tops == [end, most]
        assert 10 < sum(one["rst"] for one in stimuli) < len(stimuli) / 3


@pytest.mark.parametrize("kinds", [["combinational"], ["clocked"], KINDS])
def test_drawn_modules_hold_what_was_asked_for(kinds: list[str]) -> None:
    for index in range(12):
        module = draw(GeneratedTasks("train").at(index), 3, kinds, (5, 7))
        assert len(module.outputs) == 3
        assert 5 <= module.width <= 7
        assert all(clause.clocked for clause in module.outputs.values()) or kinds != ["clocked"]
        assert not module.clocked or kinds != ["combinational"]
        assert screened(module.reference)


def test_splits_share_no_module() -> None:
    seen: dict[str, set[str]] = {}
    for split in ("train", "validation", "test"):
        tasks = GeneratedTasks(split)
        drawn = (draw(tasks.at(index), 1, KINDS, (4, 5)) for index in range(80))
        seen[split] = {module.question for module in drawn}
    assert not seen["train"] & (seen["test"] | seen["validation"])
    assert not seen["test"] & seen["validation"]


def test_difficulty_is_the_number_of_outputs() -> None:
    tasks = ModuleTasks("train", (1, 4), KINDS, (4, 5))
    assert {tasks.at(index).difficulty for index in range(50)} == {1.0, 2.0, 3.0, 4.0}


def test_a_module_that_is_drawn_twice_is_one_problem() -> None:
    drawn = ModuleTasks("test", (1, 1), ["combinational"], (4, 4))
    tasks = [drawn.at(index) for index in range(30)]
    questions = [drawn.module(task).question for task in tasks]
    assert len(set(questions)) < 30
    assert len(list(distinct(tasks))) == len(set(questions))
