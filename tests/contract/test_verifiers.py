"""Every registered verifier keeps the contract."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.errors import ConfigError, MissingExtra
from ludus.rewards import Sample, make_verifier, verifier_names
from ludus.rewards.checks import check_verifier
from ludus.rewards.judge.mock import MockJudge
from ludus.rewards.learned.missing import MissingWeights
from ludus.rewards.registry import BUILTIN
from ludus.rewards.score import close_verifier

CASES: dict[str, list[Sample]] = {
    "compose": [Sample(response=" Paris ", gold="paris")],
    "judge": [Sample(prompt="Capital of France?", response="It is Paris.")],
    "exact": [Sample(response=" Paris ", gold="paris"), Sample(response="b", gold=["a", "b"])],
    "overlap": [Sample(response="the capital is Paris", gold="The capital is Paris.")],
    "target-length": [Sample(response="one two three", gold=3)],
    "maths": [
        Sample(response="\\boxed{\\frac{2}{4}}", gold="1/2"),
        Sample(response="so x = 5. \\boxed{5}", gold="5"),
        Sample(response="\\boxed{(x+1)^2}", gold="x^2+2x+1"),
        Sample(response="\\boxed{1,234}", gold=["1234", "no"]),
    ],
}
"""Right answers of the verifiers ludus ships."""


@pytest.fixture(scope="module")
def judge_url() -> Iterator[str]:
    """The address of an honest mock judge on a loop of its own."""
    loop, mock = asyncio.new_event_loop(), MockJudge()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(mock.start(), loop).result(timeout=60)
    yield mock.url
    asyncio.run_coroutine_threadsafe(mock.stop(), loop).result(timeout=60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=60)
    loop.close()


@pytest.fixture
def options(judge_url: str, tmp_path: Path) -> dict[str, dict[str, str]]:
    """What the verifiers need that cannot be made without options."""
    server = {"base_url": judge_url, "model": "mock"}
    (tmp_path / "reward.toml").write_text('[[parts]]\nname = "exact"\n')
    (tmp_path / "rubric.toml").write_text("[[items]]\ntext = 'Names \"Paris\".'\n")
    return {
        "compose": {"file": str(tmp_path / "reward.toml")},
        "judge": server | {"rubric": str(tmp_path / "rubric.toml")},
        "preference": server,
        "evolving-rubric": server,
        "generative-reward": server,
        "self-grading": server,
        "vision-judge": server | {"rubric": str(tmp_path / "rubric.toml")},
    }


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_it_keeps_the_contract(name: str, options: dict[str, dict[str, str]]) -> None:
    assert name in verifier_names()
    try:
        verifier = make_verifier(name, **options.get(name, {}))
        check_verifier(verifier, cases=CASES.get(name, []))
    except (MissingExtra, MissingWeights) as error:
        pytest.skip(str(error))
    close_verifier(verifier)


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_one_that_needs_options_says_which(name: str) -> None:
    said = "="
    try:
        close_verifier(make_verifier(name))
    except ConfigError as error:
        said = str(error)
    except MissingExtra as error:
        pytest.skip(str(error))
    assert "=" in said  # an example of the option
