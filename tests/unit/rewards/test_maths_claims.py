"""A sentence pays what it claims, and nothing that it denies, doubts, supposes, asks or bounds.

Each law crosses claims (a predicate, a count in words, values by owner or noun, a relation, a
number) with what a sentence may do with a claim, in several languages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ludus.rewards.maths import MathsVerifier


class Claim(NamedTuple):
    """A question, a clause that answers it, and the answer."""

    prompt: str
    clause: str
    gold: str


CLAIMS = {
    "English": (
        Claim("Is the matrix invertible?", "the matrix is invertible", "Yes"),
        Claim("Is the matrix invertible?", "yes, the matrix is invertible", "Yes"),
        Claim("Is 91 a prime number?", "91 is not a prime number", "No"),
        Claim("How many roots are there?", "there are two roots", "2"),
        Claim("Find all real solutions.", "there are no real solutions", "no real solutions"),
        Claim("How many does Lena have? Paul has more.", "Lena has 17 and Paul has 34", "17"),
        Claim("How many girls are in the club?", "there are 9 girls and 8 boys", "9"),
        Claim("Express x in terms of y.", "x = 3y", "x = 3y"),
        Claim("Find the vertex.", "V = (1; 4)", "(1, 4)"),
        Claim("How much is it?", "the total is 25", "25"),
        Claim("What kind of shape is it?", "the shape is a **rhombus**", "rhombus"),
        Claim("What kind of conic is it?", "the conic is called a hyperbola", "Hyperbola"),
        Claim("Which test applies?", "we apply the **ratio test**", "ratio test"),
    ),
    "German": (
        Claim("Wie viele Nullstellen gibt es?", "es gibt zwei Nullstellen", "2"),
        Claim("Wie viele hat Lena? Paul hat mehr.", "Lena hat 17 und Paul 34", "17"),
        Claim("Wie viele rote Kugeln sind es?", "es sind 9 rote Kugeln und 8 blaue Kugeln", "9"),
        Claim("Drücke x durch y aus.", "x = 3y", "x = 3y"),
        Claim("Was für ein Kegelschnitt ist es?", "es ist eine **Hyperbel**", "Hyperbel"),
    ),
    "French": (
        Claim("Combien de solutions y a-t-il ?", "il y a trois solutions", "3"),
        Claim("Combien de billes a Lena ? Paul en a plus.", "Lena en a 17 et Paul 34", "17"),
        Claim("Combien de filles y a-t-il ?", "il y a 9 filles et 8 garçons", "9"),
        Claim("Exprime x en fonction de y.", "x = 3y", "x = 3y"),
    ),
    "Spanish": (
        Claim("¿Cuántas soluciones hay?", "hay tres soluciones", "3"),
        Claim("¿Cuántas tiene Lena? Paul tiene más.", "Lena tiene 17 y Paul 34", "17"),
        Claim("¿Cuántas rosas hay?", "hay 9 rosas y 8 lirios", "9"),
        Claim("Expresa x en función de y.", "x = 3y", "x = 3y"),
    ),
    "Portuguese": (
        Claim("Quantas soluções há?", "há três soluções", "3"),
        Claim("Exprima x em função de y.", "x = 3y", "x = 3y"),
    ),
    "Italian": (
        Claim("Quante soluzioni ci sono?", "ci sono tre soluzioni", "3"),
        Claim("Quante ne ha Lena? Paul ne ha di più.", "Lena ne ha 17 e Paul 34", "17"),
        Claim("Esprimi x in funzione di y.", "x = 3y", "x = 3y"),
    ),
    "Russian": (
        Claim("Сколько решений?", "есть три решения", "3"),
        Claim("Сколько марок у Лены? У Пети больше.", "у Лены 17, а у Пети 34", "17"),
        Claim("Выразите x через y.", "x = 3y", "x = 3y"),
    ),
}  # fmt: skip
STATES = {
    "English": (
        "So {}.", "Therefore, {}.", "We conclude that {}.", "It is clear that {}.",
        "There is no doubt that {}.", "It is true that {}.", "I am sure that {}.",
        "It was not easy, but {}.", "Since it is not zero, {}.", "I was not sure, but {}.",
        "It may look hard, so we count: {}.", "If we count, we see that {}.",
        "It is easy to see that {}.", "We may write it as a sum, which shows that {}.",
    ),
    "German": ("Also: {}.", "Wir sehen, dass gilt: {}.", "Das ist nicht null, also: {}."),
    "French": ("Donc {}.", "On voit que {}.", "Ce n'est pas nul, donc {}."),
    "Spanish": ("Por tanto, {}.", "Vemos que {}.", "No es cero, así que {}."),
    "Portuguese": ("Portanto, {}.", "Vemos que {}."),
    "Italian": ("Quindi {}.", "Vediamo che {}."),
    "Russian": ("Значит, {}.", "Ясно, что {}."),
}  # fmt: skip
CLAIMS_NOT = {
    "English": (
        "It is not true that {}.", "It is false that {}.", "It isn't the case that {}.",
        "It is wrong to say that {}.", "It would be wrong to say: {}.", "I do not think that {}.",
        "We cannot say that {}.", "I doubt that {}.", "I doubt that: {}.", "I doubt: {}.",
        "We are not sure that {}.", "It is unlikely that {}.", "It is doubtful whether {}.",
        "It is unclear if {}.", "Suppose that {}.", "Suppose: {}.", "Assume for now that {}.",
        "Let us imagine that {}.", "{}?", "Is it true that {}?", "Maybe {}.", "Perhaps, {}.",
        "Possibly {}.", "It could be that {}.", "It might be that {}.", "It may be that {}.",
        "{}, or so.", "{}, maybe.", "{}, but I doubt it.", "{}, which is false.",
        "So maybe {}.", "We count, and perhaps {}.", "I am unsure: {}.", "The book says that {}.",
        "Nobody would say that {}.", "One might think that {}.", "Some people think that {}.",
    ),
    "German": (
        "Es stimmt nicht, dass gilt: {}.", "Ich bezweifle, dass gilt: {}.", "Vielleicht gilt: {}.",
        "Angenommen, {}.", "Möglicherweise gilt: {}.", "Es ist falsch, dass gilt: {}.", "{}?",
    ),
    "French": (
        "Il n'est pas vrai que {}.", "Il est faux que {}.", "Je doute que {}.", "Peut-être que {}.",
        "Supposons que {}.", "{} ?",
    ),
    "Spanish": (
        "No es cierto que {}.", "Es falso que {}.", "Dudo que {}.", "Quizás {}.", "Tal vez {}.",
        "Supongamos que {}.", "¿{}?",
    ),
    "Portuguese": ("Não é verdade que {}.", "Duvido que {}.", "Talvez {}.", "Suponha que {}."),
    "Italian": ("Non è vero che {}.", "Dubito che {}.", "Forse {}.", "Supponiamo che {}."),
    "Russian": (
        "Неверно, что {}.", "Сомневаюсь, что {}.", "Возможно, {}.", "Может быть, {}.",
        "Предположим, что {}.",
    ),
}  # fmt: skip
AMONG_WORK = ("{}", "We work it out.\n\n{}")


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathsVerifier]:
    verifier = MathsVerifier(workers=1)
    yield verifier
    verifier.close()


def _paid(verifier: MathsVerifier, claim: Claim, sentence: str) -> list[str]:
    """Return the responses with a sentence that are paid."""
    responses = [shape.format(sentence[0].upper() + sentence[1:]) for shape in AMONG_WORK]
    return [
        response
        for response in responses
        if verifier.verify(claim.gold, response, prompt=claim.prompt).reward == 1.0
    ]


@pytest.mark.parametrize("language", CLAIMS)
def test_what_a_sentence_claims_is_paid(verifier: MathsVerifier, language: str) -> None:
    lost = [
        (claim.gold, sentence)
        for claim in CLAIMS[language]
        for shape in STATES[language]
        if len(_paid(verifier, claim, sentence := shape.format(claim.clause))) < len(AMONG_WORK)
    ]
    assert not lost, "\n".join(map(str, lost))


@pytest.mark.parametrize("language", CLAIMS)
def test_what_a_sentence_does_not_claim_is_not_paid(verifier: MathsVerifier, language: str) -> None:
    paid = [
        (claim.gold, response)
        for claim in CLAIMS[language]
        for shape in CLAIMS_NOT[language]
        for response in _paid(verifier, claim, shape.format(claim.clause))
    ]
    assert not paid, "\n".join(map(str, paid))


MARBLES = "Lena and Paul have marbles. How many marbles does Lena have?"
CLUB = "How many girls are in the club, and how many boys come?"
UNCLAIMED = (
    Claim("How many roots are there?", "At most there are two roots.", "2"),
    Claim("How many roots are there?", "There are at least two roots.", "2"),
    Claim("How many roots are there?", "There might be two roots.", "2"),
    Claim("How many roots are there?", "At least, we know there are two roots.", "2"),
    Claim("How many roots are there?", "There are either two roots or three roots.", "2"),
    Claim("How many roots are there?", "There are either two roots or three roots.", "3"),
    Claim("Is the matrix invertible?", "Either it is singular or the matrix is invertible.", "Yes"),
    Claim("Is the matrix invertible?", "It remains to show that the matrix is invertible.", "Yes"),
    Claim("Is the matrix invertible?", "If it is real, the matrix is invertible.", "Yes"),
    Claim("Is the matrix invertible?", "The hope is that the matrix is invertible.", "Yes"),
    Claim("How many roots are there?", "Nobody would say there are two roots.", "2"),
    Claim("Wie viele Lösungen gibt es?", "Es gibt höchstens drei Lösungen.", "3"),
    Claim("Wie viele Lösungen gibt es?", "Höchstens gibt es drei Lösungen.", "3"),
    Claim("Combien de solutions ?", "Il y a au plus trois solutions.", "3"),
    Claim("¿Cuántas soluciones hay?", "Hay como máximo 3 soluciones.", "3"),
    Claim("Which one? (A) 1 (B) 2", "So it might be B.", "B"),
    Claim("Find the vertex.", "The point is far from V = (1; 4).", "(1, 4)"),
    Claim("Find the vertex.", "V is far from V = (1; 4).", "(1, 4)"),
    Claim(MARBLES, "Lena does not have 17 and Paul has 34.", "17"),
    Claim(MARBLES, "Lena has at least 17 and Paul has 34.", "17"),
    Claim(MARBLES, "Lena might have 17 and Paul might have 34.", "17"),
    Claim(MARBLES, "Either Lena has 17 or Paul has 34.", "17"),
    Claim(MARBLES, "Lena has 17 or Paul has 34.", "17"),
    Claim("Wie viele hat Lena? Paul hat mehr.", "Entweder hat Lena 17 oder Paul hat 34.", "17"),
    Claim("Combien a Lena ? Paul en a plus.", "Soit Lena en a 17, soit Paul en a 34.", "17"),
    Claim("¿Cuántas tiene Lena? Paul tiene más.", "Lena tiene 17 o Paul tiene 34.", "17"),
    Claim("How many boys are there?", "There are either 8 boys or 9 girls.", "8"),
    Claim("How many boys are there?", "There are 8 boys or 9 girls.", "8"),
    Claim("How many boys are there?", "There are not 8 boys and 9 girls.", "8"),
    Claim("How many boys are there?", "There are at least 8 boys and 9 girls.", "8"),
)  # fmt: skip


@pytest.mark.parametrize("claim", UNCLAIMED, ids=lambda claim: claim.clause)
def test_a_bound_a_denial_or_an_alternative_is_no_claim(
    verifier: MathsVerifier, claim: Claim
) -> None:
    assert not _paid(verifier, claim, claim.clause)


FATHER = "Lena has a father, and Paul too. How old is Lena's father?"
OWNED = (
    # (question, sentence, the value that is claimed for what is asked, or "")
    Claim(FATHER, "Lena is 12 and Lena's father is 40.", "40"),
    Claim(FATHER, "Lena's father is 40 and Lena is 12.", "40"),
    Claim(FATHER, "Lena's father is 40 and Paul is 12.", "40"),
    Claim(FATHER, "Paul's father is 41 and Lena's father is 40.", "40"),
    Claim(FATHER, "Lena's father is 40 and Paul's father is 41.", "40"),
    Claim("How old is Lena? Paul is older.", "Lena's father is 40 and Lena is 12.", "12"),
    Claim("How old is Lena? Paul is older.", "Lena is 12 and Paul's father is 40.", "12"),
    Claim("How much does Lena get? Paul gets more.", "Lena's share is 17 and Paul's is 34.", "17"),
)  # fmt: skip
NOT_OWNED = (
    Claim("How old is Lena? Paul is older.", "Lena's father is 40 and Paul is 12.", "40"),
    Claim("How old is Lena? Paul is older.", "The father of Lena is 40 and Paul is 12.", "40"),
    Claim("Wie alt ist Lena? Paul ist älter.", "Der Vater von Lena ist 40 und Paul ist 12.", "40"),
    Claim(
        "Quel âge a Lena ? Paul est plus vieux.", "Le père de Lena a 40 ans et Paul 12 ans.", "40"
    ),
    Claim(FATHER, "Lena is 12 and Lena's father is 40.", "12"),
)


def test_a_possessor_does_not_own_the_value_of_what_it_possesses(verifier: MathsVerifier) -> None:
    lost = [claim for claim in OWNED if len(_paid(verifier, claim, claim.clause)) < 2]
    paid = [claim for claim in NOT_OWNED if _paid(verifier, claim, claim.clause)]
    assert (lost, paid) == ([], [])


@pytest.mark.parametrize("ask", [
    "How many apples are left after 5 days?", "After 5 days, how many apples are left?",
    "What is the number of apples after 5 days?",
])  # fmt: skip
def test_the_noun_beside_how_many_is_the_one_that_is_asked(
    verifier: MathsVerifier, ask: str
) -> None:
    shapes = ("After 5 days, 2 apples.", "After 5 days there are 2 apples left.",
              "There are 2 apples after 5 days.")  # fmt: skip
    for clause in shapes:
        assert len(_paid(verifier, Claim(ask, clause, "2"), clause)) == 2, clause
        assert not _paid(verifier, Claim(ask, clause, "5"), clause), clause


ENDINGS = (
    ("", "Together they make \\(4\\frac{1}{12}\\).", r"\frac{49}{12}", r"\frac{1}{12}"),
    ("", "The sum equals n\u00b2.", "n^2", "2"),
    ("", "Dividing gives a\u2075b\u207b\u00b3.", r"\frac{a^5}{b^3}", "a^5b^3"),
    ("", "The angles of a polygon add up to 360\u00b0.", "360", "540"),
    ("", "It is 8 g/cm\u00b3, which equals 8000 kg/m\u00b3.", "8 g/cm^3", "80 g/cm^3"),
    ("", "The rate is 20\u03c0 cm\u00b2 per second.", "20\\pi cm^2/s", "20\\pi cm^2"),
    ("", "The integers are 0, 1 and 2, which makes three of them.", "3", "2"),
    ("", "We obtain the pairs (2, 3) and (1, 6).", "(1, 6), (2, 3)", "(1, 6)"),
    ("", "Here f(g(x)) = x\u00b2 and g(f(x)) = 3x.", "f(g(x)) = x^2, g(f(x)) = 3x", "3x"),
    ("", "The equation has no solutions in the real numbers.", "no solutions", "1"),
    ("Does it converge or diverge?", "By the test the series converges.", "converges", "diverges"),
    ("Is 91 prime or composite?", "The number 91 is composite.", "composite", "prime"),
    ("On what date is it due?", "The book is due on 8 April.", "April 8", "April 9"),
    ("", "The mass is 5.2\u00b710\u207b\u2074 kg.", r"5.2 \times 10^{-4} kg", "5.2"),
    ("", "Here 0.00052 = 5.2 \u00d7 10^-4.", r"5.2 \times 10^{-4}", "10^{-4}"),
    ("", "The circle is (x \u2212 2)\u00b2 + y\u00b2 = 16.", "(x-2)^2 + y^2 = 16", "16"),
    ("Convert 255 to hexadecimal.", "The number 255 in hexadecimal is FF.", "FF", "F"),
)  # fmt: skip


@pytest.mark.parametrize(("prompt", "ending", "gold", "other"), ENDINGS)
def test_what_a_sentence_ends_in_is_its_answer_and_no_piece_of_it(
    verifier: MathsVerifier, prompt: str, ending: str, gold: str, other: str
) -> None:
    def paid(response: str, wanted: str = gold) -> bool:
        return verifier.verify(wanted, response, prompt=prompt).reward == 1.0

    said = f"It is not 777, as the table shows. {ending}"
    assert paid(said)
    assert not paid(said, other)
    clause = ending.rstrip(".")
    clause = clause[0].lower() + clause[1:]
    for frame in (f"It is not true that {clause}.", f"I doubt that {clause}.", f"{ending[:-1]}?"):
        assert not paid(frame), frame


class Said(NamedTuple):
    """A question, its gold, sentences that answer it, and sentences that nearly do."""

    prompt: str
    gold: str
    paid: tuple[str, ...]
    unpaid: tuple[str, ...]


CONVERGE = "Does the series converge or diverge?"
VIETA = "The roots are r and s. Find r + s and rs."
SAID = (
    Said("Add the lengths.", "37/12",
         ("First 7/12 + 1 = 19/12 = 1 7/12. Altogether we have 3 1/12.", "That makes 3 1/12 feet.",
          "We add: 19/12 + 18/12 = 37/12 = 3 1/12.", "Zusammen sind es 3 1/12.",
          "Всего получаем 3 1/12.", "一共是 3 1/12。"),
         ("Altogether we have 3 1/11.", "That is longer than 3 1/12.", "It is not 37/12 = 3 1/12.",
          "The whole is 3 and 1/12 is left.")),
    Said("When is the book due?", "8 April",
         ("It is due on April 8th.", "21 days after 18 March is 8 April.",
          "39 - 31 = 8. Das Buch ist am 8. April fällig.", "Il faut le rendre le 8 avril.",
          "Книгу нужно вернуть 8 апреля.", "所以应在4月8日归还。"),
         ("It is due on 8 May.", "It is due before 8 April.", "Le livre est à rendre le 8 mai.",
          "Das Buch ist nicht am 8. April fällig.", "8", "应在4月18日归还。")),
    Said("Divide; find the quotient and the remainder.", "quotient x + 2, remainder 3",
         ("So the quotient is x + 2 and the remainder is 3.", "x + 2 with remainder 3",
          "The remainder is $3$ and the quotient is $x+2$."),
         ("The quotient is 3 and the remainder is x + 2.", "The quotient is x + 2.",
          "Half the quotient is x + 2 and the remainder is 3.",
          "The quotient is x + 2 and the remainder is not 3.")),
    Said("Find the center and the radius.", "center (1, -2), radius 3",
         ("The radius is √9 = 3 and the center is (1, −2).",
          "\\boxed{\\text{center } (1,-2), \\text{ radius } 3}"),
         ("The center is (1, -2) and the radius is 9.", "The center is (1, 2), the radius 3.")),
    Said(VIETA, "r+s = 7/2, rs = 3/2",
         ("By Vieta, r + s = 7/2 = 3.5 and rs = 3/2 = 1.5.",
          "So $r+s = -\\frac{-7}{2} = \\frac72$ and $rs = \\frac{3}{2}$."),
         ("Here r + s = 3/2 and rs = 7/2.", "Either r + s = 7/2 or rs = 3/2.",
          "I doubt that r + s = 7/2 and rs = 3/2.", "So -r + s = 7/2 and rs = 3/2.")),
    Said(VIETA, "7/2, 3/2", ("So r + s = 7/2 and rs = 3/2.",), ("So r + s = 3/2 and rs = 7/2.",)),
    Said("Find the GCD and the LCM.", "GCD = 6, LCM = 36", ("The GCD is 6 and the LCM is 36.",),
         ("The GCD is 36 and the LCM is 6.",)),
    Said(CONVERGE, "converges",
         ("The series is convergent.", "As p > 1, it converges.", "It converges to π²/6."),
         ("It fails to converge.", "The series never converges.", "It might converge.",
          "Nobody knows that it converges.", "It would converge if p were 2.")),
    Said("Is 91 prime or composite?", "composite",
         ("It's composite, not prime.", "91 = 7 · 13, so 91 is a composite number."),
         ("It's prime, not composite.", "Nothing shows that it is composite.")),
    Said("Write 255 in hexadecimal.", "FF",
         ("255 is FF in hexadecimal.", "255 = 15·16 + 15 = FF₁₆", "This gives FF.",
          "\\boxed{FF_{16}}"),
         ("It could be FF.", "It is FE or FF.", "\\boxed{FF_{17}}")),
    Said("What is 1010 in base 2 as a decimal number?", "10", ("10",), ("\\boxed{10_2}",)),
    Said("Solve the equation.", "no real solutions",
         ("There are no solutions in ℝ.", "Die Gleichung hat keine reellen Lösungen.",
          "L'équation n'a pas de solution réelle.", "No tiene soluciones reales.",
          "Уравнение не имеет действительных корней.", "方程没有实数解。"),
         ("The equation doesn't have no real solutions.", "If b = 0, there are no real solutions.",
          "There are no integer solutions.", "方程没有整数解。")),
    Said("Find all pairs.", "(1, 6), (2, 3)",
         ("This leaves us with (1, 6) and (2, 3).", "Die Paare sind (1, 6) und (2, 3)."),
         ("They are not (1, 6) and (2, 3).", "It is the midpoint of (1, 6) and (2, 3).")),
    Said("What speed is it?", "20 m/s", ("It is 20 m/s, which equals 72 km/h.",),
         ("It is 72 m/s, which equals 20 km/h.",)),
    Said("求体积。", "20π立方厘米", ("V=π×2²×5=20π（立方厘米）", "体积是20π立方厘米。"),
         ("体积是20π平方厘米。", "体积是20立方厘米。")),
    Said("How fast does it grow?", "12 cm^2 per second", ("It grows at 12 cm²/s.",),
         ("It grows at 12 cm/s.", "It grows at 12 cm² per minute.")),
    Said("In how many ways can it be packed?", "120",
         ("You can therefore pack it in one hundred and twenty different ways.",),
         ("You can therefore pack it in one hundred and ten different ways.",
          "You can therefore pack it in one hundred different ways.")),
    Said("List the common divisors of 18 and 24.", "{1, 2, 3, 6}",
         ("Those are one, two, three and six.",), ("Those are one, two and six.",)),
    Said("\u5c0f\u660e\u8fd8\u5269\u591a\u5c11\u9897\u7cd6?", "24",
         ("\u5206\u6389\u4e8612\u9897,\u6240\u4ee5\u5c0f\u660e\u624b\u91cc\u8fd8\u6709\u4e8c\u5341\u56db\u9897\u7cd6\u3002",),
         ("\u5206\u6389\u4e8612\u9897,\u6240\u4ee5\u5c0f\u660e\u624b\u91cc\u8fd8\u6709\u4e8c\u5341\u9897\u7cd6\u3002",)),
    Said("", "3", ("Donc il y a 3 solutions.",),
         ("Peut-\u00eatre que il y a 3 solutions.", "That makes 3 of them too many.")),
    Said("Find the greatest common divisor of 84 and 154.", "14",
         (r"The last nonzero remainder is $\boxed{14}$.",), (r"The remainder is $\boxed{7}$.",)),
    Said("How much is left, in km/h?", r"\frac{200}{3}", ("**Average speed:** 66\u2154 km/h",),
         ("**Average speed:** 66 km/h",)),
    Said("Wie viel Liter sind darin?", "0,5 l", (r"$\boxed{0,5\,\text{l}}$",),
         (r"$\boxed{0,5\,\text{ml}}$",)),
    Said("What is the concentration in M?", "0.5", (r"So it is $\boxed{0.50\text{ M}}$.",),
         (r"So it is $\boxed{0.50\text{ mM}}$.",)),
    Said("What is the equation of the vertical line?", "x=-4", (r"It is $\boxed{x + 4 = 0}$.",),
         (r"It is $\boxed{x - 4 = 0}$.",)),
    Said("Is 221 prime? Answer yes or no.", "No", ("Since 13 divides it, it isn't prime. **No.**",),
         ("Since 13 divides it, it isn't prime. **Yes.**",)),
    Said("A que horas termina?", "22:15", ("O filme termina \u00e0s 22h15.",),
         ("O filme termina \u00e0s 22h16.",)),
    Said("Convert it to a decimal.", "0.875", ("So 7/8 as a decimal is .875.",),
         ("So 7/8 as a decimal is .785.",)),
    Said("How many real solutions are there?", "0", (r"So it is $\boxed{\text{none}}$.",),
         (r"So it is $\boxed{\text{one}}$.",)),
    Said("Solve $A = hb$ for $h$.", r"h=\frac{A}{b}",
         ("So\n$$h=\\frac{A}{b}.$$\n\nThis is the height $h$.",),
         ("So\n$$h=\\frac{b}{A}.$$\n\nThis is the height $h$.",)),
    Said("Simplify it.", "2^{n+3}", ("So it is 2ⁿ⁺³.",), ("So it is 2ⁿ⁻³.", "So it is 2ⁿ.")),
)  # fmt: skip


@pytest.mark.parametrize("said", SAID, ids=lambda said: said.gold)
def test_a_class_of_sentences_is_paid_and_its_near_misses_are_not(
    verifier: MathsVerifier, said: Said
) -> None:
    def paid(response: str) -> bool:
        return verifier.verify(said.gold, response, prompt=said.prompt).reward == 1.0

    assert [sentence for sentence in said.paid if not paid(sentence)] == []
    assert [sentence for sentence in said.unpaid if paid(sentence)] == []


OF_ANOTHER = (
    ("On what date must the book be returned?", "It was borrowed on 8 April.", "April 8"),
    ("On what date does it end?", "It starts on August 3.", "August 3"),
    ("Is 91 prime or composite?", "7 is prime.", "prime"),
    ("Convert 255 to hexadecimal.", "256 is FF.", "FF"),
    ("Find the equation of the circle.", "The circle is not x\u00b2 + y\u00b2 = 16.", "x^2+y^2=16"),
    ("How many are there?", "That makes six of them too many.", "6"),
)


@pytest.mark.parametrize(("prompt", "response", "gold"), OF_ANOTHER)
def test_what_is_said_of_another_thing_or_denied_is_not_paid(
    verifier: MathsVerifier, prompt: str, response: str, gold: str
) -> None:
    assert verifier.verify(gold, response, prompt=prompt).reward == 0.0


DERIVED = ("The reciprocal is 5", "Half of it is 5", "Twice this is 5", "Its square is 5")


@pytest.mark.parametrize("clause", DERIVED)
def test_a_value_derived_from_the_answer_is_paid_only_where_it_is_asked(
    verifier: MathsVerifier, clause: str
) -> None:
    relation = clause.removeprefix("The ").removeprefix("Its ").split()[0].lower()
    response = f"So we arrive at the value that was sought. {clause}."
    assert verifier.verify("5", response, prompt="Find x.").reward == 0.0
    assert verifier.verify("5", response, prompt=f"Find {relation} of x.").reward == 1.0


OTHER_WORDS = (
    Said("How many sides?", "9", ("It has **nine (9)** sides.", r"\boxed{\text{nine (9)}}"),
         (r"\boxed{\text{nine (8)}}", r"\boxed{\text{nine}(9)}")),
    Said("What is the tens digit?", "2", (r"\boxed{\text{The tens digit is } 2}",),
         (r"\boxed{\text{The units digit is } 2}", r"\boxed{\text{half of it is } 2}")),
    Said("How many ways?", r"\binom{10}{3}=120", (r"\boxed{120}", r"\boxed{120\text{ ways}}"),
         (r"\boxed{10}", r"\boxed{121}")),
    Said("What is the wavelength?", r"6.0 \times 10^{-7} m", (r"\boxed{600\text{ nm}}",),
         (r"\boxed{600\text{ mm}}",)),
    Said("How high is it?", r"2\sqrt{21} ft",
         (r"\boxed{2\sqrt{21}}", r"\boxed{2\sqrt{21}\text{ ft}}"),
         (r"\boxed{2\sqrt{21}\text{ in}}",)),
    Said("Find (a) the width and (b) the area.", "(a) 6; (b) 54",
         (r"\boxed{\text{(a) } 6,\quad \text{(b) } 54}",),
         (r"\boxed{\text{(a) } 54,\quad \text{(b) } 6}",)),
    Said("Which gas? A) Oxygen B) Argon C) Neon", "Neon", ("The correct option is **C) Neon**.",),
         ("The correct option is **B) Argon**.", r"\boxed{\text{B) Neon}}")),
    Said("Find the mean and the median.", "mean 6, median 8",
         ("Mean: $\\boxed{6}$\nMedian: $\\boxed{8}$",),
         ("Mean: $\\boxed{8}$\nMedian: $\\boxed{6}$",
          "It is $\\boxed{6}$, no, wait, $\\boxed{8}$")),
    Said("When does it end?", "10:05 PM", ("**The movie ends at 10:05 p.m.**",),
         ("**The movie ends at 10:50 p.m.**",)),
    Said("Resuelve.", "x = 3, x = -3", (r"\boxed{x_1=-3 \text{ y } x_2=3}",), (r"\boxed{x_1=-3}",)),
    Said("Solve.", "x=2, y=3", (r"\boxed{\begin{aligned}x&=2\\y&=3\end{aligned}}",),
         (r"\boxed{\begin{aligned}x&=3\\y&=2\end{aligned}}",)),
)  # fmt: skip


@pytest.mark.parametrize("said", OTHER_WORDS, ids=lambda said: said.gold)
def test_an_answer_may_say_its_value_in_other_words(verifier: MathsVerifier, said: Said) -> None:
    def paid(response: str) -> bool:
        return verifier.verify(said.gold, response, prompt=said.prompt).reward == 1.0

    assert [response for response in said.paid if not paid(response)] == []
    assert [response for response in said.unpaid if paid(response)] == []
