"""The judge of docs/judges.md that a reader would write."""

from __future__ import annotations

import re
from pathlib import Path

from ludus.rewards import Sample, make_verifier
from ludus.rewards.judge.mock import MockJudge

PAGE = Path(__file__).parents[4] / "docs" / "judges.md"


async def test_a_judge_of_ones_own_takes_twenty_lines_and_scores() -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    lines = [line for line in found[1].splitlines() if line.strip()]
    assert len(lines) <= 20
    exec(compile(found[1], str(PAGE), "exec"), {})
    async with MockJudge() as mock:
        judge = make_verifier("me/polite", base_url=mock.url, model="mock")
        polite = await judge.score(Sample(prompt="Hello?", response="A polite good day to you."))  # pyright: ignore[reportGeneralTypeIssues]
        other = await judge.score(Sample(prompt="Hello?", response="Go away."))  # pyright: ignore[reportGeneralTypeIssues]
        await judge.caller.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert (polite.reward, other.reward) == (1.0, 0.0)
