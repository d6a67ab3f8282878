"""`ludus/verilog-v0` simulates: right designs in any style earn 1, wrong ones 0, lost tools nothing."""

# ruff: noqa: E501 - some programs stand in one line
from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest

import ludus
from ludus.envs.families.verilog.modules import Module, draw_stimuli
from ludus.envs.families.verilog.problems import (
    CLOCKED,
    COMBINATIONAL,
    accumulated,
    run_of_ones,
    total,
)
from ludus.envs.families.verilog.simulation import graded
from ludus.errors import ConfigError, MissingExtra
from ludus.verdict import Verdict

needs_icarus = pytest.mark.usefixtures("icarus")
MAKERS = (*COMBINATIONAL, *CLOCKED)


async def verdict_on(module: Module, design: str, *, partial: bool = False) -> Verdict:
    stimuli = draw_stimuli(random.Random(1), module)
    return await graded(module, stimuli, design, partial=partial, timeout_s=10)


@pytest.mark.slow
@needs_icarus
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
async def test_the_reference_of_every_output_agrees_with_its_model(make: Any) -> None:
    for width in (4, 6, 8):
        module = Module(width, {"y0": make(random.Random(f"{make.__name__}/{width}"), width)})
        verdict = await verdict_on(module, module.reference)
        assert verdict.reward == 1.0, (verdict, module.reference)


SUM = Module(4, {"y0": total(random.Random(0), 4)})
HEAD = "module top_module(input [3:0] a, input [3:0] b, input s, output [4:0] y0);\n"
STYLES = {
    "plain": f"{HEAD}assign y0 = a + b;\nendmodule\n",
    "comments that hold anything": f"// `include $finish \"\n/* \\x top.a é */{HEAD}assign y0 = a /* + 1 */ + b; // $display\nendmodule\n",
    "directives": f"`timescale 1ns/1ps\n`default_nettype none\n{HEAD}assign y0 = a + b;\nendmodule\n`default_nettype wire\n",
    "ports in the old way": "module top_module(a, b, s, y0);\ninput [3:0] a, b; input s; output [4:0] y0; reg [4:0] y0;\nalways @(a or b) y0 = a + b;\nendmodule\n",
    "SystemVerilog": "module top_module(input logic [3:0] a, input logic [3:0] b, input logic s, output logic [4:0] y0);\nalways_comb begin y0 = 5'(a) + 5'(b); end\nendmodule\n",
    "other order of ports": "module top_module(output [4:0] y0, input s, input [3:0] b, input [3:0] a);\nassign y0 = a + b;\nendmodule\n",
    "submodules and generate": f"{HEAD}wire [4:0] c; assign c[0] = 1'b0; assign y0[4] = c[4];\ngenvar i;\ngenerate for (i = 0; i < 4; i = i + 1) begin : g\n  full_adder f(.a(a[i]), .b(b[i]), .cin(c[i]), .sum(y0[i]), .cout(c[i+1]));\nend endgenerate\nendmodule\nmodule full_adder(input a, b, cin, output sum, cout);\nassign {{cout, sum}} = a + b + cin;\nendmodule\n",
    "submodules first, by position": f"module add(input [3:0] x, y, output [4:0] z); assign z = x + y; endmodule\n{HEAD}add u(a, b, y0);\nendmodule\n",
    "parameters": "module top_module #(parameter W = 4) (input [W-1:0] a, b, input s, output [W:0] y0);\nlocalparam ZERO = {1'b0};\nassign y0 = {ZERO, a} + {ZERO, b};\nendmodule\n",
    "a function": f"{HEAD}function [4:0] add(input [3:0] x, input [3:0] y); add = x + y; endfunction\nassign y0 = add(a, b);\nendmodule\n",
    "a loop": "module top_module(input [3:0] a, b, input s, output reg [4:0] y0);\ninteger i; reg c;\nalways @* begin c = 0;\n  for (i = 0; i < 4; i = i + 1) begin y0[i] = a[i] ^ b[i] ^ c; c = (a[i] & b[i]) | (c & (a[i] ^ b[i])); end\n  y0[4] = c;\nend\nendmodule\n",
    "gates": f"{HEAD}wire [3:0] p, g; wire [4:0] c;\nassign c[0] = 0;\nxor x0(p[0], a[0], b[0]), x1(p[1], a[1], b[1]), x2(p[2], a[2], b[2]), x3(p[3], a[3], b[3]);\nassign g = a & b;\nassign c[4:1] = g | (p & c[3:0]);\nassign y0 = {{c[4], p ^ c[3:0]}};\nendmodule\n",
    "signed numbers": f"{HEAD}wire signed [5:0] t = $signed({{2'b00, a}}) - -$signed({{2'b00, b}});\nassign y0 = t[4:0];\nendmodule\n",
    "an attribute": f"(* keep_hierarchy = 1 *)\n{HEAD}assign y0 = a + b;\nendmodule\n",
    "Windows lines": f"{HEAD}assign y0 = a + b;\nendmodule\n".replace("\n", "\r\n"),
    "loops over the bits": "module top_module(input [3:0] a, b, input s, output logic [4:0] y0);\nalways_comb begin y0 = 5'(b); foreach (a[i]) if (a[i]) y0 += 5'd1 << i; end\nendmodule\n",
    "system functions": f"{HEAD}assign y0 = a + b + $countones(4'b0) + $onehot(4'b0110);\nendmodule\n",
    "labels at the ends": f"module add(input [3:0] x, y, output [4:0] z); assign z = x + y; endmodule : add\n{HEAD}function automatic [4:0] f(input [4:0] x); f = x; endfunction : f\nwire [4:0] t; add u(a, b, t); assign y0 = f(t);\nendmodule\n: top_module\n",
    "a port more": "module top_module(input [3:0] a, b, input s, output [4:0] y0, output debug);\nassign y0 = a + b; assign debug = s;\nendmodule\n",
}  # fmt: skip


