"""Every registered verifier keeps the contract."""

import pytest

from ludus.errors import MissingExtra
from ludus.rewards import Sample, verifier_names
from ludus.rewards.checks import check_verifier
from ludus.rewards.registry import BUILTIN

CASES: dict[str, list[Sample]] = {
    "exact": [
        Sample(response=" Paris ", gold="paris"),
        Sample(response="b", gold=["a", "b"]),
    ],
    "maths": [
        Sample(response="\\boxed{\\frac{2}{4}}", gold="1/2"),
        Sample(response="so x = 5. \\boxed{5}", gold="5"),
        Sample(response="\\boxed{(x+1)^2}", gold="x^2+2x+1"),
        Sample(response="\\boxed{1,234}", gold=["1234", "no"]),
    ],
}
"""Right answers of the verifiers ludus ships."""


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_it_keeps_the_contract(name: str) -> None:
    assert name in verifier_names()
    try:
        check_verifier(name, cases=CASES.get(name, []))
    except MissingExtra as error:
        pytest.skip(str(error))
