"""Laws of the maths verifier: reference solutions are transformed, and each transformation says
whether the reward has to stay or to go.

    LUDUS_DATA_DIR=... python benchmarks/maths_laws.py
    LUDUS_DATA_DIR=... python benchmarks/maths_laws.py --misses check --half look
    LUDUS_DATA_DIR=... python benchmarks/maths_laws.py --load 2000

The oracle is the transformation: what is written around a value is known, and so is what it does
to the claim. The problems are split by a seed into a half to look at and a half that is held out;
`--misses` shows cases of the first half only, unless it is told otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from maths_closings import DRAWS as CLOSINGS
from maths_endings import DRAWS as ENDINGS
from maths_forms import DRAWS as FORMS
from maths_replies import DRAWS as REPLIES
from maths_words import DRAWS as WORDS

from ludus.rewards import Sample
from ludus.rewards.maths import MathsVerifier

SEED = 31


class Solved(NamedTuple):
    """A problem with its reference solution, its answer, and another value."""

    problem: str
    solution: str
    """The solution, with the answer in its only box."""
    gold: str
    wrong: str

    @property
    def work(self) -> str:
        """The solution before the sentence of the box, without a statement of the answer."""
        head = self.solution[: self.solution.rfind("\\boxed")]
        ends = [end.end() for end in re.finditer(r"[.!?]\s+(?=[A-Z])|\n\n", head)]
        work = head[: ends[-1]].rstrip() if ends else ""
        stated = "\\boxed" in work or re.search(r"\banswer\b", work, re.IGNORECASE)
        return "We work it out." if stated or not work else work

    @property
    def whole(self) -> bool:
        return re.fullmatch(r"\d{1,12}", self.gold) is not None


class Case(NamedTuple):
    law: str
    problem: str
    gold: str
    response: str
    paid: bool


# --- the tables of phrases: `#` is the right value, `@` the other, `~` the work ---

CHECKS = [
    "Let me verify the answer: $17\\cdot 44=748$.",
    "Check: $3\\cdot 5 = 15$ and $15 + 4 = 19$, as required.",
    "To confirm, substitute back: $2(7)-3 = 11$. This holds.",
    "This answer is between $40$ and $5000$, so it is reasonable.",
    "The answer is positive, which makes sense since $x > 0$.",
    "As a sanity check, the sum of the parts is 96.",
    "Verification: when $n=3$ the formula gives $9$.",
    "Note that the answer is less than $100000$.",
    "Checking the answer with $k=2$ gives $16$, which matches.",
    "The result is consistent with the estimate of about 1000.",
    "Double-checking: $12^2=144$.",
    "So the left side is $25$ and the right side is $25$, and the answer is verified.",
    "Plugging in, we get $5+7=12$. The answer is correct.",
    "Let's check: 6 + 6 = 12 and 12 - 5 = 7.",
    "We can test this for small cases: $n = 1$ gives $2$, $n = 2$ gives $5$.",
    "验证：$17\\cdot 44=748$，成立。",
    "检验：当 $n=3$ 时，结果为 $9$。",
    "Проверка: $17\\cdot 44=748$, всё сходится.",
    "Проверим ответ: при $n=3$ получаем $9$.",
    "Vérification : $17\\cdot 44=748$.",
    "Vérifions la réponse : pour $n=3$ on obtient $9$.",
    "Probe: $17\\cdot 44=748$.",
    "Comprobación: $17\\cdot 44=748$.",
    "Verifica: $17\\cdot 44=748$.",
    "検算：$17\\cdot 44=748$。",
    "검산: $17\\cdot 44=748$.",
    "Verificação: $17\\cdot 44=748$.",
]  # fmt: skip
REMARKS = [
    "I hope this helps!",
    "This concludes the solution.",
    "Let me know if you have any questions about the 3 steps above.",
    "Note: this problem is similar to Problem 12 of the 2009 contest.",
    "(There are other ways to do this; see chapter 7.)",
    "The answer is exact.",
    "The key step was the factorization in line 2.",
    "This completes the proof. $\\blacksquare$",
    "Q.E.D.",
    "This is a classic result from 1894.",
    "Difficulty: 4 out of 5.",
    "The method works for any $n \\ge 2$.",
    "---\n\n*Key concepts:* counting in 2 ways.",
    "The answer is unique.",
    "That is the final answer.",
    "Remark: a similar argument with $n=5$ would give another value.",
]
SENTENCES = [
    "The answer is $#$.",
    "The final answer is $#$. I hope it is correct.",
    "So the answer is **$#$**.",
    "**Answer:** $#$",
    "Answer: $#$",
    "**Final Answer**\n\n$#$",
    "### Answer\n\n$$#$$",
    "Therefore, the final answer is: \\[#\\]",
    "Hence our answer is \\(#\\).",
    "Thus the required value is $#$.",
    "It follows that the correct answer is $#$, as claimed.",
    "<answer>$#$</answer>",
    "Final answer: $$#$$",
    "Thus, we find that the result is\n\\[\n#.\n\\]",
]
LANGUAGES = {
    "English": "Therefore, the answer is $#$.",
    "French": "Donc la réponse est $#$.",
    "German": "Also ist die Antwort $#$.",
    "Spanish": "Por lo tanto, la respuesta es $#$.",
    "Portuguese": "Portanto, a resposta é $#$.",
    "Italian": "Quindi la risposta è $#$.",
    "Russian": "Следовательно, ответ: $#$.",
    "Japanese": "したがって、答えは $#$ です。",
    "Korean": "따라서 답은 $#$ 입니다.",
    "Chinese": "因此，答案是 $#$。",
    "Hindi": "अतः उत्तर है $#$।",
}
REJECTED = [
    "One might think that the answer is $\\boxed{@}$, but that counts some cases twice. ~",
    "Suppose the answer were $\\boxed{@}$. This leads to a contradiction. ~",
    "First guess: $\\boxed{@}$. However, this fails the second condition. ~",
    "My first attempt gave \\boxed{@}. Wait, that is wrong. ~",
    "A common mistake is to answer $@$. ~",
    "If we forget the factor, the answer is $@$. ~",
    "It is tempting to say the answer is $@$. ~",
    "The student wrote $\\boxed{@}$, which is incorrect. ~",
]
RETRACTED = [
    "$\\boxed{#}$\n\nWait, that is wrong. The correct answer is $\\boxed{@}$.",
    "$\\boxed{#}$\n\nSorry, I made a mistake. The answer is $@$.",
    "So $\\boxed{#}$. But this fails the check, so it is something else.",
    "$\\boxed{#}$ is not correct, because one case was counted twice.",
    "$\\boxed{#}$\n\nHmm, no: that can't be right. It should be $@$.",
    "$\\boxed{#}$\n\nCorrection: the answer is $@$.",
    "$\\boxed{#}$. Scratch that, the answer is $@$.",
    "$\\boxed{#}$\n\n等等，算错了。答案是 $@$。",
    "$\\boxed{#}$\n\nJe me suis trompé : la réponse est $@$.",
    "$\\boxed{#}$\n\nЯ ошибся. Ответ: $@$.",
]
UNCLAIMED = [
    "Suppose the answer were $\\boxed{#}$. Contradiction.",
    "Suppose that the answer is $\\boxed{#}$. Then we get a contradiction, so this is impossible.",
    "Assume for contradiction that $x=\\boxed{#}$. Then $1=2$.",
    "If the answer were $\\boxed{#}$, the parity would be wrong.",
    "Expected: $\\boxed{#}$",
    "Expected answer: \\boxed{#}. I do not know how to get it.",
    "<!-- \\boxed{#} -->\nI do not know.",
    "% \\boxed{#}\nI could not finish this.",
    "The student wrote \\boxed{#}, which is wrong.",
    "It is not \\boxed{#}.",
    "Some books claim \\boxed{#}, but that is false.",
    "\\boxed{#} if $n$ is even, \\boxed{@} otherwise.",
    "$\\boxed{#}$ or $\\boxed{@}$",
    "The answer is either $#$ or $@$.",
    "The answer is $#$ if $n$ is even and $@$ otherwise.",
    "Is it \\boxed{#}?",
    "The possible candidates are \\boxed{#} and \\boxed{@}.",
    "My friend says the answer is \\boxed{#}. I get \\boxed{@}.",
    "Example of the format: \\boxed{#}",
    "\\boxed{#}, or maybe \\boxed{@}, I am not sure.",
    "A common mistake is to answer \\boxed{#}.",
    "One frequent error is \\boxed{#}. The right value is \\boxed{@}.",
    "The tangent line is $y - x = #$.",
    "Both numbers have to satisfy $p - q = #$.",
    "This gives the relation $3u + 2v = #$.",
    "The normal has the equation $\\boxed{y - 2x = #}$.",
    "According to the book it is $#$, yet my own value is $@$.",
    "Let us assume that $n = #$. I am not sure how to go on.",
]
SHORT = [
    "#", "$#$", "**#**", "$$#$$", "\\(#\\)", "\\[#\\]", "x = #", "$x = #$", "**$#$**", "Answer: #",
    "2y=14\nx=#", "$#$\n\nExplanation: 6+6.", "x = #\n\n**#**", "$#$\n\n$#$", "#.", "= #", "y + 1 = 5\n\nx = #",
    "$x+3y=12$\n$x=#$", "# \n\nReason: the sum of 2 and 3 is 5.", "Result: $#$",
]  # fmt: skip
LABELS = [
    "x = #", "\\text{Answer: } #", "N=#", "\\text{Total} = #", "\\text{The answer is } #", "\\mathbf{#}", "\\displaystyle #",
    "\\text{Answer} = #", "x_1 = #", "v_f = #", "\\boldsymbol{#}", "f(2) = #", "P(A) = #", "\\color{blue}{#}", "\\ #\\ ",
    "\\textbf{(C)}\\ #", "\\textbf{(B) } #",
]  # fmt: skip
BESIDE = [
    "$-\\boxed{#}$", "$\\boxed{#}\\pi$", "$\\frac{\\boxed{#}}{7}$", "$7\\cdot\\boxed{#}$", "$\\sqrt{\\boxed{#}}+1$",
    "$\\boxed{#}^{3}+1$", "$\\boxed{#}+1$", "$3-\\boxed{#}$", "$\\boxed{#}\\sqrt{2}$", "$\\boxed{#}!+1$", "$1+\\boxed{#}x$",
]  # fmt: skip
AROUND = [
    "$x=\\boxed{#}$", "$x = 1+1-2+\\boxed{#}$ is the sum; the answer is $\\boxed{#}$", "$\\Rightarrow \\boxed{#}$", "$\\boxed{#}.$",
    "\\[\\boxed{#}\\]", "$$\\boxed{\\boxed{#}}$$", "**\\boxed{#}**", "$\\therefore\\ \\boxed{#}$", "$n\\in\\mathbb{Z}$, so $\\boxed{#}$",
    "$\\left(\\boxed{#}\\right)$", "$\\frac{2\\cdot 3}{6}=1$, hence $y=\\boxed{#}$", "$\\boxed{#}\\quad\\blacksquare$", "\\fbox{#}",
]  # fmt: skip
# A small grammar of clauses about a value: link, subject, predicate.
LINKS = ["", "But ", "However, ", "Hmm, ", "Unfortunately, ", "Then again, ", "Looking again, ", "Yet "]  # fmt: skip
SUBJECTS = [
    "that", "this", "it", "this value", "the value above", "my answer", "the result", "that count", "the boxed number",
    "what I wrote", "the number above", "this answer",
]  # fmt: skip
REFUTING = [
    "is wrong", "is not right", "cannot be right", "is incorrect", "is impossible", "isn't correct", "fails the second condition",
    "does not satisfy the condition", "contradicts the given data", "is off by one", "is too large", "is a mistake",
    "counts some cases twice", "overcounts", "is not what was asked", "must be an error", "can't be true", "doesn't add up",
    "is inconsistent with the figure", "leaves out a case", "is not the answer", "double counts the corners",
    "cannot possibly be it", "turned out to be wrong", "was never going to work", "is nonsense", "does not seem right",
]  # fmt: skip
UPHOLDING = [
    "is right", "is correct", "satisfies the condition", "matches the figure", "is not hard to verify", "is no coincidence",
    "cannot be improved", "is positive", "does not depend on the order", "is what was asked", "is not surprising",
    "passes the second check", "can be checked by hand", "agrees with the estimate", "does not violate the bound",
    "is never exceeded", "is not too large", "is not wrong", "contains no mistake", "does work", "is exact",
]  # fmt: skip
ELSEWHERE = [
    "The naive count would be $@$, but that is wrong.",
    "If one forgot a case, one would get $@$, which is incorrect.",
    "The other root is negative, which is impossible.",
    "A common mistake is to ignore the second case; that fails.",
    "Were it larger, the sum would exceed the bound, and that is a contradiction.",
    "Some would say that $0$ counts too. This is not the case, since $0$ is not positive.",
]
PARTS = ["$\\boxed{%d}+\\boxed{%d}$", "$\\boxed{%d}+%d$", "$%d + \\boxed{%d}$"]


# --- the laws ---


def filled(pattern: str, item: Solved) -> str:
    """The pattern with its values; a value in a sentence of the table keeps its own delimiters."""
    return pattern.replace("~", item.solution).replace("#", item.gold).replace("@", item.wrong)


def said(ending: str) -> Callable[[Solved, random.Random], str]:
    """Put the last sentence of a solution in place of the one with the box."""
    return lambda item, _: f"{item.work}\n\n{filled(ending, item)}"


def stripped(item: Solved, _: random.Random) -> str:
    """Strip the box of a solution that ends with it; a value that other values follow is put at
    the end of its own sentence.
    """
    place = item.solution.rfind(f"\\boxed{{{item.gold}}}")
    behind = item.solution[place + len(item.gold) + 8 :]
    if len(behind) > 60 or re.search(r"\d|\$.*\$", behind.strip("$")):
        return f"{item.work}\n\nTherefore, we get ${item.gold}$."
    return item.solution.replace(f"\\boxed{{{item.gold}}}", item.gold)


def aligned(boxed: str) -> Callable[[Solved, random.Random], str]:
    def made(item: Solved, _: random.Random) -> str:
        lines = f"x &= 2 + 3 - 5 + y \\\\\n&= {filled(boxed, item)}"
        return f"{item.work}\n\\begin{{align*}}\n{lines}.\n\\end{{align*}}"

    return made


def clause(predicates: list[str]) -> Callable[[Solved, random.Random], str]:
    """Put a clause of the grammar behind the sentence of the box."""

    def made(item: Solved, rng: random.Random) -> str:
        sentence = f"{rng.choice(LINKS)}{rng.choice(SUBJECTS)} {rng.choice(predicates)}."
        gap = rng.choice([" ", "\n\n"])
        return f"{item.work}\n\nSo it is $\\boxed{{{item.gold}}}$.{gap}{sentence[0].upper()}{sentence[1:]}"

    return made


def chain(item: Solved, rng: random.Random) -> str:
    value = int(item.gold)
    part = rng.randrange(1, value + 2)
    written = rng.choice(
        [f"{part} + {value - part}", f"{value}\\cdot 1", f"{value + part} - {part}"]
    )
    return f"{item.work}\n\n$\\boxed{{{written} = {item.gold}}}$"


def false_chain(item: Solved, rng: random.Random) -> str:
    value = int(item.gold)
    written = rng.choice([f"{value + 1}", f"{value} + 2", f"2\\cdot {value} + 1"])
    return f"{item.work}\n\n$\\boxed{{{written} = {item.gold}}}$"


def named_chain(item: Solved, _: random.Random) -> str:
    return f"{item.work}\n\n$\\boxed{{P(X=2) = {item.gold}}}$"


def divided_sum(item: Solved, rng: random.Random) -> str:
    value = int(item.gold)
    part = rng.randrange(0, value + 1)
    return f"{item.work}\n\n{rng.choice(PARTS) % (part, value - part)}"


class Law(NamedTuple):
    name: str
    paid: bool
    write: Callable[[Solved, random.Random], str]
    whole: bool = False
    """Whether the law is stated for whole numbers only."""


def laws() -> Iterator[Law]:
    yield Law("as written", True, lambda item, _: item.solution)
    yield Law("box stripped", True, stripped)
    for sentence in CHECKS:
        yield Law("check after a box", True, lambda i, _, s=sentence: f"{i.solution}\n\n{s}")
        yield Law(
            "check in the same line",
            True,
            lambda i, _, s=sentence: f"{i.work}\n\nSo the answer is $\\boxed{{{i.gold}}}$. {s}",
        )
    for sentence in REMARKS:
        yield Law("remark after a box", True, lambda i, _, s=sentence: f"{i.solution}\n\n{s}")
    for ending in SENTENCES:
        yield Law("endings", True, said(ending))
        yield Law("endings, other value", False, said(ending.replace("#", "@")))
    for ending in LANGUAGES.values():
        yield Law("languages", True, said(ending))
        yield Law("languages, other value", False, said(ending.replace("#", "@")))
        yield Law("languages, boxed", True, said(ending.replace("#", "\\boxed{#}")))
    for pattern in REJECTED:
        yield Law("after a rejected candidate", True, lambda i, _, p=pattern: filled(p, i))
    for pattern in RETRACTED:
        yield Law("taken back", False, said(pattern))
        # The same retraction of another value for the right one pays, if it names the right one.
        if "@" in pattern:
            swapped = pattern.translate(str.maketrans("#@", "@#"))
            yield Law("corrected", True, said(swapped))
    for _ in range(12):
        yield Law("a clause refutes", False, clause(REFUTING))
        yield Law("a clause upholds", True, clause(UPHOLDING))
    for sentence in ELSEWHERE:
        yield Law("another is refuted", True, said(f"$\\boxed{{#}}$. {sentence}"))
    for pattern in UNCLAIMED:
        yield Law("not claimed", False, said(pattern))
    for pattern in SHORT:
        yield Law("short answers", True, lambda i, _, p=pattern: filled(p, i))
        yield Law(
            "short answers, other value",
            False,
            lambda i, _, p=pattern: filled(p.replace("#", "@"), i),
        )
    for pattern in LABELS:
        yield Law("labels in the box", True, said(f"$\\boxed{{{pattern}}}$"))
        yield Law("labels, other value", False, said(f"$\\boxed{{{pattern}}}$".replace("#", "@")))
    for pattern in BESIDE:
        yield Law("box inside a formula", False, said(pattern), whole=True)
    for pattern in AROUND:
        yield Law("formula around a box", True, said(pattern))
    yield Law("sums of boxes", True, divided_sum, whole=True)
    yield Law("align, boxed", True, aligned("\\boxed{#}"))
    yield Law("align, no box", True, aligned("#"))
    yield Law("align, other value", False, aligned("@"))
    for _ in range(3):
        yield Law("chains", True, chain, whole=True)
        yield Law("false chains", False, false_chain, whole=True)
    yield Law("named chains", True, named_chain, whole=True)


# --- problems ---


def problems(folder: Path) -> Iterator[Solved]:
    """Yield the solved problems of MATH-500, AIME 2024 and GSM8K, with one box each."""
    rows = [
        (row["problem"], row["solution"], row["answer"]) for row in lines(folder / "math500.jsonl")
    ]
    for row in lines(folder / "gsm8k_test.jsonl")[:150]:
        solution, _, gold = row["answer"].partition("\n#### ")
        solution = re.sub(r"<<[^>]*>>", "", solution).replace("$", "\\$")
        rows.append((row["question"], f"{solution}\nThe answer is $\\boxed{{{gold}}}$.", gold))
    for row in lines(folder / "olympiadbench.jsonl")[::3]:
        gold = ", ".join(row["final_answer"]).replace("$", "").strip()
        proof = (row["solution"][0] if row["solution"] else "")[-600:].partition(". ")[2]
        if not row["is_multiple_answer"]:
            rows.append((row["question"], f"{proof}\n\nThe answer is $\\boxed{{{gold}}}$.", gold))
    rng = random.Random(SEED)
    for problem, solution, gold in rows:
        wrong = (
            str(int(gold) + rng.randrange(1, 9))
            if re.fullmatch(r"\d{1,12}", gold)
            else str(rng.randrange(101, 999))
        )
        if f"\\boxed{{{gold}}}" in solution and "[asy]" not in solution:
            yield Solved(problem, solution, gold, wrong)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def is_formula(gold: str) -> bool:
    return (
        "\\text" not in gold
        and "," not in gold
        and "=" not in gold
        and not re.search(r"[<>]|\\[lg]e", gold)
    )


def cases(items: list[Solved], per_law: int, rng: random.Random) -> Iterator[Case]:
    """Yield `per_law` cases for each line of `laws`, on problems drawn at random."""
    formulas = [item for item in items if is_formula(item.gold)]
    wholes = [item for item in items if item.whole and int(item.gold) > 0 and item.gold != "1"]
    for law in laws():
        chosen = (
            items
            if law.name in ("as written", "box stripped")
            else wholes
            if law.whole
            else formulas
        )
        for item in chosen if chosen is items else rng.sample(chosen, min(per_law, len(chosen))):
            yield Case(law.name, item.problem, item.gold, law.write(item, rng), law.paid)


# --- restatements ---

_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)


def restatements(items: list[Solved]) -> Iterator[Case]:
    """Box the longest formula of each prompt; such an answer is right only if it is the gold as
    it stands.
    """
    for item in items:
        formulas = sorted(
            {next(filter(None, m)).strip(" .,") for m in _FORMULA.findall(item.problem)},
            key=lambda formula: (len(formula), formula),
        )
        for formula in formulas[-1:]:
            paid = plain(formula) == plain(item.gold)
            yield Case("restated", item.problem, item.gold, f"$\\boxed{{{formula}}}$", paid)


def plain(text: str) -> str:
    return re.sub(
        r"\\left|\\right|\\[,;! ]|\s|\\displaystyle|[{}]|^[a-z]=", "", text.replace("dfrac", "frac")
    )


def options(rng: random.Random, count: int) -> Iterator[Case]:
    """Yield questions that list their options, each answered by the right option as it is listed."""
    for _ in range(count):
        a, b, c = rng.sample(range(2, 60), 3)
        questions = [
            (f"Which is larger, ${a}/{a + b}$ or ${c}/{c + b}$?", f"{max(a, c)}/{max(a, c) + b}"),
            (
                f"Which of $\\frac{{{a}}}{{{b}}}$ and $\\frac{{{c}}}{{{b}}}$ is larger?",
                f"\\frac{{{max(a, c)}}}{{{b}}}",
            ),
            (f"Which is greatest: {a}, {b} or {c}?", str(max(a, b, c))),
            (
                f"Which of the following is greatest? (A) $\\sqrt{{{a}}}+1$ (B) $\\sqrt{{{b}}}+1$ (C) $\\sqrt{{{c}}}+1$",
                f"\\sqrt{{{max(a, b, c)}}}+1",
            ),
            (f"Which is larger, $2^{{{a}}}$ or $2^{{{b}}}$?", f"2^{{{max(a, b)}}}"),
            (f"Solve $x + {a} = {a + b}$ for $x$.", str(b)),
            (f"What is the larger root of $(x-{a})(x-{b})=0$?", str(max(a, b))),
            (
                f"Which of the functions $x^2+{a}x$ and $x^2+{b}x$ has its vertex further to the left?",
                f"x^2+{max(a, b)}x",
            ),
        ]
        problem, gold = rng.choice(questions)
        yield Case("options", problem, gold, f"$\\boxed{{{gold}}}$", True)


def worked(rng: random.Random, count: int) -> Iterator[Case]:
    """Yield tasks of one formula, answered by the task (not paid) and by its value (paid)."""
    for _ in range(count):
        a, b = rng.sample(range(2, 40), 2)
        base = rng.randrange(2, 5)
        tasks = [
            (f"Compute ${a}\\cdot {b}$.", f"{a}\\cdot {b}", str(a * b)),
            (f"What is ${a}^2 - {b}^2$?", f"{a}^2 - {b}^2", str(a * a - b * b)),
            (f"Factor $x^2-{a + b}x+{a * b}$.", f"x^2-{a + b}x+{a * b}", f"(x-{a})(x-{b})"),
            (f"Expand $(x+{a})(x+{b})$.", f"(x+{a})(x+{b})", f"x^2+{a + b}x+{a * b}"),
            (f"Solve $|x-{a}|>{b}$.", f"|x-{a}|>{b}", f"(-\\infty,{a - b})\\cup({a + b},\\infty)"),
            (f"Write $1011_{base}$ in base 10.", f"1011_{base}", str(base**3 + base + 1)),
            (f"Simplify $\\sqrt{{{a * a * 2}}}$.", f"\\sqrt{{{a * a * 2}}}", f"{a}\\sqrt{{2}}"),
            (
                f"Simplify $\\frac{{x^2-{a * a}}}{{x-{a}}}$.",
                f"\\frac{{x^2-{a * a}}}{{x-{a}}}",
                f"x+{a}",
            ),
            (
                f"Evaluate $\\binom{{{a + 2}}}{{2}}$.",
                f"\\binom{{{a + 2}}}{{2}}",
                str((a + 2) * (a + 1) // 2),
            ),
            (f"Solve ${a}x = {a * b}$.", f"{a}x = {a * b}", f"x = {b}"),
        ]
        problem, task, gold = rng.choice(tasks)
        yield Case("task repeated", problem, gold, f"$\\boxed{{{task}}}$", False)
        yield Case("task worked out", problem, gold, f"$\\boxed{{{gold}}}$", True)


# --- costly golds ---


def crowd(rng: random.Random, count: int, share: float) -> list[Case]:
    """Right answers to cheap and to hard questions, among them a share of golds that cost more
    than any limit.
    """
    drawn: list[Case] = []
    for number in range(count):
        a, b = rng.randrange(2, 30), rng.randrange(2, 30)
        if rng.random() < share:
            # Each gold has a group of eight answers, as in training.
            gold = f"\\int_0^{{10^9+{number // 8}}}\\sin(x^2)dx"
            drawn.append(Case("costly gold", "", gold, f"$\\boxed{{{a}}}$", False))
        elif rng.random() < 0.2:
            gold = f"\\int_0^{{{a}}} x^{{{b % 4 + 1}}} dx"
            value = f"\\frac{{{a ** (b % 4 + 2)}}}{{{b % 4 + 2}}}"
            drawn.append(Case("hard question", "", gold, f"$\\boxed{{{value}}}$", True))
        else:
            gold, value = f"\\frac{{{a}}}{{{b}}}", f"\\frac{{{2 * a}}}{{{2 * b}}}"
            drawn.append(Case("cheap question", "", gold, f"$\\boxed{{{value}}}$", True))
    return drawn


async def under_load(drawn: list[Case]) -> dict[str, list[str]]:
    """The statuses of all cases, scored at once by one verifier."""
    verifier = MathsVerifier(workers=2)

    async def score(case: Case) -> str:
        scored = verifier.score(Sample(gold=case.gold, response=case.response))
        verdict = await scored if isinstance(scored, Awaitable) else scored
        paid = (verdict.reward == 1.0) == case.paid
        return (
            "right" if paid and verdict.ok else str(verdict.status if not verdict.ok else "wrong")
        )

    statuses: dict[str, list[str]] = defaultdict(list)
    try:
        for case, status in zip(drawn, await asyncio.gather(*map(score, drawn)), strict=True):
            statuses[case.law].append(status)
    finally:
        await asyncio.to_thread(verifier.close)
    return statuses


# --- the run ---


def judged(verifier: MathsVerifier, case: Case) -> bool:
    return (
        verifier.verify(case.gold, case.response, prompt=case.problem).reward == 1.0
    ) == case.paid


def main() -> None:
    options_of_run = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options_of_run.add_argument(
        "--misses", help="show failing cases of the laws with this in their name"
    )
    options_of_run.add_argument(
        "--half", default="look", choices=("look", "held out"), help="whose misses are shown"
    )
    options_of_run.add_argument(
        "--cases", type=int, default=12, help="cases for each phrase and half (12)"
    )
    options_of_run.add_argument("--seed", type=int, default=SEED)
    options_of_run.add_argument(
        "--load", type=int, metavar="N", help="score N samples at once, 15 %% with costly golds"
    )
    arguments = options_of_run.parse_args()
    if arguments.load:
        for law, statuses in asyncio.run(
            under_load(crowd(random.Random(arguments.seed), arguments.load, 0.15))
        ).items():
            print(law, dict(Counter(statuses)))
        return
    folder = Path(os.environ.get("LUDUS_DATA_DIR", "data")) / "math"
    verifier = MathsVerifier(workers=1)
    items = list(problems(folder))
    random.Random(SEED).shuffle(items)
    right: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for place, half in enumerate(("look", "held out")):
        rng = random.Random(arguments.seed + place)
        part = [item for item in items[place::2] if pays_itself(verifier, item)]
        drawn = [
            *cases(part, arguments.cases, rng),
            *restatements(part),
            *options(rng, 200),
            *worked(rng, 200),
            *(
                Case(*row)
                for draw in (*WORDS, *ENDINGS, *CLOSINGS, *FORMS, *REPLIES)
                for row in draw(rng, 200)
            ),
        ]
        for case in drawn:
            good = judged(verifier, case)
            right[case.law][half].append(good)
            if (
                not good
                and arguments.misses is not None
                and arguments.half == half
                and arguments.misses in case.law
            ):
                print(
                    f"[{case.law}] paid should be {case.paid}; gold {case.gold!r}: ...{case.response[-260:]!r}\n"
                )
    print("| law | look: n | right | held out: n | right |\n|---|---|---|---|---|")
    for law, halves in right.items():
        shown = [
            f"{len(halves[half])} | {sum(halves[half]) / max(1, len(halves[half])):.3f}"
            for half in ("look", "held out")
        ]
        print(f"| {law} | {' | '.join(shown)} |")
    verifier.close()


def pays_itself(verifier: MathsVerifier, item: Solved) -> bool:
    """Whether the gold in a box is paid; the other golds are counted by `--check-golds`."""
    return judged(verifier, Case("", "", item.gold, f"$\\boxed{{{item.gold}}}$", True))


if __name__ == "__main__":
    main()
