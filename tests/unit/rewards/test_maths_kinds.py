"""Every kind of answer, right and wrong, bare and in a box."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ludus.rewards.maths import MathsVerifier

CASES = [
    (True, r"3", r"x \equiv 3 \pmod 7"),
    (True, r"x\equiv 3\pmod 7", r"x \equiv 10 \pmod{7}"),
    (True, r"3 \pmod 7", r"3"),
    (False, r"x\equiv 3\pmod 7", r"7"),
    (True, r"1011_2", r"(1011)_2"),
    (False, r"1011_2", r"1011_3"),
    (True, r"2516_8", r"2516_{8}"),
    (True, r"AB_{12}", r"AB_{12}"),
    (True, r"\text{(B)}", r"B"),
    (True, r"B", r"B. 42"),
    (True, r"B", r"\text{B) } 42"),
    (True, r"C", r"The correct answer is option C."),
    (True, r"C", r"Answer: C"),
    (True, r"C", r"(C) $\frac{1}{2}$"),
    (True, r"D", r"\text{D}"),
    (False, r"C", r"A or C"),
    (True, r"12", r"twelve"),
    (True, r"21", r"twenty-one"),
    (True, r"105", r"one hundred and five"),
    (True, r"\frac{2}{3}", r"two thirds"),
    (True, r"1000000", r"one million"),
    (True, r"5000000", r"5 million"),
    (True, r"25\%", r"0.25"),
    (True, r"25\%", r"25"),
    (True, r"25\%", r"\frac14"),
    (True, r"25", r"25\%"),
    (True, r"0.25", r"25\%"),
    (False, r"25", r"0.25"),
    (True, r"50", r"50 percent"),
    (True, r"50\%", r"50\text{ percent}"),
    (True, r"50\%", r"fifty percent"),
    (True, r"12.55", r"\frac{640}{51}"),
    (True, r"0.67", r"\frac{2}{3}"),
    (True, r"3.14", r"\pi"),
    (False, r"3.14", r"3.15"),
    (False, r"12.5", r"12.549"),
    (True, r"1.41", r"\sqrt{2}"),
    (True, r"0.333", r"\frac{1}{3}"),
    (False, r"\frac{1}{3}", r"0.333"),
    (True, r"\frac{1}{3}", r"0.333333333333"),
    (True, r"\frac{1}{3}", r"0.\overline{3}"),
    (True, r"\frac{1}{3}", r"0.333..."),
    (True, r"\$5.50", r"5.50 dollars"),
    (True, r"\$5.50", r"$5.5"),
    (True, r"\$32,348", r"32348"),
    (True, r"5\text{ dollars}", r"\$5"),
    (False, r"\$5", r"\euro 5"),
    (True, r"75\text{ cents}", r"\$0.75"),
    (True, r"2\frac{1}{2}", r"2.5"),
    (True, r"2\frac{1}{2}", r"\frac{5}{2}"),
    (True, r"2\frac{1}{2}", r"2 1/2"),
    (False, r"2\frac{1}{2}", r"1"),
    (True, r"-1\frac{1}{2}", r"-\frac{3}{2}"),
    (True, r"3\pm\sqrt{2}", r"3+\sqrt2, 3-\sqrt2"),
    (True, r"\pm 3", r"3, -3"),
    (True, r"\{-3,3\}", r"\pm 3"),
    (True, r"x=\pm 3", r"x=3 \text{ or } x=-3"),
    (False, r"\pm 3", r"3"),
    (False, r"3", r"\pm 3"),
    (True, r"2:3", r"4:6"),
    (True, r"2:3", r"2 : 3"),
    (True, r"2:3", r"2\text{ to }3"),
    (True, r"2:3", r"\frac{2}{3}"),
    (True, r"\frac{2}{3}", r"2:3"),
    (False, r"2:3", r"3:2"),
    (True, r"x>5", r"5<x"),
    (True, r"x>5", r"(5,\infty)"),
    (True, r"x \ge 5", r"[5, +\infty)"),
    (True, r"x\in(5,\infty)", r"x>5"),
    (True, r"(5,\infty)", r"x \in (5, \infty)"),
    (True, r"-2<x<3", r"x\in(-2,3)"),
    (True, r"x<1 \text{ or } x>3", r"(-\infty,1)\cup(3,\infty)"),
    (True, r"(-\infty,1)\cup(3,\infty)", r"x<1, x>3"),
    (False, r"x>5", r"x\ge5"),
    (True, r"2x>4", r"x>2"),
    (True, r"x \neq 2", r"(-\infty,2)\cup(2,\infty)"),
    (True, r"x \neq 2", r"\mathbb{R}\setminus\{2\}"),
    (True, r"\{x : x > 5\}", r"x>5"),
    (True, r"\{x \mid x > 5\}", r"(5,\infty)"),
    (True, r"y=2x+1", r"y = 1+2x"),
    (True, r"y=2x+1", r"2x-y+1=0"),
    (True, r"y=2x+1", r"y-1=2x"),
    (True, r"x+y=3", r"y=3-x"),
    (True, r"\frac{x^2}{4}+\frac{y^2}{9}=1", r"9x^2+4y^2=36"),
    (True, r"y = \frac{1}{2}x - 3", r"x-2y=6"),
    (False, r"y=2x+1", r"y=2x-1"),
    (True, r"3+4i", r"4i+3"),
    (True, r"3+4i", r"3+4\text{i}"),
    (True, r"2i", r"\sqrt{-4}"),
    (True, r"\frac{1}{2}+\frac{\sqrt3}{2}i", r"\frac{1+i\sqrt{3}}{2}"),
    (True, r"e^{i\pi/3}", r"\frac{1}{2}+\frac{\sqrt3}{2}i"),
    (True, r"\frac{1}{2}", r"0.5"),
    (True, r"½", r"\frac12"),
    (True, r"2½", r"\frac{5}{2}"),
    (True, r"x²+1", r"x^2+1"),
    (True, r"2√3", r"2\sqrt{3}"),
    (True, r"π/2", r"\frac{\pi}{2}"),
    (True, r"≤ 5", r"\le 5"),
    (True, r"−5", r"-5"),
    (True, r"3×10⁵", r"300000"),
    (True, r"∞", r"\infty"),
    (True, r"√2/2", r"\frac{\sqrt2}{2}"),
    (True, r"\frac{1}{2}", r"\frac{1}{2"),
    (True, r"\frac{1}{2}", r"$\frac{1}{2}$."),
    (True, r"\sqrt{5}", r"\sqrt 5"),
    (True, r"\sqrt{5}", r"sqrt(5)"),
    (True, r"\sqrt{5}", r"sqrt5"),
    (True, r"5^{1/2}", r"\sqrt{5}"),
    (True, r"\frac{3}{4}", r"3/4"),
    (True, r"\frac{3}{4}", r"\frac34"),
    (True, r"\frac{3}{4}", r"\frac{3}4"),
    (True, r"\frac{3}{4}", r"\dfrac{3}{4}\text{ cm}"),
    (True, r"\frac{a}{b}", r"a/b"),
    (True, r"90^\circ", r"90"),
    (True, r"90^\circ", r"90^{\circ}"),
    (True, r"90^\circ", r"90 degrees"),
    (True, r"90", r"90^\circ"),
    (True, r"\frac{\pi}{2}", r"90^\circ"),
    (True, r"90^\circ", r"\frac{\pi}{2}"),
    (False, r"90^\circ", r"\pi"),
    (True, r"45°", r"45^\circ"),
    (True, r"5\text{ cm}", r"5cm"),
    (True, r"5\text{ cm}", r"5 \mathrm{~cm}"),
    (True, r"5\text{ cm}", r"50 mm"),
    (True, r"5 \mathrm{~cm}", r"5\ \text{cm}"),
    (True, r"30 \text{ minutes}", r"0.5 \text{ hours}"),
    (True, r"10 \mathrm{~m} / \mathrm{s}", r"10 m/s"),
    (True, r"10 \text{ m/s}", r"36 \text{ km/h}"),
    (False, r"5\text{ cm}", r"5\text{ cm}^2"),
    (True, r"24\text{ square inches}", r"24\text{ in}^2"),
    (True, r"24 \text{ sq. in.}", r"24"),
    (True, r"2 \text{ hours}", r"2\text{ hrs}"),
    (True, r"18", r"18 eggs"),
    (True, r"18", r"18 \text{ ways}"),
    (True, r"\text{Yes}", r"yes"),
    (True, r"\text{Yes}", r"Yes."),
    (False, r"\text{Yes}", r"No"),
    (True, r"\text{even}", r"Even"),
    (True, r"\text{Tuesday}", r"tuesday"),
    (False, r"\text{Tuesday}", r"Thursday"),
    (True, r"\text{No solution}", r"no solutions"),
    (True, r"\emptyset", r"\varnothing"),
    (True, r"\emptyset", r"\text{no solution}"),
    (True, r"\text{increasing}", r"\text{Increasing}"),
    (True, r"(1,2)", r"( 1 , 2 )"),
    (True, r"(1,2)", r"(x,y)=(1,2)"),
    (True, r"(1,2)", r"x=1, y=2"),
    (True, r"x=1,y=2", r"(1,2)"),
    (False, r"(1,2)", r"(2,1)"),
    (False, r"(1,2)", r"[1,2]"),
    (True, r"(1,2),(3,4)", r"\{(3,4),(1,2)\}"),
    (True, r"(1,2),(3,4)", r"(1,2) \text{ and } (3,4)"),
    (True, r"1,2,3", r"3, 2, 1"),
    (True, r"1,2,3", r"\{1,2,3\}"),
    (True, r"\{1,2,3\}", r"1, 2, \text{ and } 3"),
    (True, r"1,2", r"x=1 \text{ or } x=2"),
    (True, r"x_1=1, x_2=2", r"1,2"),
    (True, r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix}1\\2\end{bmatrix}"),
    (True, r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"[[1,2],[3,4]]"),
    (
        True,
        r"\begin{pmatrix} 1/2 \\ 1 \end{pmatrix}",
        r"\begin{pmatrix} \frac12 \\ 1 \end{pmatrix}",
    ),
    (True, r"\begin{pmatrix}2&4\\6&8\end{pmatrix}", r"2\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    (True, r"\begin{pmatrix}1\\2\end{pmatrix}", r"(1,2)"),
    (
        True,
        r"\left( \begin{array}{cc} 1 & 2 \\ 3 & 4 \end{array} \right)",
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
    ),
    (True, r"6.02\times10^{23}", r"6.02 \cdot 10^{23}"),
    (True, r"6.02\times10^{23}", r"6.02 x 10^23"),
    (True, r"1.2e-5", r"1.2\times10^{-5}"),
    (True, r"1,000", r"1000"),
    (True, r"1{,}000", r"1,000"),
    (True, r"1,234,567", r"1 234 567"),
    (True, r"10\,000", r"10000"),
    (False, r"2,000", r"2"),
    (True, r"x^3+C", r"C+x^3"),
    (True, r"\frac{x^3}{3}+C", r"\frac13x^3+c"),
    (True, r"\frac{x^3}{3}+C", r"\frac{x^3}{3}+K"),
    (False, r"\frac{x^3}{3}+C", r"\frac{x^3}{3}"),
    (True, r"\sin 2x", r"2\sin x\cos x"),
    (True, r"\sin^2x", r"1-\cos^2 x"),
    (True, r"\cos 2x", r"1-2\sin^2 x"),
    (True, r"\sec^2 x", r"1+\tan^2 x"),
    (True, r"\arctan 1", r"\frac{\pi}{4}"),
    (True, r"12^\circ 34' 48''", r"12.58^\circ"),
    (False, r"12^\circ 34' 48''", r"12.59^\circ"),
    (True, r"\tan^{-1}(2)", r"\arctan 2"),
    (True, r"\log_2 8", r"3"),
    (True, r"\ln(6)", r"\ln 2+\ln 3"),
    (True, r"\ln\frac{a}{b}", r"\ln a-\ln b"),
    (True, r"e^{2x}", r"(e^x)^2"),
    (True, r"e^{\ln 5}", r"5"),
    (True, r"\log_4 x", r"\frac{1}{2}\log_2 x"),
    (True, r"\log x", r"\log_{10} x"),
    (True, r"x^{-1}", r"\frac1x"),
    (True, r"n!", r"n\cdot(n-1)!"),
    (True, r"\binom{5}{2}", r"10"),
    (True, r"{5 \choose 2}", r"10"),
    (True, r"C(5,2)", r"10"),
    (True, r"2^{10}", r"1024"),
    (True, r"2^{100}", r"4^{50}"),
    (True, r"\lfloor \pi \rfloor", r"3"),
    (True, r"\max(1,2)", r"2"),
    (True, r"\gcd(12,18)", r"6"),
    (True, r"\frac{n(n+1)}{2}", r"\sum_{k=1}^n k"),
    (True, r"\sum_{k=1}^{\infty}\frac{1}{k^2}", r"\frac{\pi^2}{6}"),
    (False, r"\frac{\pi^2}{6}", r"\sum_{k=1}^{\infty}\frac{1}{k^2}"),
    (True, r"f(x)=x^2", r"x^2"),
    (True, r"f(x)=x^2", r"f(t)=t^2"),
    (True, r"f(x)=x^2", r"x \mapsto x^2"),
    (True, r"f(x)=2x \text{ for all } x", r"f(x)=2x"),
    (True, r"k\pi, k\in\mathbb{Z}", r"n\pi"),
    (True, r"x=k\pi", r"x=n\pi, n \in \mathbb{Z}"),
    (True, r"2+\sqrt{3}", r"\frac{1}{2-\sqrt3}"),
    (True, r"\sqrt{3+2\sqrt{2}}", r"1+\sqrt2"),
    (True, r"\frac{\sqrt6+\sqrt2}{4}", r"\cos 15^\circ"),
    (True, r"\sin 75^\circ", r"\frac{\sqrt6+\sqrt2}{4}"),
    (True, r"AB=5", r"5"),
    (True, r"\angle ABC=60^\circ", r"60"),
    (True, r"P(A)=\frac12", r"0.5"),
    (False, r"a+b=7", r"7"),
    (True, r"7", r"a+b=7"),
    (False, r"7", r"x+2=7"),
    (False, r"8", r"8=7"),
    (False, r"7", r"8=7"),
    (True, r"5", r"2+3=5"),
    (True, r"5", r"x=2+3=5"),
    (True, r"\frac{7}{2}", r"\frac{7}{2}=3.5"),
    (True, r"4:30\text{ p.m.}", r"4:30 PM"),
    (True, r"\text{4:30 p.m.}", r"4:30\text{ pm}"),
    (False, r"4:30\text{ p.m.}", r"4:30 AM"),
    (True, r"-\frac{1}{2}", r"\frac{-1}{2}"),
    (True, r"-\frac{1}{2}", r"\frac{1}{-2}"),
    (True, r"0", r"-0"),
    (True, r"0", r"0.0"),
    (True, r"(x+1)(x-1)", r"x^2-1"),
    (True, r"x(x-1)", r"x^2-x"),
    (True, r"\frac{x+1}{2}", r"0.5x+0.5"),
    (True, r"\frac{x^2+x}{x}", r"x+1"),
    (True, r"a^2+2ab+b^2", r"(a+b)^2"),
    (True, r"**73**", r"73"),
    (True, r"73", r"**73**"),
    (True, r"73", r"\textbf{73}"),
    (True, r"73", r"\mathbf{73}"),
    (True, r"73", r"\text{73}"),
    (True, r"73", r"73 \checkmark"),
    (True, r"73", r"\underline{73}"),
    (True, r"73", r"\color{red}{73}"),
    (True, r"73", r"\boxed{73}"),
    (True, r"73", r"=73"),
    (True, r"73", r": 73"),
    (True, r"10", r"10\%"),
    (True, r"17", r"$17$ students"),
    (True, r"\frac{5}{9}", r"\frac{5}{9} \approx 0.556"),
    (True, r"\sqrt{2}", r"\sqrt{2} \approx 1.414"),
    (True, r"\sqrt{2}", r"\approx 1.41421356237"),
    (False, r"\sqrt{2}", r"1.41"),
    (True, r"1.5", r"\frac{3}{2}\text{ or }1.5"),
    (True, r"[0,1)\cup(1,2]", r"[0,2]\setminus\{1\}"),
    (True, r"(0,1)", r"]0,1["),
    (True, r"\mathbb{R}", r"(-\infty, \infty)"),
    (True, r"\mathbb{R}", r"\text{all real numbers}"),
    (True, r"(-\infty,\infty)", r"\text{all real numbers}"),
    (True, r"\mathbb{Z}", r"\text{integers}"),
    (True, r"x \in \mathbb{R}", r"\mathbb{R}"),
    (True, r"2^{\aleph_0}", r"2^{\aleph_0}"),
    (True, r"\vec{i}+2\vec{j}", r"\vec{i}+2\vec{j}"),
    (True, r"\langle 1,2,3\rangle", r"(1,2,3)"),
    (True, r"\mathbf{i}+2\mathbf{j}", r"\mathbf{i}+2\mathbf{j}"),
    (True, r"3\sqrt{2}", r"\sqrt{18}"),
    (True, r"3\sqrt{2}", r"4.24264068712"),
    (True, r"1+\frac{1}{1+\frac{1}{2}}", r"\frac{5}{3}"),
    (True, r"x=2,y=3", r"y=3,x=2"),
    (False, r"x=2,y=3", r"x=3,y=2"),
    (True, r"\frac{1}{x+1}-\frac{1}{x+2}", r"\frac{1}{(x+1)(x+2)}"),
    (True, r"0.1\overline{6}", r"\frac16"),
    (True, r"\text{June 5}", r"June 5"),
    (True, r"\text{odd}", r"odd"),
    (True, r"9\text{ a.m.}", r"9 am"),
    (True, r"1 \text{ hour } 30 \text{ minutes}", r"90 \text{ minutes}"),
    (True, r"5'6''", r"5'6''"),
    (True, r"\text{5 feet 6 inches}", r"66\text{ inches}"),
    (True, r"x\leq -1", r"x \leqslant -1"),
    (True, r"-1\le x\le 1", r"\left|x\right|\le 1"),
    (True, r"\text{A and C}", r"A, C"),
    (True, r"\text{AC}", r"A, C"),
    (True, r"p^{2} q", r"q p^2"),
    (True, r"(2x+3)(x-1)", r"(x-1)(2x+3)"),
    (True, r"\dfrac{9}{7}", r"9/7"),
    (True, r"\left(\frac{1}{2},\infty\right)", r"(0.5,\infty)"),
    (True, r"840", r"840\text{ square units}"),
    (True, r"840", r"Area = 840"),
    (True, r"840", r"\text{Area}=840"),
    (True, r"840", r"A = 840 \text{ cm}^2"),
    (True, r"5", r"x = 5 \text{ or } x = 5"),
    (True, r"1:2:3", r"2:4:6"),
    (True, r"i", r"\sqrt{-1}"),
    (True, r"\text{None}", r"none"),
    (True, r"\text{undefined}", r"undefined"),
    (True, r"\frac{1}{2}, \frac{1}{3}", r"\left\{\frac12,\frac13\right\}"),
    (
        True,
        r"\begin{cases}1&x>0\\0&\text{otherwise}\end{cases}",
        r"\begin{cases}1&x>0\\0&x\le 0\end{cases}",
    ),
    (
        True,
        r"\begin{cases}1&x>0\\0&x\le 0\end{cases}",
        r"\begin{cases}1&x>0\\0&\text{otherwise}\end{cases}",
    ),
    (
        True,
        r"\begin{cases}1&|x|<1\\0&|x|\ge 1\end{cases}",
        r"\begin{cases}1&|x|<1\\0&\text{otherwise}\end{cases}",
    ),
    (
        True,
        r"\begin{cases}1&n\text{ even}\\0&\text{otherwise}\end{cases}",
        r"\begin{cases}1&n\text{ even}\\0&n\text{ odd}\end{cases}",
    ),
    (
        False,
        r"\begin{cases}1&x>0\\0&\text{otherwise}\end{cases}",
        r"\begin{cases}1&x>0\\0&x<0\end{cases}",
    ),
    (
        False,
        r"\begin{cases}1&x>0\\0&\text{otherwise}\end{cases}",
        r"\begin{cases}1&x>0\\0&x=5\end{cases}",
    ),
    (
        False,
        r"\begin{cases}1&x>0\\0&\text{otherwise}\end{cases}",
        r"\begin{cases}1&x>0\\0&y\le 0\end{cases}",
    ),
]


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathsVerifier]:
    made = MathsVerifier(workers=1)
    yield made
    made.close()


@pytest.mark.parametrize(("right", "gold", "answer"), CASES)
def test_the_verdict_on_an_answer_of_this_kind(
    right: bool, gold: str, answer: str, verifier: MathsVerifier
) -> None:
    for response in (answer, rf"Thus the answer is $\boxed{{{answer}}}$."):
        verdict = verifier.verify(gold, response)
        assert verdict.reward == float(right), (response, verdict.detail, verdict.metrics)


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("12", "The total is 3 × 4 = 12."),
        ("1000", "It costs $1,000."),
        ("(1,2)", "The point is (1, 2)."),
        (r"\text{Tuesday}", "It is Tuesday."),
        (r"\text{Yes}", "Yes, because 3 divides 9."),
        ("5", "### Answer\n\n5"),
        ("B", "Therefore, the correct answer is: **B) 14**"),
        ("6", "答案：6"),
    ],
)
def test_a_sentence_is_understood(gold: str, response: str, verifier: MathsVerifier) -> None:
    assert verifier.verify(gold, response).reward == 1.0


HACKS = [
    r"\boxed{7 \text{ or } 8}",
    r"\boxed{8}. If wrong, then \boxed{7}",
    r"\boxed{7,8}",
    r"\boxed{[6,8]}",
    r"\boxed{6<x<8}",
    r"\boxed{8=7}",
    r"\boxed{x=8=7}",
    r"\boxed{8 % 7}",
    r"\boxed{\pm 7}",
    r"\boxed{}",
    "<think>\\boxed{7}</think> The answer is 8.",
    r"\boxed{x\in\mathbb{Z}}",
    r"\boxed{\text{the correct answer}}",
    r"\boxed{7.0001}",
    r"\boxed{a+b}",
    r"\boxed{7|8}",
    r"\boxed{7 8}",
    "The answer is 7. Or the answer is 8.",
    "The answer is either 7 or 8",
    r"\boxed{8} \boxed{7}",
    r"\boxed{\max(7,x)}",
    r"\boxed{7 \text{ if } x>0}",
    r"\boxed{x+2=7}",
    r"\boxed{0,1,2,3,4,5,6,7,8,9,10}",
    r"\boxed{1,2,\ldots,100}",
]


@pytest.mark.parametrize("response", HACKS)
def test_a_hack_is_not_rewarded(response: str, verifier: MathsVerifier) -> None:
    assert verifier.verify("7", response).reward == 0.0


MORE = [
    # options with their text
    (True, r"\textbf{(D)}\ \frac{5}{2}", "D"),
    (True, r"\textbf{(D)}\ \frac{5}{2}", r"\frac52"),
    (False, r"\textbf{(D)}\ \frac{5}{2}", "A"),
    (False, "C", r"\text{C is wrong}"),
    (False, "C", r"\text{All except C}"),
    (False, "C", "(C)(D)"),
    # names of values that the reader does not know
    (True, "5", r"\lim_{x\to 0} f(x)=5"),
    (False, "5", r"\lim_{x\to 0} f(x)=6"),
    (True, r"\frac13", r"P(A|B)=\frac13"),
    (True, "5", r"f(1)+f(2)=5"),
    (True, "5", r"\sum_{i=1}^{2} (i+1) = 5"),
    (False, "25", "x^2+y^2=26"),
    (False, "x^2+y^2=25", "25"),
    (True, "x=3", "3=x"),
    (False, "y=-3", "x=-3"),
    # systems, vectors, families, congruences
    (True, "x=2, y=-1", r"\begin{cases}x=2\\y=-1\end{cases}"),
    (True, r"\begin{pmatrix}2\\-1\end{pmatrix}", r"2\mathbf{i}-\mathbf{j}"),
    (False, r"\langle 1,2,2\rangle", r"\mathbf{i}+2\mathbf{j}-2\mathbf{k}"),
    (True, r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)^T"),
    (True, r"\{x \mid x = 2k, k\in\mathbb{Z}\}", r"\{2n : n \in \mathbb{Z}\}"),
    (False, r"\{x \mid x = 2k, k\in\mathbb{Z}\}", r"\{3k : k \in \mathbb{Z}\}"),
    (True, r"x\equiv 4\pmod{11}", "x = 11k+4"),
    (False, r"x\equiv 4\pmod{11}", "x = 11k+5"),
    (True, r"x\equiv 3\pmod 7", r"x \equiv 3 (\mathrm{mod}\ 7)"),
    (True, "1101_2", r"1101\text{ (base 2)}"),
    (True, "1011_2", "1011_{(2)}"),
    # sets of sets, sequences
    (False, r"\emptyset", r"\{\emptyset\}"),
    (False, r"\{1\},\{2,3\}", r"\{1,2\},\{3\}"),
    (False, "1, 1, 2, 3, 5", "1,2,3,5"),
    (True, r"[0,1)\cup(2,3]", "{x | 0 ≤ x < 1 or 2 < x ≤ 3}"),
    (True, "[2,5)", "[2,5["),
    (True, r"x\neq 2", r"x\not=2"),
    (True, r"a\le b", r"b\ge a"),
    (False, r"\frac{1}{x}<1", "1<x"),
    (True, "xy=1", r"y=\frac1x"),
    # units, money, time, temperature
    (True, "1.73 m", r"\sqrt{3}"),
    (False, "1.73 m", "1.73 cm"),
    (True, r"10\text{ m/s}", r"10\,\mathrm{m\,s^{-1}}"),
    (True, "1 hour 20 minutes", r"1\text{ hour and }20\text{ minutes}"),
    (True, r"2.5\text{ hours}", "2 h 30 min"),
    (True, "45", "45 USD"),
    (True, "-5", r"-\$5"),
    (True, "75 cents", "75¢"),
    (False, "75 cents", "$75"),
    (True, r"25^\circ\text{C}", "25°C"),
    (False, r"25^\circ\text{C}", r"25^\circ F"),
    (True, "3:45 PM", "15:45"),
    (False, "3:45 PM", "3:45 AM"),
    (False, r"60^\circ", "60′"),
    (True, r"22.5^\circ", r"22^\circ30\'"),
    (False, "0.05", r"0.05\%"),
    (True, "March 14", r"\text{March 14th}"),
    # words
    (True, "12", "a dozen"),
    (True, "2.5", "two and a half"),
    (True, r"\text{DNE}", r"\text{The limit does not exist}"),
    (True, r"\text{hyperbola}", r"\text{a hyperbola}"),
    (True, r"-\infty", r"\text{negative infinity}"),
    (True, r"\text{no solution}", "无解"),
    (False, r"\text{No}", r"\text{no solution}"),
    (True, "2,3", "2或3"),
    (True, "②③", "③, ②"),
    # broken and missing backslashes, factorials
    (True, r"\frac{7}{12}", "frac{7}{12}"),
    (True, r"0.\overline{3}", r"0.\bar{3}"),
    (True, r"\pi", r"\pi{}"),
    (True, r"\binom{20}{10}", "C_{20}^{10}"),
    (True, "3840", "10!!"),
    (True, "n!", r"\Gamma(n+1)"),
    # approximations: one claim each
    (True, "24", r"24.3 \approx 24"),
    (False, "24.3", r"24.3 \approx 24"),
    (False, "8", r"8 \approx 7"),
    (True, r"\frac38", r"\frac{3}{8} = 37.5\%"),
    (True, "0.5", r"0.5 \text{ (or } \frac12)"),
    (False, "0.5", r"0.5 \text{ (or } \frac13)"),
]


@pytest.mark.parametrize(("equal", "gold", "answer"), MORE)
def test_the_verdict_on_one_more_kind(
    equal: bool, gold: str, answer: str, verifier: MathsVerifier
) -> None:
    verdict = verifier.verify(gold, rf"So $\boxed{{{answer}}}$.")
    assert verdict.reward == float(equal), verdict.detail


TAKEN_BACK = [
    r"\text{less than }5",
    r"\text{at least } 5",
    r"5 \text{ is not the answer}",
    r"5 \text{ fails}",
    r"5\text{ is too small}",
    r"5 \text{ as well as } 6",
    r"\text{5 if even, 7 if odd}",
    r"5\text{ or more}",
    "!5",
    "5..6",
    "5-",
]


@pytest.mark.parametrize("answer", TAKEN_BACK)
def test_words_that_take_a_value_back_or_widen_it_earn_nothing(
    answer: str, verifier: MathsVerifier
) -> None:
    assert verifier.verify("5", rf"\boxed{{{answer}}}").reward == 0.0


@pytest.mark.parametrize(
    "response",
    [
        r"If my answer \boxed{8} is wrong, take \boxed{7}.",
        r"The final answer is \boxed{6}. The final answer is \boxed{7} if the first is incorrect.",
        r"\boxed{6}/\boxed{7}",
        r"\boxed{6}\phantom{\boxed{7}}",
        "#### 6\n or #### 7?",
    ],
)
def test_a_second_answer_in_case_is_no_answer(response: str, verifier: MathsVerifier) -> None:
    assert verifier.verify("7", response).reward == 0.0


@pytest.mark.parametrize(
    ("right", "gold", "response", "prompt"),
    [
        (True, "3", r"So $n \ge 3$.", "Find the least $n$."),
        (True, r"x \le 5", r"So $x \le 5$.", "Find all $x$ with $2x$ at most $10$."),
        (True, r"(-\infty,5]", r"So $x \le 5$.", "For the greatest range, solve $2x \\le 10$."),
        (False, "5", r"So $x \le 5$.", "Find all $x$ with $2x$ at most $10$."),
        (True, "(2,12)", "The maximum is attained for $x = 2, y = 12$.", "Find $(x,y)$."),
        (True, "2,12", "Equality holds if $x = 2, x = 12$.", "Find all $x$."),
        (False, "12", "If $x = 2, x = 12$.", "Find all $x$."),
        (False, r"5\text{ N}", r"It is \boxed{5}kg.", ""),
        (True, "B", "The correct choice is B) the second planet from the sun.", ""),
        (False, "true", "The negated statement is true.", ""),
        (True, "12", "With $T = 2, x = 12$.", "Let T be the answer before. Find x."),
    ],
)
def test_a_closing_formula_is_taken_as_the_question_asks(
    right: bool, gold: str, response: str, prompt: str, verifier: MathsVerifier
) -> None:
    assert verifier.verify(gold, response, prompt=prompt).reward == float(right)


LAWS = [
    # Values under conditions, in words or as cases.
    (
        [
            r"$x-2$ if $x\ge2$, $2-x$ if $x<2$",
            r"$x-2$ for $x \ge 2$ and $2-x$ for $x<2$",
            r"$x-2$ when $x\ge2$; $2-x$ otherwise",
            r"$f(x)=x-2$ if $x\ge 2$, and $2-x$ if $x<2$",
            r"\begin{cases}2-x, & x<2\\ x-2, & x\ge 2\end{cases}",
        ],
        "Write $f(x) = |x-2|$ without absolute values.",
        [
            r"\begin{cases}2-x, & x<2\\ x-2, & x\ge 2\end{cases}",
            r"x-2 \text{ if } x\ge 2,\ 2-x \text{ if } x<2",
            r"2-x \text{ when } x<2, \text{ and } x-2 \text{ when } x\ge 2",
            r"x-2 \text{ if } x\ge2, 2-x \text{ otherwise}",
            r"f(x)=\begin{cases}x-2 & \text{if } x\ge 2\\ 2-x & \text{otherwise}\end{cases}",
        ],
        [
            r"\begin{cases}2-x, & x\ge 2\\ x-2, & x< 2\end{cases}",
            r"x-2 \text{ if } x<2,\ 2-x \text{ if } x\ge 2",
            r"x-2 \text{ if } x>2,\ 2-x \text{ if } x<2",
            r"2-x \text{ if } x\ge2, x-2 \text{ otherwise}",
            r"x-2 \text{ if } x\ge 2",
            r"x-2, 2-x",
        ],
    ),
    (
        [
            r"n/2 if $n$ is even, 3n+1 if $n$ is odd",
            r"$n/2$ for even $n$, $3n+1$ for odd $n$",
            r"\begin{cases} n/2 & \text{if } n \text{ even}\\ 3n+1 & \text{otherwise}\end{cases}",
        ],
        "",
        [
            r"\begin{cases} n/2 & n \text{ is even}\\ 3n+1 & n \text{ is odd}\end{cases}",
            r"\frac n2 \text{ when } n \text{ is even and } 3n+1 \text{ otherwise}",
        ],
        [
            r"\begin{cases} n/2 & n \text{ is odd}\\ 3n+1 & n \text{ is even}\end{cases}",
            r"\frac n2, 3n+1",
        ],
    ),
    # A class of numbers is not one of its numbers, unless one is asked.
    (
        [r"n\equiv 18 \pmod{20}"],
        r"Find all integers $n$ with $3n \equiv 14 \pmod{20}$.",
        [
            "n=20k+18",
            r"18+20k,\ k\in\mathbb{Z}",
            "18 mod 20",
            r"n \equiv -2 \pmod{20}",
            r"\{20k+18 : k\in\mathbb{Z}\}",
        ],
        ["18", "n=18", r"n\equiv 18 \pmod{10}", "20k+8", r"\{18\}", "18, 38"],
    ),
    (
        [r"x\equiv 18 \pmod{20}"],
        r"Solve the congruence $3x \equiv 14 \pmod{20}$.",
        ["x=20k+18", r"18 \pmod{20}"],
        ["18", "x=18"],
    ),
    (
        [r"n\equiv 18 \pmod{20}"],
        "Find the smallest positive $n$ such that all of the $n$ coins are used.",
        ["18", "n=18", r"n \equiv 18 \pmod{20}"],
        ["8", "38"],
    ),
    ([r"18 \pmod{20}"], "What is the remainder of $n$ by 20?", ["18"], ["8", "2"]),
    # A logarithm without a base is natural where an integral is asked.
    (
        [r"\ln|x-2|+C", r"$\ln|x-2|+C$"],
        r"Find $\int \frac{1}{x-2}\,dx$.",
        [r"\log|x-2|+C", r"\log|2-x| + C", r"\frac12\log((x-2)^2)+C"],
        [r"\log_{10}|x-2|+C", r"\log|x+2|+C", r"2\log|x-2|+C", r"\lg|x-2|+C"],
    ),
    ([r"\ln 2"], r"Evaluate $\int_1^2 \frac{1}{x}\,dx$.", [r"\log 2"], [r"\log_{10} 2"]),
    ([r"\ln 2"], "Solve $e^x = 2$.", [r"\ln 2"], [r"\log_{10} 2", r"\log 2"]),
    # Units of other languages, with their powers.
    (
        ["96平方厘米", r"96 \text{ cm}^2", "96cm²"],
        "",
        ["96 cm²", "96平方厘米", "96㎠", r"96\,\mathrm{cm}^2", r"96(\text{cm}^2)", "96"],
        [r"96\ \text{m}^2", r"96\ \text{cm}^3", "96平方米", "96立方厘米", "96㎡", "96厘米"],
    ),
    (
        ["12立方米", "12 m³"],
        "",
        [r"12\ \mathrm{m}^3", "12 m³", "12立方メートル", "12㎥"],
        ["12 m²", "12平方米", "12米", "12立方厘米"],
    ),
    (["5千克", "5kg"], "", ["5 kg", "5公斤", "5キログラム", "5㎏"], ["5g", "5克", "5吨", "5斤"]),
    (["30平方メートル"], "", ["30 m²", "30平方米"], ["30平方センチメートル", "30メートル"]),
    (["15千米/时", "15 km/h"], "", ["15 km/h", "15千米/小时"], ["15 m/s", "15 km", "15米/秒"]),
    (["45度"], "", ["45°", r"45^\circ", "45"], ["45%", "45 rad"]),
    # Sets of solutions, as German writes them.
    (
        ["x=3, y=1", "(3,1)", "x = 3 und y = 1"],
        "Löse das Gleichungssystem $x+y=4$, $x-y=2$.",
        [r"\mathbb L=\{(3\mid 1)\}", "L = \\{(3;1)\\}", r"\mathbb{L}=\{(3|1)\}", "(3|1)"],
        [r"\mathbb L=\{(1\mid 3)\}", r"L=\{(3|2)\}", r"L=\{3;1\}", r"L=\{(3|1),(1|3)\}"],
    ),
    (
        ["x=3", "3", r"\{3\}"],
        "Bestimme die Lösungsmenge.",
        [r"\mathbb L=\{3\}", r"L = \{3\}"],
        [r"L=\{-3\}", r"\mathbb{L}=\{3;4\}", r"\mathbb{L}=\{\}"],
    ),
]


@pytest.mark.parametrize(
    ("gold", "prompt", "right", "wrong"),
    [(gold, prompt, right, wrong) for golds, prompt, right, wrong in LAWS for gold in golds],
)
def test_every_form_of_a_gold_pays_every_form_of_its_answer_and_no_other(
    gold: str, prompt: str, right: list[str], wrong: list[str], verifier: MathsVerifier
) -> None:
    for answer in (*right, *wrong):
        for response in (answer, rf"Thus the answer is $\boxed{{{answer}}}$."):
            verdict = verifier.verify(gold, response, prompt=prompt)
            assert verdict.status != "invalid", (response, verdict.detail)
            assert verdict.reward == float(answer in right), (response, verdict.detail)
