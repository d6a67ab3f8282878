"""The path of a gradient: files, functions and rooms that one update passes through.

What is traced is `gather` and `Updater.step` on six rollouts, some of them cut into two rows, by
the recipe grpo with a model from random weights. A room is a folder of the trainer, such as
`trainer/learning`; folders below it belong to it. A room is entered where a function of it is
called for the first time, and called from another room (or from here). Every entry of a room but
its first is a re-entry: the reader comes back to a room that was left. What is called a second time
was read before and counts no more, so neither the number of passes nor that of layers matters.
"""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import NamedTuple

import torch

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn
from ludus.envs import Task
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.experience import gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.recipe import load_recipe
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.collect import Group
from ludus.verdict import Verdict

MAX_REENTRIES = 8
INNER = ("<lambda>", "comp>", "<genexpr>")
"""Ends of the names of what belongs to the function that holds it."""


class Entry(NamedTuple):
    """A function that is entered from another room."""

    room: str
    """Such as "trainer/learning"."""
    function: str
    """Such as "trainer.learning.experience.gather"."""


class GradientPath(NamedTuple):
    """What one update passes through."""

    functions: frozenset[tuple[str, str]]
    """(file, qualified name) of everything of ludus that was called."""
    entries: tuple[Entry, ...]
    """Entries of the trainer's rooms, in order."""

    @property
    def reentries(self) -> int:
        """Entries of rooms that were entered before."""
        return len(self.entries) - len({entry.room for entry in self.entries})


def trace_update() -> GradientPath:
    """Make an update, and return its path."""
    updater = Updater(
        resolve(load_recipe("grpo"), max_tokens=16),
        Learner(build_model(40, hidden=16, layers=1, heads=2, max_length=64), TrainerConfig()),
    )
    groups = _groups()
    seen: set[tuple[str, str]] = set()
    entries: list[Entry] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        code = frame.f_code
        if event != "call" or not module.startswith("ludus.") or code.co_filename.startswith("<"):
            return
        name = code.co_qualname
        while name.endswith(INNER):
            name = name.rpartition(".")[0].removesuffix(".<locals>")
        if (code.co_filename, name) in seen:
            return
        seen.add((code.co_filename, name))
        room, caller = _room(module), _caller(frame)
        if room and room != caller:
            entries.append(Entry(room, f"{module.removeprefix('ludus.')}.{name}"))

    sys.setprofile(note)
    try:
        experience = gather(groups)
        assert experience is not None
        updater.step(experience, generator=torch.Generator().manual_seed(0))
    finally:
        sys.setprofile(None)
    return GradientPath(frozenset(seen), tuple(entries))


def _caller(frame: FrameType) -> str:
    """Return the room of the nearest function of ludus below a frame; "" if there is none."""
    below = frame.f_back
    while below is not None:
        module = str(below.f_globals.get("__name__", ""))
        if module.startswith("ludus."):
            return _room(module)
        below = below.f_back
    return ""


def _room(module: str) -> str:
    """Return the folder of the trainer that a module is in; "" for other parts of ludus.

    >>> _room("ludus.trainer.algorithms.advantages.group")
    'trainer/algorithms'
    """
    parts = module.split(".")
    return "/".join(parts[1:3]) if parts[1] == "trainer" and len(parts) > 3 else ""


def _groups() -> list[Group]:
    """Return two groups of three rollouts, the second of which is cut into two rows."""
    draw = random.Random(0)

    def segment() -> Segment:
        prompt, said = ([draw.randint(3, 39) for _ in range(4)] for _ in range(2))
        return Segment(prompt_ids=prompt, turns=[Turn(out_ids=said, logprobs=[-3.0] * 4)])

    groups: list[Group] = []
    for task in ("0", "1"):
        played = [
            Trajectory(
                verdict=Verdict.of(float(number == 0)),
                stop=Stop.TERMINATED,
                segments=[segment() for _ in range(2 if number == 1 else 1)],
            )
            for number in range(3)
        ]
        episodes = [Episode(task=task, trajectories=[trajectory]) for trajectory in played]
        groups.append(Group(Task(id=task, split="train"), episodes, 0))
    return groups
