"""The evolving judge, which scores groups by rubrics that change with the policy."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Unpack
from weakref import WeakValueDictionary

import msgspec

from ludus.errors import BudgetExceeded, ConfigError, LudusError, RemoteError, RewardUnavailable
from ludus.messages import Role
from ludus.verdict import Status, Verdict

from ...measured import KnownJudge
from ...protocol import Sample
from ..caller import Effort
from ..judge import RubricJudge, data_of, empty_answer, failure
from ..prompt import VERSION
from ..reading import UnreadableVerdict
from ..rubric import Rubric, aggregate, read_rubric
from ..settings import JudgeSettings
from .admit import Rejection, admit
from .buffer import RubricBuffer, State, TrackedCriterion
from .propose import about_contrast, read_proposals
from .snapshots import SnapshotStore

logger = logging.getLogger(__name__)
MAX_SHOWN = 8
"""Responses that the generator is shown of one group."""
MAX_PASSAGE_CHARS = 6000


class EvolvingJudge:
    """Scores groups by a rubric that changes with what the policy does.

    For each group: the generator is shown the responses and the passages that were found for them,
    and proposes criteria; those that pass the admission tests become active; every response is
    scored by the persistent and the active criteria (formula `evolving`); active criteria that no
    longer tell the group apart by more than the judge's noise are set aside. Neither generator nor
    judge sees a gold. Each version of a rubric is kept, and the verdict's metrics name the version
    (`rubric/version`), so that `replay` gives the same reward again.

    Args:
        rubric: path of a TOML file whose items are persistent criteria of every question, or of a
            .jsonl file with a rubric for each; a sample may bring its own as `info["rubric"]`.
        rubrics: SQLite file of versions; "" keeps them in memory.
        max_active: most active criteria of a question (DR Tulu uses 5).
        evolve: False scores by the latest versions and changes nothing.
        settings: which judge is asked and within which bounds; see `JudgeSettings`. The generator
            is the same model.

    Raises:
        ConfigError: no address or model, or a bound or a rubric that cannot work.
    """

    never_blocks = True
    deterministic = False

    def __init__(
        self,
        *,
        rubric: str = "",
        rubrics: str = "",
        max_active: int = 5,
        evolve: bool = True,
        **settings: Unpack[JudgeSettings],
    ) -> None:
        if max_active < 1:
            raise ConfigError(f"max_active must be at least 1, got {max_active}")
        self.judge = RubricJudge(rubric=rubric, **settings)
        self.snapshots = SnapshotStore(rubrics or ":memory:")
        self.max_active = max_active
        self.evolve = evolve
        self.rejected: list[Rejection] = []
        """Proposals that were not admitted, the last thousand."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock for each question whose group is being judged."""

    @property
    def judges(self) -> list[KnownJudge]:
        """The model that proposes and judges, with the measured error where a card was given."""
        return self.judge.judges

    def score(self, sample: Sample) -> Verdict:
        """Return an invalid verdict, since rubrics evolve by contrasting the answers of a group."""
        return Verdict.invalid(
            "an evolving judge contrasts the answers of a group; use score_group (POST "
            "/v1/score_group), or a rubric judge for single answers"
        )

    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Judge all answers to a question and return a verdict for each, in order."""
        if not samples:
            return []
        datas = [_without_gold(sample) for sample in samples]
        try:
            # The owner of the question may hand in criteria that persist.
            own_rubric = samples[0].info.get("rubric")
            given_rubric = self._persistent(datas[0]["question"], own_rubric)
        except ConfigError as error:
            return [Verdict.invalid(str(error))] * len(samples)
        question = SnapshotStore.key(datas[0]["question"])
        # Groups of a question take turns, or two would make the same version of its rubric. The
        # table is weak, so a lock goes with the last group that holds it.
        turn = self._turns.setdefault(question, asyncio.Lock())
        async with turn:
            persistent = [
                TrackedCriterion(
                    item=msgspec.structs.replace(item, id=f"given-{item.id}"),
                    state=State.PERSISTENT,
                )
                for item in (() if given_rubric is None else given_rubric.items)
            ]
            first = RubricBuffer(question=question, criteria=tuple(persistent))
            buffer = self.snapshots.latest(question) or first
            effort = Effort()
            if self.evolve and len(samples) > 1:
                buffer = await self._evolved(buffer, samples, datas, effort)
            try:
                # Kept before the scoring, so that every version named by a verdict can be replayed.
                self.snapshots.keep(buffer)
                verdicts, scores = await self._scored(buffer, datas, effort)
                if self.evolve and scores:
                    self.snapshots.keep(buffer.retained(scores, max_active=self.max_active))
            except RewardUnavailable as error:
                return [error.verdict] * len(samples)
        return verdicts

    def _persistent(self, question: str, own_rubric: object) -> Rubric | None:
        """Return the criteria that come with a question: its own, or those of the file."""
        if own_rubric is not None:
            return read_rubric(own_rubric)
        return None if self.judge.rubrics is None else self.judge.rubrics.of(question)

    async def replay(self, samples: Sequence[Sample], version: int) -> list[Verdict]:
        """Judge by an earlier version of the rubric, changing nothing. With the same file of
        judgements the verdicts' rewards and parts are those of then.

        Raises:
            ConfigError: that version is not kept.
        """
        datas = [_without_gold(sample) for sample in samples]
        buffer = self.snapshots.at(SnapshotStore.key(datas[0]["question"]), version)
        verdicts, _ = await self._scored(buffer, datas, Effort())
        return verdicts

    async def close(self) -> None:
        """Close the connections, the file of judgements and the file of rubrics."""
        await self.judge.close()
        self.snapshots.close()

    async def _evolved(
        self,
        buffer: RubricBuffer,
        samples: Sequence[Sample],
        datas: Sequence[Mapping[str, str]],
        effort: Effort,
    ) -> RubricBuffer:
        """Return the buffer with the admitted proposals. If the generator fails, the buffer stays
        as before, and the failure is logged.
        """
        judge_data: dict[str, str] = {"question": datas[0]["question"]}
        for number, (sample, data) in enumerate(zip(samples, datas, strict=True), start=1):
            if number <= MAX_SHOWN:
                judge_data[f"response_{number}"] = data["response"]
                judge_data[f"passages_{number}"] = passages(sample)
        question = about_contrast(judge_data, buffer.texts)
        try:
            proposals = await self.judge.caller.ask(question, read_proposals, effort)
        except (UnreadableVerdict, BudgetExceeded, RemoteError) as error:
            logger.warning("no criteria were proposed: %s", error)
            return buffer
        answered = [data for data in datas if not empty_answer(data["response"])]
        if len(answered) < 2:
            return buffer
        admitted, rejected = await admit(proposals, self.judge, buffer.texts, answered, effort)
        self.rejected = [*self.rejected, *rejected][-1000:]
        return buffer.admitted(admitted) if admitted else buffer

    async def _scored(
        self, buffer: RubricBuffer, datas: Sequence[Mapping[str, str]], effort: Effort
    ) -> tuple[list[Verdict], dict[str, list[float]]]:
        """Return the verdicts, and the scores of each criterion over the judged responses."""
        rubric = buffer.rubric()
        if rubric is None:
            none = "no criterion tells these answers apart yet, and none was given"
            unavailable = Verdict(status=Status.UNAVAILABLE, detail=none, retryable=False)
            return [unavailable] * len(datas), {}
        scored = await asyncio.gather(
            *(self._score_data(rubric, data, effort) for data in datas), return_exceptions=True
        )
        verdicts: list[Verdict] = []
        scores: dict[str, list[float]] = defaultdict(list)
        rubric_metrics = {
            "rubric/version": float(buffer.version),
            "rubric/prompt_version": float(VERSION),
        }
        for outcome in scored:
            if isinstance(outcome, LudusError):
                verdicts.append(failure(outcome, effort))
                continue
            if isinstance(outcome, BaseException):
                raise outcome
            for name, score in outcome.items():
                scores[name].append(score)
            parts = {item.id: (outcome[item.id], item.weight) for item in rubric.items}
            verdicts.append(
                Verdict.of(aggregate(rubric, outcome), parts=parts, metrics=rubric_metrics)
            )
        return verdicts, scores

    async def _score_data(
        self, rubric: Rubric, data: Mapping[str, str], effort: Effort
    ) -> dict[str, float]:
        if empty_answer(data["response"]):
            return {item.id: 0.0 for item in rubric.items}
        return await self.judge.item_scores(rubric, data, effort)


def passages(sample: Sample) -> str:
    """Return what tools answered during a rollout, cut to `MAX_PASSAGE_CHARS` characters."""
    if isinstance(sample.response, str):
        return ""
    tool_texts = [message.text for message in sample.response if message.role is Role.TOOL]
    return "\n".join(tool_texts)[:MAX_PASSAGE_CHARS]


def _without_gold(sample: Sample) -> dict[str, str]:
    """Return the texts that generator and judge are shown, without the gold."""
    return {name: text for name, text in data_of(sample).items() if name != "reference"}
