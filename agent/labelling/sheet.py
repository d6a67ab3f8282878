"""What people are asked: items from files and runs, and how each person sees them.

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
from ludus.messages import Message, Role

from ..data.conversations import ConversationReader
from ..episodes import INDEX, read_episodes
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
    items = {item.id: item for item in given}
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
    reader = ConversationReader(Path(source).parent)
    for number, row in enumerate(rows_of(source), 1):
        try:
            yield _item(row, reader, tests=tests)
        except UnusableRow as error:
            raise ConfigError(f"{source!r}, row {number}, cannot be asked: {error}") from None


def _item(row: Mapping[str, Any], reader: ConversationReader, *, tests: bool) -> LabelItem:
    expected: list[float] | None = None
    criterion = ""
    if "criterion" in row:
        criterion, question = str(row["criterion"]), LabelQuestion.CRITERION
        prompt = reader.messages(row.get("question", row.get("prompt")), row)
        answers = [reader.answer(row.get("response", row.get("answer")), row)]
        expected = [float(bool(row["met"]))] if isinstance(row.get("met"), bool) else None
    else:
        question, given, expected = _asked(row)
        answers = [_answer(answer, row, reader) for answer in given]
        prompt = reader.messages(row.get("prompt") or "", row)
    if any(not answer for answer in answers):
        raise UnusableRow("an answer is empty")
    if question in (LabelQuestion.PAIR, LabelQuestion.RANKING) and all(
        answer == answers[0] for answer in answers
    ):
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


def _asked(row: Mapping[str, Any]) -> tuple[LabelQuestion, list[Any], list[float] | None]:
    """Return the question of a row, its answers, and what is right where the row says so."""
    if "chosen" in row and "rejected" in row:
        return LabelQuestion.PAIR, [row["chosen"], row["rejected"]], [1.0, 2.0]
    several = row.get("answers", row.get("generations"))
    if isinstance(several, Sequence) and not isinstance(several, str) and len(several) > 1:
        if len(several) > MOST_ANSWERS:
            raise UnusableRow(
                f"{len(several)} answers are more than keys can rank: at most {MOST_ANSWERS}"
            )
        ranks = row.get("ranks", row.get("ranking"))
        told = list(map(float, ranks)) if isinstance(ranks, Sequence) else None
        return (
            LabelQuestion.PAIR if len(several) == 2 else LabelQuestion.RANKING,
            list(several),
            told,
        )
    for name in ("answer", "response", "completion"):
        if row.get(name) is not None:
            rating = row.get("rating")
            told_rating = [float(rating)] if isinstance(rating, int | float) else None
            return LabelQuestion.RATING, [row[name]], told_rating
    columns = ", ".join(map(str, row))
    raise UnusableRow(f"it has no answers; its columns are {columns}")


def _answer(value: Any, row: Mapping[str, Any], reader: ConversationReader) -> list[Message]:
    """Return an answer as messages; an image is a mapping with `image`, or bytes."""
    if isinstance(value, Mapping | bytes):
        given = value.get("image", value) if isinstance(value, Mapping) else value
        return [Message(role=Role.ASSISTANT, content=[reader.image(given)])]
    return reader.answer(value, row)


def _of_run(folder: Path, ask: LabelQuestion) -> Iterator[LabelItem]:
    """Yield what is asked of each task's rollouts that say different things: the first two are a
    pair, up to nine a ranking, and each by itself is rated.
    """
    place = folder / "episodes" if (folder / "episodes").is_dir() else folder
    groups: dict[str, list[Episode]] = defaultdict(list)
    for path in sorted(place.glob("*.jsonl")):
        if path.name != INDEX:
            for episode in read_episodes(path):
                groups[f"{episode.task}\0{episode.group}"].append(episode)
    for name, episodes in groups.items():
        answers: list[list[Message]] = []
        prompt: list[Message] = []
        for episode in episodes:
            opening, said = _told(episode)
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


def _told(episode: Episode) -> tuple[list[Message], list[Message]]:
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
