"""Verifiers in an audit: as what is attacked, by their cases, and as a judge that stays out of the
training.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import msgspec

from ludus.background import run_on_loop
from ludus.contract import NotApplicable
from ludus.envs import ListedTasks, Task, TaskSet, TextEnv
from ludus.envs.checks.subject import Played
from ludus.envs.protocol import Reset, Step
from ludus.errors import UnknownTask
from ludus.messages import as_action, as_messages
from ludus.rewards import Sample, Verifier
from ludus.verdict import Status

from .attackers import text_of
from .measures import Judge

JUDGE_TIMEOUT_S = 60.0
"""Seconds for one verdict of a judge."""


def judge_by(verifier: Verifier) -> Judge:
    """Return the judge that scores the last action of an episode with a verifier; where the verdict
    is not ok, the episode is not judged: NotApplicable.
    """

    async def verdict_of(sample: Sample) -> Any:
        score = verifier.score(sample)
        return await score if inspect.isawaitable(score) else score

    def judge(task: Task, gold: object, episode: Played) -> float:
        if not episode.actions:
            return 0.0
        said = as_action(episode.actions[-1]).text
        sample = Sample(prompt=text_of(episode, 0), response=said, gold=gold)
        verdict = run_on_loop(verdict_of(sample), timeout_s=JUDGE_TIMEOUT_S)
        if verdict.status is not Status.OK:
            raise NotApplicable(f"the judge says {verdict.status} on {task.id!r}: {verdict.detail}")
        return min(1.0, max(0.0, float(verdict.reward)))

    return judge


def cases_env(name: str, verifier: Verifier, cases: Sequence[Sample]) -> type[TextEnv]:
    """Return an environment whose tasks are the cases of a verifier: the prompt is shown, and an
    answer is scored with the gold of the case. The expert gives the right answers of the cases.
    """

    class Cases(TextEnv):
        deterministic = bool(getattr(verifier, "deterministic", True))
        hears_thoughts = True

        def tasks(self, split: str) -> TaskSet:
            if split != "train":
                raise UnknownTask(f"cases have no split {split!r}")
            listed = [Task(id=f"case/{number}", split=split) for number in range(len(cases))]
            return ListedTasks(split, listed)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
            self.case = cases[int(self.task.id.rpartition("/")[2])]
            return self.case.prompt or "(no prompt)", {}

        async def step(self, action: str) -> Step:
            score = verifier.score(msgspec.structs.replace(self.case, response=action))
            verdict = await score if inspect.isawaitable(score) else score
            return "", verdict, True, False, {}

        def gold(self) -> object | None:
            gold: object = self.case.gold
            return gold

        def demonstrate(self) -> str:
            return "\n".join(m.text for m in as_messages(self.case.response))

    Cases.__name__ = Cases.__qualname__ = name
    return Cases
