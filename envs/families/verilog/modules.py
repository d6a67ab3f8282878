"""Draws modules: the question, a right design, and the expected outputs for given inputs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ludus.errors import ConfigError

from ...problem_files import split_of
from ...tasks import GeneratedTasks, Task, digest_of
from .problems import CLOCKED, COMBINATIONAL, Clause, Inputs, mask

NAME = "top_module"
KINDS = ("combinational", "clocked")
MAX_OUTPUTS = 6
MAX_WIDTH = 8
"""The most bits of an input; with so many bits all values of an input can be tried."""

_MAX_DRAWS = 1_000
_EDGES = 480
_PHASE = 120
"""The length of a phase: edges without a reset, for long counts, alternate with resets."""
_PAIRS = 120
_RESET_EDGES = 2
_RESETS, _RESETS_ON_CHANGE, _ENABLED, _FLIPS, _FLIPS_CALM = 0.05, 0.35, 0.75, 0.4, 0.2
"""Chances at an edge of a clocked module."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module that the policy is asked to write."""

    width: int
    """The number of bits of the inputs a and b."""
    outputs: dict[str, Clause]

    @property
    def clocked(self) -> bool:
        """Whether the module has a clock."""
        return any(clause.clocked for clause in self.outputs.values())

    @property
    def inputs(self) -> dict[str, int]:
        """The width in bits of each input but the clock, by name."""
        control = {"rst": 1, "en": 1} if self.clocked else {}
        return {**control, "a": self.width, "b": self.width, "s": 1}

    @property
    def widths(self) -> dict[str, int]:
        """The width in bits of each output, by name."""
        return {name: clause.width for name, clause in self.outputs.items()}

    @property
    def question(self) -> str:
        """The question, in the words that the policy reads."""
        ports = [*(["input clk"] if self.clocked else []), *self._ports()]
        descriptions = "\n".join(
            f"- {name}: {clause.says}." for name, clause in self.outputs.items()
        )
        clock = (
            "\nRegisters change at the rising edge of clk only. An edge at which rst is 1 resets "
            "them; no other input matters then. Outputs that are not registers are functions of "
            "the present inputs."
        )
        return (
            f"Write a Verilog module `{NAME}` with these ports:\n\n"
            + "\n".join(f"    {port}" for port in ports)
            + f"\n\nThe outputs:\n\n{descriptions}\n{clock if self.clocked else ''}"
        ).rstrip()

    @property
    def reference(self) -> str:
        """The source of a right design."""
        head = ",\n".join(
            f"  {port}" for port in [*(["input clk"] if self.clocked else []), *self._ports(True)]
        )
        body = "\n".join(clause.verilog.format(y=name) for name, clause in self.outputs.items())
        return f"module {NAME}(\n{head}\n);\n{body}\nendmodule\n"

    def _ports(self, with_kinds: bool = False) -> list[str]:
        inputs = [f"input {_range(width)}{name}" for name, width in self.inputs.items()]
        outputs = [
            f"output {'reg ' if with_kinds and clause.is_reg else ''}{_range(clause.width)}{name}"
            for name, clause in self.outputs.items()
        ]
        return [*inputs, *outputs]

    def shows(self, stimuli: list[Inputs]) -> list[dict[str, int]]:
        """Return the outputs that the models give.

        There is a row for each element of `stimuli`; with a clock, a row just before each rising
        edge and a row after, except before the first edge, where nothing is known.
        """
        models = {name: clause.model() for name, clause in self.outputs.items()}
        if not self.clocked:
            return [{name: model(inputs) for name, model in models.items()} for inputs in stimuli]
        rows: list[dict[str, int]] = []
        for inputs in stimuli:
            present = {n: m(inputs) for n, m in models.items() if not self.outputs[n].clocked}
            if rows:
                rows.append({**rows[-1], **present})
            after = {n: m(inputs) for n, m in models.items() if self.outputs[n].clocked}
            rows.append({n: (present | after)[n] for n in models})
        return rows


def _range(width: int) -> str:
    return f"[{width - 1}:0] " if width > 1 else ""


