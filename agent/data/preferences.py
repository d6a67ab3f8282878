"""Preferences between answers, in the forms of rows of data sets.

    {"prompt": ..., "chosen": ..., "rejected": ...}             pairs, text or messages (TRL)
    {"chosen": [...], "rejected": [...]}                        the prompt is what both begin with
    {"chosen": "\\n\\nHuman: ...", "rejected": ...}                transcripts of HH
    {"prompt": ..., "completion": ..., "label": true}           answers that are good or bad (KTO)
    {"prompt": ..., "answers": [...], "ranks": [1, 2, 2]}       rankings; the least rank is the best
    {"prompt": ..., "answer": ..., "rating": 4}                 ratings

Rows that `ludus label` writes are of these forms. An answer may be a text, messages, or an image.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from ludus.envs import ToolSpec
from ludus.envs.problem_files import UnusableRow
from ludus.messages import ImagePart, Message, Role

from .conversations import (
    Conversation,
    ConversationReader,
    refuse_unlearnable,
    tools_of,
    with_system,
)

_HH_TURN = re.compile(r"\n\n(Human|Assistant): ?")
_SIDES = {"chosen": "chosen_response", "rejected": "rejected_response"}
_NAME_FIELDS = "say what they are, such as --fields chosen=NAME rejected=NAME"
SINGLE = ("answer", "completion", "response")
"""The columns with an answer by itself."""
TIES = frozenset({"tie", "both", "equal", "neither"})
"""The values of the column `preference` of a pair in which no answer is better."""


class RankedAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """Answers to one prompt with their ranks; a pair is a ranking of two."""

    prompt: list[Message]
    answers: list[list[Message]]
    ranks: list[float]
    """The rank of each answer; the least is the best, and equal ranks are a tie."""
    tools: list[ToolSpec] = []
    margin: float = 0.0
    """By how much the first answer is better than the last; 0 where the row does not say."""
    numbers: list[float] = []
    """A reward or win rate of each answer; empty unless the reader was told to read them."""
    annotator: str = ""
    """Who ranked the answers; empty where the row does not say."""

    def conversation(self, index: int) -> Conversation:
        """Return the conversation with one of the answers."""
        messages = [*self.prompt, *self.answers[index]]
        return Conversation(messages=messages, tools=self.tools, first=len(self.prompt))


class RatedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with a number: a rating, or 1 for good and 0 for bad."""

    prompt: list[Message]
    answer: list[Message]
    rating: float
    tools: list[ToolSpec] = []
    annotator: str = ""

    @property
    def conversation(self) -> Conversation:
        """The conversation with the answer."""
        messages = [*self.prompt, *self.answer]
        return Conversation(messages=messages, tools=self.tools, first=len(self.prompt))


