"""Laws of whole replies: a refusal around work with numbers, a later final answer, boxes of which
one is asked for, a check behind an answer tag, an option by its sign.

Each law draws questions with their golds and says of a response whether it is paid, in both
directions. `maths_laws.py` runs these laws beside its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from maths_words import Row

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


DRAWS = (
    refusals, changed_minds, boxes_in_one_sentence, checked_tags, shares, mixed_numbers, divisions,
    ratios_in_words, myriads, clocks, circled_options, literals, outputs, records, absent_limits,
    convergence, classes_in_brackets, powers_in_words,
)  # fmt: skip
"""Every law of this file, as a function of a generator and the number of draws."""
