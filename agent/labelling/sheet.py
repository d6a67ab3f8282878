"""What people are asked: items from files and runs, and how each person sees the items.

Answers are shown under letters, in an order that depends on the person and the item; nothing on the
page says where an answer comes from.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from ludus.envs.problem_files import UnusableRow, rows_of
from ludus.errors import ConfigError
from ludus.messages import Message

from ..data.preferences import SINGLE, PreferenceReader, is_pair
from ..episodes import episode_files, read_episodes
from ..trajectory import Episode


class LabelQuestion(StrEnum):
    """What is asked of an item."""

    PAIR = "pair"
    """Which of two answers is better."""
    RANKING = "ranking"
    """The order of several answers."""
    RATING = "rating"
    """How good an answer is, from 1 to 5."""
    CRITERION = "criterion"
    """Whether an answer meets a criterion."""


RATINGS = (1, 2, 3, 4, 5)
MOST_ANSWERS = 9
"""The most answers that digits can rank."""


class LabelItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item: a prompt with answers."""

    id: str
    question: LabelQuestion
    prompt: list[Message] = []
    answers: list[list[Message]] = []
    criterion: str = ""
    expected: list[float] | None = None
    """What is right of a test item: ranks of the answers, the rating, or 1 for met, 0 for not."""

    def order(self, annotator: str) -> list[int]:
        """Return the order in which a person sees the answers."""
        places = range(len(self.answers))
        return sorted(places, key=lambda place: _digest(self.id, annotator, str(place)))


def load_items(
    source: str, *, tests: str = "", ask: LabelQuestion = LabelQuestion.PAIR
) -> list[LabelItem]:
    """Load the items of a file, a hub's data set or a run.

    Args:
        source: see `ludus.envs.problem_files.rows_of`; or a folder of recorded episodes, such as
            that of a run.
        ask: what is asked of recorded episodes: pairs and rankings are of the rollouts of a task,
            and every episode can be rated.
        tests: a source of test items, whose rows say what is right: `chosen` and `rejected`,
            `ranks`, `rating` or `met`.

    Raises:
        ConfigError: a source cannot be read, holds nothing to ask, or a row that cannot be asked.
    """
    path = Path(source)
    if ask is LabelQuestion.CRITERION:
        raise ConfigError("recorded episodes have no criterion; ask pair, ranking or rating")
    given = _of_run(path, ask) if path.is_dir() else _of_rows(source, tests=False)
    items: dict[str, LabelItem] = {}
    for item in given:
        if items.setdefault(item.id, item) != item:
            raise ConfigError(
                f"{source!r}: two different items have the id {item.id!r}; give each its own"
            )
    if not items:
        raise ConfigError(
            f"{source!r} holds nothing to label; name a run's folder or a .jsonl file of rows"
        )
    tested = _of_rows(tests, tests=True) if tests else ()
    for item in tested:
        items[item.id] = item
    kinds = {item.question for item in items.values()}
    if len(kinds) > 1:
        raise ConfigError(
            f"{source!r} asks {' and '.join(sorted(kinds))}; label one kind of question at a time"
        )
    return list(items.values())


def in_turn(items: Sequence[LabelItem], annotator: str) -> list[LabelItem]:
    """Return the items in the order of a person, so that no two people tire at the same items."""
    return sorted(items, key=lambda item: _digest("order", annotator, item.id))


def _of_rows(source: str, *, tests: bool) -> Iterator[LabelItem]:
    reader = PreferenceReader(Path(source).parent)
    for number, row in enumerate(rows_of(source), 1):
        try:
            yield _item(row, reader, tests=tests)
        except UnusableRow as error:
            raise ConfigError(f"{source!r}, row {number}, cannot be asked: {error}") from None