class PreferenceReader:
    """Reads rows of a data set.

    Args:
        folder: the folder that paths of images are relative to.
        numbers: the column with a number for each answer, "rewards" or "win_rates"; empty reads
            none.
    """

    def __init__(self, folder: Path, *, numbers: str = "") -> None:
        self._conversations = ConversationReader(folder)
        self._numbers = numbers

    def pair(self, row: Mapping[str, Any]) -> RankedAnswers:
        """Return a pair, the chosen answer first.

        Raises:
            UnusableRow: the row is no pair, a tie, or both answers are the same.
        """
        ranking = self.ranking(row)
        if len(ranking.answers) != 2:
            raise UnusableRow(f"with {len(ranking.answers)} answers: a pair has two")
        if ranking.ranks[0] == ranking.ranks[1]:
            raise UnusableRow("with a tie")
        if ranking.ranks[0] > ranking.ranks[1]:
            return msgspec.structs.replace(
                ranking,
                answers=ranking.answers[::-1],
                ranks=ranking.ranks[::-1],
                numbers=ranking.numbers[::-1],
            )
        return ranking

    def ranking(self, row: Mapping[str, Any]) -> RankedAnswers:
        """Return a ranking; a pair is one of two answers.

        Raises:
            UnusableRow: the row ranks nothing.
        """
        prompt, answers, ranks = self.answers(row)
        ranking = self._ranked(row, prompt, answers, ranks)
        for index in range(len(answers)):
            refuse_unlearnable(ranking.conversation(index))
        return ranking

    def image_ranking(self, row: Mapping[str, Any]) -> RankedAnswers:
        """Return a ranking of images for a text: `answers` (or `generations`, as ImageReward's data
        have) with `ranks` (`ranking`), or `chosen` and `rejected`; an image is a path, a data: URL
        or bytes.

        Raises:
            UnusableRow: the row ranks nothing, or an image is gone.
        """
        prompt = row.get("prompt")
        if not isinstance(prompt, str) or not prompt:
            raise UnusableRow("without a prompt")
        given, ranks = self._given(row)
        images = [self._conversations.image(answer) for answer in given]
        asked = [Message(role=Role.USER, content=prompt)]
        return self._ranked(row, asked, [[_showing(image)] for image in images], ranks)

    def answers(
        self, row: Mapping[str, Any]
    ) -> tuple[list[Message], list[list[Message]], list[float] | None]:
        """Return the prompt of a row, its answers, and the ranks of a row with ranks.

        Raises:
            UnusableRow: the row has no answers, or ranks that are not one for each.
        """
        given, ranks = self._given(row)
        if is_pair(row):
            return *self._pair_texts(row, given), ranks
        return self.prompt(row), [self.answer(answer, row) for answer in given], ranks

    def _given(self, row: Mapping[str, Any]) -> tuple[list[Any], list[float] | None]:
        """Return the answers in the row's order, and the ranks of the answers."""
        if is_pair(row):
            tie = str(row.get("preference", "")).lower() in TIES
            return [_side(row, "chosen"), _side(row, "rejected")], [1.0, 1.0 if tie else 2.0]
        answers = row.get("answers", row.get("generations"))
        ranks = row.get("ranks", row.get("ranking"))
        if ranks is None and self._numbers == "rewards" and isinstance(row.get("rewards"), list):
            ranks = [-_number(reward, "reward") for reward in row["rewards"]]
        if not _is_list(answers) or not (ranks is None or _is_list(ranks)):
            raise _without_preferences(row)
        if len(answers) < 2 or (ranks is not None and len(answers) != len(ranks)):
            count = "no" if ranks is None else len(ranks)
            raise UnusableRow(f"with {len(answers)} answers and {count} ranks")
        return list(answers), None if ranks is None else [_number(rank, "rank") for rank in ranks]

    def _ranked(
        self,
        row: Mapping[str, Any],
        prompt: list[Message],
        answers: list[list[Message]],
        ranks: list[float] | None,
    ) -> RankedAnswers:
        if ranks is None:
            raise _without_preferences(row)
        if all(answer == answers[0] for answer in answers):
            raise UnusableRow("with equal answers")
        margin = row.get("margin")
        return RankedAnswers(
            prompt=prompt,
            answers=answers,
            ranks=ranks,
            tools=tools_of(row.get("tools")),
            margin=0.0 if margin is None else _number(margin, "margin"),
            numbers=self._numbers_of(row, len(answers)),
            annotator=str(row.get("annotator") or ""),
        )

    def answer(self, value: Any, row: Mapping[str, Any]) -> list[Message]:
        """Return an answer as messages: a text, messages, a message, or an image."""
        if isinstance(value, bytes):
            return [_showing(self._conversations.image(value))]
        if isinstance(value, Mapping):
            if {"role", "from"} & value.keys():
                return self._conversations.answer([value], row)
            return [_showing(self._conversations.image(value.get("image", value)))]
        return self._conversations.answer(value, row)

    def rating(self, row: Mapping[str, Any]) -> RatedAnswer:
        """Return an answer with its rating, or with the label of KTO as 1 or 0.

        Raises:
            UnusableRow: the row rates nothing.
        """
        name = next((key for key in ("rating", "score", "label") if row.get(key) is not None), "")
        place = next((key for key in SINGLE if key in row), "")
        if not name or not place:
            columns = ", ".join(map(str, row))
            raise UnusableRow(f"without an answer and its rating: its columns are {columns}")
        rated = RatedAnswer(
            prompt=self.prompt(row),
            answer=self._conversations.answer(row[place], row),
            rating=_number(row[name], name),
            tools=tools_of(row.get("tools")),
            annotator=str(row.get("annotator") or ""),
        )
        refuse_unlearnable(rated.conversation)
        return rated

    def prompt(self, row: Mapping[str, Any]) -> list[Message]:
        """Return the prompt of a row, which is messages or a text in one of several columns, with
        the system prompt of a column of its own; [] without one.
        """
        asked = self._conversations.prompt(row)
        return with_system(asked, row) if asked else []

    def _pair_texts(
        self, row: Mapping[str, Any], sides: Sequence[Any]
    ) -> tuple[list[Message], list[list[Message]]]:
        prompt, plain = self.prompt(row), all(isinstance(side, str) for side in sides)
        if plain and all(_HH_TURN.match(side) for side in sides):
            whole = [_transcript(side) for side in sides]
        else:
            if plain and not prompt:
                asked, sides = _split(*sides)
                prompt = self._conversations.messages(asked, row)
            whole = [self.answer(side, row) for side in sides]
        # Conversations on both sides may hold the prompt, also that of a column of its own. Without
        # a column, the prompt is what both begin with, the turns of the assistant too.
        shared = _common(*whole)
        if not shared or (prompt and whole[0][0].role is Role.ASSISTANT):
            return prompt, whole
        return with_system(whole[0][:shared], row), [side[shared:] for side in whole]

    def _numbers_of(self, row: Mapping[str, Any], count: int) -> list[float]:
        """Return the numbers of the answers of a row; empty for a row without answers."""
        given = row.get(self._numbers) if self._numbers else None
        if given is None and self._numbers == "rewards" and "score_chosen" in row:
            given = [row["score_chosen"], row.get("score_rejected")]
        if given is None:
            return []
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != count:
            raise UnusableRow(f"with {self._numbers} that are not one for each answer")
        numbers = [_number(value, self._numbers) for value in given]
        if self._numbers == "win_rates" and not all(0 <= rate <= 1 for rate in numbers):
            raise UnusableRow(f"with win_rates that are no shares from 0 to 1: {numbers}")
        return numbers


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def is_pair(row: Mapping[str, Any]) -> bool:
    """Whether a row has a chosen and a rejected answer."""
    return all(_SIDES[side] in row or side in row for side in _SIDES)


