"""`ludus/verilog-v0`: the policy writes a small module, which is compared with a model in Python.

    user       Write a Verilog module `top_module` with these ports: input [3:0] a, ...
    assistant  ```verilog
               module top_module(input [3:0] a, ...); ... endmodule
               ```                                   reward 1

An episode is one turn. Icarus Verilog compiles and simulates the design in a sandbox; the expected
outputs never go there.
"""

from __future__ import annotations

import math
import os
import shutil
from typing import Any

from ludus.errors import ConfigError, MissingExtra
from ludus.messages import Message
from ludus.rewards.coding import extract_code
from ludus.sandboxes.guest.jail.policy import ENVIRONMENT
from ludus.sandboxes.local.slot_sandbox import SLOT_TIERS
from ludus.sandboxes.settings import TIER_VARIABLE
from ludus.verdict import Verdict

from ...problem_files import ProblemFiles, ProblemSet
from ...protocol import Info, TextEnv
from ...tasks import TaskSet
from .filed import VerilogProblem, VerilogRows, equals, read_module
from .modules import KINDS, MAX_OUTPUTS, MAX_WIDTH, Module, ModuleTasks, draw_stimuli
from .simulation import PACKAGE, graded

LANGUAGES = ("verilog", "systemverilog", "sv", "v", "")
"""Marks of code blocks that hold a design."""
_FEWEST_BITS = 4


class Verilog(TextEnv):
    """An environment that asks for a Verilog module; simulation against a Python model decides.

    Args:
        source: a .jsonl file or a hub's data set of {question, answer}, where the answer is a right
            design; designs are compared with it in simulation. Empty draws modules.
        test_source: a source like `source`, for the test split alone.
        seed: seeds the shuffle and the split of `source`.
        validation: the share of `source` for validation.
        test: the share of `source` for test, where `test_source` is empty.
        min_outputs: the fewest outputs of a module.
        max_outputs: the most outputs of a module.
        kinds: the kinds of outputs: `combinational`, `clocked`, or both.
        min_width: the fewest bits of the inputs a and b, at least 4.
        max_width: the most bits of the inputs a and b, at most 8.
        partial: reward the share of outputs that are right throughout, instead of all or nothing.
        timeout_s: the time limit for compiling and simulating a design, in seconds.

    Raises:
        ConfigError: a setting is out of range.
        MissingExtra: Icarus Verilog is not installed.
    """

    system_prompt = (
        "Write the module in plain synthesizable Verilog or SystemVerilog. System tasks, strings, "
        "macros, hierarchical names and structs are not allowed; comments are."
    )
    answer_format = "Give the whole design in one ```verilog block."
    max_turns = 1

    def __init__(
        self,
        source: str = "",
        *,
        test_source: str = "",
        seed: int = 0,
        validation: float = 0.05,
        test: float = 0.1,
        min_outputs: int = 1,
        max_outputs: int = 3,
        kinds: str = ",".join(KINDS),
        min_width: int = 4,
        max_width: int = MAX_WIDTH,
        partial: bool = False,
        timeout_s: float = 10.0,
    ) -> None:
        chosen_kinds = [kind.strip() for kind in kinds.split(",")]
        if not 1 <= min_outputs <= max_outputs <= MAX_OUTPUTS:
            raise ConfigError(
                f"need 1 <= min_outputs <= max_outputs <= {MAX_OUTPUTS}, got "
                f"{min_outputs}, {max_outputs}"
            )
        if not set(chosen_kinds) <= set(KINDS):
            raise ConfigError(f"kinds are some of {','.join(KINDS)}, got {kinds!r}")
        if not _FEWEST_BITS <= min_width <= max_width <= MAX_WIDTH:
            raise ConfigError(
                f"need {_FEWEST_BITS} <= min_width <= max_width <= {MAX_WIDTH}, got "
                f"{min_width}, {max_width}"
            )
        if not 0 < timeout_s < math.inf:
            raise ConfigError(f"timeout_s must be seconds above 0, got {timeout_s}")
        # Raise MissingExtra if programs run on this machine without Icarus Verilog.
        tier = os.environ.get(TIER_VARIABLE) or SLOT_TIERS[0]
        if tier in SLOT_TIERS and shutil.which(PACKAGE, path=ENVIRONMENT["PATH"]) is None:
            raise MissingExtra(f"ludus/verilog-v0 needs Icarus Verilog: apt-get install {PACKAGE}")
        self.outputs = (min_outputs, max_outputs)
        self.kinds = chosen_kinds
        self.widths = (min_width, max_width)
        self.partial = partial
        self.timeout_s = timeout_s
        self.module = Module(_FEWEST_BITS, {})
        files = ProblemFiles(
            source=source, test_source=test_source, seed=seed, validation=validation, test=test
        )
        self.problems: ProblemSet[VerilogProblem] | None = (
            files.load(VerilogRows()) if source else None
        )
        self.problem = VerilogProblem(id="", question="", design="")

    def tasks(self, split: str) -> TaskSet:
        """Return the modules of the file, or an endless task set; no module is in two splits."""
        if self.problems is not None:
            return self.problems.tasks(split)
        return self._drawn(split)

    def _drawn(self, split: str) -> ModuleTasks:
        return ModuleTasks(split, self.outputs, self.kinds, self.widths)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Describe the module that is asked for."""
        if self.problems is not None:
            self.problem = self.problems.problem(self.task)
            return self.problem.question, {}
        self.module = self._drawn(self.task.split).module(self.task)
        return self.module.question, {}

    async def step(self, action: str | Message) -> tuple[str, Verdict, bool, bool, Info]:
        """Simulate the design; the episode ends."""
        text = action if isinstance(action, str) else action.text
        design = extract_code(text, LANGUAGES)
        limits: dict[str, Any] = {"partial": self.partial, "timeout_s": self.timeout_s}
        if self.problems is None:
            verdict = await graded(
                self.module, draw_stimuli(self.rng, self.module), design, **limits
            )
        else:
            module = read_module(self.problem.design)
            verdict = await equals(module, module.stimuli(self.rng), design, **limits)
        return "", verdict, True, False, {}

    def gold(self) -> str:
        """Return the source of a right design."""
        return self.problem.design if self.problems is not None else self.module.reference

    def demonstrate(self) -> str:
        """Answer with a right design, in a code block."""
        if self.problems is None:
            return f"```verilog\n{self.module.reference}```"
        # Its module and its clock may have other names than those that are asked for.
        return f"```verilog\n{read_module(self.problem.design).source}\n```"
