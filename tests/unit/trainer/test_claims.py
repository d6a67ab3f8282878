"""`benchmarks/claims.py`: two claims in miniature, verdicts by hand, and a page of what was run."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("claims")


def test_two_claims_in_miniature_leave_rows_that_are_not_run_again(
    claims: Any, tmp_path: Path
) -> None:
    names = ["cyclic_preferences", "echo_chamber"]
    rows = claims.run_all(names, [5], scale=0.05, out=tmp_path, jobs=0)
    assert [(row["claim"], row["seed"]) for row in rows] == [(name, 5) for name in names]
    for row in rows:
        tried = claims.claim(row["claim"])
        assert {check.key for check in tried.checks} <= set(row["numbers"])
        assert claims.verdict(tried, [r for r in rows if r["claim"] == row["claim"]])
    written = (tmp_path / "rows.jsonl").read_bytes()
    assert claims.run_all(names, [5], scale=0.05, out=tmp_path, jobs=0) == rows
    assert (tmp_path / "rows.jsonl").read_bytes() == written


@pytest.mark.parametrize(
    ("sense", "numbers", "verdict"),
    [
        (">", [0.2, 0.21, 0.22], "holds"),
        ("<", [0.2, 0.21, 0.22], "does not"),
        (">", [-0.2, 0.21, 0.22], "undecided"),
        ("<", [-0.2, -0.21, -0.2], "holds"),
        (">", [0.2], "undecided"),
    ],
)
def test_a_check_holds_if_the_whole_interval_does(
    claims: Any, sense: str, numbers: list[float], verdict: str
) -> None:
    check = claims.Check("gain", sense, 0.0, "a gain")
    assert claims.verdict_of(check, numbers) == verdict


def test_the_interval_by_hand(claims: Any) -> None:
    """t(.975, 2) = 4.303, a standard deviation of .01, three seeds: 4.303 * .01 / sqrt(3)."""
    mean, half = claims.interval([0.20, 0.21, 0.22])
    assert (mean, half) == (pytest.approx(0.21), pytest.approx(0.024843, rel=1e-4))


def test_a_claim_holds_if_all_its_checks_do(claims: Any) -> None:
    checks = tuple(claims.Check(name, ">", 0.0, name) for name in "ab")
    tried = claims.Claim("x", "it is so", "a paper", "a world", "m:f", checks)

    def rows(a: float, b: list[float]) -> list[dict[str, Any]]:
        return [{"numbers": {"a": a + n / 100, "b": value}} for n, value in enumerate(b)]

    assert claims.verdict(tried, rows(1.0, [1.0, 1.1, 1.2])) == "holds"
    assert claims.verdict(tried, rows(1.0, [1.0, -1.1, 1.2])) == "undecided"
    assert claims.verdict(tried, rows(-1.0, [1.0, -1.1, 1.2])) == "does not"


def test_every_claim_can_be_run_and_has_a_criterion(claims: Any) -> None:
    names = [each.name for each in claims.CLAIMS]
    assert len(names) == len(set(names)) >= 14
    for each in claims.CLAIMS:
        module, _, function = each.measure.partition(":")
        source = (ROOT / "benchmarks" / f"{module}.py").read_text()
        assert f"def {function}(seed: int, scale: float)" in source
        assert each.checks
        assert len({check.key for check in each.checks}) == len(each.checks)


def test_the_numbers_beside_the_page_are_of_every_claim_and_check(claims: Any) -> None:
    kept = json.loads(claims.NUMBERS.read_text(encoding="utf-8"))
    assert list(kept) == [each.name for each in claims.CLAIMS]
    for each in claims.CLAIMS:
        assert set(kept[each.name]["checks"]) == {check.key for check in each.checks}
        assert all(len(values) == claims.SEEDS for values in kept[each.name]["checks"].values())


def test_the_page_has_the_verdicts_of_the_numbers_beside_it(claims: Any) -> None:
    page, kept = claims.PAGE.read_text(), json.loads(claims.NUMBERS.read_text())
    for each in claims.CLAIMS:
        for check in each.checks:
            (line,) = [
                line
                for line in page.partition(f"\n## {each.name.replace('_', ' ').capitalize()}\n")[2]
                .partition("\n## ")[0]
                .splitlines()
                if line.startswith(f"| {check.says} |")
            ]
            verdict = claims.verdict_of(check, kept[each.name]["checks"][check.key])
            assert line.endswith(f"| {verdict} |"), line
