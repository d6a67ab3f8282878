"""Plays reasoning-gym: families of generated puzzles, with a scorer for each family.

A task is a seed of the family's generator. The reward is what the family's `score_answer` says of
the text between `<answer>` tags, or of the whole text where there are none.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import random
import warnings
from dataclasses import fields
from importlib import metadata
from typing import Any

from ..contract import PeerRefusal, as_reward, as_text, refuse_unknown
from ..reading import guard_parsers, guarded

KEPT = 16
"""Puzzles that are kept as they were drawn."""
_OPENED, _CLOSED = "<answer>", "</answer>"
SYSTEM_PROMPT = "Solve the problem. Keep to the form of answer that the problem asks for."
ANSWER_FORMAT = "Give the final answer, and nothing else, between <answer> and </answer>."


def load(settings: dict[str, Any]) -> dict[str, Any]:
    """Import the package."""
    importlib.import_module("reasoning_gym")
    guard_parsers("reasoning_gym")
    return {"version": metadata.version("reasoning-gym")}


def catalogue() -> dict[str, Any]:
    """Return all families of the package; the topic is the folder of a family."""
    families: list[dict[str, Any]] = []
    for name, (dataset, _) in sorted(_factory().DATASETS.items()):
        family = {"name": name, "topic": dataset.__module__.split(".")[1]}
        if name == "composite":
            family["needs"] = "the setting datasets, a list of families"
        families.append(family)
    return {
        "package": "reasoning-gym",
        "version": metadata.version("reasoning-gym"),
        "families": families,
    }


def make(family: str, settings: dict[str, Any]) -> Puzzles:
    """Return the environment of a family."""
    return Puzzles(family, settings)


def _factory() -> Any:
    return importlib.import_module("reasoning_gym.factory")


class Puzzles:
    """A family of puzzles; `settings` are the fields of the family's configuration."""

    def __init__(self, family: str, settings: dict[str, Any]) -> None:
        datasets = _factory().DATASETS
        refuse_unknown(family, sorted(datasets), "family of reasoning-gym")
        known = [field.name for field in fields(datasets[family][1])]
        for name in settings:
            # The task fixes `seed` and `size`, so no setting may.
            if name in ("seed", "size") or name not in known:
                allowed = ", ".join(sorted({*known} - {"seed", "size"}))
                raise PeerRefusal(
                    f"{family} of reasoning-gym has no setting {name!r}; it has {allowed}"
                )
        self.family, self.settings = family, settings
        self._entry: dict[str, Any] = {}
        self._drawn: dict[int, tuple[Any, dict[str, Any], Any]] = {}
        # Made before the first task, so that values which the family does not take are refused
        # here.
        self._dataset = self._make_dataset(0)

    def about(self) -> dict[str, Any]:
        """Return that rewards are from 0 to 1."""
        return {"rewards": [0.0, 1.0]}

    def reset(self, task: dict[str, Any]) -> dict[str, Any]:
        """Draw the puzzle of the task's seed."""
        seed = int(task["seed"])
        # Drawn once, and then taken as it was drawn: some families search for seconds.
        if seed not in self._drawn:
            random.seed(seed)  # some generators draw from Python's own generator
            dataset = self._make_dataset(seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                entry = dataset[0]
            if len(self._drawn) >= KEPT:
                self._drawn.pop(next(iter(self._drawn)))
            self._drawn[seed] = dataset, entry, random.getstate()
        self._dataset, entry, state = self._drawn[seed]
        random.setstate(state)
        self._entry = copy.deepcopy(entry)
        gold = self._entry.get("answer")
        reply: dict[str, Any] = {
            "observation": as_text(self._entry["question"]),
            "system_prompt": SYSTEM_PROMPT,
            "answer_format": ANSWER_FORMAT,
        }
        if isinstance(gold, str):
            reply |= {"gold": gold, "expert": f"<answer>{gold}</answer>"}
        return reply

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Score the answer."""
        answer = answer_in(action["text"])
        reply: dict[str, Any] = {"observation": "", "terminated": True, "truncated": False}
        try:
            return {**reply, "reward": self._score(answer)}
        except Exception as error:
            return {**reply, **self._blame(error)}

    def _blame(self, error: Exception) -> dict[str, Any]:
        """Return a reward of 0 if the answer was at fault when the scorer raised, else the failure.

        The answer is at fault if the scorer works on the right answer of the problem, or where that
        is not known on the empty answer (decision 0106).
        """
        reason = f"the scorer of {self.family} raised {type(error).__name__}: {error}"[:500]
        gold = self._entry.get("answer")
        try:
            self._score(gold if isinstance(gold, str) else "")
        except Exception:
            return {"failure": reason}
        return {"reward": 0.0, "info": {"scorer_raised": reason}}

    def _score(self, answer: str) -> float:
        with warnings.catch_warnings(), contextlib.suppress(RecursionError), guarded():
            warnings.simplefilter("ignore")
            return as_reward(self._dataset.score_answer(answer, self._entry))
        # Reached only where `suppress` has ended the block at a RecursionError.
        raise ValueError("the scorer recursed too deeply")

    def _make_dataset(self, seed: int) -> Any:
        try:
            return _factory().create_dataset(self.family, seed=seed, size=1, **self.settings)
        except (AssertionError, TypeError, ValueError) as error:
            raise PeerRefusal(
                f"{self.family} of reasoning-gym cannot be made with {self.settings!r}: {error}"
            ) from error


def answer_in(text: str) -> str:
    """Return what stands between the last `<answer>` tags, or else the whole text.

    >>> answer_in("so <answer> 7 </answer>"), answer_in("7")
    ('7', '7')
    """
    # Not by a pattern, which would look for the end of the text again at each tag left open.
    answer, start = text, text.find(_OPENED)
    while start >= 0 and (end := text.find(_CLOSED, start)) >= 0:
        answer = text[start + len(_OPENED) : end].strip()
        start = text.find(_OPENED, end)
    return answer
