"""examples/11_referee.py: a policy that learns to judge answers."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from ludus.config import build, read_toml
from ludus.envs import make
from ludus.envs.checks import check_env
from ludus.errors import ConfigError
from ludus.metrics import read_metrics
from ludus.trainer.config import TrainConfig
from ludus.trainer.train import run_training

EXAMPLE = Path(__file__).parents[2] / "examples" / "11_referee.py"


@pytest.fixture(scope="module")
def example(run_example: Callable[[str], Any]) -> Any:
    return run_example("11_referee.py")


def test_the_environment_keeps_the_contract(example: Any) -> None:
    check_env(example.ENV)


def test_a_judgement_earns_the_share_of_pairs_in_order(example: Any, tmp_path: Path) -> None:
    """Known from the answers that are shown, and not from what the environment keeps."""
    worth = {"none": 3.0, "some": 2.0, "all": 1.0}
    row = {"prompt": "how many?", "answers": list(worth), "ranks": [1, 2, 3]}
    path = tmp_path / "rankings.jsonl"
    path.write_text("".join(json.dumps({**row, "prompt": f"{n}?"}) + "\n" for n in range(10)))
    env, orders = make(example.ENV, source=str(path)), set()
    for seed in range(12):
        text = env.reset(seed=seed)[0]
        shown = [line.split(" ", 1) for line in text.splitlines()[1:]]
        orders.add(tuple(answer for _, answer in shown))
        given = {name: 1 + (seed * (place + 1)) % 7 for place, (name, _) in enumerate(shown)}
        pairs = list(combinations(shown, 2))
        agreed = sum(
            0.5
            if given[a] == given[b]
            else float((given[a] > given[b]) == (worth[one] > worth[other]))
            for (a, one), (b, other) in pairs
        )
        reward = env.step(json.dumps({"scores": given}))[1]
        assert reward == pytest.approx(agreed / len(pairs))
    assert len(orders) > 2
    env.reset(seed=0)
    assert env.step("A is best")[1] == 0.0


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_the_demonstrator_orders_any_number_of_answers(
    example: Any, tmp_path: Path, count: int
) -> None:
    row = {"prompt": "?", "answers": [*map(str, range(count))], "ranks": [*range(count)]}
    path = tmp_path / "rankings.jsonl"
    path.write_text(json.dumps(row) + "\n")
    for slips, reward in ((0.0, 1.0), (1.0, 0.0)):
        env = make(example.ENV, source=str(path), slips=slips)
        env.reset(seed=1)
        said = env.unwrapped.session.env.demonstrate()
        assert json.loads(said)["scores"].keys() == {*"ABCDEFGHI"[:count]}
        assert env.step(said)[1] == pytest.approx(reward)


def test_a_file_without_rows_is_not_taken_for_the_examples_own(
    example: Any, tmp_path: Path
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ConfigError, match="empty"):
        make(example.ENV, source=str(tmp_path / "empty.jsonl"))


@pytest.mark.large  # a minute and a half of one core
@pytest.mark.timeout(1600)
async def test_a_referee_learns_from_agreement(example: Any, tmp_path: Path) -> None:
    """A policy that was shown as many wrong orders as right ones."""
    config = build(TrainConfig, read_toml(EXAMPLE.with_suffix(".toml")))
    config = replace(config, run=replace(config.run, folder=str(tmp_path / "run")))
    result = await run_training(config)
    rows = read_metrics(result.folder / "metrics.jsonl")
    first, last = (row["eval/mean"] for row in rows if "eval/mean" in row)
    assert last > first + 0.15
    assert last > 0.55  # half is what any order earns