@needs_icarus
@pytest.mark.parametrize("style", STYLES)
async def test_a_right_design_in_any_style_is_right(style: str) -> None:
    verdict = await verdict_on(SUM, STYLES[style])
    assert verdict.reward == 1.0, verdict


ACCUMULATOR = Module(4, {"y0": accumulated(random.Random(0), 4)})
CLOCKED_HEAD = "module top_module(input clk, input rst, input en, input [3:0] a, input [3:0] b, input s, output reg [3:0] y0);\n"
CLOCKED_RIGHT = {
    "plain": "always @(posedge clk) if (rst) y0 <= 0; else if (en) y0 <= y0 + a;",
    "two processes": "reg [3:0] n; always @* begin n = y0; if (en) n = y0 + a; if (rst) n = 0; end\nalways_ff @(posedge clk) y0 <= n;",
    "a delay": "always @(posedge clk) y0 <= #1 rst ? 4'd0 : en ? y0 + a : y0;",
    "an initial value": "initial y0 = 0;\nalways @(posedge clk) begin if (rst) y0 <= '0; else y0 <= y0 + (a & {4{en}}); end",
    "an enumeration": "typedef enum logic [1:0] {CLEAR, HOLD, ADD} what;\nwhat w; always_comb if (rst) w = CLEAR; else if (en) w = ADD; else w = HOLD;\nalways_ff @(posedge clk) unique case (w) CLEAR: y0 <= 0; ADD: y0 <= y0 + a; default: y0 <= y0; endcase",
}  # fmt: skip
CLOCKED_WRONG = {
    "asynchronous reset": "always @(posedge clk or posedge rst) if (rst) y0 <= 0; else if (en) y0 <= y0 + a;",
    "the falling edge": "always @(negedge clk) if (rst) y0 <= 0; else if (en) y0 <= y0 + a;",
    "both edges": "always @(clk) if (rst) y0 <= 0; else if (en) y0 <= y0 + a;",
    "a latch": "always @* if (clk) begin if (rst) y0 = 0; else if (en) y0 = a; end",
    "no reset": "initial y0 = 0; always @(posedge clk) if (en) y0 <= y0 + a;",
    "no enable": "always @(posedge clk) if (rst) y0 <= 0; else y0 <= y0 + a;",
    "enable before reset": "always @(posedge clk) if (en) begin if (rst) y0 <= 0; else y0 <= y0 + a; end",
    "reset to one": "always @(posedge clk) if (rst) y0 <= 1; else if (en) y0 <= y0 + a;",
    "an edge late": "reg [3:0] n; always @(posedge clk) begin if (rst) n <= 0; else if (en) n <= n + a; y0 <= n; end",
    "the sum of b": "always @(posedge clk) if (rst) y0 <= 0; else if (en) y0 <= y0 + b;",
}


@needs_icarus
@pytest.mark.parametrize("style", CLOCKED_RIGHT)
async def test_a_right_register_in_any_style_is_right(style: str) -> None:
    verdict = await verdict_on(ACCUMULATOR, f"{CLOCKED_HEAD}{CLOCKED_RIGHT[style]}\nendmodule\n")
    assert verdict.reward == 1.0, verdict


