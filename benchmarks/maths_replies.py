"""Laws of whole replies: a refusal around work with numbers, a later final answer, boxes of which
one is asked for, a check behind an answer tag, an option by its sign.

Each law draws questions with their golds and says of a response whether it is paid, in both
directions. `maths_laws.py` runs these laws beside its own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from math import gcd

from maths_words import Row, worded

_REFUSES = (
    "I'm sorry, but I can't determine this reliably without further computation: {}",
    "I cannot solve this problem exactly without a computer. {}",
    "Unfortunately, I am unable to find the smallest value by hand. {}",
    "I do not know how to finish this one. {}", "I can't answer this with certainty. {}",
    "Sorry, I couldn't determine the exact value. {}",
)  # fmt: skip
_REFUSED_WORK = (
    "One has to count the factors 2 and 5 in n!. For n = {a} we get two fives, for n = {b} three.",
    "One would try values one by one. For n = {a} the condition fails, and for n = {b} it may hold.",
    "We have to compare {a} with {b}, and then all larger numbers.",
)
_REFERS = (
    " I would recommend using a computer algebra system to confirm the smallest n.",
    " Please ask a calculator.", " You may want to check it with a program.", "",
    " I hope that these hints help you to get further with the problem on your own.",
)  # fmt: skip


def refusals(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield work with numbers below an opening refusal, with and without a conclusion."""
    problem = "Find the smallest positive integer $n$ such that $n!$ is divisible by 1000."
    for _ in range(count):
        a, b = sorted(rng.sample(range(4, 60), 2))
        work = rng.choice(_REFUSED_WORK).format(a=a, b=b)
        said = rng.choice(_REFUSES).format(work)
        for gold in (a, b):
            yield Row("refusals", problem, str(gold), said + rng.choice(_REFERS), False)
        end = rng.choice((
            "\n\n\\boxed{#}", "\n\nThe answer is #.", " So the smallest n is #.", "\n\nFinal answer: **#**",
            " But then all of it holds for the first time, so n = #.", " Therefore n = #.",
        )).replace("#", str(b))  # fmt: skip
        yield Row("refusals that go on", problem, str(b), said + end, True)
        yield Row("refusals that go on", problem, str(a), said + end, False)
        said = f"{work} So the smallest n is {b}.{rng.choice(_REFERS)}"
        yield Row("no refusal", problem, str(b), said, True)


_TURNS = ("However", "But", "On the other hand", "That said", "Yet", "Still")
_FINALLY = (
    "{t}, a code should not begin with 0, so really it is {v}, and that's my final answer.",
    "{t}, a code should not begin with 0, so it is actually {v}.",
    "{t}, a code should not begin with 0, so in fact we get {v}. That is my final answer.",
    "{t}, we should not count those with 0 in front, so the number is really {v}.",
    "{t}, the first digit is not 0, so it is {v}, which is my answer.",
    "{t}, a code with 0 in front is not allowed. I go with {v} as my final answer.",
    "{t}, we should leave out those with 0 in front, which leaves {v}. That's the final answer.",
)
_MEANWHILE = (
    "{t}, if a code must not begin with 0, it would be {v}.",
    "{t}, with a first digit other than 0 there would be only {v}.",
    "{t}, for codes that do not begin with 0 the number is smaller, so really it is worth a second"
    " look at the question.",
    "{t}, note that codes with repeated digits are not counted here.",
    "In fact there are 10000 codes in all, and {v} is less than that.",
    "{t}, there are 10000 codes in all, so {v} of them repeat a digit.",
    "{t}, each code can be read from both ends, so the number of pairs is {v}.",
    "{t}, the first position has 10 options, so it is the freest of all {v}.",
    "{t}, the number of words is twice that, so it is {v}.",
    "{t}, the sum of the digits is larger, so it is {v}.",
    "{t}, some people say {v}, but that's not my answer.",
    "{t}, a code should not begin with 0 in some books, where one gets {v} instead.",
)
_WORKED = ("${}$", "$9\\cdot9\\cdot8\\cdot7={}$", "{}", "**{}**")


