"""Hostile answers: every one gets an ok verdict within its deadline, and none costs the caller
much.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ludus.rewards.maths import MathsVerifier, extract
from ludus.rewards.maths.conventions import DEFAULT
from ludus.rewards.maths.decision import decide
from ludus.rewards.maths.proving.judge import NeedsPool
from ludus.verdict import Status

CPU_S = 0.5
"""CPU seconds for one hard pair here; the wall limit is three times that."""


def towers() -> Iterator[str]:
    for base in ("9", "2", "10", "x", "e", "-7", "0.5", r"\frac{1}{2}"):
        yield f"{base}^{{9^{{9^9}}}}"
        yield f"{base}^{{{base}^{{{base}^{{{base}^{{{base}}}}}}}}}"
    yield "2003^{2002^{2001}}"
    yield "5^{5^{5^{5^5}}}"
    yield "^".join(["9"] * 300)
    yield "x" + "^{2" * 200 + "}" * 200
    yield "2^{2^{2^{2^{2^{2^{2^2}}}}}}-2^{2^{2^{2^{2^{2^{2^2}}}}}}"
    yield "(1+10^{-1000000})^{10^{1000000}}"
    yield r"\sqrt[10^{10^{10}}]{2}"
    yield "e^{-e^{e^{e^{e}}}}"
    yield "10^{999999999999}"
    yield "1e999999999999"
    yield "1e-999999999999"
    yield "1e00000000099999999"
    yield "2.5e+00000000099999999"
    yield "0^{0^{0^0}}"
    yield r"\sin(10^{10^6})"
    yield r"\cos(10^{10^5})+1"
    yield r"\tan(3^{3^{12}})"
    yield r"\gcd(10^{100000},7)"
    yield r"\zeta(10^6)"


def factorials() -> Iterator[str]:
    yield "10000000!"
    yield "99999999999999999999!"
    yield "((((9!)!)!)!)!"
    yield "5" + "!" * 400
    yield r"\binom{10^{20}}{10^{10}}"
    yield r"\binom{9999999}{4999999}"
    yield r"\frac{10^9!}{(10^9-1)!}"
    yield r"\Gamma(10^{100})"
    yield r"x!" + "!" * 50


def sums() -> Iterator[str]:
    yield r"\sum_{k=1}^{10^{18}} k^k"
    yield r"\sum_{k=1}^{\infty} \frac{1}{k!}"
    yield r"\prod_{k=1}^{10^9} k"
    yield r"\sum_{i=1}^{9999}\sum_{j=1}^{9999}\sum_{k=1}^{9999} i^j"
    yield r"\sum_{k=1}^{n} \sum_{k=1}^{n} \sum_{k=1}^{n} k"
    yield r"\int_0^\infty e^{-x^2} dx"
    yield r"\int_0^1\int_0^1\int_0^1 \sin(xyz) dx dy dz"
    yield r"\sum_{n=1}^{\infty} \frac{\sin n}{n^{1.0001}}"
    yield r"\lim_{x\to 0}\frac{\sin x}{x}"
    yield "+".join(f"x^{{{k}}}" for k in range(800))
    yield "+".join(rf"\sqrt{{{k}}}" for k in range(2, 90))
    yield "+".join(rf"\frac{{1}}{{x+{k}}}" for k in range(1, 40))
    yield "1" + "+1" * 2000


def polynomials() -> Iterator[str]:
    yield "(x+y+z+w+1)^{40}"
    yield "(x+1)^{100000}"
    yield "(a+b+c+d+e+f+g)^{9}(a-b-c-d)^{9}"
    yield "".join(f"(x+{k})" for k in range(1, 80))
    yield "".join(f"(x_{{{k}}}+y_{{{k}}})" for k in range(20))
    yield r"\frac{1}{" * 60 + "x" + "}" * 60
    yield r"\frac{1}{1+" * 35 + "x" + "}" * 35
    yield r"\sqrt{1+" * 35 + "x" + "}" * 35
    yield "((x^2+1)^{50}+1)^{50}"
    yield "(1+x)^{n^{n^n}}"
    yield r"\sqrt{" + "7" * 1900 + "}"
    yield r"(\sqrt{2}+\sqrt{3}+\sqrt{5}+\sqrt{7}+\sqrt{11}+\sqrt{13})^{20}"
    yield r"\cos(" * 38 + "1" + ")" * 38
    yield r"\log_{" * 30 + "2" + "}3" * 30


def nesting() -> Iterator[str]:
    for opened, closed in (("(", ")"), ("{", "}"), ("[", "]"), (r"\{", r"\}"), ("|", "|")):
        for depth in (50, 1000, 100_000):
            yield opened * depth + "1" + closed * depth
            yield opened * depth
    for command in (r"\text{", r"\frac{1}{", r"\sqrt{", r"\boxed{", r"\mathbf{", r"\left("):
        yield command * 1000 + "1" + "}" * 1000
        yield command * 100_000
    yield "-" * 100_000 + "1"
    yield "\\pm " * 60 + "1"
    yield "1" + r"\pm 1" * 40
    yield "x for " * 500 + "x"
    yield r"A\cup " * 400 + "B"
    yield r"(0,1)\cup " * 150 + "(0,1)"
    yield "1" + "%" * 500
    yield "1" + r"^\circ" * 500
    yield "x" + "'" * 3000
    yield "x" + "_x" * 1000
    yield "1" + ":1" * 1000
    yield "x" + "=x" * 1000
    yield "x" + "<x" * 1000


def sizes() -> Iterator[str]:
    yield "7" * 1_000_000
    yield "x" * 1_000_000
    yield " " * 1_000_000
    yield "\\" * 1_000_000
    yield "{" * 500_000 + "}" * 500_000
    yield "$" * 1_000_000
    yield "0." + "3" * 900_000
    yield "1," * 500_000
    yield "9" * 2000
    yield "9" * 2001
    yield "9" * 1999 + "/" + "7" * 1999
    yield "-" + "9" * 4000
    yield "1" + ",000" * 1000
    yield "1" + ",000" * 1000 + "0"
    yield "1" + " 000" * 1000 + "x"
    yield "a" * 4096
    yield ",".join(map(str, range(900)))
    yield r"\{" + ",".join(map(str, range(900))) + r"\}"


def regex_bait() -> Iterator[str]:
    yield "\\(" * 50_000
    yield "\\[" * 50_000 + "1"
    yield "$a" * 50_000
    yield "the answer is " * 20_000
    yield "answer:" + " " * 100_000
    yield "**" * 50_000 + "answer"
    yield "#### " * 20_000
    yield "if not " * 20_000 + r"\boxed{8} if wrong \boxed{7}"
    yield "1,1" * 30_000 + "a"
    yield "1.1" * 30_000 + "!"
    yield "\n" * 100_000 + "x"
    yield ". A" * 30_000
    yield "<think>" * 10_000
    yield "</think>" * 10_000
    yield "<answer>" * 10_000 + "</answer>"
    yield r"\boxed{}" * 10_000
    yield r"\boxed" * 10_000
    yield r"\boxed{" * 10_000
    yield r"\boxed{1}" * 10_000
    yield r"\text" * 10_000
    yield r"\text{" + r"\}" * 20_000
    yield "`" * 100_000
    yield "is " * 20_000 + "5 is"


def matrices() -> Iterator[str]:
    yield r"\begin{pmatrix}" + r"1 & 2 \\ " * 400 + r"\end{pmatrix}"
    yield r"\begin{pmatrix}" + "1 & " * 1000 + r"1\end{pmatrix}"
    yield r"\begin{pmatrix}1&2\\3&4\end{pmatrix}" * 60
    yield r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^{10^{10^{10}}}"
    yield r"\begin{pmatrix}" * 500
    yield r"\begin{cases}" + r"x & x>0 \\ " * 200 + r"\end{cases}"
    yield r"\begin{}"
    yield r"\end{pmatrix}"
    yield r"\begin{pmatrix}\end{pmatrix}"
    yield r"\begin{array}{" + "c" * 10_000 + "}1"


def strange_text() -> Iterator[str]:
    yield "\x00"
    yield "7\x00"
    yield "\x00" * 100_000
    yield "\ud800"
    yield "7\udfff8"
    yield "\udc80" * 1000
    yield "\u202e7\u202c"
    yield "\u200b" * 10_000
    yield "\ufeff8"
    yield "\x1b[2J\x1b[31m8"
    yield "８" * 500
    yield "²" * 2000
    yield "½" * 2000
    yield "√" * 2000
    yield "e\u0301" * 1000
    yield "\U0001f600" * 1000
    yield "\u0660\u0661\u0662"
    yield "Ⅷ"
    yield "\u2028\u2029\x85\x0b\x0c8"
    yield "𝟠" * 300
    yield "ﷺ" * 200
    yield "\r\n" * 1000


def code() -> Iterator[str]:
    attack = "__import__('os').system('touch pwned')"
    for dress in (
        "{}", "$ {} $", r"\text{{{}}}", "[{}]", r"\pi+{}", r"\left({}\right)", "f({})",
        "lambda: {}", "x={}",
        "sin({})", "({}).real", r"\sqrt{{{}}}", r"\frac{{{}}}{{1}}", "1 if {} else 2",
        "eval({!r})", "exec({!r})",
        r"\begin{{pmatrix}}{}\end{{pmatrix}}", "{}_2", "{}!", "7 # {}",
    ):  # fmt: skip
        yield dress.format(attack)
    yield "open('/etc/passwd').read()"
    yield "().__class__.__base__.__subclasses__()"
    yield "globals()['__builtins__']"
    yield "[x for x in range(10**10)]"
    yield "getattr(x, '__class__')"
    yield "{{7*7}} ${7*7} #{7*7}"
    yield r"\input{/etc/passwd}"
    yield r"\write18{touch pwned}"
    yield r"\def\x{\x\x}\x"
    yield r"\newcommand{\a}{\a\a}\a"
    yield r"\csname end\endcsname"
    yield "x.__class__"
    yield "0x" + "f" * 1000
    yield "1_000_000"
    yield "Symbol('x')"
    yield "S(1)/0"
    yield "oo-oo"
    yield "nan"
    yield "zoo"
    yield "0/0"
    yield r"\frac{1}{0}"
    yield r"\frac{\infty}{\infty}"
    yield r"\infty-\infty"
    yield "1/(1-1)"
    yield r"\log_1 8"
    yield r"\log 0"
    yield r"\tan\frac{\pi}{2}"


FAMILIES = [
    towers, factorials, sums, polynomials, nesting, sizes, regex_bait, matrices, strange_text, code,
]  # fmt: skip
HOSTILE = [(family.__name__, text) for family in FAMILIES for text in family()]
GOLDS = ["x^2+\\sqrt{2}+1", "41"]
SHAPES = [r"So it is \boxed{TEXT}.", "TEXT"]


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathsVerifier]:
    made = MathsVerifier(timeout_s=CPU_S, workers=2)
    yield made
    made.close()


def test_there_are_at_least_188_hostile_inputs() -> None:
    assert len({text for _, text in HOSTILE}) >= 188


@pytest.mark.parametrize("family", [family.__name__ for family in FAMILIES])
@pytest.mark.parametrize("crossed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_hostile_answer_gets_an_ok_zero_and_costs_little_here(
    family: str, crossed: bool, verifier: MathsVerifier
) -> None:
    """Each answer stands bare against one gold and in a box against the other; the slow test
    crosses these.
    """
    verifier.verify("1", r"\boxed{\cos 1}")  # the pool's start is not the answer's time
    for text in (text for name, text in HOSTILE if name == family):
        for gold, shape in zip(GOLDS, SHAPES[::-1] if crossed else SHAPES, strict=True):
            response = shape.replace("TEXT", text)
            started = time.process_time()
            verdict = verifier.verify(gold, response)
            if verdict.retryable:  # a busy machine; only a repeated failure is one
                started = time.process_time()
                verdict = verifier.verify(gold, response)
            assert time.process_time() - started < 3 * CPU_S * 2 + 1, text[:80]
            assert verdict.status is Status.OK, (text[:80], verdict)
            assert verdict.reward == 0.0, (text[:80], verdict)


@pytest.mark.parametrize("family", [family.__name__ for family in FAMILIES])
def test_a_hostile_gold_never_makes_the_scorer_fail(family: str, verifier: MathsVerifier) -> None:
    for text in (text for name, text in HOSTILE if name == family):
        verdict = verifier.verify(text[:5000], r"\boxed{41}")
        if verdict.retryable:  # a busy machine; only a repeated failure is one
            verdict = verifier.verify(text[:5000], r"\boxed{41}")
        assert verdict.status in {Status.OK, Status.INVALID}, (text[:80], verdict)
        assert verdict.reward != 1.0


SUMS_WITHOUT_END = r"\sum_{k=1}^n k∞" * 7 + r"\sum_{k=1}^n k"


@pytest.mark.parametrize("swapped", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_the_symbolic_means_give_up_on_is_undecided(swapped: bool) -> None:
    pair = (r"\binom{\sin^2 x+\cos^2 xn}{2}", SUMS_WITHOUT_END)
    gold, answer = reversed(pair) if swapped else pair
    # Giving up takes longer than CPU_S in a worker of the slow lane, whose sympy is cold.
    verifier = MathsVerifier(timeout_s=4 * CPU_S, workers=1)
    verdict = verifier.verify(gold, rf"\boxed{{{answer}}}")
    verifier.close()
    assert (verdict.status, verdict.reward) == (Status.OK, 0.0)
    assert verdict.metrics["undecided"] == 1


def caller_seconds(gold: str, text: str) -> float:
    """CPU seconds the caller spends on an extracted answer: the best of five, so that only its
    own work counts.
    """
    best = float("inf")
    for _ in range(5):
        started = time.thread_time()
        with suppress(NeedsPool):
            decide(gold, text, DEFAULT)
        best = min(best, time.thread_time() - started)
    return best


def machine_factor() -> float:
    """How much slower than the reference machine this one is right now (a fixed loop takes 10 ms
    there).
    """
    best = float("inf")
    for _ in range(5):
        started = time.thread_time()
        sum(k * k for k in range(150_000))
        best = min(best, time.thread_time() - started)
    return max(1.0, best / 0.010)


def test_the_caller_spends_at_most_two_milliseconds_on_any_extracted_answer() -> None:
    allowed = 0.002 * machine_factor()  # it is one, and a busy machine's caches are cold
    slow = [
        (round(spent * 1000, 2), name, text[:60])
        for name, text in HOSTILE
        if len(text) <= 4096 and (spent := caller_seconds(GOLDS[0], text)) > allowed
    ]
    assert not slow


@pytest.mark.parametrize("count", [150, pytest.param(4000, marks=pytest.mark.slow)])
def test_what_the_patterns_repeat_is_judged_in_time(
    count: int, verifier: MathsVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Responses that repeat what the verifier itself looks for, drawn from its patterns: each gets
    a verdict, none raises, and none costs the caller two seconds of CPU.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from patterns import Pump, limited, patterns

    rng = random.Random(count)
    pumps = [Pump(pattern, rng) for pattern in patterns("ludus.rewards.maths")]
    pumps = [pump for pump in pumps if pump.repeated]
    shapes = ["{}", "\\boxed{{{}}}", "{}\n\\boxed{{3}}", "\\boxed{{3}} {}", "The answer is {}"]
    golds = ["3", r"\frac{1}{2}", "x=1, y=2", "B", "Yes", "12 m", "[0,1)", "(1 2)(3 4)", "Paris"]
    for _ in range(count):
        text = rng.choice(pumps).text((60, 120, 600, 4000)) + rng.choice(pumps).text((20,))
        response, gold = rng.choice(shapes).format(text), rng.choice(golds)
        prompt = rng.choice(["", "What is x?", "How many apples are there?", text[:400]])
        with limited(2):
            verdict = verifier.verify(gold, response, prompt=prompt)
        assert verdict.status in {Status.OK, Status.UNAVAILABLE}, (response, gold, verdict)


def bait() -> Iterator[str]:
    """Pieces that a search for answers could trip over when they are repeated."""
    yield from (
        r"\boxed{", r"\boxed{1}", r"\boxed", r"\boxed{1} hmm ", r"\phantom{\boxed", "{", "}", "x",
        " ", "\n", "<answer>", "</answer>", "<answer>1</answer>", "#### ", "#### 1\n",
        "the answer is ",
        "The answer is 5. ", "The answer is not 5. ", "The answer is 5 or ",
        "答案", "答えは", "정답은",
        "ответ ", "réponse ", '"', "> a\n", "**", "*", "`", "~~a", "$", "\\(", "\\[",
        "$1$ and ", "1 or ",
        "if the answer is ", "A or ", "A. ", "is the answer ", "5 is the answer. ", "Wait, no ",
        "that is wrong ", "<b>", "</", "<think>", "</think>", ". A", "-", "1",
        "Maybe \\boxed{1}. ",
        "so it is B ", "not 5 but ", "result is ", "__a", "✅", "❌5", "which ", "(a) \\boxed{1} ",
        "there are two ", "1 und ", "dreißig ", "12 red ", "mean = 8 and ", "it isn't ", "一",
        "the answer to ", "the final correct best only ", "_", "a_", "the answer, ",
    )  # fmt: skip


def extraction_seconds(response: str) -> float:
    """CPU seconds of finding the answer: the best of three."""
    best = float("inf")
    for _ in range(3):
        started = time.thread_time()
        extract(response)
        best = min(best, time.thread_time() - started)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("around", ["{}", r"\boxed{{3}} {}", "The answer is 7. {}"])
def test_finding_the_answer_is_linear(around: str) -> None:
    """Eight times the text costs at most twenty times the time, whatever it repeats."""
    slow: list[tuple[str, float, float]] = []
    for piece in bait():
        short, long = (
            extraction_seconds(around.format(piece * (size // len(piece))))
            for size in (25_000, 200_000)
        )
        if long > 20 * max(short, 0.0005):
            slow.append((piece, short, long))
    assert not slow


@pytest.mark.slow
def test_reading_by_the_question_is_linear(verifier: MathsVerifier) -> None:
    """As above, for answers that the question picks and for a question that repeats itself."""
    asked = "How many red marbles are there? Give the mean and the mode. Is it dreißig? "
    slow: list[tuple[str, float, float]] = []
    for piece in bait():
        for prompt, around in (
            (asked, "{}"),
            (asked, "So there are {} 3 red marbles."),
            ("", "7,5"),
        ):
            spent: list[float] = []
            for size in (25_000, 200_000):
                text = piece * (size // len(piece))
                started = time.thread_time()
                verifier.verify("3", around.format(text), prompt=prompt or text)
                spent.append(time.thread_time() - started)
            if spent[1] > 20 * max(spent[0], 0.002):
                slow.append((piece, *spent))
    assert not slow


@pytest.mark.parametrize("size", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_megabyte_of_anything_has_its_answer_found(size: int) -> None:
    allowed = 2e-6 * size * machine_factor()
    for piece in bait():
        started = time.thread_time()
        extract(piece * (size // len(piece)))
        assert time.thread_time() - started < allowed, piece


MIXED = (
    " ", "  ", "\n", ".", ",", ":", "?", "!", "$", "\\(", "\\)", "\\]", r"\boxed{", "{", "}",
    "5", "12", "A", "B", "the", "answer", "is", "not", "or", "and", "if", "wait", "no", "that",
    "it", "correct", "so", "**", "*", "_", "`", "```", '"', ">", "<answer>", "</answer>",
    "####", "<think>", "</think>", "=", "-", "/", "(", ")", "réponse", "est", "ответ", "答案",
    "是", "答えは", "です", "정답은", "입니다", "✅", "❌", "~~", "<b>", "</b>", "which",
    "because", "of", "maybe", "I", "mistake", "π", "≈", "…", "x =", "1,", "the answer is",
    "e.g.",
)  # fmt: skip


@pytest.mark.parametrize("mixtures", [300, pytest.param(1500, marks=pytest.mark.slow)])
def test_any_mixture_of_marks_and_words_is_searched_fast_and_without_failure(mixtures: int) -> None:
    rng, allowed = random.Random(5), 0.2 * machine_factor()
    for _ in range(mixtures):
        some = rng.sample(MIXED, rng.randint(2, 12)) if rng.random() < 0.6 else MIXED
        text = rng.choice(["", " "]).join(rng.choices(some, k=rng.choice([20, 60, 200, 1000])))
        started = time.thread_time()
        found = extract(text, truncated=rng.random() < 0.2)
        assert time.thread_time() - started < allowed, text[:200]
        assert 0 <= found.start <= found.end <= len(text), text[:200]