@needs_icarus
@pytest.mark.parametrize("mistake", CLOCKED_WRONG)
async def test_a_wrong_register_is_wrong(mistake: str) -> None:
    verdict = await verdict_on(ACCUMULATOR, f"{CLOCKED_HEAD}{CLOCKED_WRONG[mistake]}\nendmodule\n")
    assert verdict.reward == 0.0, verdict


CHANGES = {
    " + ": " - ", " - ": " + ", " ^ ": " | ", " & ": " | ", " == ": " != ", "$signed": "",
    "posedge clk": "negedge clk", "if (rst)": "if (!rst)", "(en)": "(!en)", "s ?": "!s ?",
    "a > b": "a < b", " << ": " >> ", " >>> ": " >> ", "~": "", "[0]": "[1]",
}  # fmt: skip


@needs_icarus
@pytest.mark.slow
async def test_mistakes_in_references_are_noticed() -> None:
    """All but those that change nothing: each survivor is named here."""
    survived, tried = list[str](), 0
    for make in MAKERS:
        module = Module(6, {"y0": make(random.Random(f"{make.__name__}/changed"), 6)})
        head, body = module.reference.split(");\n", 1)
        for old, new in CHANGES.items():
            for found in re.finditer(re.escape(old), body):
                changed = body[: found.start()] + new + body[found.end() :]
                verdict = await verdict_on(module, f"{head});\n{changed}")
                tried += 1
                if verdict.reward != 0.0:
                    survived.append(f"{make.__name__}: {old}")
    assert tried > 80
    assert set(survived) <= {
        "machine: s ?",  # both next states are the same, or the state is never reached
        "steadied:  + ",  # of two bits, 0 - 1 - 1 is 2 as is 0 + 1 + 1
    }


@needs_icarus
async def test_partial_credit_is_the_share_of_outputs_right_throughout() -> None:
    module = Module(4, {"y0": total(random.Random(0), 4), "y1": run_of_ones(random.Random(0), 4)})
    half = module.reference.replace("a + b", "a - b")
    assert (await verdict_on(module, half, partial=True)).reward == 0.5
    assert (await verdict_on(module, half)).reward == 0.0
    assert (await verdict_on(module, module.reference, partial=True)).reward == 1.0
    none = module.reference.replace("a + b", "a - b").replace("!s", "s")
    assert (await verdict_on(module, none, partial=True)).reward == 0.0


@needs_icarus
def test_the_expert_is_right_with_any_seed_and_junk_is_not() -> None:
    env = ludus.make("ludus/verilog-v0", max_outputs=4)
    for index in range(5):
        for seed in (0, 7):
            env.reset(seed=seed, options={"task": f"test/{index}"})
            assert env.step(env.session.env.demonstrate())[1] == 1.0  # type: ignore[attr-defined]
        env.reset(options={"task": f"test/{index}"})
        module: Module = env.session.env.module  # type: ignore[attr-defined]
        empty = module.reference.split(");\n")[0] + ");\nendmodule\n"
        assert env.step(f"```verilog\n{empty}```")[1] == 0.0
    env.close()


@needs_icarus
def test_the_same_design_gets_the_same_verdict_again() -> None:
    env = ludus.make("ludus/verilog-v0")
    for said in ("```verilog\nmodule top_module(input x);\nendmodule\n```", "module top_module;"):
        env.reset(seed=3)
        first = env.step(said)
        env.reset(seed=3)
        assert env.step(said) == first
    env.close()


@needs_icarus
@pytest.mark.parametrize(
    "arguments",
    [
        {"min_outputs": 0},
        {"max_outputs": 7},
        {"kinds": "analogue"},
        {"min_width": 3},
        {"max_width": 9},
        {"timeout_s": 0},
    ],
)
def test_settings_that_cannot_be_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ludus.make("ludus/verilog-v0", **arguments)


@pytest.mark.skipif(shutil.which("iverilog") is not None, reason="Icarus Verilog is installed")
def test_a_missing_simulator_is_told_by_name() -> None:
    with pytest.raises(MissingExtra, match="apt-get install iverilog"):
        ludus.make("ludus/verilog-v0")


@needs_icarus
def test_without_a_sandbox_the_reward_is_unavailable() -> None:
    program = (
        "import ludus\n"
        "env = ludus.make('ludus/verilog-v0')\n"
        "env.reset(seed=0)\n"
        "try:\n    print(env.step('module top_module; endmodule'))\n"
        "except ludus.RewardUnavailable as error:\n    print(error.verdict.status.value)\n"
    )
    environment = {**os.environ, "LUDUS_SANDBOX": "slots-nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "unavailable", done
