"""Numbers in words: what stands before or behind one may change it, and a word that is the gold is
no number.

Each law draws a number and a frame in a language; the oracle is the frame.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from ludus.rewards.maths import MathsVerifier
from ludus.rewards.maths.reading.counting import in_digits

FEW = settings(max_examples=60, deadline=None)


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathsVerifier]:
    verifier = MathsVerifier(workers=1)
    yield verifier
    verifier.close()


SIGNS = "零一二三四五六七八九"
PLAIN = (
    "{}",
    "{}个",
    "有{}个",
    "一共有{}个",
    "共有{}个",
    "总共有{}个",
    "答案是{}",
    "答案为{}个",
    "是{}",
    "所以有{}个",
    "{}つ",
)
CHANGED = (
    "不是{}个", "没有{}个", "并非{}", "不为{}", "未必有{}个", "答案不是{}", "是否为{}",
    "负{}", "第{}个", "至少{}个", "至少有{}个", "最多{}个", "最多有{}个", "至多为{}",
    "不超过{}个", "大约有{}个", "多有{}个", "可能有{}个", "如果有{}个", "每人有{}个", "其余有{}个",
    "{}个以上", "{}个左右", "{}个半", "{}倍", "{}分之一", "{}多个", "{}余个",
)  # fmt: skip
FRAMES = ("\\boxed{{{}}}", "\\boxed{{\\text{{{}}}}}", "答案：{}。")


def _chinese(number: int) -> str:
    """Return a number below 1000 as it is written in Chinese."""
    hundreds, rest = divmod(number, 100)
    tens, ones = divmod(rest, 10)
    head = f"{SIGNS[hundreds]}百" if hundreds else ""
    if hundreds and rest and not tens:
        head += "零"
    middle = f"{SIGNS[tens] if tens > 1 or hundreds else ''}十" if tens else ""
    return (head + middle + (SIGNS[ones] if ones else "")) or "零"


@FEW
@given(
    number=st.integers(2, 999), plain=st.sampled_from(PLAIN), changed=st.sampled_from(CHANGED),
    frame=st.sampled_from(FRAMES),
)  # fmt: skip
def test_a_denial_or_a_bound_beside_a_chinese_count_is_not_the_count(
    verifier: MathsVerifier, number: int, plain: str, changed: str, frame: str
) -> None:
    for around, paid in ((plain, 1.0), (changed, 0.0)):
        response = frame.format(around.format(_chinese(number)))
        assert verifier.verify(str(number), response).reward == paid, response


@given(number=st.integers(0, 999), one=st.integers(1, 8), tens=st.sampled_from(["", "十", "二十"]))
def test_signs_that_are_no_single_number_are_none(number: int, one: int, tens: str) -> None:
    assert in_digits(_chinese(number)) == str(number)
    either = f"{tens}{SIGNS[one]}{SIGNS[one + 1]}"  # `十三四`: thirteen or fourteen
    for signs in (either, f"{either}十", f"{either}百", f"{SIGNS[one]}百{SIGNS[one]}"):
        assert in_digits(signs) == signs


# A number by language, with what changes it when it stands behind.
BEHIND = {
    "drei": "Drittel|Millionen|Tausend|Dutzend|oder vier|bis vier|oder mehr|oder weniger|Komma fünf"
    "|hoch zwei|zu vier|weniger",
    "trois": "cents|mille|quarts|millions|douzaines|ou quatre|à quatre|au plus|au moins|ou plus"
    "|virgule cinq|et demi|au carré|sur quatre|de moins",
    "tres": "cuartos|mil|millones|docenas|o cuatro|a cuatro|como máximo|como mínimo|o más"
    "|coma cinco|y medio|al cuadrado|de cada cuatro|menos",
    "três": "quartos|mil|milhões|dúzias|ou quatro|a quatro|no máximo|no mínimo|ou mais"
    "|vírgula cinco|e meio|ao quadrado|menos",
    "tre": "quarti|mila|milioni|dozzine|o quattro|al massimo|al minimo|o più|virgola cinque|e mezzo"
    "|al quadrato|su quattro|meno",
    "три": "четверти|тысячи|миллиона|дюжины|или четыре|до четырёх|и более|с половиной|в квадрате"
    "|целых пять десятых",
    "세": "개 이상|개 이하|개 미만|배|개 반|개 또는 네 개",
}  # fmt: skip
NOUNS = ("quarts", "cents", "mil", "mille")
"""Words that count something else behind digits, or in English."""
COUNTED = {
    "drei": "Lösungen", "trois": "points alignés", "tres": "puntos", "três": "pontos",
    "tre": "punti", "три": "корня", "세": "개",
}  # fmt: skip


@pytest.mark.parametrize("word", BEHIND)
def test_words_behind_a_number_may_make_it_another(verifier: MathsVerifier, word: str) -> None:
    paid = [
        response
        for behind in BEHIND[word].split("|")
        for frame in FRAMES[:2]
        if verifier.verify("3", response := frame.format(f"{word} {behind}")).reward == 1.0
    ]
    assert paid == []
    for amount in BEHIND[word].split("|"):
        if amount.isalpha() and amount not in NOUNS:
            assert verifier.verify("3", f"\\boxed{{3 {amount}}}").reward == 0.0, amount
    for counted in (word, f"{word} {COUNTED[word]}"):
        assert verifier.verify("3", f"\\boxed{{{counted}}}").reward == 1.0, counted


NAMES = (
    "三角形", "六边形", "sechs", "trois", "Sept", "Once", "cent", "due",
    "elf", "uno", "eine Gerade", "un cercle", "cinq cents", "dix-huit", "veintiuno", "два корня",
    "세모", "삼각형", "一次函数", "二等辺三角形",
)  # fmt: skip


@FEW
@given(
    name=st.sampled_from(NAMES), prompt=st.sampled_from(["", "¿Qué es?", "Was ist es?", "是什么?"]),
    said=st.sampled_from(["\\boxed{{{}}}", "\\boxed{{\\text{{{}}}}}", "\\boxed{{{} }}", "**{}**"]),
    wanted=st.sampled_from(["{}", "\\text{{{}}}"]),
)  # fmt: skip
def test_a_word_that_is_the_gold_equals_itself(
    verifier: MathsVerifier, name: str, prompt: str, said: str, wanted: str
) -> None:
    verdict = verifier.verify(wanted.format(name), said.format(name), prompt=prompt)
    assert verdict.reward == 1.0, verdict.detail
