"""`ludus/shapes-v0`: see a picture, answer a question about it.

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
from typing import Any

import msgspec

from ludus.errors import ConfigError, ToolError
from ludus.messages import ImagePart, Message, TextPart, ToolCall, assistant, user

from ...protocol import Briefing, TextEnv
from ...splits import split_of
from ...tasks import GeneratedTasks, Task, digest_of
from ...tools.function import Tool, tool
from .pictures import PLACES, Page, draw_page, picture_of
from .questions import Kind, ShapeQuestion, ask, read_answer

MAX_DRAWS = 10_000
MAX_PAGES = 16

Quiz = tuple[tuple[Page, ...], ShapeQuestion]


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
            and `count`.
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
        """Compare the answer with the right one; the episode ends."""
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
            question = ask(rng, rng.choice(self.kinds), pages)
            if split_of(f"{told(pages)} {question.text}") == task.split:
                return pages, question
        raise ConfigError(f"no picture of split {task.split!r} was found; raise max_things")


def told(pages: tuple[Page, ...] | list[Page]) -> str:
    """Write what pictures show in words.

    >>> from .pictures import DrawnShape
    >>> told([(DrawnShape("top", "red", "circle"), DrawnShape("left", "blue", "square"))])
    'red circle top, blue square left'
    """
    return " | ".join(", ".join(str(shape) for shape in page) for page in pages)
