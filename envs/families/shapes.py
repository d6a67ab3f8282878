"""`ludus/shapes-v0`: questions about pictures of coloured shapes.

    user       [image] What colour is at the top left?
    assistant  red                                             reward 1

With several pages the policy sees the first and turns to the others with the tool `look`, whose
results are pictures: images in a later turn, and more of them than a small window holds.

Nothing but the picture tells the answer. The right answer alone is right: a sentence around the
word earns nothing, so that listing colours does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ludus.errors import ConfigError, ToolError
from ludus.messages import ImagePart, Message, TextPart, ToolCall, assistant, user

from ..problem_files import split_of
from ..protocol import Briefing, TextEnv
from ..tasks import GeneratedTasks, Task, digest_of
from ..tools.function import Tool, tool
from .image_prompt.pictures import Pixels, png_of, shape_mask
from .image_prompt.scenes import BACKGROUND, COLOURS, SHAPES

PLACES = (
    "top left", "top", "top right", "left", "center", "right", "bottom left", "bottom",
    "bottom right",
)  # fmt: skip
"""The cells of the grid, row by row."""


@dataclass(frozen=True, slots=True)
class DrawnShape:
    """A shape of a colour in a cell."""

    place: str
    colour: str
    shape: str

    def __str__(self) -> str:
        return f"{self.colour} {self.shape} {self.place}"


Page = tuple[DrawnShape, ...]
"""The things of a picture, in the order of the cells."""


def draw_page(rng: random.Random, count: int) -> Page:
    """Draw `count` things in different cells."""
    places = sorted(rng.sample(range(len(PLACES)), count))
    return tuple(
        DrawnShape(PLACES[place], rng.choice(sorted(COLOURS)), rng.choice(SHAPES))
        for place in places
    )


def picture_of(page: Page, *, size: int, seed: str) -> bytes:
    """Return a picture as the bytes of a PNG file.

    Args:
        page: the things to show.
        size: side of the square picture in pixels.
        seed: decides the size and place of each thing within its cell, which answer no question.
    """
    pixels: Pixels = np.full((size, size, 3), BACKGROUND, np.uint8)
    rng, cell = random.Random(seed), size // 3
    for shape in page:
        row, column = divmod(PLACES.index(shape.place), 3)
        # The shape stays at least two pixels away from the borders of its cell.
        side = rng.randint(cell // 2, cell - 4)
        top = row * cell + rng.randint(2, cell - 2 - side)
        left_edge = column * cell + rng.randint(2, cell - 2 - side)
        mask = shape_mask(shape.shape, side)
        pixels[top : top + side, left_edge : left_edge + side][mask] = COLOURS[shape.colour]
    return png_of(pixels)


class Kind(StrEnum):
    """The kinds of questions."""

    COLOUR = "colour"
    """The colour of the thing in a cell; six answers."""
    SHAPE = "shape"
    """The shape of the thing in a cell; three answers."""
    COUNT = "count"
    """How many things have a colour, on all pages together; from none to all, equally often."""


class ShapeQuestion(NamedTuple):
    """A question in words, and the only right answer."""

    text: str
    answer: str
    pages: tuple[int, ...]
    """The pages, from 1, that one has to see to know the answer."""
    counted: str = ""
    """The colour that is counted, in questions for a number."""


Quiz = tuple[tuple[Page, ...], ShapeQuestion]


def ask(rng: random.Random, kind: Kind, pages: tuple[Page, ...]) -> Quiz:
    """Draw a question of a kind about some pictures.

    The shapes that are counted are painted first, as many as a number drawn from 0 to all: of
    pictures as they are drawn, nearly all would have one shape of a colour.
    """
    if kind is Kind.COUNT:
        colour = rng.choice(sorted(COLOURS))
        pages, count = _painted(rng, colour, pages)
        place = "" if len(pages) == 1 else " on all pages"
        everything = tuple(range(1, len(pages) + 1))
        return pages, ShapeQuestion(
            f"How many shapes are {colour}{place}?", str(count), everything, colour
        )
    number = rng.randint(1, len(pages))
    shape_drawn: DrawnShape = rng.choice(pages[number - 1])
    place = shape_drawn.place if len(pages) == 1 else f"{shape_drawn.place} of page {number}"
    if kind is Kind.SHAPE:
        return pages, ShapeQuestion(f"What shape is at the {place}?", shape_drawn.shape, (number,))
    return pages, ShapeQuestion(f"What colour is at the {place}?", shape_drawn.colour, (number,))


def _painted(
    rng: random.Random, colour: str, pages: tuple[Page, ...]
) -> tuple[tuple[Page, ...], int]:
    """Paint a random number of the shapes in `colour` and all others not; return the number too."""
    shapes = [(number, shape) for number, page in enumerate(pages) for shape in page]
    count = rng.randint(0, len(shapes))
    chosen = set(rng.sample(range(len(shapes)), count))
    others = sorted(COLOURS.keys() - {colour})
    painted: list[list[DrawnShape]] = [[] for _ in pages]
    for place, (number, shape) in enumerate(shapes):
        new_colour = colour if place in chosen else rng.choice(others)
        painted[number].append(replace(shape, colour=new_colour))
    return tuple(map(tuple, painted)), count


_NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
)  # fmt: skip


def read_answer(text: str) -> str:
    """Return the word of an answer, in lower case and without a full stop; a number as digits.

    >>> read_answer(" Red. "), read_answer("three"), read_answer("a red circle")
    ('red', '3', 'a red circle')
    """
    word = text.strip().lower().removesuffix(".").strip()
    return str(_NUMBER_WORDS.index(word)) if word in _NUMBER_WORDS else word


MAX_DRAWS = 10_000
MAX_PAGES = 16


class ShapesTasks(GeneratedTasks):
    """The tasks of a split have pictures and a question for each seed; the difficulty is the
    number of things in all pictures.
    """

    def __init__(self, split: str, quiz_of: Callable[[Task], Quiz]) -> None:
        super().__init__(split)
        self._quiz_of = quiz_of

    def at(self, index: int) -> Task:
        """Return the task at `index`, with difficulty and digest."""
        task = super().at(index)
        pages, question = self._quiz_of(task)
        return Task(
            id=task.id,
            split=task.split,
            seed=task.seed,
            difficulty=float(sum(map(len, pages))),
            problem=digest_of(told(pages), question.text),
        )


class ShapesQuiz(TextEnv):
    """Answer a question about pictures of coloured shapes.

    Args:
        ask: kinds of questions, separated by commas: `colour` (chance 1 in 6), `shape` (1 in 3)
            and `count` (1 in 3 with up to four shapes).
        min_things: the fewest shapes in a picture, at least 1.
        max_things: the most shapes in a picture, at most 9.
        pages: pictures of a task, 1 to 16. With several, the first is shown and `look` shows the
            others.
        size: side of a picture in pixels, 48 to 1024.

    Raises:
        ConfigError: a setting is out of range.
    """

    system_prompt = "Look at the picture."
    answer_format = "Answer with one word or number."
    shows_images = True

    def __init__(
        self,
        *,
        ask: str = "colour,shape,count",
        min_things: int = 1,
        max_things: int = 4,
        pages: int = 1,
        size: int = 96,
    ) -> None:
        kinds = [kind.strip() for kind in ask.split(",")]
        if unknown := [kind for kind in kinds if kind not in list(Kind)]:
            raise ConfigError(f"ask must name some of {', '.join(Kind)}, got {unknown[0]!r}")
        if not 1 <= min_things <= max_things <= len(PLACES):
            raise ConfigError(
                f"need 1 <= min_things <= max_things <= {len(PLACES)}, got {min_things}, "
                f"{max_things}"
            )
        if not 1 <= pages <= MAX_PAGES:
            raise ConfigError(f"pages must be from 1 to {MAX_PAGES}, got {pages}")
        if not 48 <= size <= 1024:
            raise ConfigError(f"size must be from 48 to 1024 pixels, got {size}")
        self.kinds = [Kind(kind) for kind in kinds]
        self.things = (min_things, max_things)
        self.page_count = pages
        self.size = size
        # Draws a first quiz, so that settings under which none can be drawn are refused here.
        self._begin(Task(id="train/0", split="train", seed=0))

    @property
    def tools(self) -> dict[str, Tool]:
        """The tool `look`, where a task has several pages."""
        return super().tools if self.page_count > 1 else {}

    def briefing(self) -> Briefing:
        """Return the class's briefing, with two turns for each page."""
        turns = 1 if self.page_count == 1 else 2 * self.page_count
        return msgspec.structs.replace(super().briefing(), max_turns=turns)

    def tasks(self, split: str) -> ShapesTasks:
        """Return the endless tasks of a split; no pictures with a question are in two splits."""
        return ShapesTasks(split, self._quiz_of)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Show the first picture with the question."""
        self._begin(self.task)
        note = "" if self.page_count == 1 else f" This is page 1 of {self.page_count}."
        opening = TextPart(f"{self.question.text}{note}")
        return [user([self._picture(1), opening])], {"briefing": self.briefing()}

    @tool
    def look(self, page: int) -> ImagePart:
        """Show a page.

        Args:
            page: its number, from 1.
        """
        if not 1 <= page <= self.page_count:
            raise ToolError(f"there is no page {page}; there are pages 1 to {self.page_count}")
        self._looked.append(page)
        return self._picture(page)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Compare the answer with the right answer, and end the episode."""
        answer = read_answer(action) if isinstance(action, str) else ""
        return "", float(answer == self.question.answer), True, False, {}

    def gold(self) -> str:
        """Return the answer."""
        return self.question.answer

    def demonstrate(self) -> str | Message:
        """Look at each page that the question needs, in order, then answer."""
        missing = [page for page in self.question.pages if page not in self._looked]
        if missing:
            return assistant("", [ToolCall(name="look", arguments={"page": missing[0]})])
        return self.question.answer

    def demonstrate_summary(self, *, newest: bool) -> str:
        """Say which pages were seen, and how many shapes count so far or what the answer is."""
        if not newest and len(self._looked) > 1:
            # The window did not show the newest page, so the expert has to look at it again.
            self._looked.pop()
        seen = sorted({page for page in self._looked if page in self.question.pages})
        if not self.question.counted:
            return f"page {seen[-1]}: {self.question.answer}" if seen else "not seen yet"
        shapes = [shape for page in seen for shape in self.pages[page - 1]]
        count = sum(shape.colour == self.question.counted for shape in shapes)
        return f"pages 1 to {seen[-1]}: {count}"

    def _begin(self, task: Task) -> None:
        self.pages, self.question = self._quiz_of(task)
        self._seed = f"picture/{task.seed}"
        self._looked = [1]

    def _picture(self, page: int) -> ImagePart:
        seed = f"{self._seed}/{page}"
        return ImagePart(data=picture_of(self.pages[page - 1], size=self.size, seed=seed))

    def _quiz_of(self, task: Task) -> Quiz:
        """Return the first drawn pictures and question that belong to the task's split."""
        rng = random.Random(f"shapes/{task.seed}")
        for _ in range(MAX_DRAWS):
            pages = tuple(draw_page(rng, rng.randint(*self.things)) for _ in range(self.page_count))
            pages, question = ask(rng, rng.choice(self.kinds), pages)
            if split_of(f"{told(pages)} {question.text}") == task.split:
                return pages, question
        raise ConfigError(f"no picture of split {task.split!r} was found; raise max_things")


def told(pages: tuple[Page, ...] | list[Page]) -> str:
    """Write what pictures show in words.

    >>> told([(DrawnShape("top", "red", "circle"), DrawnShape("left", "blue", "square"))])
    'red circle top, blue square left'
    """
    return " | ".join(", ".join(str(shape) for shape in page) for page in pages)
