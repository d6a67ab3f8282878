"""One policy in two roles: a proposer asks questions, a solver answers them, and both learn.

    ludus --import examples/04_self_play.py train examples/04_self_play.toml
    ludus view runs/self-play/2-play/episodes/step-000040.jsonl    proposals, and their solvers

After Search Self-Play (arXiv 2510.18821), in a world so small that a tiny model can play it: an
atlas in which the page of each letter names another letter. `b3` asks where three steps from b
lead.

    proposer   ?b   b>f      looks pages up, then asks a question and claims its answer:
               ?f   f>a
               b2=a
    solver     b2            is told the question alone, and looks the pages up again:
               ?b   b>f
               ?f   f>a
               =a            reward 1

A question is valid if the pages its proposer looked up lead to the answer it claims: the check that
the paper makes by giving a model the proposer's documents. The proposer of a valid question earns
the share of solvers that fail on it; that of an invalid one earns nothing, and nobody solves it.

What the environment has to do for this: take the reset options `role` and `question`, and give a
proposer's valid question as its gold. The rest is the sampling policy `self_play`, which stands
beside any recipe. Each role is compared with itself: proposals about one world with each other,
answers to one question with each other.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import ludus
from ludus.envs import Briefing

ENV = "example/atlas-v0"
LETTERS = "abcdefgh"
ROLES = ("proposer", "solver")
MAX_HOPS = 4
QUESTION = re.compile(r"([a-h])([1-4])")
CLAIM = re.compile(r"([a-h][1-4])=([a-h])")
LOOK = re.compile(r"\?([a-h])")


@ludus.register(ENV)
class Atlas(ludus.TextEnv):
    """Look up pages, then ask a question (proposer) or answer one (solver).

    Args:
        slips: how often the demonstrator claims or says a wrong answer.
        role: proposer or solver, where the reset names none; empty draws one.
    """

    max_turns = MAX_HOPS + 3
    reset_options: ClassVar[Mapping[str, type]] = {"role": str, "question": str}

    def __init__(self, slips: float = 0.0, role: str = "") -> None:
        self.slips, self.usual_role = slips, role
        self.pages: dict[str, str] = {}
        self.seen: dict[str, str] = {}
        """The pages looked up in this episode."""
        self.role, self.question, self.claim = "proposer", "", ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Draw the atlas from the task, the role and the question from the options."""
        draw = random.Random(f"atlas/{self.task.seed}")
        self.pages = {letter: draw.choice(LETTERS.replace(letter, "")) for letter in LETTERS}
        given = options or {}
        self.role = given.get("role") or self.usual_role or self.rng.choice(ROLES)
        drawn = f"{self.rng.choice(LETTERS)}{self.rng.randint(1, MAX_HOPS)}"
        self.question, self.claim, self.seen = given.get("question") or drawn, "", {}
        self.slip = self.rng.random() < self.slips
        shown = self.question[0] if self.role == "proposer" else self.question
        return shown, {"briefing": Briefing(system_prompt=self.role, max_turns=self.max_turns)}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Show a page, or end with a question or an answer."""
        if looked := LOOK.fullmatch(action):
            self.seen[looked[1]] = self.pages[looked[1]]
            return f"{looked[1]}>{self.pages[looked[1]]}", 0.0, False, False, {}
        if self.role == "proposer":
            self.claim = action
            return "", 0.0, True, False, {}
        return "", float(action == f"={walked(self.pages, self.question)}"), True, False, {}

    def gold(self) -> str | None:
        """What a solver is to say; the question of a proposer, if it is valid."""
        if self.role == "solver":
            return f"={walked(self.pages, self.question)}"
        return valid_question(self) or None

    def demonstrate(self) -> str:
        """Look up the pages on the way, then ask or answer; a slip stops a step short."""
        at, hops = self.question[0], int(self.question[1])
        for _ in range(hops - int(self.slip and hops > 1)):
            if at not in self.seen:
                return f"?{at}"
            at = self.pages[at]
        return f"{self.question}={at}" if self.role == "proposer" else f"={at}"


def walked(pages: dict[str, str], question: str) -> str:
    """Where the question leads; nowhere if a page on the way is missing.

    >>> walked({"b": "f", "f": "a"}, "b2")
    'a'
    """
    at = question[0]
    for _ in range(int(question[1])):
        if at not in pages:
            return ""
        at = pages[at]
    return at


def valid_question(env: Atlas) -> str:
    """The question a proposer asked, if the pages it has seen lead to the answer it claims."""
    claim = CLAIM.fullmatch(env.claim)
    if claim is None or walked(env.seen, claim[1]) != claim[2]:
        return ""
    return claim[1]
