"""`ludus/twenty-questions-v0`: the policy finds out a thing by questions to a scripted user.

    user       thing | colour | material | ...        I am thinking of one of these 24 things ...
    assistant  Is it red or blue?
    user       No. 8 questions left.
    assistant  Is it larger than small?
    user       Yes. 7 questions left.
    ...
    assistant  Is it the drelk?
    user       Yes, it is the drelk!                                reward 1

The user answers with yes or no. To name a thing is a question too, and there are too few questions
to name all things: the policy has to ask what halves the things that are left.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message

from ...protocol import Info, TextEnv
from ...tasks import GeneratedTasks, Task, TaskSet
from .expert import ask
from .things import MAX_THINGS, Thing, as_table, draw_things, questions_needed
from .user import NotUnderstood, understand

MAX_QUESTIONS = 20

Stepped = tuple[str, float, bool, bool, Info]


class ThingTasks(GeneratedTasks):
    """A task set with a table of things per seed; the difficulty is the number of things."""

    def __init__(self, split: str, counts: tuple[int, int]) -> None:
        super().__init__(split)
        self._counts = counts

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty."""
        task = super().at(index)
        count = float(random.Random(f"count/{task.seed}").randint(*self._counts))
        return Task(id=task.id, split=task.split, seed=task.seed, difficulty=count)


class TwentyQuestions(TextEnv):
    """An environment in which yes-or-no questions to a scripted user find a secret thing.

    Args:
        min_things: the fewest things in the table.
        max_things: the most things in the table.
        slack: questions beyond those that a perfect player needs; never more than 20 in all.

    Raises:
        ConfigError: a setting is out of range.
    """

    system_prompt = (
        "Find out which of the things is meant. Ask one question at a time, to be answered with "
        "yes or no: about a property ('Is it red?', 'Is it wood or glass?', 'Is it larger than "
        "small?'), or about things by name. You win by naming the one thing ('Is it the ...?') "
        "within the questions you have; naming is a question too."
    )
    answer_format = "Say nothing but the question."

    def __init__(self, *, min_things: int = 20, max_things: int = 48, slack: int = 2) -> None:
        if not 2 <= min_things <= max_things <= MAX_THINGS:
            raise ConfigError(
                f"need 2 <= min_things <= max_things <= {MAX_THINGS}, got {min_things}, "
                f"{max_things}"
            )
        if not 0 <= slack <= MAX_QUESTIONS:
            raise ConfigError(f"slack must be from 0 to {MAX_QUESTIONS}, got {slack}")
        self.counts = (min_things, max_things)
        self.slack = slack
        self.things: list[Thing] = []
        self.secret = Thing("", {})
        self.left = 0
        self.candidates: list[Thing] = []
        """The things that are still possible, by the answers so far."""

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set; each seed draws new things."""
        return ThingTasks(split, self.counts)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Show the things and the number of questions."""
        count = int(ThingTasks(self.task.split, self.counts).find(self.task.id).difficulty or 2)
        rng = random.Random(f"things/{self.task.seed}")
        self.things = draw_things(rng, count)
        self.secret = rng.choice(self.things)
        self.candidates = list(self.things)
        self.left = min(MAX_QUESTIONS, questions_needed(count) + self.slack)
        briefing = msgspec.structs.replace(self.briefing(), max_turns=self.left)
        opening = f"I am thinking of one of these {count} things. You have {self.left} questions."
        return f"{as_table(self.things)}\n\n{opening}", {"briefing": briefing}

    def step(self, action: str | Message) -> Stepped:
        """Answer a question; naming the secret thing ends the episode with reward 1."""
        question = (action if isinstance(action, str) else action.text).rpartition("</think>")[2]
        self.left -= 1
        has_ended = self.left == 0
        try:
            question_read = understand(question, [thing.name for thing in self.things])
        except NotUnderstood as error:
            return (
                self._reply(f"I do not understand: {error}."),
                0.0,
                has_ended,
                False,
                self._secret_info(has_ended),
            )
        if question_read.guess == self.secret.name:
            return f"Yes, it is the {self.secret.name}!", 1.0, True, False, self._secret_info(True)
        answer = question_read.is_true(self.secret)
        self.candidates = [
            candidate for candidate in self.candidates if question_read.is_true(candidate) == answer
        ]
        return (
            self._reply("Yes." if answer else "No."),
            0.0,
            has_ended,
            False,
            self._secret_info(has_ended),
        )

    def _secret_info(self, has_ended: bool) -> Info:
        """Return the secret thing once the episode is over.

        The environment has no `gold()`: the secret thing is always among the things shown.
        """
        return {"thing": self.secret.name} if has_ended else {}

    def _reply(self, answer: str) -> str:
        left_text = f"{self.left} question{'' if self.left == 1 else 's'} left"
        return f"{answer} {left_text if self.left else 'There are no questions left'}."

    def demonstrate(self) -> str:
        """Ask a question that leaves few enough things, whatever the answer."""
        return ask(self.candidates, self.left)