def _side(row: Mapping[str, Any], name: str) -> Any:
    return row[name] if name in row else row[_SIDES[name]]


def _showing(image: ImagePart) -> Message:
    return Message(role=Role.ASSISTANT, content=[image])


def _without_preferences(row: Mapping[str, Any]) -> UnusableRow:
    hint = "kto learns from labels of single answers" if "label" in row else _NAME_FIELDS
    columns = ", ".join(map(str, row))
    return UnusableRow(f"without preferences: its columns are {columns}; {hint}")


def circles(rankings: Iterable[RankedAnswers]) -> int:
    """Return the number of prompts whose preferences go round in a circle, such as a > b > c > a.

    A pair that was judged both ways is the smallest circle. Losses treat circles as noise; many
    circles mean that the answers cannot be ranked, or that annotators disagree.
    """
    edges: dict[bytes, dict[bytes, set[bytes]]] = defaultdict(lambda: defaultdict(set))
    for ranking in rankings:
        better = edges[msgspec.msgpack.encode(ranking.prompt)]
        keys = [msgspec.msgpack.encode(answer) for answer in ranking.answers]
        for i, upper in enumerate(keys):
            for j, lower in enumerate(keys):
                if ranking.ranks[i] < ranking.ranks[j] and upper != lower:
                    better[upper].add(lower)
    return sum(_has_circle(better) for better in edges.values())


def doubts(source: str, rankings: Sequence[RankedAnswers]) -> list[str]:
    """Return warnings about preferences, to be shown before the training: that no score can satisfy
    all preferences, or that all are of one person.

    Args:
        source: the name of the data, for the warnings.
        rankings: the preferences.
    """
    warnings: list[str] = []
    if count := circles(rankings):
        warnings.append(f"{source}: the preferences of {count} prompts go round in a circle")
    # Rows that name nobody are taken for the same person's: nothing says that others judged too.
    annotators = {ranking.annotator for ranking in rankings if ranking.annotator}
    if len(annotators) == 1:
        warnings.append(
            f"{source}: all preferences are of one annotator, {annotators.pop()}: the model learns "
            "one person's taste, and nobody knows how far others would agree"
        )
    return warnings


def _has_circle(better: Mapping[bytes, set[bytes]]) -> bool:
    """Whether a graph has a circle; nodes without an edge to a remaining node are removed first."""
    remaining = {node: set(below) for node, below in better.items()}
    while remaining:
        ends = [node for node, below in remaining.items() if not below & remaining.keys()]
        if not ends:
            return True
        for node in ends:
            del remaining[node]
    return False


def _transcript(text: str) -> list[Message]:
    """Return a transcript of HH as messages."""
    parts = _HH_TURN.split(text)[1:]
    roles = {"Human": Role.USER, "Assistant": Role.ASSISTANT}
    turns = zip(parts[::2], parts[1::2], strict=True)
    return [Message(role=roles[role], content=said.strip()) for role, said in turns]


def _split(chosen: str, rejected: str) -> tuple[str, list[str]]:
    """Return what two texts begin with, and the remainders. A space between the two belongs to the
    remainders, as in TRL.
    """
    both = enumerate(zip(chosen, rejected, strict=False))
    shared = next((n for n, (a, b) in both if a != b), min(len(chosen), len(rejected)))
    shared -= 1 if chosen[:shared].endswith(" ") else 0
    if not chosen[:shared].strip():
        raise UnusableRow("without a prompt")
    return chosen[:shared], [chosen[shared:], rejected[shared:]]


def _common(chosen: Sequence[Message], rejected: Sequence[Message]) -> int:
    """Return how many messages both conversations begin with; the last of each is an answer."""
    shared = 0
    for left, right in zip(chosen[:-1], rejected[:-1], strict=False):
        if left != right:
            break
        shared += 1
    return shared


def _number(value: object, name: str) -> float:
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:  # of a whole number with hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise UnusableRow(f"with a {name} that is no number: {value!r:.80}")
    return number
