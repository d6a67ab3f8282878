"""Sources of questions: a fictional world, or a file of questions and answers."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from ludus.errors import ConfigError

from ...rows import changed_at
from ...splits import ProblemSet, check_shares
from ...tasks import SPLITS, GeneratedTasks, Task, TaskSet
from ..fiction import build_world
from .answers import normalize
from .files import place, read_rows, text_of
from .questions import NoQuestion, QuestionMaker, QuestionShape, SearchQuestion, shapes_for

logger = logging.getLogger(__name__)
_QUESTIONS = ("question", "Question", "query")
_ANSWERS = ("golden_answers", "answers", "answer", "Answer")


class Questions(Protocol):
    """A task set per split, and the question behind each task."""

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split."""
        ...

    def question(self, task: Task) -> SearchQuestion:
        """Return the question of a task."""
        ...


class _HopTasks(GeneratedTasks):
    """A task set with a question per seed; the difficulty is the number of hops."""

    def __init__(self, split: str, hops: tuple[int, int]) -> None:
        super().__init__(split)
        self._hops = hops

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty."""
        task = super().at(index)
        hops = float(random.Random(f"hops/{task.seed}").randint(*self._hops))
        return Task(id=task.id, split=task.split, seed=task.seed, difficulty=hops)


class GeneratedQuestions:
    """An endless supply of questions about a fictional world, with a separate realm for each split.

    Args:
        world: the seed of the world.
        people: the number of people in the world.
        hops: the fewest and the most hops.
        shapes: the shapes of questions.

    Raises:
        ConfigError: a split of this world has no such question.
    """

    def __init__(
        self, world: int, people: int, hops: tuple[int, int], shapes: Sequence[QuestionShape]
    ) -> None:
        self._hops = hops
        self._shapes = shapes
        self._makers = _makers(world, people)
        for split in SPLITS:
            for shape in shapes_for(hops[1], shapes):
                self._probe(split, shape)

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set; no realm is in two splits."""
        return _HopTasks(split, self._hops)

    def question(self, task: Task) -> SearchQuestion:
        """Draw the question of a task from the task's seed."""
        hops = int(_HopTasks(task.split, self._hops).find(task.id).difficulty or 0)
        rng = random.Random(f"question/{task.seed}")
        shape = rng.choice(shapes_for(hops, self._shapes))
        return self._makers[task.split].draw(rng, hops=hops, shape=shape)

    def _probe(self, split: str, shape: QuestionShape) -> None:
        for hops in {max(self._hops[0], 1 + (shape is not QuestionShape.CHAIN)), self._hops[1]}:
            try:
                self._makers[split].draw(random.Random("probe"), hops=hops, shape=shape)
            except NoQuestion as error:
                raise ConfigError(f"{error}; make the world larger (people)") from None


@lru_cache(maxsize=4)
def _makers(world: int, people: int) -> dict[str, QuestionMaker]:
    world_drawn = build_world(world, people)
    return {split: QuestionMaker(world_drawn, split) for split in SPLITS}


@dataclass(frozen=True, slots=True)
class _Filed:
    """A question of a file."""

    id: str
    question: SearchQuestion
    difficulty: float | None = None


class FiledQuestions:
    """The questions of a file, each once, split by digest.

    Args:
        source: a file or a hub's data set, as for a corpus, of rows {question, answer}; `answer`
            may be a list of alternatives (`golden_answers`). A row may also have `searches`, the
            queries that a good searcher makes in order, which the demonstrator follows; without
            them it searches for the question.
        seed: seeds the split.
        validation: the share for validation.
        test: the share for test.

    Raises:
        ConfigError: no row has a question and an answer, or the shares are out of range.
    """

    def __init__(self, source: str, *, seed: int, validation: float, test: float) -> None:
        check_shares(validation, test)
        self._problems = _problems(source, seed, validation, test, changed_at(source))

    def tasks(self, split: str) -> TaskSet:
        """Return the questions of a split, shuffled."""
        return self._problems.tasks(split)

    def question(self, task: Task) -> SearchQuestion:
        """Return the question of a task."""
        return self._problems.problem(task).question


@lru_cache(maxsize=8)
def _problems(
    source: str, seed: int, validation: float, test: float, changed: int
) -> ProblemSet[_Filed]:
    filed: dict[str, _Filed] = {}
    left_out: list[int] = []
    for row in read_rows(source):
        read = _read(row.values)
        if read is None:
            left_out.append(row.number)
        else:
            filed.setdefault(read.id, read)
    if not filed:
        raise ConfigError(
            f"no row of {source!r} has a question and an answer: rows need 'question' and 'answer' "
            "(or 'golden_answers', a list)"
        )
    if left_out:
        logger.warning(
            "%s: %d questions; left out %d rows without a question or an answer that can be "
            "compared, the first at %s",
            source, len(filed), len(left_out), place(source, left_out[0]),
        )  # fmt: skip
    return ProblemSet(list(filed.values()), seed=seed, validation=validation, test=test)


def _read(row: Mapping[str, Any]) -> _Filed | None:
    question = text_of(row, _QUESTIONS)
    golds = next((golds for name in _ANSWERS if (golds := _golds(row.get(name)))), ())
    if not question or not golds:
        return None
    identity = hashlib.blake2b(" ".join(question.split()).encode(), digest_size=8).hexdigest()
    given_searches = row.get("searches")
    searches = (_golds(given_searches) if isinstance(given_searches, list) else ()) or (question,)
    # each search should find what the next one asks for, and the last the answer
    evidence = (*searches[1:], golds[0])
    return _Filed(identity, SearchQuestion(question, golds, searches=searches, evidence=evidence))


def _golds(raw_golds: object) -> tuple[str, ...]:
    """Return the answers that can be compared: an answer that is empty once normalised cannot."""
    gold_list = raw_golds if isinstance(raw_golds, list) else [raw_golds]
    texts = [str(gold).strip() for gold in gold_list if isinstance(gold, (str, int, float))]
    return tuple(text for text in texts if normalize(text))