class ModuleTasks(GeneratedTasks):
    """A task set with a module per seed; the difficulty is the number of outputs.

    Args:
        split: the split.
        outputs: the fewest and the most outputs.
        kinds: some of `KINDS`.
        widths: the fewest and the most bits of the inputs a and b.
    """

    def __init__(
        self, split: str, outputs: tuple[int, int], kinds: Sequence[str], widths: tuple[int, int]
    ) -> None:
        super().__init__(split)
        self.outputs, self.kinds, self.widths = outputs, kinds, widths

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty and a digest of the question: modules of
        few outputs are soon drawn twice.
        """
        task = super().at(index)
        module = self.module(task)
        return Task(
            id=task.id,
            split=task.split,
            seed=task.seed,
            difficulty=float(len(module.outputs)),
            problem=digest_of(module.question),
        )

    def module(self, task: Task) -> Module:
        """Return the module that `task` asks for.

        Raises:
            ConfigError: so few modules are possible that none was found.
        """
        count = random.Random(f"verilog/outputs/{task.seed}").randint(*self.outputs)
        return draw(task, count, self.kinds, self.widths)


def draw(task: Task, outputs: int, kinds: Sequence[str], widths: tuple[int, int]) -> Module:
    """Return the first module drawn from the task's seed that is of the task's split.

    Raises:
        ConfigError: so few modules are possible that none was found.
    """
    rng = random.Random(f"verilog/{task.seed}")
    makers = [
        *(COMBINATIONAL if "combinational" in kinds else ()),
        *(CLOCKED if "clocked" in kinds else ()),
    ]
    for _ in range(_MAX_DRAWS):
        width = rng.randint(*widths)
        clauses = [make(rng, width) for make in rng.sample(makers, outputs)]
        module = Module(width, {f"y{n}": clause for n, clause in enumerate(clauses)})
        if split_of(module.question) != task.split:
            continue
        # An output that never changes would be right by chance: every output takes two values.
        shown = module.shows(draw_stimuli(rng, module))
        if all(len({outputs[name] for outputs in shown}) > 1 for name in module.outputs):
            return module
    raise ConfigError(
        f"no module of {outputs} outputs was found for {task.id!r}; allow more kinds or widths"
    )


def draw_stimuli(rng: random.Random, module: Module) -> list[Inputs]:
    """Draw the inputs that drive a simulation.

    They are every value of a, and chosen pairs of a and b. For a clocked module they are in a
    sequence with runs of s and stretches with resets, most of which come when a register has just
    changed.
    """
    top = mask(module.width)
    pairs = [(a, rng.randint(0, top)) for a in range(top + 1)]
    fewest = _EDGES if module.clocked else 0
    pairs += [_pair(rng, top) for _ in range(max(_PAIRS, fewest - len(pairs)))]
    rng.shuffle(pairs)
    return (
        _sequence(rng, module, pairs)
        if module.clocked
        else [{"a": a, "b": b, "s": rng.getrandbits(1)} for a, b in pairs]
    )


def _sequence(rng: random.Random, module: Module, pairs: list[tuple[int, int]]) -> list[Inputs]:
    models = [clause.model() for clause in module.outputs.values() if clause.clocked]
    stimuli: list[Inputs] = []
    s, sequence, changed = 0, list[int](), False
    for place, (a, b) in enumerate(pairs):
        calm = place // _PHASE % 2 == 0
        s ^= rng.random() < (_FLIPS_CALM if calm else _FLIPS)
        often = 0.0 if calm else _RESETS_ON_CHANGE if changed else _RESETS
        resets = place < _RESET_EDGES or rng.random() < often
        inputs = {"rst": int(resets), "en": int(rng.random() < _ENABLED), "a": a, "b": b, "s": s}
        stimuli.append(inputs)
        before, sequence = sequence, [model(inputs) for model in models]
        changed = sequence != before
    return stimuli


def _pair(rng: random.Random, top: int) -> tuple[int, int]:
    a = rng.choice((0, 1, top, top // 2, top // 2 + 1, rng.randint(0, top)))
    neighbour = min(max(a + rng.randint(-1, 1), 0), top)
    return a, rng.choice((neighbour, a, top - a, 0, top, rng.randint(0, top)))