def _item(row: Mapping[str, Any], reader: PreferenceReader, *, tests: bool) -> LabelItem:
    criterion = str(row.get("criterion") or "")
    question, prompt, answers, expected = _asked(row, reader)
    if any(not answer for answer in answers):
        raise UnusableRow("an answer is empty")
    if len(answers) > 1 and all(answer == answers[0] for answer in answers):
        raise UnusableRow("its answers are the same")
    if tests and expected is None:
        raise UnusableRow("a test item says what is right: chosen, ranks, rating or met")
    said = msgspec.json.encode([prompt, sorted(map(msgspec.json.encode, answers)), criterion])
    identity = str(row.get("id") or hashlib.blake2b(said, digest_size=8).hexdigest())
    return LabelItem(
        id=f"test-{identity}" if tests else identity,
        question=question,
        prompt=prompt,
        answers=answers,
        criterion=criterion,
        expected=expected if tests else None,
    )


def _asked(
    row: Mapping[str, Any], reader: PreferenceReader
) -> tuple[LabelQuestion, list[Message], list[list[Message]], list[float] | None]:
    """Return the question of a row, its prompt and answers, and what is right where the row says
    so.
    """
    single = next((row[name] for name in SINGLE if row.get(name) is not None), None)
    if row.get("criterion") is not None:
        met = [float(row["met"])] if isinstance(row.get("met"), bool) else None
        judged = row.get("response") or single  # `answer` beside it is the known one
        return LabelQuestion.CRITERION, reader.prompt(row), [reader.answer(judged, row)], met
    several = row.get("answers") or row.get("generations") or []
    if not isinstance(several, list):
        raise UnusableRow(f"its answers are {several!r:.60}; they are a list")
    if is_pair(row) or len(several) > 1:
        if len(several) > MOST_ANSWERS:
            raise UnusableRow(
                f"{len(several)} answers are more than keys can rank: at most {MOST_ANSWERS}"
            )
        prompt, answers, ranks = reader.answers(row)
        kind = LabelQuestion.PAIR if len(answers) == 2 else LabelQuestion.RANKING
        return kind, prompt, answers, ranks
    if single is None:
        raise UnusableRow(f"it has no answers; its columns are {', '.join(map(str, row))}")
    rating = row.get("rating")
    right = [float(rating)] if isinstance(rating, int | float) else None
    return LabelQuestion.RATING, reader.prompt(row), [reader.answer(single, row)], right


def _of_run(folder: Path, ask: LabelQuestion) -> Iterator[LabelItem]:
    """Yield what is asked of each task's rollouts that say different things: the first two are a
    pair, up to nine a ranking, and each by itself is rated.
    """
    groups: dict[str, list[Episode]] = defaultdict(list)
    for path in episode_files(folder):
        for episode in read_episodes(path):
            groups[f"{episode.task}\0{episode.group}"].append(episode)
    for name, episodes in groups.items():
        answers: list[list[Message]] = []
        prompt: list[Message] = []
        for episode in episodes:
            opening, said = _conversation(episode)
            if said and said not in answers and (not answers or opening == prompt):
                prompt = opening
                answers.append(said)
        task = name.partition("\0")[0]
        identity = f"{task}-{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}"
        if ask is LabelQuestion.RATING:
            for number, answer in enumerate(answers):
                yield LabelItem(
                    id=f"{identity}-{number}", question=ask, prompt=prompt, answers=[answer]
                )
        elif len(answers) > 1 + (ask is LabelQuestion.RANKING):
            most = 2 if ask is LabelQuestion.PAIR else MOST_ANSWERS
            yield LabelItem(id=identity, question=ask, prompt=prompt, answers=answers[:most])


def _conversation(episode: Episode) -> tuple[list[Message], list[Message]]:
    """Return what an episode's first role read at first, and all that followed."""
    turns = episode.trajectories[0].turns if episode.trajectories else []
    opening = list(turns[0].observation) if turns else []
    said: list[Message] = []
    for number, turn in enumerate(turns):
        said += turn.observation if number else []
        said += [turn.message] if turn.message is not None else []
    return opening, said


def _digest(*parts: str) -> bytes:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