def changed_minds(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a box and behind it another value, which is the final answer or a remark."""
    problem = "How many 4-digit codes can be formed if no digit repeats? (A leading 0 is allowed.)"
    for _ in range(count):
        first, other = rng.sample(range(1000, 9000), 2)
        said = f"$10\\cdot9\\cdot8\\cdot7={first}$, so $\\boxed{{{first}}}$.{rng.choice((' ', chr(10) * 2))}"
        turn, shape = rng.choice(_TURNS), rng.choice(_WORKED[::2] if first % 2 else _WORKED)
        value = shape.format(4536 if "9" in shape else other)
        other = 4536 if "9" in shape else other
        later = said + rng.choice(_FINALLY).format(t=turn, v=value)
        yield Row("changed minds", problem, str(first), later, False)
        yield Row("changed minds", problem, str(other), later, True)
        later = said + rng.choice(_MEANWHILE).format(t=turn, v=value)
        yield Row("minds that stay", problem, str(first), later, True)
        yield Row("minds that stay", problem, str(other), later, False)


_TWO = (
    ("Find the least common multiple of 84 and 120.", ("LCM", "lcm", "least common multiple"),
     ("GCD", "gcd", "greatest common divisor")),
    ("Find the area of the rectangle.", ("area",), ("perimeter", "diagonal")),
    ("What is the sum of the roots of the equation?", ("sum",), ("product", "difference")),
    ("Determine the median of the data.", ("median",), ("mean", "mode", "range")),
)  # fmt: skip
_TWO_BOXES = (
    "So the {} is $\\boxed{{{}}}$ (and the {} is $\\boxed{{{}}}$).",
    "So the {} is $\\boxed{{{}}}$ (the {} is $\\boxed{{{}}}$).",
    "The {} is \\boxed{{{}}}, and the {} is \\boxed{{{}}}.",
    "Hence the {} is $\\boxed{{{}}}$, while the {} is $\\boxed{{{}}}$.",
    "the {} is $\\boxed{{{}}}$ and the {} is $\\boxed{{{}}}$",
)


def boxes_in_one_sentence(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield two boxes of one sentence with their names, of which the question asks for one."""
    for _ in range(count):
        prompt, asked, others = rng.choice(_TWO)
        a, b = rng.sample(range(3, 900), 2)
        shape, name, other = rng.choice(_TWO_BOXES), rng.choice(asked), rng.choice(others)
        said = "We work both out.\n\n" + shape.format(name, a, other, b)
        yield Row("boxes in one sentence", prompt, str(a), said, True)
        yield Row("boxes in one sentence", prompt, str(b), said, False)
        said = "We work both out.\n\n" + rng.choice(_TWO_BOXES[2:]).format(other, b, name, a)
        yield Row("boxes in one sentence", prompt, str(a), said, True)
        yield Row("boxes in one sentence", prompt, str(b), said, False)
        both = prompt[:-1] + f" and the {other}."
        gold = f"\\text{{{name}}} = {a}, \\text{{{other}}} = {b}"
        yield Row("boxes of both", both, gold, said, True)
        wrong = gold.replace(str(b), str(b + 1))
        yield Row("boxes of both", both, wrong, said, False)


_CHECKS = (
    "\n\n(Verification: ${n}-{v}$ should be divisible by 13; indeed $13\\cdot 4=52$. ✓)",
    "\n\nCheck: ${n}-{v}$ should be a multiple of 13.", " (The difference should be even, and is.)",
    "\n\n(Verification: the rest of ${n}$ should be below 13 ✓)",
)  # fmt: skip
_TAKES_BACK = (" It should be {v}.", "\n\n(Correction: it should be {v}.)", " That should be {v}.")


def checked_tags(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield an answer in a tag or a box, behind which words say what should hold."""
    for _ in range(count):
        number, (right, wrong) = rng.randrange(100, 999), rng.sample(range(1, 13), 2)
        said = rng.choice(("<answer>{}</answer>", "$\\boxed{{{}}}$.")).format(right)
        prompt = f"What is the remainder when ${number}$ is divided by 13?"
        check = rng.choice(_CHECKS).format(n=number, v=right)
        yield Row("checked tags", prompt, str(right), said + check, True)
        yield Row("checked tags", prompt, str(wrong), said + check, False)
        later = said + rng.choice(_TAKES_BACK).format(v=wrong)
        yield Row("what should be", prompt, str(right), later, False)


# --- forms of one value ---

_SHARES = (
    "{f}\\approx {p}\\,\\%", "{f} \\approx {p}\\%", "{f}\\ (\\approx {p}\\,\\%)",
    "{f}\\approx {d}\\approx {p}\\%",
)  # fmt: skip


def shares(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a fraction with the rounded percentage behind it, and another fraction."""
    for _ in range(count):
        whole = rng.choice((3, 6, 7, 9, 11, 12, 13))
        part, other = rng.sample([n for n in range(1, whole) if whole % n or n == 1], 2)
        fraction = f"\\frac{{{part}}}{{{whole}}}"
        said = rng.choice(_SHARES).format(
            f=fraction, p=f"{100 * part / whole:.2f}", d=f"{part / whole:.4f}"
        )
        prompt = "What is the probability?"
        yield Row("shares", prompt, fraction, f"\\boxed{{{said}}}", True)
        wrong = f"\\frac{{{other}}}{{{whole}}}"
        yield Row("shares, another", prompt, wrong, f"\\boxed{{{said}}}", False)


def mixed_numbers(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield mixed numbers whose parts stand apart, improper fractions, and other numbers."""
    prompt = "How many cups are needed? Give a mixed number."
    for _ in range(count):
        whole, (part, below) = rng.randrange(1, 9), rng.choice(((1, 4), (3, 4), (2, 3), (2, 5)))
        gap, name = rng.choice(("\\,", "", " ", "\\ ", "~", "\\;")), rng.choice(("frac", "tfrac"))
        unit = rng.choice(("", "\\text{ cups}"))
        gold = f"{whole}\\frac{{{part}}}{{{below}}}"
        said = f"\\boxed{{{whole}{gap}\\{name}{{{part}}}{{{below}}}{unit}}}"
        yield Row("mixed numbers", prompt, gold, said, True)
        yield Row("mixed numbers, another", prompt, gold.replace(str(whole), "9", 1), said, False)
        improper = f"\\boxed{{\\{name}{{{whole * below + part}}}{{{below}}}{unit}}}"
        yield Row("mixed numbers, improper", prompt, gold, improper, False)


_DIVIDED = (
    "Quotient {q}, remainder {r} ✔️", "Quotient: {q}, remainder: {r}", "{q} R {r}",
    "The quotient is {q} and the remainder is {r}.", "**Quotient:** {q}\n**Remainder:** {r}",
    "So the quotient is {q}, with remainder {r}.", "quotient = {q}, remainder = {r}",
)  # fmt: skip
_DIVISIONS = (
    "q={q},\\ r={r}", "{q} R {r}", "quotient {q}, remainder {r}",
    "\\text{{quotient }} {q},\\ \\text{{remainder }} {r}",
)  # fmt: skip


def divisions(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the parts of a division by their names, for golds that have them as letters too."""
    for _ in range(count):
        gold = rng.choice(_DIVISIONS)
        quotient, remainder = rng.sample(range(2, 30), 2)
        prompt = (
            f"Find the quotient and remainder when {31 * quotient + remainder} is divided by 31."
        )
        said = f"31 · {quotient} = {31 * quotient}.\n\n" + rng.choice(_DIVIDED).format(
            q=quotient, r=remainder
        )
        if "\n**" in said and " R " in gold:
            continue
        yield Row("divisions", prompt, gold.format(q=quotient, r=remainder), said, True)
        for q, r in ((remainder, quotient), (quotient, remainder + 1)):
            yield Row("divisions, another", prompt, gold.format(q=q, r=r), said, False)


_SPELT = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")  # fmt: skip
_RATIOS = (
    "blue to white is {} to {}.", "So the ratio is {} to {}.", "The ratio of blue to white is {} to {}.",
    "Dividing both numbers by 5, blue to white is {} to {}.", "Hence it is {} to {}.",
)  # fmt: skip
_ROOTS = ("the ratio of sides is its square root: {}.", "so we take its square root: {}.")


def ratios_in_words(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a ratio in words or digits or as a quotient, and the ratio turned round."""
    for _ in range(count):
        (first, second), spelt = rng.sample((2, 3, 5, 7, 11), 2), rng.random() < 0.7
        pair = [_SPELT[n] if spelt else str(n) for n in (first, second)]
        prompt = "Find the ratio of blue to white in simplest form."
        said = "15 and 25 have the divisor 5.\n\n" + rng.choice(_RATIOS).format(*pair)
        yield Row("ratios in words", prompt, f"{first}:{second}", said, True)
        yield Row("ratios in words, turned", prompt, f"{second}:{first}", said, False)
        box = rng.choice((f"$\\boxed{{\\frac{first}{second}}}$", f"\\boxed{{{first}:{second}}}"))
        box = box.replace("\\frac11", "\\frac{1}{1}") if min(first, second) > 9 else box
        box = f"$\\boxed{{\\frac{{{first}}}{{{second}}}}}$" if "frac" in box else box
        prompt = "Two similar triangles have areas of this ratio. What is the ratio of their sides?"
        said = f"Of ${first**2}:{second**2}$ " + rng.choice(_ROOTS).format(box)
        yield Row("ratios as roots", prompt, f"{first}:{second}", said, True)
        yield Row("ratios as roots, turned", prompt, f"{second}:{first}", said, False)


# --- numerals and units of other scripts ---

_MONEYS = (
    ("今年收入是多少元？", "元", ("今年收入是 {} 元。", "**答：{}元**", "\\boxed{{{}元}}"), ("万", "亿")),
    ("全部で何円ですか。", "円", ("答え：{}円", "よって {} 円です。", "\\boxed{{{}円}}"), ("万", "億")),
    ("모두 얼마입니까?", "원", ("답: {} 원", "따라서 답은 **{}원**입니다.", "\\boxed{{{} 원}}"), ("만", "억")),
)  # fmt: skip


def myriads(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield amounts in myriads, for golds in digits and the other way round."""
    for _ in range(count):
        prompt, unit, shapes, (small, large) = rng.choice(_MONEYS)
        many = rng.randrange(2, 900)
        size, sign = rng.choice(((10**4, small), (10**4, small), (10**8, large)))
        digits, short = str(many * size), rng.choice((f"{many}{sign}", f"{many} {sign}"))
        shape = rng.choice(shapes)
        digits_gold, short_gold = digits + unit, f"{many}{sign}{unit}"
        yield Row("myriads", prompt, digits_gold, "12 × 8.\n\n" + shape.format(short), True)
        yield Row("myriads", prompt, short_gold, "12 × 8.\n\n" + shape.format(digits), True)
        for wrong in (many, many * size * 10):
            said = "12 × 8.\n\n" + shape.format(wrong)
            yield Row("myriads, another", prompt, short_gold, said, False)


_TIMES = (
    ("終わるのは何時何分ですか。", "午前", "午後", "時", "分", ("答え：{}", "終わるのは{}です。", "\\boxed{{{}}}")),
    ("几点几分结束？", "上午", "下午", "点", "分", ("答：{}", "所以是{}。", "\\boxed{{{}}}")),
    ("끝나는 시각은 몇 시 몇 분입니까?", "오전", "오후", "시 ", "분", ("답: {}", "\\boxed{{{}}}")),
)  # fmt: skip


def clocks(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield times of day with halves or 24 hours, and the time of the other half."""
    for _ in range(count):
        prompt, am, pm, hours, minutes, shapes = rng.choice(_TIMES)
        hour, minute = rng.randrange(1, 11), rng.randrange(10, 60)
        late = f"{pm}{hour}{hours}{minute}{minutes}"
        whole = rng.choice((f"{hour + 12}{hours}{minute}{minutes}", f"{hour + 12}:{minute}"))
        gold, said = rng.sample((late, whole), 2)
        shape = rng.choice(shapes)
        yield Row("clocks", prompt, gold, shape.format(said), True)
        early = f"{am}{hour}{hours}{minute}{minutes}"
        yield Row("clocks, the other half", prompt, gold, shape.format(early), False)
        later = said.replace(str(minute), str(minute - 1))
        yield Row("clocks, another", prompt, gold, shape.format(later), False)


_CIRCLES = "①②③④"
_CIRCLED_ENDS = (
    "정답: {}",
    "정답은 {}입니다.",
    "\\boxed{{{}}}",
    "答案：{}",
    "答え：{}",
    "故选{}。",
)


def circled_options(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield options by their signs, for golds that are signs or values."""
    for _ in range(count):
        values = rng.sample((*range(1, 7), *range(10, 90, 9)), 4)
        listed = " ".join(f"{sign} {value}" for sign, value in zip(_CIRCLES, values, strict=True))
        prompt = f"다음 중 두 수의 최대공약수는? {listed}"
        right, wrong = rng.sample(range(4), 2)
        said = "12 = 2²·3.\n\n" + rng.choice(_CIRCLED_ENDS[:5]).format(_CIRCLES[right])
        for gold in (str(values[right]), _CIRCLES[right]):
            yield Row("circled options", prompt, gold, said, True)
        for gold in (str(values[wrong]), _CIRCLES[wrong]):
            yield Row("circled options, another", prompt, gold, said, False)
        number = rng.randrange(1, 5)  # of an option, or the value of one
        paid = number == (values[right] if number in values else right + 1)
        yield Row("circled options by number", prompt, str(number), said, paid)
        said = f"12 = 2²·3.\n\n정답: {number}번"
        paid = right == (values.index(number) if number in values else number - 1)
        yield Row("circled options by number", prompt, _CIRCLES[right], said, paid)
        said = f"12 = 2²·3.\n\n정답: {values[right]}"
        yield Row("circled options by value", prompt, _CIRCLES[right], said, True)


# --- what programs print ---

_LITERALS = (
    "So it is {}.",
    "\\boxed{{{}}}",
    "Reading upwards:\n\n```\n{}\n```",
    "The answer is {}.",
)


def literals(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield numerals as programs write them, for golds in a base or with plain digits."""
    for _ in range(count):
        number, (sign, base, name) = (
            rng.randrange(33, 500), rng.choice((("b", 2, "binary"), ("o", 8, "octal"))),
        )  # fmt: skip
        shape = rng.choice(_LITERALS)
        prompt = f"Convert {number} (base ten) to {name}."
        for value, paid in ((number, True), (number + 1, False)):
            gold = rng.choice((f"{value:{sign}}_{base}", f"{value:{sign}}_{{{base}}}"))
            said = "We divide again and again. " + shape.format(f"0{sign}{number:{sign}}")
            yield Row("literals" if paid else "literals, another", prompt, gold, said, paid)
        number = rng.randrange(10**6, 10**13)
        said = f"f'{{x:_}}' prints it.\n\nSo n = {number:_}."
        said = rng.choice((said, f"\\boxed{{{number:_}}}", f"The answer is {number:_}."))
        yield Row("underscores", "What is n?", str(number), said, True)
        yield Row("underscores, another", "What is n?", str(number + 1), said, False)


_OUTPUTS = ("Output:\n\n```\n{}\n```", "**Output:**\n```\n{}\n```", "```output\n{}\n```")
_AFTERWARDS = (
    "", "\n\nTakes well under a second; the loop tests 100 candidates.", "\n\nThe program runs fast.",
    "\nThis took 2 steps of work by hand before.", "\n\nThe code uses a sieve of size 100.",
)  # fmt: skip


def outputs(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield what a program prints, with a remark behind it or with another conclusion."""
    for _ in range(count):
        right, wrong = rng.sample(range(3, 90), 2)
        code = "```python\nprint(sum(is_prime(n) for n in range(100)))\n```\n\n"
        said = code + rng.choice(_OUTPUTS).format(right)
        prompt = "How many primes are less than 100?"
        afterwards = rng.choice(_AFTERWARDS)
        yield Row("outputs", prompt, str(right), said + afterwards, True)
        yield Row("outputs, another", prompt, "100", said + afterwards, False)
        later = f"{said}\n\nThe bound is wrong, so the number of primes is {wrong}."
        yield Row("outputs, concluded", prompt, str(wrong), later, True)
        yield Row("outputs, concluded", prompt, str(right), later, False)


def records(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield records of several named values, for golds of all of them or of one."""
    for _ in range(count):
        names = rng.sample(("hypotenuse", "perimeter", "area", "radius"), 2)
        values = rng.sample(range(2, 90), 2)
        rows = [*zip(names, values, strict=True)]
        text = ", ".join(f'"{name}": {value}' for name, value in rng.sample(rows, 2))
        said = rng.choice(("{{{}}}", "```json\n{{{}}}\n```")).format(text)
        prompt = f"Find the {names[0]} and the {names[1]}. Return JSON."
        gold = ", ".join(f"{name} {value}" for name, value in rows)
        yield Row("records", prompt, gold, said, True)
        swapped = ", ".join(
            f"{name} {value}" for name, value in zip(names, values[::-1], strict=True)
        )
        for wrong in (swapped, str(values[0]), gold.replace(str(values[1]), "99")):
            yield Row("records, another", prompt, wrong, said, False)


# --- words that conclude ---

_ABSENT = (
    "Quindi il limite **non esiste**.", "Quindi il limite non esiste.", "Donc la limite n'existe pas.",
    "Also existiert der Grenzwert nicht.", "Der Grenzwert existiert **nicht**.",
    "Por tanto, el límite **no existe**.", "Logo, o limite não existe.", "Hence the limit does **not** exist.",
    "So the limit doesn't exist.", "Значит, предел **не существует**.", "所以极限**不存在**。",
    "したがって極限は存在しない。",
)  # fmt: skip
_PRESENT = (
    "Quindi il limite esiste e vale {}.", "Donc la limite existe et vaut {}.", "Also ist der Grenzwert {}.",
    "Por tanto, el límite es {}.", "So the limit exists and equals {}.", "Значит, предел равен {}.",
)  # fmt: skip


def absent_limits(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield limits that do not exist, behind values of the work, and limits that do."""
    for _ in range(count):
        value = rng.randrange(1, 9)
        work = rng.choice(("$f(x_n)\\to 0$, $f(y_n)\\to {}$. ", "0 ≠ {}. ")).format(value)
        prompt = "Find $\\lim_{x\\to\\infty} f(x)$ if it exists."
        said = work + rng.choice(_ABSENT)
        yield Row("absent limits", prompt, "\\text{DNE}", said, True)
        yield Row("absent limits", prompt, "\\text{does not exist}", said, True)
        yield Row("absent limits", prompt, str(value), said, False)
        said = work + rng.choice(_PRESENT).format(value)
        yield Row("limits", prompt, str(value), said, True)
        yield Row("limits", prompt, "\\text{DNE}", said, False)


_DIVERGES = (
    "By the test for divergence the series can't converge — it is divergent.", "So it is divergent.",
    "Hence the series does not converge.", "The series fails to converge.", "Thus the series diverges.",
    "So the series can't converge.", "Hence the series is not convergent.",
)  # fmt: skip
_CONVERGES = (
    "By comparison the series cannot diverge — it is convergent.", "So it is convergent.",
    "Hence the series converges.", "Thus it converges by comparison.",
)  # fmt: skip


def convergence(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield series that diverge, also said by a denial, and series that converge."""
    for _ in range(count):
        prompt = "Does $\\sum_{n=1}^\\infty \\frac{n}{2n+1}$ converge or diverge?"
        work = rng.choice(("The terms tend to 1/2, not 0. ", "We compare with 1/n.\n\n", ""))
        takeaway = rng.choice(("", "\n\n**Key takeaway:** always look at the terms first."))
        for ends, right, wrong in (
            (_DIVERGES, "diverges", "converges"), (_CONVERGES, "converges", "diverges"),
        ):  # fmt: skip
            said = work + rng.choice(ends) + takeaway
            yield Row("convergence", prompt, f"\\text{{{right}}}", said, True)
            yield Row("convergence, the other", prompt, f"\\text{{{wrong}}}", said, False)


# --- classes and units ---


def classes_in_brackets(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a class of numbers with the set of its letter in brackets, and another class."""
    for _ in range(count):
        modulus = rng.randrange(5, 40)
        rest, turns = rng.randrange(1, modulus), rng.choice((-1, 0, 1))
        other = (rest + rng.randrange(1, modulus)) % modulus
        gap, name = rng.choice(("\\ ", "\\quad", " ", "\\;", "~")), rng.choice("kntm")
        said = f"\\boxed{{x={modulus}{name}{rest + turns * modulus:+d}{gap}({name}\\in\\mathbb Z)}}"
        said = said.replace("\\mathbb Z", rng.choice(("\\mathbb Z", "\\mathbb{Z}")))
        prompt = "Find all integers $x$ with these remainders."
        for gold, paid in (
            (f"x\\equiv{rest}\\pmod{{{modulus}}}", True), (f"x\\equiv{other}\\pmod{{{modulus}}}", False),
            (f"x\\equiv{rest}\\pmod{{{2 * modulus}}}", False),
        ):  # fmt: skip
            law = "classes in brackets" if paid else "classes in brackets, another"
            yield Row(law, prompt, gold, said, paid)


_PER = (
    ("metres per second squared", "m/s^2", "m/s"), ("meters per second squared", "m/s^2", "m/s"),
    ("kilograms per metre cubed", "kg/m^3", "kg/m"), ("centimeters per second squared", "cm/s^2", "cm/s"),
    ("newtons per metre squared", "N/m^2", "N/m"), ("meters per second", "m/s", "m/s^2"),
)  # fmt: skip


def powers_in_words(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a unit in words with a power behind what it is per, and the unit without it."""
    for _ in range(count):
        (words, unit, other), value = rng.choice(_PER), rng.randrange(2, 13)
        said = rng.choice((str(value), _SPELT[value]))
        shape = rng.choice(("It is {} {}.", "Hence the value is {} {}.", "So we get {} {}."))
        said = f"We divide both.\n\n{shape.format(said, words)}"
        for gold, paid in (
            (f"{value}\\ \\mathrm{{{unit}}}", True), (f"{value}\\ \\mathrm{{{other}}}", False),
            (f"{value + 1}\\ \\mathrm{{{unit}}}", False),
        ):  # fmt: skip
            law = "powers in words" if paid else "powers in words, another"
            yield Row(law, "What is its value?", gold, said, paid)


# --- final values in prose ---

_PROBLEM = "A garden is laid out in two parts. How long is the fence around the garden?"
_LAID = (
    "The two sides are 7 and 12.\n\n", "We have $w = 7$ and the length is $12$.\n\n",
    "With w = 7 we get 2·7 + 2·12.\n\n",
)  # fmt: skip
_PROSE_ENDS = (
    "A fence all the way round the garden would therefore take # metres of wire.",
    "Going round the garden therefore takes # metres of wire, and this is the length we wanted.",
    "So one needs # metres of fence to close the garden in.",
    "Hence the required length is # (@).", "Hence the length is # (@); both sides count twice.",
    "The fence is # (@) metres long.", "The fence is # metres long because & would not suffice.",
    "So we need # metres since & will not fit.", "Hence # metres are needed as & metres are too few.",
)  # fmt: skip
_PROSE_OTHERS = (
    "A fence of # metres would therefore not be enough.", "So # metres of fence are too few.",
    "The fence is not # (@) metres long.", "If the garden were a square, we would need # metres.",
    "So @ m of this wire is far too little.", "So @ m of wire would not be enough.",
    "It is & m. With a gate of 2 m it would therefore be # metres.",
)  # fmt: skip
_CHINESE = (
    "笼中有兔#只（@只），鸡 23 只。",
    "**答**：笼中有兔#只（@只），鸡 23 只。",
    "答：兔有#只（@ 只）。",
)
_TEN_SIGNS = "零一二三四五六七八九十"


def values_of_prose(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a final value in words within prose, perhaps with its digits in brackets."""
    for _ in range(count):
        value, other = rng.sample(range(21, 100), 2)
        said = rng.choice(_LAID) + rng.choice(_PROSE_ENDS)
        said = said.replace("#", worded(value, "English")).replace("@", str(value))
        said = said.replace("&", str(other))
        for gold, paid in ((value, True), (other, False), (12, False)):
            yield Row("values of prose", _PROBLEM, f"{gold} m", said, paid)
        said = rng.choice(_LAID) + rng.choice(_PROSE_OTHERS)
        said = said.replace("#", worded(value, "English")).replace("@", str(value))
        said = said.replace("&", str(other))
        yield Row("values of prose, refused", _PROBLEM, f"{value} m", said, False)
        value = rng.randrange(11, 20)
        sign = "十" + _TEN_SIGNS[value - 10]
        said = "设兔有 $y$ 只，$2y=24$。\n\n" + rng.choice(_CHINESE).replace("#", sign)
        for gold, paid in ((value, True), (23, False)):
            answer = said.replace("@", str(value))
            yield Row("values of prose, Chinese", "问兔有多少只？", str(gold), answer, paid)


_PARTS_OF = (
    "dividing both numbers by six shows that # of the students do.", "So # of the class take part.",
    "Hence # of the students play a sport.", "That means # of all students do.",
    "In lowest terms that is # of the students.", "We see that # of them play.",
)  # fmt: skip
_NO_PARTS = (
    "So more than # of the students do.", "So nearly # of them play.", "Not # of the students do.",
    "Another # of the students would have to join.", "So at least # of the students do.",
)  # fmt: skip
_BELOW_TEN = {3: "third", 4: "quarter", 5: "fifth", 7: "seventh", 8: "eighth", 9: "ninth"}
_DOZENS = (
    "he has # melons in total.", "So there are # melons.", "Together that makes # melons.",
    "So he has got # of melons.", "The baskets hold # melons.",
)  # fmt: skip


def parts_of_prose(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield fractions and dozens in the words of a sentence, and sentences that only bound them."""
    for _ in range(count):
        below, part = rng.choice(((3, 2), (4, 3), (5, 2), (5, 3), (7, 4), (8, 5), (9, 4)))
        words = f"{_SPELT[part]}{rng.choice(' -')}{_BELOW_TEN[below]}s"
        prompt = f"Of {6 * below} students, {6 * part} play a sport. What fraction is this?"
        lead = rng.choice((f"{6 * part} of the {6 * below} students play; ", "We reduce. ", ""))
        said = lead + rng.choice(_PARTS_OF).replace("#", words)
        for gold, paid in ((f"\\frac{{{part}}}{{{below}}}", True), (str(6 * part), False),
                           (f"\\frac{{{below - part}}}{{{below}}}", False)):  # fmt: skip
            yield Row("parts of prose", prompt, gold, said, paid)
        said = lead + rng.choice(_NO_PARTS).replace("#", words)
        gold = f"\\frac{{{part}}}{{{below}}}"
        yield Row("parts of prose, bounded", prompt, gold, said, False)
        dozens = rng.randrange(1, 6)
        prompt = f"A farmer has 4 baskets with {3 * dozens} melons each. How many melons are these?"
        words = "a dozen" if dozens == 1 else f"{_SPELT[dozens]} dozen"
        lead = rng.choice((f"Four baskets of {3 * dozens} melons: ", "We multiply. ", ""))
        said = lead + rng.choice(_DOZENS).replace("#", words)
        for number, paid in ((12 * dozens, True), (3 * dozens, False), (dozens, False)):
            yield Row("dozens", prompt, str(number), said, paid)


_ONLY_FUNCTIONS = (
    "Therefore ${}$ is the only possibility.", "Hence the only such function is ${}$.",
    "So ${}$ is the unique solution.", "Therefore ${}$ for all real $x$.", "Thus ${}$.",
)  # fmt: skip
_TRIED = (
    ", and it does satisfy the equation:\n${g}+2({h})={t}=3x$ ✓.",
    " Check: ${g}+2({h})={t}=3x$.",
    " It works:\n\n$${g}+2({h})={t}=3x$$", " Indeed, ${g}+2({h})=3x$ ✓", "",
    "\n\nSubstituting back gives ${g}+2({h})=3x$, as required.",
)  # fmt: skip


def functions(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a function that a sentence finds, with a check behind, for golds of another order."""
    prompt = "Find all functions $f:\\mathbb{R}\\to\\mathbb{R}$ with $f(x)+2f(1-x)=3x$ for all $x$."
    for _ in range(count):
        a, b = rng.randrange(2, 9), rng.randrange(2, 9)
        found = rng.choice(_ONLY_FUNCTIONS).format(f"f(x)=-{a}x+{b}")
        tried = rng.choice(_TRIED)
        found = found.rstrip(".") if tried[:1] == "," else found
        tried = tried.format(g=f"({b}-{a}x)", h=f"{b}-{a}+{a}x", t=f"{b}-{a}x+{2 * b}+3x")
        said = f"Replace $x$ by $1-x$: $f(1-x)+2f(x)=3-3x$.\n\n{found}{tried}"
        yield Row("functions", prompt, f"f(x)={b}-{a}x", said, True)
        yield Row("functions, another", prompt, f"f(x)={b}-{a + 1}x", said, False)
        yield Row("functions, another", prompt, f"f(x)={b + 1}-{a}x", said, False)


_VALUES_ASKED = (
    ("Find the polynomial $p(x)$ with $p(0)=1$. What is $p(3)$?", "Then $p(3)={}$."),
    ("Find the polynomial $p(x)$ of degree 1 with $p(0)=1$. Find $p(3)$.", "Hence $p(3)={}$."),
    ("Find the polynomial $p(x)$ with $p(0)=1$. What is its value at 3?", "Its value at 3 is {}."),
    ("Find the number of polynomials $p(x)$ with such values.", "In total there are {}."),
)  # fmt: skip


def values_of_functions(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a function with a number behind it, for a question that wants the number."""
    for _ in range(count):
        (prompt, shape), slope = rng.choice(_VALUES_ASKED), rng.randrange(2, 9)
        found, value = f"p(x)={slope}x+1", 3 * slope + 1
        said = rng.choice(("So ${}$. ", "Therefore ${}$ is one.\n\n")).format(found)
        said += shape.format(value)
        for gold, paid in ((str(value), True), (str(value + 1), False), (found, False)):
            law = "values of functions" if paid else "values of functions, another"
            yield Row(law, prompt, gold, said, paid)


_NAMED_FIELDS = (
    ("Find the mean of the numbers 4 and 9.", "mean", "median numbers the of 4"),
    ("What is the area of a field with a perimeter of 9 m?", "area", "perimeter field 9"),
    ("What is the total cost in euros?", "total_cost", "discount in euros"),
    ("How many pages does he read in 3 days?", "pages", "days he 3"),
    ("Find $x$, where $x+y=8$.", "x", "y"), ("Find $x+y$ for these.", "answer", "x y"),
    ("How many more apples than pears are there?", "answer", "apples pears"),
    ("What is the ratio of boys to girls?", "answer", "boys girls"),
)  # fmt: skip
_FENCES = ("{}", "```json\n{}\n```", "```\n{}\n```")


def single_records(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a record with one field, which names what is asked or something else, also below a line
    that takes the record back.
    """
    for _ in range(count):
        prompt, name, others = rng.choice(_NAMED_FIELDS)
        other = rng.choice(others.split())
        value = rng.randrange(2, 99)
        work = rng.choice(("", "4 + 8 = 12\nCount: 6\n\n", "We add up.\n\n"))
        for field, number, paid in ((name, value, True), (name, value + 1, False),
                                    (other, value, False)):  # fmt: skip
            said = work + rng.choice(_FENCES).format(f'{{"{field}": {number}}}')
            law = "single records" if paid else "single records, another"
            yield Row(law, prompt, str(value), said, paid)
        said = f'The answer is {value + 1}.\n\nThis would be wrong:\n{{"{name}": {value}}}'
        if name != "answer":
            yield Row("single records, refused", prompt, str(value), said, False)
        said = f'{{"{name}": {value}, "{others.split()[0]}": {value + 1}}}'
        yield Row("records with more", prompt, str(value), said, True)


# --- labels and units around values ---

_TIMED = ("**Time: {}**", "**Time:** {}", "**Total time: {}**", "**Answer: {}**", "Time = {}")
_SPENT = (
    "Time spent: {} minutes",
    "Time: {} minutes of work",
    "(Time: {} min)",
    "Time taken: {} min",
)
_TIMED_CHAINS = ("{m} min = {w} min + {r} min = {}\n\n", "{m} / 60 = {h} remainder {r}\n\n", "")


def labelled_durations(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a duration in two units behind a label, and other durations."""
    for _ in range(count):
        hours, minutes = rng.randrange(1, 9), rng.randrange(5, 59)
        prompt = "How long does the machine need? Give hours and minutes."
        gold = rng.choice((f"{hours} hours {minutes} minutes", f"{hours} h {minutes} min"))
        duration = rng.choice(("{} h {} min", "{} hours {} minutes", "{} hours and {} minutes"))
        for minute, paid in ((minutes, True), (minutes + 1, False)):
            value = duration.format(hours, minute)
            chain = rng.choice(_TIMED_CHAINS).format(
                f"{hours} h {minute} min", m=60 * hours + minute, w=60 * hours, r=minute, h=hours
            )
            said = chain + rng.choice(_TIMED).format(value)
            law = "labelled durations" if paid else "labelled durations, another"
            yield Row(law, prompt, gold, said, paid)
        said = f"So the machine needs {duration.format(hours, minutes)}.\n\n"
        said += rng.choice(_SPENT).format(other := rng.randrange(2, 5))
        yield Row("durations and remarks", prompt, gold, said, True)
        yield Row("durations and remarks", prompt, f"{other} minutes", said, False)


_OHMS = (
    ("Find the resistance.", "R = V / I = {a} V / {b} A", "ohm", "ohms", "Ω"),
    ("Find the speed.", "v = s / t = {a} m / {b} s", "m/s", "metres per second", "m/s"),
    ("Find the power.", "P = W / t = {a} J / {b} s", "W", "watts", "W"),
    ("Find the density.", "d = m / V = {a} g / {b} mL", "g/mL", "g/mL", "g/mL"),
)  # fmt: skip
_WHICH_IS = (", which is {} {}.", ", which makes {} {}.", ", that is {} {}.", ", i.e. {} {}.",
             ", which comes to {} {}.")  # fmt: skip
_WHICH_ONLY = (", which is {} times as much as before.", ", which is {} percent of that.",
               ", which is not {}.", ", which is {} more than before.")  # fmt: skip


def chains_spoken_on(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a chain with units whose value stands in the clause behind it."""
    for _ in range(count):
        prompt, chain, sign, words, symbol = rng.choice(_OHMS)
        below, value = rng.randrange(2, 9), rng.randrange(10, 60)
        lead = rng.choice(("The law gives ", "", "We have ", "So "))
        said = lead + chain.format(a=below * value, b=below)
        said += rng.choice(_WHICH_IS).format(value, rng.choice((words, symbol)))
        for gold, paid in ((value, True), (below, False), (value + 1, False)):
            law = "chains spoken on" if paid else "chains spoken on, another"
            yield Row(law, prompt, f"{gold} {rng.choice((sign, symbol))}", said, paid)
        work = lead + chain.format(a=below * value, b=below)
        beside = work + rng.choice(_WHICH_ONLY).format(value)
        twice = f"{lead}2{work.removeprefix(lead)}" + rng.choice(_WHICH_IS[::3]).format(
            value, symbol
        )
        for said in (beside, twice):
            yield Row("chains spoken on, beside", prompt, f"{value} {symbol}", said, False)


_WORLD_UNITS = (
    ("Tính vận tốc trung bình của ô tô.", "km/giờ", "km/h", "m/giờ", "Đáp số: {}"),
    ("Jaka jest prędkość pociągu?", "km/godz.", "km/h", "m/h", "Odpowiedź: {}"),
    ("Trenin hızı kaç km/saattir?", "km/saat", "km/h", "m/saat", "Cevap: {}"),
    ("Berapa kecepatan mobil itu?", "km/jam", "km/h", "m/jam", "Jawaban: {}"),
    ("Hoe snel rijdt de trein?", "km/uur", "km/h", "m/uur", "Antwoord: {}"),
    ("Vad är tågets hastighet?", "km/tim", "km/h", "m/tim", "Svar: {}"),
    ("Quanto custou a bicicleta?", "reais", "R$", "centavos", "Logo, ela custou {}."),
    ("Qual o novo preço?", "reais", "R$", "centavos", "Logo, o novo preço é de {}."),
)  # fmt: skip


def world_units(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield units in the words of other languages, for golds in signs and the other way round."""
    for _ in range(count):
        prompt, word, sign, other, shape = rng.choice(_WORLD_UNITS)
        value = rng.randrange(12, 99)
        money = word == "reais"
        digits = f"{value},00" if money and rng.random() < 0.5 else str(value)
        sides = [f"{value} {word}", f"R$ {digits}" if money else f"{value} {sign}"]
        work = f"Novo preço = {value - 2} + 2 = {value}\n\n" if money else "165 : 3\n\n"
        gold, said = rng.sample(sides, 2)
        gold = gold.replace("$", "\\$")
        yield Row("world units", prompt, gold, work + shape.format(said), True)
        said = work + shape.format(f"{value} {other}")
        yield Row("world units, another", prompt, gold, said, False)


# --- options ---

_UNIT_OPTIONS = (
    ("What is the SI unit of electric resistance?", ("volt", "ohm", "ampere", "watt")),
    ("Which planet is closest to the sun?", ("Venus", "Mercury", "Mars", "Earth")),
    ("Which of these shapes has four equal sides?", ("kite", "rhombus", "trapezoid", "rectangle")),
    ("Which gas do plants take in?", ("oxygen", "carbon dioxide", "helium", "argon")),
)
_CONTENT_ENDS = (
    "The others measure other things; resistance is R = V/I and has the unit **{}**.",
    "So it is the **{}**.", "Comparing all four in turn, it must be **{}**.",
    "We check them one by one, and what fits is the **{}**.", "That means the answer is **{}**.",
)  # fmt: skip
_CONTENT_OTHERS = (
    "It is certainly not the **{}**.",
    "One might think of the **{}**, but that is wrong.",
    "Many people would say **{}**.",
    "Animals need **{}**.",
    "It is the second. The first gives off **{}**.",
)
_LETTER_PAIRS = (
    "**{} and {}**",
    "**{}, {}**",
    "{} and {}",
    "({}) and ({})",
    "So it is **{}** and **{}**.",
)


def contents_of_options(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the content of an option in bold for a gold letter, and pairs of letters."""
    for _ in range(count):
        question, options = rng.choice(_UNIT_OPTIONS)
        listed = "\n".join(
            f"{letter}. {text}" for letter, text in zip("ABCD", options, strict=True)
        )
        right, wrong = rng.sample("ABCD", 2)
        text = options["ABCD".index(right)]
        said = "We go through them.\n\n" + rng.choice(_CONTENT_ENDS).format(text)
        yield Row("contents of options", f"{question}\n{listed}", right, said, True)
        yield Row("contents of options", f"{question}\n{listed}", wrong, said, False)
        said = "We go through them.\n\n" + rng.choice(_CONTENT_OTHERS).format(text)
        yield Row("contents of options, refused", f"{question}\n{listed}", right, said, False)
        primes = rng.sample((53, 59, 61, 67), 2) + rng.sample((51, 57, 63, 69), 2)
        rng.shuffle(primes)
        pairs = [*zip("ABCD", primes, strict=True)]
        prompt = "Which of the following are prime? (Select all.)\n"
        prompt += "\n".join(f"{letter}. {number}" for letter, number in pairs)
        work = "\n".join(f"- {n} {'✗' if n % 3 == 0 else 'prime ✓'}" for n in primes)
        both = [letter for letter, number in pairs if number % 3]
        shape = rng.choice(_LETTER_PAIRS)
        said = f"{work}\n\n{shape.format(*both)}"
        yield Row("pairs of letters", prompt, ", ".join(both), said, True)
        said = f"{work}\n\n{rng.choice(_NOT_THE_LETTERS).format(*both)}"
        yield Row("pairs of letters, refused", prompt, ", ".join(both), said, False)
        for other in "ABCD":
            if other not in both:
                gold = ", ".join(sorted((both[0], other)))
                yield Row("pairs of letters, others", prompt, gold, said, False)


_NOT_THE_LETTERS = ("The numbers that are not prime are {} and {}.", "Not {} and {}.",
                    "Everything is prime but options {} and {}", "All except {} and {}.")  # fmt: skip
_OPTION_NUMBERS = ("So it is ({}).", "Hence ({}) is prime.", "The answer is ({}).", "**({})**",
                   "So the correct one is ({}).", "Therefore ({}).")  # fmt: skip


def option_numbers(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the number of an option in brackets, for golds of its number or its value."""
    for _ in range(count):
        values = rng.sample((14, 16, 17, 18, 19, 22, 25, 27), 4)
        listed = "\n".join(f"({n}) {value}" for n, value in enumerate(values, start=1))
        prompt = f"Which of these is the one?\n{listed}"
        right, wrong = rng.sample(range(4), 2)
        lead = rng.choice((f"{values[wrong]} fails.", f"It is odd and not {values[wrong]}."))
        said = f"{lead} " + rng.choice(_OPTION_NUMBERS).format(right + 1)
        for gold, paid in ((right + 1, True), (wrong + 1, False),
                           (values[right], True), (values[wrong], False)):  # fmt: skip
            law = "option numbers" if paid else "option numbers, another"
            yield Row(law, prompt, str(gold), said, paid)


def numbered_equations(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield formulas of bracketed digits for a question whose equations have such numbers."""
    for _ in range(count):
        below = rng.choice((5, 7))
        prompt = f"Let $x+y={below}$ (1) and $x-y=1$ (2). Which value has the expression?"
        for gold, other, said in (
            (f"\\frac{{2}}{{{below}}}", "2", f"The answer is (2)/({below})."),
            (f"{2 * below}", "2", f"The answer is (2)({below})."),
            (f"{below + 2}", "2", f"The answer is (2) + ({below})."),
            (f"{below}", "2", f"So the value is {below} (2)."),
        ):
            yield Row("numbered equations", prompt, gold, said, True)
            yield Row("numbered equations, another", prompt, other, said, False)


# --- parts, cases, several unknowns ---

_PART_HEADS = (
    "**(a)** {}\n\n**(b)** {}",
    "(a) {}\n\n(b) {}",
    "(a) {}\n(b) {}",
    "Part (a): {}\n\nPart (b): {}",
)
_ZEROS = (
    "$x^2-{s}x+{p}=(x-{a})(x-{b})$, so the zeros are $x={a}$ and $x={b}$.",
    "We factor: (x - {a})(x - {b}). The zeros are {a} and {b}.", "The zeros are x = {a}, x = {b}.",
    "Setting f(x) = 0 gives $x = {a}$ or $x = {b}$.",
)  # fmt: skip
_LEAST = (
    "Completing the square gives the vertex. The minimum value is ${}$.", "So f takes its least value {}.",
    "The minimum is at the vertex, so the minimum value is {}.",
)  # fmt: skip


def parts_of_several(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the parts of a solution, one of which has two values."""
    for _ in range(count):
        a, b = sorted(rng.sample(range(1, 9), 2))
        least = rng.randrange(-9, -1)
        prompt = f"Let $f(x)=x^2-{a + b}x+{a * b}$. (a) Find the zeros. (b) Find the minimum value."
        zeros = rng.choice(_ZEROS).format(s=a + b, p=a * b, a=a, b=b)
        said = rng.choice(_PART_HEADS).format(zeros, rng.choice(_LEAST).format(least))
        for gold, paid in ((f"(a) {a}, {b}; (b) {least}", True), (f"(a) {a}, {b}; (b) {b}", False),
                           (f"(a) {a}, {b + 1}; (b) {least}", False)):  # fmt: skip
            yield Row("parts of several", prompt, gold, said, paid)
        gold = f"(a) {a}, {b}; (b) {least}"
        for said, paid in (
            (gold, True), (f"(b) {least}; (a) {b}, {a}", True), (f"(b) {a}, {b}; (a) {least}", False),
        ):  # fmt: skip
            yield Row("parts in any order", prompt, gold, f"\\boxed{{{said}}}", paid)


_CASE_ENDS = (
    "If $a>0$ then $|a|=a$, so the quotient equals ${p}$. If $a<0$ then $|a|=-a$, so the quotient equals ${n}$.",
    "For $a>0$ we get ${p}$, and for $a<0$ we get ${n}$.",
    "If a > 0, the value is {p}. If a < 0, the value is {n}.",
    "If $a<0$, the value is ${n}$. If $a>0$, the value is ${p}$.",
    "In case (i) it equals {p}; in case (ii) it equals {n}.", "(i) {p}\n(ii) {n}",
)  # fmt: skip
_CASE_GOLDS = ("(i) {p}, (ii) {n}", "(i) {p}; (ii) {n}", "(i) ${p}$ (ii) ${n}$")


def values_by_case(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the value of each case that a question lists, and the cases the other way round."""
    prompt = (
        "For real $a$, find the value of $\\frac{k|a|}{a}$ in each case: (i) $a>0$, (ii) $a<0$."
    )
    for _ in range(count):
        value = rng.randrange(1, 9)
        said = rng.choice(_CASE_ENDS).format(p=value, n=-value)
        gold = rng.choice(_CASE_GOLDS)
        yield Row("values by case", prompt, gold.format(p=value, n=-value), said, True)
        yield Row("values by case, turned", prompt, gold.format(p=-value, n=value), said, False)
        said = f"For $a>0.5$ it is {value}. For $a<0$ it is {-value}."
        yield Row("values by another case", prompt, gold.format(p=value, n=-value), said, False)


_UNKNOWN_ENDS = (
    "Hence $z={z}$, $y={y}$, $x={x}$.", "So z = {z}, y = {y} and x = {x}.",
    "Therefore $y={y}$, $x={x}$ and $z={z}$.", "Hence z = {z}, x = {x}, y = {y}.",
)  # fmt: skip


def unknowns_in_any_order(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the values of several unknowns in another order, and another assignment."""
    for _ in range(count):
        x, y, z = rng.sample(range(1, 9), 3)
        prompt = f"Solve: $x+y+z={x + y + z}$, $x-y+z={x - y + z}$, $x+y-z={x + y - z}$."
        work = f"Subtracting: $2y={2 * y}$.\n\nThe first equation then gives $x={x + 1}-1={x}$.\n\n"
        said = work + rng.choice(_UNKNOWN_ENDS).format(x=x, y=y, z=z)
        shape = rng.choice(("(x,y,z)=({},{},{})", "x={}, y={}, z={}", "({}, {}, {})"))
        yield Row("unknowns in any order", prompt, shape.format(x, y, z), said, True)
        yield Row("unknowns in any order, others", prompt, shape.format(z, y, x), said, False)


_TWO_NAMED = (
    ("Find the smaller angle.", "45", "* Smaller angle: $x=#^\\circ$; larger angle: $@^\\circ$."),
    ("Find the shorter side.", "7", "- Shorter side: # cm; longer side: @ cm."),
    ("What is the first number?", "12", "- First number: #; second number: @"),
    ("Find the width of the garden.", "5", "**Width:** #, **length:** @"),
    ("りんごは何個買いましたか。", "7", "以上より、りんごは#個、みかんは@個買ったことになる。"),
    ("りんごは何個ありますか。", "7", "よって、みかんは@個、りんごは#個である。"),
    ("사과는 몇 개입니까?", "7", "따라서 사과는 #개, 배는 @개이다."),
    ("问苹果有几个？", "7", "所以苹果有#个，梨有@个。"),
    ("问鸡有几只？", "7", "所以兔有@只，鸡有#只。"),
    ("小明和小红有几个苹果？", "7", "小明有@个，小红有@个，合计#个。"),
    ("りんごは何個残りますか。", "7", "最初りんごは@個、食べたのは@個、残りは#個です。"),
    ("사과와 배는 모두 몇 개입니까?", "7", "사과는 @개, 배는 @개이므로 모두 #개이다."),
    ("みかんは何個ありますか。", "7", "りんごは@個ではなく、みかんは#個です。"),
)  # fmt: skip


def two_named_values(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield two values with their names in one line, of which the question asks for one."""
    for _ in range(count):
        prompt, _, shape = rng.choice(_TWO_NAMED)
        value, other = rng.sample(range(5, 90), 2)
        said = "2 + 3 = 5\n\n" + shape.replace("#", str(value)).replace("@", str(other))
        yield Row("two named values", prompt, str(value), said, True)
        yield Row("two named values", prompt, str(other), said, False)
        said = rng.choice(_DENIED_COUNTS).format(value, other)
        yield Row("denied counts", "りんごは何個買いましたか。", str(value), said, False)


_DENIED_COUNTS = (
    "りんごは{}個ではなく、みかんは{}個です。",
    "りんごは{}個じゃなく、みかんは{}個です。",
)
_WAYS = (("east", "eastward", "west"), ("north", "northward", "south"), ("west", "westwards", "east"),
         ("upward", "upwards", "downward"), ("to the left", "leftward", "to the right"))  # fmt: skip
_DIRECTED = (
    "The acceleration has the direction of the force, so the object accelerates {w} at {v}.",
    "So it accelerates at {v} {w}.", "Hence the acceleration is {v}, directed {w}.",
    "Its acceleration is {v} {w}.", "Magnitude: {v}\nDirection: {w}",
)  # fmt: skip


_UNDIRECTED = (
    "The {w}ern wall is hit at {v}.", "{w} of the station it accelerates at {v}.", "{W} Street: {v}.",
    "The friction acts {w}ward, so the acceleration is {v} the other way.",
    "Opposing the motion to the {w}, it has {v}.", "Its acceleration in {W} Africa is {v}.",
    "The car, now a mile {w}, accelerates at {v}.", "It never goes {w} at {v}.",
)  # fmt: skip


def directions_beside(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a magnitude with its direction in the words of a sentence, and the opposite one."""
    for _ in range(count):
        way, worded_way, opposite = rng.choice(_WAYS)
        value = rng.randrange(2, 40)
        prompt = f"The net force acts {way}. Find the acceleration (magnitude and direction)."
        said = f"a = F/m = {2 * value} N / 2 kg = {value} m/s².\n\n"
        said += rng.choice(_DIRECTED).format(w=worded_way, v=f"{value} m/s²")
        for gold, paid in ((f"{value} m/s^2 {way}", True), (f"{value} m/s^2 {opposite}", False),
                           (f"{value + 1} m/s^2 {way}", False)):  # fmt: skip
            law = "directions beside" if paid else "directions beside, others"
            yield Row(law, prompt, gold, said, paid)
        way = rng.choice(("east", "south", "west", "north"))
        said = rng.choice(_UNDIRECTED).format(w=way, W=way.title(), v=f"{value} m/s²")
        gold = f"{value} m/s^2 {way}"
        yield Row("directions of something else", prompt, gold, f"a = F/m. {said}", False)


_COMMA_PROMPTS = (
    ("Oblicz średnią arytmetyczną liczb 3, 4, 6 i 9.", "Odpowiedź: średnia arytmetyczna wynosi {}."),
    ("Ile wynosi pole trójkąta?", "Odpowiedź: pole wynosi {}."),
    ("Vypočítejte průměr čísel.", "Odpověď: průměr je {}."),
    ("Bereken het gemiddelde van de getallen.", "Antwoord: het gemiddelde is {}."),
    ("Sayıların ortalamasını bulunuz.", "Cevap: {}"), ("Beräkna medelvärdet.", "Svar: {}."),
    ("Berechne den Mittelwert.", "Der Mittelwert beträgt {}."),
    ("Calculer la moyenne.", "La moyenne est donc {}."), ("Вычислите среднее.", "Среднее равно {}."),
)  # fmt: skip


_FOREIGN_NAMES = (
    ("How many {} does she pay?", "She pays {} {}."), ("What is the price in {}?", "It is {} {}."),
    ("What is the sum in {}?", "The sum is {} {} by a théorème of Łoś."),
)  # fmt: skip


def commas_of_all(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield decimals with a comma in many languages, for golds written so."""
    for _ in range(count):
        prompt, shape = rng.choice(_COMMA_PROMPTS)
        value = f"{rng.randrange(2, 90)},{rng.randrange(1, 100)}".rstrip("0")
        other = value.replace(",", "") if rng.random() < 0.5 else f"{value}1"
        said = f"22 : 4 = {value}\n\n{shape.format(value)}"
        for gold, paid in ((value, True), (value.replace(",", "."), True), (other, False)):
            law = "commas of all" if paid else "commas of all, another"
            yield Row(law, prompt, gold, said, paid)
        (prompt, shape), name = (
            rng.choice(_FOREIGN_NAMES),
            rng.choice(("złoty", "đồng", "ångström")),
        )
        number = rng.randrange(1001, 9999)
        said = shape.format(f"{number:,}", name)
        for gold, paid in ((str(number), True), (f"{number / 1000}", False)):
            yield Row("commas in English", prompt.format(name), gold, said, paid)


_KOREAN_ENDS = (
    "따라서 구하는 확률은 {} 이다.", "그러므로 확률은 {}이다.", "### 최종 답\n\n따라서 구하는 확률은 {} 이다.",
    "### 답\n\n구하는 확률은 {}이다.", "따라서 답은 {}이다.", "최종 답: 따라서 확률은 {}입니다.",
)  # fmt: skip


def korean_conclusions(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield Korean conclusions below a heading, and denied ones."""
    for _ in range(count):
        part, whole = sorted(rng.sample((1, 3, 5, 7, 11, 13), 2))
        value = f"{part}/{whole}"
        said = "모두 $6$가지이다.\n\n" + rng.choice(_KOREAN_ENDS).format(value)
        prompt = "합이 $7$이 될 확률을 구하시오."
        for gold, paid in ((f"\\frac{{{part}}}{{{whole}}}", True),
                           (f"\\frac{{{part}}}{{{whole + 1}}}", False)):  # fmt: skip
            yield Row("Korean conclusions", prompt, gold, said, paid)
        said = f"모두 $6$가지이다.\n\n따라서 구하는 확률은 {value}이 아니다."
        gold = f"\\frac{{{part}}}{{{whole}}}"
        yield Row("Korean conclusions, denied", prompt, gold, said, False)


# --- forms that repeat the question ---

_REPEATING = (
    ("0.\\overline{{{}}}", "0.\\overline{{{}}}"),
    ("0.{0}{0}...", "0.\\overline{{{}}}"),
    ("0.\\overline{{{}}}", "0.{0}{0}{0}..."),
)
_AS_FRACTION = (
    "Find the fraction for ${}$ in lowest terms.",
    "What common fraction is equal to ${}$?",
    "Write ${}$ as $p/q$.",
    "Write the repeating decimal ${}$ as a common fraction.", "Convert ${}$ to a fraction.",
    "Express ${}$ as a quotient of two integers.", "Express ${}$ as a ratio of integers.",
    "Write ${}$ in the form $\\frac{{a}}{{b}}$ with integers $a$ and $b$.",
    "Write ${}$ as a simplified fraction.", "Which fraction equals ${}$?",
    "Find a fraction equal to ${}$.", "Rewrite ${}$ as a single fraction.",
    "Express ${}$ as a rational number in lowest terms.", "What is ${}$ as a proper fraction?",
)  # fmt: skip
_NO_FRACTION = ("Give the speed as {}.", "Express it in the form {}.", "Which fraction is ill?")
_SAYS = ("So the value is $\\boxed{{{}}}$.", "The answer is ${}$.", "Hence it is ${}$.")


def repeated_decimals(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the decimal of a question for a fraction, and the fraction."""
    for _ in range(count):
        block = rng.choice((27, 36, 45, 63, 72, 81, 18, 54, 12, 15))
        divisor = gcd(block, 99)
        gold = f"\\frac{{{block // divisor}}}{{{99 // divisor}}}"
        asked, repeated = rng.choice(_REPEATING)
        prompt = rng.choice(_AS_FRACTION).format(asked.format(block))
        shape = rng.choice(_SAYS)
        said = "The block repeats. " + shape.format(repeated.format(block))
        yield Row("repeated decimals", prompt, gold, said, False)
        yield Row("decimals as fractions", prompt, gold, "We divide. " + shape.format(gold), True)
        terms = rng.choice((8, 16, 20, 25, 40))
        digits = f"{rng.randrange(1, terms // 2) * 2 + 1}"
        part = int(digits) if gcd(int(digits), terms) == 1 else 3
        decimal = f"{part / terms:g}"
        prompt = rng.choice(_AS_FRACTION).format(decimal)
        gold = f"\\frac{{{part}}}{{{terms}}}"
        yield Row("repeated decimals", prompt, gold, shape.format(decimal), False)
        chain = rng.choice(_SAYS[:2]).format(f"{gold}={decimal}")
        yield Row("decimals as fractions", prompt, gold, chain, True)
        prompt = rng.choice(_NO_FRACTION).format(rng.choice(("m/s", "g/L", "km/h")))
        yield Row("decimals for fractions", prompt, gold, shape.format(decimal), True)
        prompt = "Find the ratio of boys to girls in lowest terms."
        yield Row("ratios for fractions", prompt, gold, f"\\boxed{{{part}:{terms}}}", True)
        yield Row("ratios for fractions", prompt, gold, f"\\boxed{{{terms}:{part}}}", False)
        yield Row("decimals as fractions", prompt, gold, shape.format(gold), True)


# --- what was lost before ---

_RANGES = ("all integers from {} to {}", "all whole numbers from {} to {}", "the integers from {} to {}",
           "the integers {} through {}")  # fmt: skip
_RANGE_ENDS = ("So the solutions are {}.", "Hence $n$ can be {}.", "{}", "The answer is {}.")


def ranges_in_words(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a run of whole numbers in words for golds that list them."""
    for _ in range(count):
        low, long = rng.randrange(-6, 3), rng.randrange(3, 9)
        wrong = rng.choice(((low + 1, low + long), (low, low + long - 1)))
        minus = rng.choice("-−")
        for (first, last), paid in (((low, low + long), True), (wrong, False)):
            said = rng.choice(_RANGES).format(f"{first}".replace("-", minus), last)
            said = "We solve both.\n\n" + rng.choice(_RANGE_ENDS).format(said)
            gold = rng.choice(("{}", "\\{{{}\\}}")).format(
                ", ".join(map(str, range(low, low + long + 1)))
            )
            prompt = "Find all integers $n$ that satisfy the inequality."
            law = "ranges in words" if paid else "ranges in words, another"
            yield Row(law, prompt, gold, said, paid)
            if paid:
                said = rng.choice(_NO_RANGES).format(rng.choice(_RANGES).format(first, last))
                yield Row("ranges of something else", prompt, gold, f"We solve. {said}", False)
                said = f"We solve. The inequality is solved by {rng.choice(_RANGES)}."
                yield Row("ranges in words", prompt, gold, said.format(first, last), True)


_NO_RANGES = ("So $n$ is divisible by {}.", "We divide through {}.", "We do not get {}.",
              "The excluded values are {}.")  # fmt: skip
_EXISTENCE = (
    ("Does a 3-regular graph on 5 vertices exist? If so, draw one.", "graph"),
    ("Is there a triangle with sides 1, 2 and 5?", "triangle"),
    ("Does there exist an integer $n$ with $n^2 = 15$?", "integer"),
    ("Can such a graph exist?", "graph"), ("Is it possible to find such a polygon?", "polygon"),
)  # fmt: skip
_EXISTS_NOT = ("So no such {} exists.", "Hence there is no such {}.", "Therefore such a {} cannot exist.",
               "So such a {} does not exist.")  # fmt: skip
_EXISTS = ("So such a {} exists.", "Hence there is such a {}.", "Therefore such a {} does exist.")


def existence(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield whether a thing exists, in the words of the closing sentence."""
    for _ in range(count):
        prompt, noun = rng.choice(_EXISTENCE)
        work = rng.choice(("The sum of degrees is 15, which is odd. ", "1 + 2 = 3.\n\n"))
        for ends, right, wrong in ((_EXISTS_NOT, "no", "yes"), (_EXISTS, "yes", "no")):
            said = work + rng.choice(ends).format(noun)
            said = re.sub(r"\ba (?=[aeiou])", "an ", said)
            yield Row("existence", prompt, rng.choice((right, right.title())), said, True)
            yield Row("existence, the other", prompt, wrong, said, False)


_DEGREES = (
    "What is the degree measure of the angle that is ${}$ in radians?",
    "An angle is ${}$ in radians. What is it in degrees?",
    "An angle is ${}$ in radians. How many degrees is it?",
)  # fmt: skip
_RADIANS = ("Give the angle in radians.", "Convert the angle to radians.")


def factors_in_brackets(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a product that ends in a bracket, and a value with a remark in brackets behind it."""
    for _ in range(count):
        a, b = rng.sample(range(2, 9), 2)
        lead = rng.choice(("So the total is ", "We factor. So it is ", "Hence it equals "))
        said = f"{lead}{a} (x + {b})"
        yield Row("factors in brackets", "Factor it.", f"{a}(x+{b})", said, True)
        yield Row("factors in brackets, another", "Factor it.", str(a), said, False)
        said = f"{lead}{a} ({b} + {b} is {2 * b})."
        yield Row("remarks in brackets", "What is it?", str(a), said, True)


def angles(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield an angle in degrees for a question that asks for these, or for radians."""
    for _ in range(count):
        below = rng.choice((3, 4, 5, 6, 9, 10, 12))
        angle, said = f"\\frac{{\\pi}}{{{below}}}", f"\\boxed{{{180 // below}^\\circ}}"
        prompt = rng.choice(_DEGREES).format(angle)
        yield Row("degrees", prompt, str(180 // below), said, True)
        yield Row("degrees, another", prompt, str(180 // below + 1), said, False)
        prompt = rng.choice(_RADIANS)
        yield Row("radians", prompt, angle, said, False)
        yield Row("radians", prompt, angle, f"\\boxed{{\\pi/{below}}}", True)


_BARE_ENDS = (
    ("Find the round-trip time in ms.", "72", "The distance is 7200 km.\n\n{} ms", "s"),
    ("Give the time in ms.", "5", "We divide by c.\n\n**{} ms**", "s"),
    ("Quanto ele paga?", "9", "Ele paga 1000 + 2.\n\nPortanto, ele paga R$ {} no total.", ""),
    ("How many apples?", "3", "6 + 6\n\nAnswer: {}", "keycap"),
    ("How many apples?", "3", "6 + 6\n\nThe number of apples is {}", "keycap"),
)  # fmt: skip


def bare_ends(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a bare value in the unit that is asked, reais with points, and digits as keys."""
    for _ in range(count):
        prompt, _, shape, kind = rng.choice(_BARE_ENDS)
        value = rng.randrange(1010, 9990) if "R$" in shape else rng.randrange(12, 99)
        said = str(value)
        if "R$" in shape:
            said = f"{value // 1000}.{value % 1000:03},{rng.choice((50, 25))}"
        elif kind == "keycap":
            said = "".join(f"{digit}\ufe0f\u20e3" for digit in said)
        gold = said.replace(".", "").replace(",", ".") if "R$" in shape else str(value)
        for wanted, paid in ((gold, True), (f"{gold}1", False), (gold[1:], False)):
            law = "bare ends" if paid else "bare ends, another"
            yield Row(law, prompt, wanted, shape.format(said), paid)


# --- short responses that go on behind or before their value ---

_DIVIDES = (
    ("Is {n} divisible by {d}?", "yes", "no", ("since", "because", "as")),
    ("Ist {n} durch {d} teilbar?", "ja", "nein", ("denn", "weil", "da")),
    ("Est-ce que {n} est divisible par {d} ?", "oui", "non", ("car", "puisque")),
    ("¿Es {n} divisible entre {d}?", "sí", "no", ("porque", "ya que", "pues")),
    ("{n} делится на {d}?", "да", "нет", ("так как", "потому что")),
    ("{n} é divisível por {d}?", "sim", "não", ("pois", "porque")),
    ("{n} è divisibile per {d}?", "sì", "no", ("perché", "poiché")),
)  # fmt: skip
_REASONS = (
    "{W}, {r} {c}.", "**{W}** — {c}.", "{W}. {c}.", "**{W}**, {r} {c}.", "{W}: {c}", "**{W}.** {c}.",
    "{W} – {c}.", "{W}, {c}.", "**{W}**: {c}.", "{W} ({c}).", "{W}; {c}.",
)  # fmt: skip
_NO_VERDICTS = (
    "{W} if {c}.", "{W} or no? {c}.", "Not {w}: {c}.", "{W}... wait, {c}.", "{W}, unless {c}.",
    "No. of factors: {c}.", "No fewer than {c}.", "{W}? {c}.",
)  # fmt: skip


def verdicts_with_reasons(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a yes or no before the calculation that shows it, in several languages."""
    for _ in range(count):
        prompt, yes, no, reasons = rng.choice(_DIVIDES)
        factor, divisor = rng.randrange(3, 60), rng.randrange(3, 30)
        rest = rng.choice((0, rng.randrange(1, divisor)))
        number = factor * divisor + rest
        product = f"{divisor} {rng.choice('·×')} {factor}" + (f" + {rest}" if rest else "")
        chain = rng.choice((f"{number} = {product}", f"{product} = {number}"))
        said, other = (no, yes) if rest else (yes, no)
        text = rng.choice(_REASONS).format(W=said.title(), r=rng.choice(reasons), c=chain)
        asked = prompt.format(n=number, d=divisor)
        yield Row("verdicts with reasons", asked, said.title(), text, True)
        yield Row("verdicts with reasons", asked, other.title(), text, False)
        asked = _DIVIDES[0][0].format(n=number, d=divisor)
        shape = rng.choice(_NO_VERDICTS)
        text = shape.format(W="Yes", w="yes", c=chain)
        gold = "No" if shape.startswith(("No.", "No f")) else "Yes"
        yield Row("verdicts that are none", asked, gold, text, False)


_STEPS_BEFORE = ("$r+s = {a}$, $rs = {b}$. ", "$p = {a}$. ", "$a = {a}$; $b = {b}$. ", "From $s = {a}$ and $p = {b}$: ",
                 "$r + s = {a}$\n$rs = {b}$\n", "\\(r+s = {a}\\), \\(rs = {b}\\). ")  # fmt: skip
_EXACT_CHAINS = ("$r^2+s^2 = {x} = {f} = {d}$", "$r^2+s^2 = {x} = {f} = {d}$.", "$N = {x} = {f}$.", "$N = {x} = {f} = {d}$", "$N = {x} = {f} = \\mathbf{{{d}}}$.")  # fmt: skip


def chains_behind_steps(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield steps in formulas and the chain that ends in a fraction and its decimal."""
    for _ in range(count):
        below = rng.choice((4, 8, 16, 20))
        above = rng.randrange(3, 90) * 2 + 1
        above += 2 * (gcd(above, below) > 1)
        part = rng.randrange(1, above)
        value, other = f"\\frac{{{above}}}{{{below}}}", f"\\frac{{{part}}}{{{below}}}"
        said = rng.choice(_STEPS_BEFORE).format(a=other, b=rng.randrange(2, 9)) + rng.choice(
            _EXACT_CHAINS
        ).format(
            x=f"{other} + \\frac{{{above - part}}}{{{below}}}", f=value, d=f"{above / below:g}"
        )
        if gcd(above, below) > 1:
            continue
        prompt = "If $r$ and $s$ are the roots, what is $r^2 + s^2$?"
        yield Row("chains behind steps", prompt, value, said, True)
        for wrong in (other, f"\\frac{{{above + 2}}}{{{below}}}"):
            yield Row("chains behind steps, another", prompt, wrong, said, False)


_LEFT_OUT = ("${c}$ (for $x \\neq {p}$).", "${c}$, for $x \\ne {p}$.", "${c}$, provided $x \\neq {p}$.", "${c}$ ($x \\neq {p}$)",
             "${c}$, where $x \\neq {p}$.", "${c}$, $x \\neq {p}$.", "${c}$ for all $x \\neq {p}$.", "${c}$ with $x \\ne {p}$",
             "We cancel the common factor: ${c}$ (valid for $x \\ne {p}$).", "${c}$ if $x \\neq {p}$.",
             "The expression equals ${c}$ (for $x \\neq {p}$)."," ${c}$ (when $x \\neq {p}$)", "${c}$, as long as $x \\neq {p}$.",
             "{c} for x ≠ {p}", "{c}, x ≠ {p}.", "= ${c}$ with $x\\neq{p}$")  # fmt: skip


def points_left_out(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a fraction that is simplified, with the point that it leaves out."""
    for _ in range(count):
        root = rng.randrange(2, 9)
        above, below = f"(x-{root})(x+{root})", f"(x+{root})^2"
        gold = f"\\frac{{x-{root}}}{{x+{root}}}"
        for value, paid in (
            (gold, True),
            (f"\\frac{{x+{root}}}{{x-{root}}}", False),
            (f"\\frac{{x-{root}}}{{x+{root + 1}}}", False),
        ):
            chain = rng.choice((f"\\frac{{{above}}}{{{below}}} = {value}", value))
            said = rng.choice(_LEFT_OUT).format(c=chain, p=-root)
            prompt = (
                f"Simplify $\\frac{{x^2 - {root * root}}}{{x^2 + {2 * root}x + {root * root}}}$."
            )
            yield Row("points left out" + ("" if paid else ", another"), prompt, gold, said, paid)


_VERTEX = ("Vertex form: ${f}$, with vertex ${v}$.", "So ${f}$, and the vertex is ${v}$.", "Hence ${f}$ with vertex at ${v}$.",
           "The vertex form is ${f}$ (vertex ${v}$).", "So ${f}$. The vertex is ${v}$.", "${f}$, so the vertex is ${v}$.",
           "In vertex form: ${f}$, vertex ${v}$.", "Therefore the vertex form is ${f}$, whose vertex is ${v}$.")  # fmt: skip


def forms_with_points(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a parabola in vertex form with its vertex, of which the question asks for one."""
    for _ in range(count):
        a, h, k = rng.randrange(2, 6), rng.randrange(1, 9), rng.randrange(1, 9)
        form, vertex = f"y = {a}(x-{h})^2 + {k}", f"({h}, {k})"
        work = (
            f"$$y = {a}(x^2 - {2 * h}x) + {a * h * h + k}$$\n\n"
            if rng.random() < 0.7
            else "We complete the square.\n\n"
        )
        said = work + rng.choice(_VERTEX).format(f=form, v=vertex)
        full = f"y = {a}x^2 - {2 * a * h}x + {a * h * h + k}"
        prompt = f"Write ${full}$ in vertex form."
        yield Row("forms with points", prompt, form, said, True)
        yield Row("forms with points", prompt, form.replace(f"+ {k}", f"+ {k + 1}"), said, False)
        prompt = f"Find the vertex of ${full}$."
        if "whose" not in said:
            yield Row("points with forms", prompt, vertex, said, True)
        yield Row("points with forms", prompt, f"({h}, {k + 1})", said, False)


_PLAIN_CHAINS = (
    ("Find the force.", "F = PA = {x}e5 × 0.02 = {y}e3 N = **{y} kN**", "{y}000 N", 2),
    ("Find the force.", "F = PA = {y}e3 N = {y} kN", "{y}000 N", 1),
    ("Find the resistance.", "1/R = 1/{x} + 1/{x} = 1/{y} → R = {y} ohms", "{y} Ω", 2),
    ("Find the resistance.", "1/R = 2/{x} = 1/{y}, so R = {y} Ω", "{y} Ω", 2),
    ("Find the resistance.", "1/R = 2/{x} = 1/{y} ⇒ R = {y} Ω.", "{y} Ω", 2),
    ("Find the time.", "1/t = 1/{x} + 1/{x} = 1/{y} => t = {y} hours", "{y} hours", 2),
    ("Find the speed.", "v = s/t = {x} km / 2 h = {y} km/h → **{y} km/h**", "{y} km/h", 2),
    ("Find the mass.", "m = ρV = {y}e3 g = {y} kg", "{y} kg", 1),
    ("Find the energy.", "E = Pt = 1000 × {y} = {y}000 J = {y} kJ.", "{y} kJ", 1),
    ("Find the energy.", "E = Pt = 1000 × {y} = **{y}000 J** = {y} kJ", "{y} kJ", 1),
    ("Find the length.", "x² = {y}² → x = {y} cm", "{y} cm", 1),
    ("What is the molar mass?", "{x} + {x} = {z}, so M = {z} g·mol⁻¹.", "{z} g/mol", 1),
    ("What is the speed?", "v = {x}/2 = {y} m·s⁻¹", "{y} m/s", 2),
    ("What is the density?", "ρ = m/V = {x}/2 = {y} kg·m⁻³", "{y} kg/m^3", 2),
    ("What is the specific heat?", "c = Q/(mΔT) = {y} J·kg⁻¹·K⁻¹", "{y} J/(kg K)", 1),
    ("How many litres per 100 km is that?", "{x}/2 = {y}\n\nThat is {y} L/100 km", "{y}", 2),
    ("How many litres per 100 km is that?", "So it uses {y} L/100 km.", "{y} L/100 km", 1),
    ("How many litres per 100 km is that? Round to one decimal place.", "{x}/2 = {y}\n\nRounded: {y} L per 100 km", "{y}", 2),
    ("What is the crime rate per 1000 people?", "The rate is {y} per 1000.", "{y}", 1),
)  # fmt: skip


def plain_chains(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield chains in plain text with units, behind arrows and in powers."""
    for _ in range(count):
        prompt, shape, gold, times = rng.choice(_PLAIN_CHAINS)
        y = rng.randrange(13, 90)
        said = shape.format(x=y * times, y=y, z=2 * y * times)
        gold = gold.format(y=y, z=2 * y * times)
        yield Row("plain chains", prompt, gold, said, True)
        yield Row("plain chains, another", prompt, "9" + gold, said, False)
        if said.count(str(y)) > 1 and times == 1 and ", so" not in said:
            head, _, tail = said.rpartition(str(y))
            yield Row("plain chains, broken", prompt, gold, f"{head}{y + 1}{tail}", False)


_TWICE_SAID = ("**Final answer:** {a} ({b})", "The answer is {a} ({b}).", "**Answer: {a}** ({b})", "Answer: {a}, i.e. {b}.",
               "**Final answer:** {a}, that is {b}.", "So the pool fills in {a} ({b}).", "**Final answer: {a} ({b})**")  # fmt: skip


def said_in_brackets(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a time in hours with its hours and minutes in brackets, and a false one."""
    for _ in range(count):
        hours, quarters = rng.randrange(1, 9), rng.choice((1, 2, 3))
        gold = f"{hours + quarters / 4:g}"
        first = (
            rng.choice(
                (f"{4 * hours + quarters}/4", gold)
                if quarters != 2
                else (f"{2 * hours + 1}/2", gold)
            )
            + " hours"
        )
        minutes = quarters * 15
        word = f"{hours} hour{'s' * (hours > 1)}"
        for said, paid in (
            (f"{word} {minutes} minutes", True),
            (f"{word} and {minutes} minutes", True),
            (f"{hours} h {minutes} min", True),
            (f"{word} {minutes + 5} minutes", False),
        ):
            if rng.random() < 0.5:
                continue
            text = "1 / (2/9) = 9/2.\n\n" + rng.choice(_TWICE_SAID).format(a=first, b=said)
            yield Row(
                "said in brackets" + ("" if paid else ", another"),
                "How many hours does it take to fill the pool?",
                gold,
                text,
                paid,
            )
            yield Row(
                "said in brackets, another",
                "How many hours does it take to fill the pool?",
                f"{hours + 1}",
                text,
                False,
            )


_PART_TABLES = ("| Part | Quantity | Value |\n|---|---|---|\n| (a) | current | {a} |\n| (b) | voltage | {b} |",
                "| Part | Answer |\n|---|---|\n| (a) | {a} |\n| (b) | {b} |", "| | Result |\n|:--|--:|\n| (a) | **{a}** |\n| (b) | **{b}** |")  # fmt: skip
_PART_ENDS = ("", "\n\nAs a check, the 4 Ω resistor has 4 V.", "\n\nCheck: both add up to 12 V.")


def tables_of_parts(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a table that has the answers of the parts of a question."""
    for _ in range(count):
        a, b = rng.sample(range(2, 30), 2)
        table = rng.choice(_PART_TABLES)
        said = (
            f"$I = 12 / 12 = {a}$ A.\n\n**Summary**\n\n"
            + table.format(a=f"{a} A", b=f"{b} V")
            + rng.choice(_PART_ENDS)
        )
        prompt = "A battery is connected to two resistors in series. (a) Find the current. (b) Find the voltage across the 8 Ω resistor."
        for gold, paid in (
            (f"(a) {a} A (b) {b} V", True),
            (f"(a) {a} A (b) {b + 1} V", False),
            (f"(a) {b} A (b) {a} V", False),
        ):
            yield Row("tables of parts" + ("" if paid else ", another"), prompt, gold, said, paid)


_MATRIX_CHAINS = (
    "$${w} = {m}$$",
    "Row by column:\n\n$${w} = {m}$$",
    "$AB = {w} = {m}$",
    "$$AB = {w} = {m}$$",
    "The product is ${w} = {m}$.",
    "\\[{w}={m}\\]",
    "${w} = {m}$",
)


def _matrix(kind: str, cells: list[int] | list[str]) -> str:
    first, second, third, fourth = cells
    return f"\\begin{{{kind}}} {first} & {second} \\\\ {third} & {fourth} \\end{{{kind}}}"


def chains_of_matrices(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a matrix of sums that equals one of numbers, and one that does not."""
    for _ in range(count):
        rows = [[rng.randrange(1, 9) for _ in range(4)] for _ in range(4)]
        kinds = [rng.choice("bp") + "matrix" for _ in range(3)]
        sums = [f"{a}\\cdot{b} + {c}\\cdot {d}" for a, b, c, d in rows]
        values = [a * b + c * d for a, b, c, d in rows]
        prompt = "Compute $\\begin{pmatrix}1&2\\\\0&3\\end{pmatrix}\\begin{pmatrix}4&1\\\\2&5\\end{pmatrix}$."
        gold = _matrix(kinds[0], values)
        shape = rng.choice(_MATRIX_CHAINS)
        said = shape.format(w=_matrix(kinds[1], sums), m=gold.replace(kinds[0], kinds[2]))
        yield Row("chains of matrices", prompt, gold, said, True)
        wrong = [*values[:3], values[3] + 1]
        yield Row("chains of matrices, another", prompt, _matrix(kinds[0], wrong), said, False)
        said = shape.format(w=_matrix(kinds[1], sums), m=_matrix(kinds[2], wrong))
        yield Row("chains of matrices, broken", prompt, _matrix(kinds[0], wrong), said, False)
        yield Row("chains of matrices, broken", prompt, gold, said, False)


_ASKED_BACK = ("No — {v} is the smallest of them, and I was asked for the largest.", "But {v} is the smallest one; the question asks for the largest.",
               "Wait, {v} is the smallest, and the largest is asked.", "No, {v} is only the smallest, not the largest.",
               "Hmm, that is the smallest. We need the largest.", "Careful: {v} is the smallest of the three, but we want the largest.",
               "However, the question asks for the largest, and {v} is the smallest.", "Oh, that's the smallest, I need the largest.")  # fmt: skip
_STAYS = (
    "The smallest of them is {s}, the largest {v}.",
    "Indeed {v} is the largest of them.",
    "Note that {v} is the largest, as the question asks.",
    "The smallest, {s}, is not asked.",
)
_FINALS = (
    "Largest: {v}",
    "So the largest is {v}.",
    "The largest is {v}.",
    "**{v}**",
    "The answer is {v}.",
    "Therefore the largest integer is {v}.",
)
_FIRST_SAID = (
    "So the answer is {v}.",
    "The answer is {v}.",
    "$\\boxed{{{v}}}$",
    "**Answer: {v}**",
    "So n = {v}.",
)


def questions_read_again(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield an answer that the writer sees to be that of another question, and the right one."""
    prompt = "Three consecutive even integers sum to {}. What is the largest?"
    for _ in range(count):
        n = rng.randrange(10, 90) * 2
        asked = prompt.format(3 * n + 6)
        back = rng.choice(_ASKED_BACK).format(v=n)
        first, last = rng.choice(_FIRST_SAID).format(v=n), rng.choice(_FINALS).format(v=n + 4)
        said = f"3n + 6 = {3 * n + 6}\n\nn = {n}\n\n{first}\n\n{back}\n\nThe integers are {n}, {n + 2}, {n + 4}.\n\n{last}"
        yield Row("questions read again", asked, str(n + 4), said, True)
        yield Row("questions read again", asked, str(n), said, False)
        stays = rng.choice(_STAYS).format(v=n + 4, s=n)
        said = f"3n + 6 = {3 * n + 6}\n\nn = {n}\n\nThe integers are {n}, {n + 2}, {n + 4}.\n\n{_FIRST_SAID[rng.randrange(4)].format(v=n + 4)}\n\n{stays}"
        yield Row("questions not read again", asked, str(n + 4), said, True)
        yield Row("questions not read again", asked, str(n), said, False)


_INHABITANTS = (
    ("Une ville de {n} habitants gagne 2,5 % d'habitants. Combien en a-t-elle ensuite ?", "{n} × 0,025 = {a}, donc la ville compte ensuite {b} habitants."),
    ("Combien de livres ?", "{n} + {a} = {b}, donc il y a {b} livres."), ("Combien de livres ?", "{n} + {a} = {b} livres."),
    ("Combien d'habitants ?", "On ajoute {a} à {n} : la ville compte {b} habitants."), ("Combien d'habitants ?", "{n} + {a} = {b} habitants"),
    ("Сколько жителей?", "{n} · 0,025 = {a}, значит в городе {b} жителей."), ("How many people live there?", "{n} × 0.025 = {a}, so the town has {b} people."),
    ("Wie viele Einwohner?", "{n} · 0,025 = {a}, also hat die Stadt {b} Einwohner."), ("How many people?", "{n} + {a} = {b}, which is {b} people."),
    ("Combien gagne-t-il ?", "{n} · 0,025 = {a}, il gagne donc **{b} €**."), ("What does it cost?", "{n} + {a} = {b}, so it costs {b} m."),
)  # fmt: skip


def spaced_thousands(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield numbers whose thousands are grouped by spaces, behind other calculations."""
    for _ in range(count):
        prompt, shape = rng.choice(_INHABITANTS)
        n = rng.randrange(44, 390) * 1000
        n = n // 40 * 40
        a = n // 40
        gap = rng.choice((" ", "\u202f", "\u00a0"))
        grouped = {k: f"{v:,}".replace(",", gap) for k, v in (("n", n), ("a", a), ("b", n + a))}
        said = shape.format(**grouped)
        prompt = prompt.format(**grouped)
        yield Row("spaced thousands", prompt, str(n + a), said, True)
        for wrong in {a, (n + a) % 1000, (n + a) // 1000}:
            yield Row("spaced thousands, another", prompt, str(wrong), said, False)


_WAYS_ON = (
    "in the direction of the pull",
    "to the right",
    "along the floor",
    "down the slope",
    "towards the wall",
    "in the direction of motion",
    "opposite to the motion",
    "away from the Sun",
    "per second squared",
)
_RESULTS = ("## Result\n\nThe block accelerates at **{v}** {w}.", "**Result:** The block accelerates at {v} {w}.", "So it accelerates at {v} {w}.",
            "Answer: the block accelerates at **{v}** {w}.", "### Answer\n\nThe acceleration is {v} {w}.", "The answer is {v} {w}.", "Result: {v} {w}.", "## Conclusion\n\nThe block accelerates at **{v}** {w}.")  # fmt: skip


def values_that_go_on(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a value in a sentence that says where it points to."""
    for _ in range(count):
        v = rng.randrange(11, 99) / 10
        said = f"## Given\n\nm = 5 kg\n\n32 − 10 = 5.0 a\n\na = {v} m/s²\n\n" + rng.choice(
            _RESULTS
        ).format(v=f"{v} m/s²", w=rng.choice(_WAYS_ON[:-1]))
        prompt = "A block is pulled along a floor. Find its acceleration."
        yield Row("values that go on", prompt, f"{v} m/s^2", said, True)
        yield Row("values that go on", prompt, f"{v + 1:g} m/s^2", said, False)


_LOST = (
    "The trader loses ${v}.",
    "So the trader loses ${v}.",
    "He makes a loss of ${v}.",
    "That is a loss of ${v}.",
    "The result is a ${v} loss.",
    "Loss: ${v}",
    "So the trader lost ${v} in total.",
    "Overall: a loss of **${v}**.",
)
_WON = (
    "The trader gains ${v}.",
    "He makes a profit of ${v}.",
    "That is a profit of ${v}.",
    "Profit: ${v}",
    "The trader earns ${v}.",
    "So the trader does not lose ${v}.",
)


def losses(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a loss in the words of the sentence, and a profit of the same amount."""
    prompt = "A trader buys 200 shares at $14 and sells them at $11.50. What is the profit or loss?"
    for _ in range(count):
        v = rng.randrange(20, 900)
        work = rng.choice(("Change per share: 11.50 − 14.00 = −2.50. ", "We multiply.\n\n"))
        golds = (
            rng.choice(("a loss of ${v}", "loss of ${v}", "${v} loss", "Loss of ${v}")),
            rng.choice(("a profit of ${v}", "profit of ${v}", "${v} profit")),
        )
        for shapes, k in ((_LOST, 0), (_WON, 1)):
            said = work + rng.choice(shapes).format(v=v)
            if "not lose" in said:
                yield Row("losses, the other", prompt, golds[0].format(v=v), said, False)
                continue
            yield Row("losses", prompt, golds[k].format(v=v), said, True)
            yield Row("losses, the other", prompt, golds[1 - k].format(v=v), said, False)
            yield Row("losses, the other", prompt, golds[k].format(v=v + 1), said, False)


_MONTHS = ("January", "March", "April", "May", "June", "July", "August", "October")
_DUE = (
    "The book is due on the {o} of {m}.",
    "So it is due on {m} {d}.",
    "It is due on the {o} of {m}.",
    "The due date is the {o} of {m}.",
    "So the due date is {m} {o}.",
    "The other days bring us to the {o} of {m}.",
    "Answer: the {o} of {m}",
    "The book must be returned by the {o} of {m}.",
)
_NOT_DUE = (
    "The book is not due on the {o} of {m}.",
    "It is due before the {o} of {m}.",
    "It is due the day after the {o} of {m}.",
    "A friend says that it is due on the {o} of {m}.",
    "It is due a week from the {o} of {m}.",
)


def due_dates(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a date as a day of its month, and dates that the due one only refers to."""
    for _ in range(count):
        day, month = rng.randrange(4, 20), rng.choice(_MONTHS)
        said = "March has 31 days, so 13 days bring us to March 31."
        end = "\n\n" if rng.random() < 0.5 else " "
        shape = rng.choice(_DUE)
        prompt = "A library book is borrowed for 21 days. On what date is it due?"
        for gold, paid in ((f"{month} {day}", True), (f"{month} {day + 1}", False)):
            yield Row(
                "due dates" + ("" if paid else ", another"),
                prompt,
                gold,
                said + end + shape.format(o=f"{day}th", d=day, m=month),
                paid,
            )
        yield Row(
            "due dates, others",
            prompt,
            f"{month} {day}",
            said + end + rng.choice(_NOT_DUE).format(o=f"{day}th", m=month),
            False,
        )


_MODES = (
    "The data are bimodal with modes {a} and {b}.",
    "The modes are {a} and {b}.",
    "So there are two modes, {a} and {b}.",
    "Hence the set has the modes {a} and {b}.",
    "The set is bimodal: {a} and {b}.",
    "Modes: {a} and {b}",
    "So the modes of the data are {a} and {b}.",
    "So {a} and {b} are the modes.",
    "It has two modes: {a} and {b}.",
)
_NOT_MODES = (
    "The mode is {a}, and {b} is the median.",
    "The mode is {a}, not {b}.",
    "The modes are not {a} and {b}.",
    "The mode is between {a} and {b}.",
    "The modes are {a} or {b}.",
)


def two_modes(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield two values of one kind in either order, and two of which one is of another kind."""
    for _ in range(count):
        a, b = sorted(rng.sample(range(3, 40), 2))
        first, second = rng.sample((a, b), 2)
        prompt = f"Find the mode(s) of 1, {a}, {a}, {b}, {b}, 50."
        lead = rng.choice(
            (
                f"Both {first} and {second} occur twice; every other value occurs once. ",
                "We count. ",
                "",
            )
        )
        shape = rng.choice(_MODES)
        for gold, paid in (
            (f"{a} and {b}", True),
            (f"{a}, {b}", True),
            (f"{a} and {b + 1}", False),
            (str(b), False),
        ):
            yield Row(
                "two modes" + ("" if paid else ", another"),
                prompt,
                gold,
                lead + shape.format(a=first, b=second),
                paid,
            )
        yield Row(
            "two modes, others",
            prompt,
            f"{a} and {b}",
            "We count. " + rng.choice(_NOT_MODES[:-1]).format(a=a, b=b),
            False,
        )


_RUNNERS = ("Ana", "Bo", "Cy", "Dee", "Max", "Emily", "Zoë")
_FASTEST = (
    "{n} is the fastest.",
    "So {n} is the fastest.",
    "{n} is fastest on average.",
    "**{n}** is the fastest.",
    "The fastest is {n}.",
    "So {n} is the fastest on average.",
    "It is {n}.",
)
_NOT_FASTEST = (
    "{n} is the slowest.",
    "{n} is not the fastest.",
    "{n} thinks that she is the fastest.",
    "{n} is the second fastest.",
)


def fastest(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the one of several of whom a sentence says what is asked, below rows with calculations."""
    for _ in range(count):
        names = rng.sample(_RUNNERS, 3)
        rows = [
            rng.choice(
                ("- {}: {}/64 = {} m/s", "{}: {}/64 ≈ {} m/s", "* **{}**: {}/64 = {}")
            ).format(n, rng.randrange(300, 600), rng.randrange(500, 800) / 100)
            for n in names
        ]
        prompt = f"{names[0]} runs 400 m in 64 s, {names[1]} runs 600 m in 99 s, and {names[2]} runs 500 m in 77.5 s. Who is the fastest on average?"
        said = "\n".join(rows) + "\n\n" + rng.choice(_FASTEST).format(n=names[2])
        yield Row("fastest", prompt, names[2], said, True)
        yield Row("fastest, another", prompt, names[1], said, False)
        said = "\n".join(rows) + "\n\n" + rng.choice(_NOT_FASTEST).format(n=names[2])
        yield Row("fastest, another", prompt, names[2], said, False)


_NONE_SUCH = (
    "The squares mod 5 are 0, 1, 4. None equals 3, so there are no such integers.",
    "n(n+1) is even, so no such integers exist.",
    "Squares mod 5 are 0, 1, 4, so no such number exists.",
    "The discriminant is −7 < 0, so there are none.",
    "3 is not a square mod 5, so there is no such integer.",
    "Since 3 is no square mod 5, there are no integers $x$ that work.",
    "Hence no integer satisfies the congruence.",
    "No integer x works.",
    "Squares are 0, 1 or 4 mod 5. So there are no such x.",
    "So no integers satisfy it.",
)
_SOME_SUCH = (
    "There are no such integers below 3, but $x = 3$ works.",
    "So there are no other such integers than 3.",
    "Suppose there are no such integers.",
    "It is false that there are no such integers.",
    "There are no such negative integers, so x = 3.",
    "One might think that there are no such integers.",
)


def none_such(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield that there are none of the things that a question asks for."""
    for _ in range(count):
        prompt = rng.choice(
            (
                "Find all integers $x$ with $x^2 \\equiv 3 \\pmod 5$.",
                "Find all integers $x$ with $x^2 \\equiv 3 \\pmod 5$. If there are none, say so.",
            )
        )
        gold = rng.choice(("No solutions", "no solution", "\\text{No solutions}", "\\emptyset"))
        yield Row("none such", prompt, gold, rng.choice(_NONE_SUCH), True)
        yield Row("none such, another", prompt, "3", rng.choice(_NONE_SUCH), False)
        yield Row("some such", prompt, gold, rng.choice(_SOME_SUCH), False)


_ROOT_LISTS = (
    ("Решите уравнение x² − 2,5x + 1 = 0.", "x₁ = (2,5 + 1,5)/2 = 2.\n\nОтвет: {}"),
    ("Löse die Gleichung x² − 2,5x + 1 = 0.", "x₁ = (2,5 + 1,5)/2 = 2.\n\nAntwort: {}"),
    ("Résoudre l'équation x² − 2,5x + 1 = 0.", "x₁ = (2,5 + 1,5)/2 = 2.\n\nRéponse : {}"),
    ("Resuelve la ecuación x² − 2,5x + 1 = 0.", "x₁ = (2,5 + 1,5)/2 = 2.\n\nRespuesta: {}"),
    ("Решите уравнение.", "Корни найдены.\n\n**Ответ:** {}."),
)


def lists_with_commas(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield decimals with commas in a list with semicolons, for golds with points."""
    for _ in range(count):
        prompt, shape = rng.choice(_ROOT_LISTS)
        a, b = (
            rng.randrange(0, 9) + rng.choice((0.5, 0.25, 0.2)),
            rng.choice((rng.randrange(1, 20), rng.randrange(1, 9) + 0.5)),
        )
        a, minus = a * rng.choice((1, -1)), rng.choice("-−")
        c = rng.choice((a + 1, b + 10))
        for pair, paid in (((a, b), True), ((b, a), True), ((c, b), False)):
            text = rng.choice(("{}; {}", "{}; {}", "{} ; {}")).format(
                *(f"{x:g}".replace(".", ",").replace("-", minus) for x in pair)
            )
            if paid and a == b:
                continue
            yield Row(
                "lists with commas" + ("" if paid else ", another"),
                prompt,
                f"{a:g}, {b:g}",
                shape.format(text),
                paid and True,
            )


_SHARE_OF = (
    "Answer: {v} of the volume is above the water.",
    "So {v} of the volume is above the water.",
    "**Answer:** {v} of the block is above the water.",
    "Answer: {v}",
    "Answer: **{v}** of its volume is above the water.",
    "The answer is {v} of the volume.",
    "Answer: the fraction {v} of the volume is above water.",
    "Answer: {v} of the volume lies above the water",
)
_SHARE_OTHER = (
    "Answer: {v} of the volume is under the water.",
    "So {v} of the volume is below the water.",
)


def shares_above(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the share of a whole in a sentence that says of what."""
    for _ in range(count):
        part = rng.randrange(1, 20)
        g = gcd(part, 20)
        value = f"{part // g}/{20 // g}"
        prompt = "A block of wood of density 650 kg/m³ floats in water. What fraction of its volume is above the water?"
        said = (
            f"650 V = 1000 V_sub\n\n1 − {1 - part / 20:g} = {part / 20:g} = {value}\n\n"
            + rng.choice(_SHARE_OF).format(v=value)
        )
        yield Row("shares above", prompt, f"{part / 20:g}", said, True)
        yield Row(
            "shares above, another",
            prompt,
            f"{1 - part / 20 if part != 10 else 0.4:g}",
            said,
            False,
        )


DRAWS = (
    refusals, changed_minds, boxes_in_one_sentence, checked_tags, shares, mixed_numbers, divisions,
    ratios_in_words, myriads, clocks, circled_options, literals, outputs, records, absent_limits,
    convergence, classes_in_brackets, powers_in_words, values_of_prose, parts_of_prose, functions,
    single_records, labelled_durations, chains_spoken_on, world_units, contents_of_options,
    option_numbers, parts_of_several, values_by_case, unknowns_in_any_order, two_named_values,
    directions_beside, commas_of_all, korean_conclusions, repeated_decimals, ranges_in_words,
    existence, bare_ends, values_of_functions, numbered_equations, angles, factors_in_brackets,
    verdicts_with_reasons, chains_behind_steps, points_left_out, forms_with_points, plain_chains,
    said_in_brackets, tables_of_parts, chains_of_matrices, questions_read_again, spaced_thousands,
    values_that_go_on, losses, due_dates, two_modes, fastest, none_such, lists_with_commas,
    shares_above,
)  # fmt: skip
"""Every law of this file, as a function of a generator and the number of draws."""
