"""Verilog designs as tasks: a model describes a design, and writes it again from the description.

After CodeV-R1 (arXiv 2505.24183, section 3.2): a description is kept where a design that is written
from it alone equals the original in simulation. A description that leaves something out, or a model
that cannot write the design, leaves no task.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ludus.errors import RewardUnavailable
from ludus.messages import Message, Role, user
from ludus.rewards.coding import extract_code

from ..families.maths import MathsProblem, digest
from ..families.verilog.filed import FiledModule, design_of, equals, expected_of, read_module
from ..families.verilog.verilog_env import LANGUAGES, Verilog
from ..problem_files import UnusableRow, rows_of
from .collection import CandidateTasks, LeftOut, cluster_texts, likeness, words_of
from .models import TOO_LONG, TaskModel, at_once
from .questions import Unwritten, WriteSettings

COPIED = 0.5
"""The share of a description's shingles from which it is the design itself."""
TIMEOUT_S = 20.0
"""The limit of a simulation in seconds, compilation included."""


async def round_trip(
    sources: Sequence[str], model: TaskModel, settings: WriteSettings, *, seed: int
) -> tuple[CandidateTasks, dict[str, dict[str, Any]], dict[str, Any]]:
    """Make tasks of designs.

    Args:
        sources: files or hub data sets with a design a row (`verilog`, `code`, `solution`).
        model: describes, and writes again.
        settings: `count` is the most designs, `samples` how often each is written again.
        seed: the seed of the model and of the simulations.

    Returns:
        The tasks; the column `pass_rate` of each, by id; and what is told on the card.

    Raises:
        ConfigError: a source cannot be read.
        RewardUnavailable: nothing can be simulated here.
        LudusError: the model could not answer.
    """
    designs: list[tuple[int, FiledModule, str]] = []
    left_out: list[LeftOut] = []
    number = 0
    for row in (row for source in sources for row in rows_of(source)):
        number += 1
        if len(designs) == settings.count:
            break
        try:
            source = design_of(row)
            designs.append((number, read_module(source), source))
        except UnusableRow as error:
            left_out.append(LeftOut(number, "not a design that is read", str(error)))
    trip = _RoundTrip(model, settings, seed)

    async def tried(design: tuple[int, FiledModule, str]) -> tuple[str, float] | Unwritten:
        try:
            return await trip.task(design[1])
        except Unwritten as refusal:
            return refusal
        except TOO_LONG:
            return Unwritten("too long for the model", f"row {design[0]}")

    results = await at_once(designs, tried, settings.concurrency)
    kept: dict[str, tuple[int, MathsProblem, float]] = {}
    for (row_number, _, source), result in zip(designs, results, strict=True):
        if isinstance(result, Unwritten):
            left_out.append(LeftOut(row_number, str(result.args[0]), str(result.args[1])))
            continue
        question, rate = result
        problem = MathsProblem(id=digest(question), question=question, gold=source)
        if problem.id in kept:
            left_out.append(LeftOut(row_number, "repeated", f"row {kept[problem.id][0]}"))
        else:
            kept[problem.id] = (row_number, problem, rate)
    columns = {
        name: {"pass_rate": rate, "pass_model": model.name} for name, (_, _, rate) in kept.items()
    }
    labels = cluster_texts([str(problem.gold) for _, problem, _ in kept.values()])
    problems = [(row, problem) for row, problem, _ in kept.values()]
    told = {"model": model.name, "samples": settings.samples}
    return (CandidateTasks(", ".join(sources), number, problems, labels, left_out), columns, told)


class _RoundTrip:
    """Describes designs, and writes them again."""

    def __init__(self, model: TaskModel, settings: WriteSettings, seed: int) -> None:
        self.model, self.settings, self.seed = model, settings, seed

    async def task(self, module: FiledModule) -> tuple[str, float]:
        """Return a question, and the share of designs written from it that are right.

        Raises:
            Unwritten: the design cannot be compared, or no design that was written equals it.
        """
        rng = random.Random(f"round-trip/{self.seed}/{module.source}")
        stimuli = module.stimuli(rng)
        try:
            await expected_of(module, stimuli, timeout_s=TIMEOUT_S)
        except UnusableRow as error:
            raise Unwritten("not a design that is read", str(error)) from None
        question = f"{module.heading}\n{await self._described(module)}"
        right = 0
        for number in range(self.settings.samples):
            text = await self._written(
                [Message(role=Role.SYSTEM, content=_BRIEFING), user(question)], number
            )
            verdict = await equals(
                module, stimuli, extract_code(text, LANGUAGES), partial=False, timeout_s=TIMEOUT_S
            )
            if not verdict.ok:
                raise RewardUnavailable(verdict)
            right += verdict.reward == 1.0
        if not right:
            raise Unwritten(
                "not written again", f"0 of {self.settings.samples} designs equal the original"
            )
        return question, right / self.settings.samples

    async def _described(self, module: FiledModule) -> str:
        asked = (
            f"Here is a Verilog module:\n\n```verilog\n{module.source}\n```\n\nDescribe in words "
            "what it does, so exactly that an engineer can write it again without seeing it: every "
            "output in every case, resets with their level and kind, widths, and what is signed. "
            "Quote no code. Write the description and nothing else."
        )
        description = (await self._written([user(asked)], 0)).strip()
        if not description or "endmodule" in description:
            raise Unwritten("not described", "the description is empty, or a design")
        if likeness(words_of(description), words_of(module.source)) >= COPIED:
            raise Unwritten("not described", "the description is the design")
        return description

    async def _written(self, messages: Sequence[Message], number: int) -> str:
        text, _ = await self.model.write(
            messages,
            max_tokens=self.settings.max_tokens,
            temperature=self.settings.temperature,
            seed=self.seed + number,
        )
        return text


_BRIEFING = f"{Verilog.system_prompt} {Verilog.answer_format}"
