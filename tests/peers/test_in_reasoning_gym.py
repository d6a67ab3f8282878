"""reasoning-gym: every family's reward is what the package's own scorer says."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import ludus
from ludus.envs import GymEnv
from ludus.envs.checks import check_env, examine_env
from ludus.envs.outside.kinds import catalogue
from ludus.errors import ConfigError
from ludus.wire.address import format_served

from .in_pythons import python_with

pytestmark = pytest.mark.peers
SCORES = Path(__file__).with_name("in_reasoning_gym_scores.py")
SEEDS = (0, 1, 2)


def families() -> list[str]:
    """Return the families that need no settings."""
    listed = catalogue("reasoning-gym")
    assert listed is not None
    return [family.name for family in listed.families if not family.needs]


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_rewards_are_those_of_the_packages_own_scorer() -> None:
    """On gold, wrong, malformed and empty answers and two more, three seeds of each family."""
    python = python_with("reasoning-gym")
    done = subprocess.run(
        [python, "-s", str(SCORES), ",".join(map(str, SEEDS))],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        input=" ".join(families()), capture_output=True, text=True, timeout=1500, check=True,
    )  # fmt: skip
    counts: Counter[str] = Counter()
    played: dict[str, GymEnv] = {}
    for line in done.stdout.splitlines():
        if not line.startswith("case: "):
            continue
        family, seed, question, kind, answer, score = json.loads(line.removeprefix("case: "))
        if family not in played:
            for env in played.values():
                env.close()
            played = {family: ludus.make(f"reasoning-gym/{family}-v0", python=python)}
        env = played[family]
        shown, _ = env.reset(seed=0, options={"task": f"train/{seed}"})
        assert shown == question, family
        _, reward, terminated, _, info = env.step(answer)
        assert terminated
        if isinstance(score, str):
            assert (reward, "scorer_raised" in info) == (0.0, True), (family, kind, answer)
            counts["raised"] += 1
        else:
            assert reward == score, (family, seed, kind, answer)
            counts[kind] += 1
    for env in played.values():
        env.close()
    print(f"{len(families())} families, {dict(counts)}")
    assert counts["empty"] + counts["raised"] >= 3 * len(families())
    assert counts["gold"] >= 3 * (len(families()) - 5)  # five families tell no answer


def test_countdown_passes_the_whole_check() -> None:
    named = format_served("reasoning-gym/countdown-v0", {"python": python_with("reasoning-gym")})
    assert not check_env(named, max_return=1.0).failures


# In needle_haystack the answer has to be found in a long text, which no rule of thumb does.
@pytest.mark.parametrize(
    ("family", "rules"), [("needle_haystack", []), ("game_of_life_halting", ["expert"])]
)
def test_what_a_family_lacks_is_told(family: str, rules: list[str]) -> None:
    named = format_served(f"reasoning-gym/{family}-v0", {"python": python_with("reasoning-gym")})
    assert [finding.rule for finding in examine_env(named).failures] == rules


HOSTILE = {
    "n_queens": "__import__('os').system('touch {marked}') or [['Q']]",
    "spiral_matrix": "[__import__('os').system('touch {marked}')]",
    "countdown": "__import__('os').system('touch {marked}')",
    "puzzle24": "(lambda: exec(\"open('{marked}','w')\"))()",
    "simple_integration": "Symbol.__class__.__base__.__subclasses__()",
    "polynomial_multiplication": "9**9**9**9",
}


@pytest.mark.parametrize("family", HOSTILE)
def test_an_answer_is_read_and_never_run(family: str, tmp_path: Path) -> None:
    """The package's scorers evaluate answers as Python; here they see data alone."""
    marked = tmp_path / "marked"
    python = python_with("reasoning-gym")
    for walls in (True, False):  # the reader holds without the walls, too
        env = ludus.make(f"reasoning-gym/{family}-v0", python=python, walls=walls)
        env.reset(seed=0)
        _, reward, *_ = env.step(HOSTILE[family].format(marked=marked))
        assert reward <= 0.05
        assert not marked.exists()
        env.close()


def test_settings_are_those_of_the_family() -> None:
    python = python_with("reasoning-gym")
    env = ludus.make("reasoning-gym/chain_sum-v0", python=python, min_terms=7, max_terms=7)
    question = str(env.reset(seed=0)[0])
    assert question.count("+") + question.count(" - ") == 6
    env.close()
    with pytest.raises(ConfigError, match="chain_sum of reasoning-gym has no setting 'terms'"):
        ludus.make("reasoning-gym/chain_sum-v0", python=python, terms=7)
