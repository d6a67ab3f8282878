"""Generative reward models write a judgement, from which a number is read strictly."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import Any, Literal, Unpack

from ludus.errors import BudgetExceeded, ConfigError, RemoteError
from ludus.verdict import Verdict

from ...judge.caller import Effort, JudgeCaller
from ...judge.judge import data_of, empty_answer, failure
from ...judge.prompt import about_item, about_whole
from ...judge.reading import UnreadableVerdict, read_holistic, read_item
from ...judge.rubric import RubricItem
from ...protocol import Sample
from .asking import open_asker
from .head import AskerOptions, AskerSettings

Form = Literal["score", "verdict"]
NAME = "generative-reward"
GOOD = "The response answers the question rightly, completely and clearly."


class GenerativeReward:
    """A verifier that scores responses by judgements that a model writes.

    The question keeps the response apart from what is asked (a JSON string between two marks), and
    the answer has to hold exactly one consistent verdict: no number is picked out of its prose. An
    answer that cannot be read is asked for once more, and then gives no reward.

    Args:
        form: "score" asks for 1 to 10, and (score - 1) / 9 is the reward; "verdict" asks whether
            the criterion is met, and the reward is the share of `votes` that say yes.
        criterion: what the response is held against; `sample.info["criterion"]` goes first.
        votes: judgements of one response, averaged; above 1 needs a temperature above 0.
        options: the model that judges and how it is asked; see `AskerSettings`.

    Raises:
        ConfigError: no model, or settings that cannot be.
        MissingExtra: torch or transformers is not installed, and a folder is named.
    """

    resident = True
    """Served in one process, which may hold a model."""

    def __init__(
        self,
        *,
        form: Form = "score",
        criterion: str = GOOD,
        votes: int = 1,
        **options: Unpack[AskerOptions],
    ) -> None:
        asker = AskerSettings(**options)
        if form not in ("score", "verdict"):
            raise ConfigError(f"{NAME}: form must be score or verdict, got {form!r}")
        if not 1 <= votes <= 64:
            raise ConfigError(f"{NAME}: votes must be from 1 to 64, got {votes}")
        if votes > 1 and asker.temperature <= 0:
            raise ConfigError(f"{NAME}: {votes} votes are all alike at temperature 0; raise it")
        self.form: Form = form
        try:
            self.item = RubricItem(text=criterion, id="c")
        except ValueError as error:
            raise ConfigError(f"{NAME}: criterion: {error}") from None
        self.votes = votes
        self.asker = open_asker(NAME, asker)

    async def score(self, sample: Sample) -> Verdict:
        """Judge `sample.text` with `votes` judgements and return the mean score, in [0, 1]."""
        if reason := empty_answer(sample.text):
            return Verdict.of(0.0, reason)
        criterion = sample.info.get("criterion")
        try:
            item = self.item if criterion is None else RubricItem(text=str(criterion), id="c")
        except ValueError as error:
            return Verdict.invalid(f"{NAME}: {error}")
        data, effort = data_of(sample), Effort()
        if self.form == "score":
            question, read = about_whole(data, [item]), read_holistic
        else:
            question, read = about_item(data, item), partial(read_item, item=item)
        askings = [self.asker.ask(question, read, effort, draw=draw) for draw in range(self.votes)]
        # All questions end before a failure is reported, so that none goes on in the background.
        answers = await asyncio.gather(*askings, return_exceptions=True)
        votes: list[float] = []
        for vote in answers:
            if isinstance(vote, (UnreadableVerdict, BudgetExceeded, RemoteError)):
                return failure(vote, effort)
            if isinstance(vote, BaseException):
                raise vote
            votes.append(vote)
        spread = max(votes) - min(votes)
        return Verdict.of(
            math.fsum(votes) / len(votes),
            f"{self.form} of {len(votes)} judgement{'s' if len(votes) > 1 else ''}",
            metrics={**effort.metrics(), "generative_reward/spread": spread},
        )

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weights held in this process; 0 for a model behind a server."""
        return (
            0
            if isinstance(self.asker, JudgeCaller)
            else int(getattr(self.asker.policy, "memory_bytes", 0))
        )

    def card(self) -> dict[str, Any]:
        """Return the model, the form of the judgement and the number of votes."""
        if isinstance(self.asker, JudgeCaller):
            server = self.asker.server
            card: dict[str, Any] = {"model": server.model, "base_url": server.base_url}
        else:
            # The policy in training has no card; `dict` is called in its place and gives an empty
            # one.
            card = getattr(self.asker.policy, "card", dict[str, Any])()
        return {**card, "form": self.form, "votes": self.votes}

    async def close(self) -> None:
        """Close the connections, or release the model."""
        await self.asker.close()
