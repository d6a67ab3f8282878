"""Verilog designs as tasks: a model describes a design, and writes it again from the description.

After CodeV-R1 (arXiv 2505.24183, section 3.2): a description is kept where a design that is written
from it alone equals the original in simulation. A description that leaves something out, or a model
that cannot write the design, leaves no task.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from ludus.errors import RewardUnavailable
from ludus.messages import system, user
from ludus.rewards.coding import extract_code

from ..families.verilog.filed import FiledModule, design_of, equals, expected_of, read_module
from ..families.verilog.verilog_env import LANGUAGES, Verilog
from ..problem_files import UnusableRow, rows_of
from .collection import CandidateTasks, LeftOut, cluster_texts, likeness, words_of
from .models import TaskAuthor, Unwritten, WrittenTask, write_tasks

COPIED = 0.5
"""The share of a description's shingles from which it is the design itself."""
TIMEOUT_S = 20.0
"""The limit of a simulation in seconds, compilation included."""


async def round_trip(sources: Sequence[str], author: TaskAuthor) -> CandidateTasks:
    """Make tasks of designs.

    Args:
        sources: files or hub data sets with a design a row (`verilog`, `code`, `solution`).
        author: describes, and writes again; `count` is the most designs, `samples` how often each
            is written again. Its seed is that of the simulations as well.

    Returns:
        The tasks with the column `pass_rate`.

    Raises:
        ConfigError: a source cannot be read.
        RewardUnavailable: nothing can be simulated here.
        LudusError: the model could not answer.
    """
    designs: list[tuple[int, tuple[str, FiledModule]]] = []
    left_out: list[LeftOut] = []
    rows = (row for source in sources for row in rows_of(source))
    for number, row in enumerate(rows, 1):
        if len(designs) == author.settings.count:
            break
        try:
            design = design_of(row)
            designs.append((number, (design, read_module(design))))
        except UnusableRow as error:
            left_out.append(LeftOut(number, "not a design that is read", str(error)))
    candidates = await write_tasks(
        ", ".join(sources),
        designs,
        _RoundTrip(author).task,
        lambda tasks: cluster_texts([task.answer for task in tasks]),
        left_out=left_out,
        most=author.settings.concurrency,
    )
    card = {"model": author.model.name, "samples": author.settings.samples}
    return replace(candidates, measured=card)


class _RoundTrip:
    """Describes designs, and writes them again."""

    def __init__(self, author: TaskAuthor) -> None:
        self.author = author

    async def task(self, design: tuple[str, FiledModule]) -> WrittenTask:
        """Return a question with the share of designs written from it that are right.

        Raises:
            Unwritten: the design cannot be compared, or no design that was written equals it.
        """
        source, module = design
        rng = random.Random(f"round-trip/{self.author.seed}/{module.source}")
        stimuli = module.stimuli(rng)
        try:
            await expected_of(module, stimuli, timeout_s=TIMEOUT_S)
        except UnusableRow as error:
            raise Unwritten("not a design that is read", str(error)) from None
        question = f"{module.heading}\n{await self._described(module)}"
        right, samples = 0, self.author.settings.samples
        for number in range(samples):
            text, _ = await self.author.write([system(_BRIEFING), user(question)], number)
            verdict = await equals(
                module, stimuli, extract_code(text, LANGUAGES), partial=False, timeout_s=TIMEOUT_S
            )
            if not verdict.ok:
                raise RewardUnavailable(verdict)
            right += verdict.reward == 1.0
        if not right:
            raise Unwritten("not written again", f"0 of {samples} designs equal the original")
        columns = {"pass_rate": right / samples, "pass_model": self.author.model.name}
        return WrittenTask(question, source, columns)

    async def _described(self, module: FiledModule) -> str:
        asked = (
            f"Here is a Verilog module:\n\n```verilog\n{module.source}\n```\n\nDescribe in words "
            "what it does, so exactly that an engineer can write it again without seeing it: every "
            "output in every case, resets with their level and kind, widths, and what is signed. "
            "Quote no code. Write the description and nothing else."
        )
        description = (await self.author.write(asked, 0))[0].strip()
        if not description or "endmodule" in description:
            raise Unwritten("not described", "the description is empty, or a design")
        if likeness(words_of(description), words_of(module.source)) >= COPIED:
            raise Unwritten("not described", "the description is the design")
        return description


_BRIEFING = f"{Verilog.system_prompt} {Verilog.answer_format}"
