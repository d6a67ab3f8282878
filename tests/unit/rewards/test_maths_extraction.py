"""Where the answer of a response is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ludus.errors import ConfigError
from ludus.rewards.maths import MathsVerifier, extract
from ludus.rewards.maths.extracting.extraction import survey

ANSWERS = Path(__file__).parent / "maths_answers.jsonl"


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"First \boxed{1}. Wait, no: \boxed{2}.", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"so \fbox{7}", "7"),
        (r"\boxed{\boxed{42}}", r"\boxed{42}"),
        (r"\boxed{42", "42"),
        (r"$\boxed 5$", "5"),
        (r"$\boxed{k = 45} \quad \text{and} \quad \boxed{n = 2}$", "k = 45 , n = 2"),
        (r"\boxed{840}, \boxed{840}", "840"),
        ("The answer is not $360$. The answer is $180$.", "180"),
        ("Final Answer: The final answer is $1024$. I hope it is correct.", "1024"),
        ("<answer>7</answer>", "7"),
        ("work\n#### 72", "72"),
        ("综上所述，所以答案是 $7$。", "7"),
        ("we add 3 and 4 and get 7 apples. Fine.", "7"),
        (r"hence \(x\) and then \[ y = 2 \]", " y = 2 "),
        ("</think> It is \\boxed{3}", "3"),
        ("<think>maybe \\boxed{8}</think> The answer is 9.", "9"),
        ("x+1", "x+1"),
        ("There are 12 such sequences. <|im_start|>user 99", "12"),
        ("◁think▷8◁/think▷9", "9"),
        ("[THINK]\\boxed{8}[/THINK]\\boxed{9}", "9"),
        ("The solutions are $x = 5$ and $x = -5$.", "$x = 5$ and $x = -5$"),
        (r"$x = \boxed{2}$ or $x=\boxed{6}$", "2 , 6"),
        ("The answer is $8$, $4$.", "$8$, $4$"),
        ("Thus, the coordinates are **(3, -2)**.", "(3, -2)"),
        ("Thus the vertex, seen from here, has to be at (3, -2).", "(3, -2)"),
        ("She sells 9 eggs at $2 each, so she makes 9 × $2 = $18.", "$18"),
        ("There are 42 ways in total (6 × 7).", "42"),
        ("In conclusion, \\(x = 7/2\\).", "x = 7/2"),
        ("故选D。", "D"),
        ("答：共有12人。", "12"),
        (r"So $y = \lim_{x\to 0} \sin x = 0$", r"y = \lim_{x\to 0} \sin x = 0"),
    ],
)
def test_the_answer_is_found(response: str, answer: str) -> None:
    assert extract(response).text == answer


@pytest.mark.parametrize(
    "response",
    [
        "",
        "   ",
        "<think> it is \\boxed{7}",
        "possible answers are $360$ and $180$. \\boxed{}",
        "The answer is \\boxed{8}. If that is wrong, then it is \\boxed{7}.",
        "\\boxed{8}. Otherwise \\boxed{7}",
        "no expression at all in this long prose without any digits or formulas in it",
        "#### ",
    ],
)
def test_no_answer_has_a_reason(response: str) -> None:
    found = extract(response)
    assert found.text is None
    assert found.reason


def test_a_truncated_response_does_not_fall_back_to_its_last_expression() -> None:
    assert extract("so 3 + 4 = 7 and then we", truncated=True).text is None
    assert extract("so 3 + 4 = 7 and then we").text == "7"
    assert extract(r"so \boxed{7} and then we", truncated=True).text == "7"


def test_the_span_points_into_the_response() -> None:
    response = r"<think>long</think> hence \boxed{x+1}."
    found = extract(response)
    assert response[found.start : found.end] == found.text == "x+1"


def test_thinking_can_be_left_in() -> None:
    response = r"<think>\boxed{7}"
    assert extract(response, thinking="none").text == "7"
    with pytest.raises(ConfigError, match="think"):
        MathsVerifier(thinking="thnk")


def test_a_refused_candidate_is_not_found_again_by_a_lower_rank() -> None:
    assert extract("5?").text is None
    assert [ranked.fate for ranked in survey("5?")] == ["does not count: it is asked"]


@pytest.mark.slow
@pytest.mark.parametrize("truncated", [False, True])
def test_the_survey_names_the_winner_of_the_extraction(*, truncated: bool) -> None:
    rows = [json.loads(line) for line in ANSWERS.read_text("utf-8").splitlines()]
    responses = {text for row in rows for text in (row["response"], row["response"] + "?")}
    for response in responses:
        found = extract(response, truncated=truncated)
        winners = [
            (str(ranked.candidate.kind), ranked.candidate.start)
            for ranked in survey(response, truncated=truncated)
            if ranked.fate.startswith("wins")
        ]
        nothing = found.text is None and found.rule in {"none", "empty", "thinking", "truncated"}
        assert winners == ([] if nothing else [(found.rule, found.start)]), response


@pytest.mark.parametrize(
    ("pipeline", "response", "answer"),
    [
        (
            "math_verify",
            r"\boxed{1} Final Answer: The final answer is $2$. I hope it is correct.",
            "2",
        ),
        ("math_verify", r"<think>\boxed{1}", "1"),
        ("prm800k", r"\boxed{1} the answer is 2", "1"),
        ("prm800k", "the answer is 2", None),
        ("dapo", "Answer: 3\nAnswer: 4", "4"),
        ("dapo", "Answer: 3" + " " * 400, None),
        ("gsm8k", "#### 1,000", "1,000"),
        ("gsm8k", "the answer is 5", None),
    ],
)
def test_other_pipelines_are_reproduced(pipeline: str, response: str, answer: str | None) -> None:
    assert MathsVerifier(pipeline=pipeline).extract(response).text == answer
