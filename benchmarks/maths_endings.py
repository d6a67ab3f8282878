"""Laws of how a response ends without a mark, or behind one: a value said again, a verdict in a
sentence, a chain in running text, a check, coordinates in words, an arrow.

Each law draws questions with their golds and says of a response whether it is paid, in both
directions: what has to be paid, and the nearest thing that must not be. `maths_laws.py` runs these
laws beside its own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from maths_words import Row, worded

# --- a value said again, in brackets or by a word that only repeats it ---

_SIZES = (
    ("kg", "g", 1000), ("m", "cm", 100), ("h", "minutes", 60), ("km", "m", 1000), ("L", "mL", 1000),
    ("m", "mm", 1000), ("hours", "minutes", 60), ("days", "hours", 24),
)  # fmt: skip
_HEADS = (
    "**Answer: {}**", "Answer: {}", "$\\boxed{{{}}}$", "So it is **{}**", "The total is {}",
    "\\boxed{{{}}}", "Size: {}", "**{}**", "Result: {}",
)  # fmt: skip
_AGAIN = (
    "(the same as {})", "(= {})", "(or {})", "(that is, {})", "(i.e. {})", "(which is {})",
    "(equivalently {})", "(also {})", "(in other words, {})", "(this equals {})", "({})",
    "(that's {})", "(or, in other units, {})", "(equal to {})",
)  # fmt: skip


def again(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a measured value and the same in another unit in brackets; a bracket with another
    value contradicts.
    """
    for _ in range(count):
        large, small, size = rng.choice(_SIZES)
        value, head, tail = rng.randrange(2, 60), rng.choice(_HEADS), rng.choice(_AGAIN)
        shape = "{}\\text{{ {}}}" if "boxed" in head else "{} {}"
        said, gold = shape.format(value, large), f"{value} {large}"
        end = rng.choice([".", ""])
        lead = "We put the numbers in.\n\n"
        for repeated, paid in ((value * size, True), (value * size * 2, False)):
            text = f"{lead}{head.format(said)} {tail.format(f'{repeated} {small}')}{end}"
            law = "said again in brackets" if paid else "contradicted in brackets"
            yield Row(law, f"How much is it, in {large}?", gold, text, paid)
            if paid:
                yield Row(law, f"How much is it, in {large}?", str(value), text, paid)
        wrong = head.format(shape.format(value + 1, large))
        text = f"{lead}{wrong} {tail.format(f'{value * size} {small}')}{end}"
        yield Row("contradicted in brackets", f"How much is it, in {large}?", gold, text, False)


_SIGNED = ("(≈ {})", "(about {})", "≈ {}", "(approximately {})", "(which is about {})",
           "(≈ {}, if you want a decimal)", "which is about {}", "(roughly {})")  # fmt: skip
_EXACT = ("V = π · {a} · {b} = {p}π", "V = {p}π", "So the volume is {p}π", "Volume: {p}π",
          "$V = {p}\\pi$", "**{p}π**")  # fmt: skip


def rounded(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield an exact value and its decimals behind it, in its line or a line of its own."""
    for _ in range(count):
        a, b = rng.sample(range(3, 20), 2)
        gap, tail = rng.choice(["\n\n", " ", "\n"]), rng.choice(_SIGNED)
        if not tail.startswith("("):
            gap = rng.choice([" ", "\n"]) if tail.startswith("≈") else ", "
        said = rng.choice(_EXACT).format(a=a, b=b, p=a * b)
        text = f"We multiply.\n\n{said}{gap}{tail.format(f'{a * b * math.pi:.2f}')}"
        problem = "Find the volume of the cylinder in terms of π."
        yield Row("rounded behind", problem, f"{a * b}\\pi", text, True)
        yield Row("rounded behind, other value", problem, f"{a * b + 1}\\pi", text, False)


_REPEATS = {
    "English": ("that is to say,", "That is,", "In other words,", "i.e.", "Put differently,"),
    "German": ("das heißt", "Das heißt:", "d. h.", "Mit anderen Worten:"),
    "French": ("c'est-à-dire", "Autrement dit,", "soit", "C'est-à-dire"),
    "Spanish": ("es decir,", "Es decir,", "O sea,", "En otras palabras,"),
    "Portuguese": ("ou seja,", "Ou seja,", "Isto é,", "Em outras palavras,"),
    "Italian": ("cioè", "Cioè", "Ossia", "In altre parole,", "vale a dire"),
    "Russian": ("то есть", "То есть", "Иными словами,", "Другими словами,"),
}


def repeated(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a sum and its value again behind words that only repeat, in digits or in words."""
    for _ in range(count):
        language = rng.choice([*_REPEATS])
        joint = rng.choice(_REPEATS[language])
        factor, value = rng.choice([(6, 7), (3, 4), (5, 6), (3, 19), (4, 7), (2, 14)]), 0
        value = factor[0] * factor[1]
        alone = joint[0].isupper()
        for said, paid in ((value, True), (value + 1, False)):
            number = worded(said, language) if rng.random() < 0.7 else str(said)
            full = f" = {value}" if paid or alone or rng.random() < 0.5 else ""
            head = rng.choice(["{0}·{1}{2}", "N = {0}·{1}{2}", "7!/5! = {0}·{1}{2}"])
            head = head.format(*factor, full)
            text = f"{head}\n\n{joint} {number}." if alone else f"{head}, {joint} {number}."
            law = "said again in words" if paid else "said again in words, other value"
            yield Row(law, "", str(value), text, paid)


# --- verdicts ---

# Language: (question, gold of true, of false, sentences of true, sentences of false).
_TRUTHS = {
    "English": ("True or false: the sum of two odd numbers is even.", "True", "False",
                "The statement is **true**.|So the claim is true.|Hence this statement is correct.|"
                "Conclusion: the proposition is true.|**True**, as shown above.|It is true.|"
                "Therefore the statement holds.",
                "The statement is **false**.|So the claim is false.|Hence this statement is "
                "incorrect.|Conclusion: the proposition is not true.|The statement is wrong.|"
                "Therefore the statement does not hold.|So the statement isn't true."),
    "French": ("Vrai ou faux : toute fonction continue est dérivable.", "Vrai", "Faux",
               "L'affirmation est **vraie**.|C'est vrai.|Donc l'énoncé est vrai.|La proposition "
               "est donc vraie.|Cette affirmation est correcte.",
               "L'affirmation est **fausse**.|C'est faux.|Donc l'énoncé est faux.|La proposition "
               "est donc fausse.|Cette affirmation n'est pas vraie."),
    "German": ("Wahr oder falsch: Jede stetige Funktion ist differenzierbar.", "wahr", "falsch",
               "Die Aussage ist **wahr**.|Also ist die Behauptung wahr.|Das ist richtig.|"
               "Die Aussage stimmt.|Damit ist die Aussage richtig.",
               "Die Aussage ist **falsch**.|Also ist die Behauptung falsch.|Das ist falsch.|"
               "Die Aussage stimmt nicht.|Damit ist die Aussage nicht wahr."),
    "Spanish": ("Verdadero o falso: todo número primo es impar.", "Verdadero", "Falso",
                "La afirmación es **verdadera**.|Es verdadero.|Por tanto, la proposición es "
                "verdadera.|El enunciado es correcto.",
                "La afirmación es **falsa**.|Es falso.|Por tanto, la proposición es falsa.|"
                "La afirmación no es verdadera."),
    "Portuguese": ("Verdadeiro ou falso: todo número primo é ímpar.", "Verdadeiro", "Falso",
                   "A afirmação é **verdadeira**.|É verdadeiro.|Portanto, a proposição é "
                   "verdadeira.|A sentença é correta.",
                   "A afirmação é **falsa**.|É falso.|Portanto, a proposição é falsa.|"
                   "A afirmação não é verdadeira."),
    "Italian": ("Vero o falso: ogni numero primo è dispari.", "Vero", "Falso",
                "L'affermazione è **vera**.|È vero.|Quindi la proposizione è vera.|"
                "L'enunciato è corretto.",
                "L'affermazione è **falsa**.|È falso.|Quindi la proposizione è falsa.|"
                "L'affermazione non è vera."),
    "Russian": ("Верно ли утверждение: каждое простое число нечётно?", "верно", "неверно",
                "Утверждение **верно**.|Следовательно, утверждение верно.|Это верно.|"
                "Значит, утверждение истинно.",
                "Утверждение **неверно**.|Следовательно, утверждение неверно.|Это неверно.|"
                "Значит, утверждение ложно."),
    "Chinese": ("判断对错：任意两个奇数的积是奇数。", "对", "错",
                "结论：该命题**正确**。|该命题正确。|所以这个说法是对的。|因此命题成立。"
                "|故此命题为真。|这个判断是正确的。",
                "结论：该命题**错误**。|该命题不正确。|所以这个说法是错的。|因此命题不成立。"
                "|故此命题为假。|这个判断是错误的。"),
    "Japanese": ("次の命題の真偽を答えよ：すべての素数は奇数である。", "真", "偽",
                 "よって、この命題は**真**である。|この命題は真です。|したがって命題は正しい。",
                 "よって、この命題は**偽**である。|この命題は偽です。"
                 "|したがって命題は正しくない。"),
    "Korean": ("참 또는 거짓: 모든 소수는 홀수이다.", "참", "거짓",
               "따라서 이 명제는 **참**이다.|이 명제는 참입니다.|명제는 참이다.",
               "따라서 이 명제는 **거짓**이다.|이 명제는 거짓입니다.|명제는 거짓이다."),
}  # fmt: skip
_YES_NO = {
    "English": ("Is 2047 prime? (yes/no)", "yes", "no",
                "Answer: yes, it is.|Answer: yes, correct.|So the answer is yes.|Thus the claim "
                "holds. **Yes.**|The statement is true. Yes.",
                "Answer: no, it is not.|Answer: no, incorrect.|So the answer is no.|Thus the claim "
                "does not hold. **No.**|The statement is false. No."),
    "Russian": ("Верно ли, что число 2^11 - 1 простое? (да/нет)", "да", "нет",
                "Ответ: да, верно.|Ответ: да.|Ответ: да, это так.|Ответ: верно.",
                "Ответ: нет, неверно.|Ответ: нет.|Ответ: нет, это не так.|Ответ: неверно."),
    "German": ("Ist 2047 eine Primzahl? (ja/nein)", "ja", "nein",
               "Antwort: ja, das stimmt.|Antwort: Ja.|Antwort: ja, richtig.",
               "Antwort: nein, das stimmt nicht.|Antwort: Nein.|Antwort: nein, falsch."),
    "French": ("Le nombre 2047 est-il premier ? (oui/non)", "oui", "non",
               "Réponse : oui, c'est vrai.|Réponse : oui.|Réponse : oui, c'est exact.",
               "Réponse : non, c'est faux.|Réponse : non.|Réponse : non, ce n'est pas vrai."),
    "Spanish": ("¿Es 2047 un número primo? (sí/no)", "sí", "no",
                "Respuesta: sí, es verdad.|Respuesta: sí.|Respuesta: sí, es correcto.",
                "Respuesta: no, es falso.|Respuesta: no.|Respuesta: no, no es cierto."),
    "Chinese": ("2047是质数吗？（是/否）", "是", "否", "答案：是。|答：是的。", "答案：否。"
    "|答：不是。"),
}  # fmt: skip
_WORK = ("We look at both cases above.", "2a + 1 + 2b + 1 = 2(a + b + 1) has the factor 2.",
         "$x \\mapsto |x - \\tfrac12|$ is continuous.", "2047 = 23 · 89.")  # fmt: skip


def verdicts(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a question of true and false, or of yes and no, that a sentence answers."""
    for _ in range(count):
        table = rng.choice([_TRUTHS, _TRUTHS, _YES_NO])
        language = rng.choice([*table])
        problem, yes, no, affirms, denies = table[language]
        says = rng.random() < 0.5
        last = rng.choice((affirms if says else denies).split("|"))
        text = f"{rng.choice(_WORK)}\n\n{last}"
        yield Row(f"verdicts, {language}", problem, yes, text, says)
        yield Row(f"verdicts, {language}", problem, no, text, not says)


_DOUBTS = ("The statement may be true.", "If so, the statement is true.", "Is the statement true?",
           "The statement is true or false.", "One would think that the statement is true.",
           "The converse is true.")  # fmt: skip


def verdicts_left_open(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield sentences with a verdict that the writer does not give."""
    for _ in range(count):
        text = f"{rng.choice(_WORK)}\n\n{rng.choice(_DOUBTS)}"
        yield Row("verdicts left open", _TRUTHS["English"][0], "True", text, False)
        text = f"{rng.choice(_WORK)}\n\nThe statement is true."
        yield Row("verdicts given", _TRUTHS["English"][0], "True", text, True)


# --- chains and lines of running text ---

_EXACTS = (
    # (question, gold, chain without its last side, last side, its value, another side)
    ("Find the exact value of \\cos 75^\\circ.", "\\frac{\\sqrt{6}-\\sqrt{2}}{4}",
     "cos 75° = cos(45° + 30°)", "(√6 − √2)/4", 0.2588, "(√6 + √2)/4"),
    ("Solve e^{2x} = 5 exactly.", "\\frac{\\ln 5}{2}", "x = ½ ln 5", "ln √5", 0.8047, "ln √7"),
    ("Find the length exactly.", "3\\sqrt{5}", "d = √45", "3√5", 6.7082, "5√3"),
    ("Find the area.", "25\\pi", "A = πr² = π · 5²", "25π", 78.5398, "24π"),
    ("Find the radius exactly.", "\\sqrt{13}", "r = √(4 + 9)", "√13", 3.6056, "√15"),
    ("Find the sum of the series.", "\\frac{\\pi^2}{6}", "S = Σ 1/n²", "π²/6", 1.6449, "π²/8"),
    ("Find the exact value of tan 15°.", "2-\\sqrt{3}", "tan 15° = tan(45° − 30°)", "2 − √3",
     0.2679, "2 + √3"),
    ("Find x exactly.", "\\log_2 7", "x = log₂ 7", "ln 7 / ln 2", 2.8074, "ln 7 / ln 3"),
)  # fmt: skip
_BEFORE = ("", "Take logarithms: 2y = 3 ⟹ ", "We compute: ", "Step by step,\n\n", "So ", "⟹ ",
           "By the formula, ", "**Solution.** ")  # fmt: skip


def exact_chains(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield chains of running text with an exact value before its decimals."""
    for _ in range(count):
        problem, gold, chain, last, value, other = rng.choice(_EXACTS)
        digits = f"{value:.{rng.choice((3, 4))}f}"
        tail = rng.choice([f" ≈ {digits}", f" ≈ {digits}.", "", ".", f" (≈ {digits})"])
        lead = rng.choice(_BEFORE)
        yield Row("exact chains", problem, gold, f"{lead}{chain} = {last}{tail}", True)
        tail = tail if digits not in tail else ""
        yield Row("exact chains, other", problem, gold, f"{lead}{chain} = {other}{tail}", False)


_SETS = (
    ("Find A ∩ B.", "A ∩ B = {}"), ("Find A ∪ B.", "A ∪ B = {}"), ("Find A \\ B.", "A \\ B = {}"),
    ("Find the domain of f.", "dom f = {}"), ("Find A △ B.", "A △ B = {}"),
    ("Find A \\cap B.", "$A \\cap B = {}$"), ("Find the solution set S.", "S = {}"),
    ("Find the intersection of A and B.", "A ∩ B = {}"), ("Find A − B.", "A − B = {}"),
)  # fmt: skip


def named_sets(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a set behind the operation that is asked."""
    for _ in range(count):
        problem, shape = rng.choice(_SETS)
        items = rng.sample(range(1, 40), rng.choice((2, 3, 4)))
        braces = "\\{{{}\\}}" if "$" in shape else "{{{}}}"
        for said, paid in ((items, True), ([*items[1:], 41], False)):
            text = shape.format(braces.format(", ".join(map(str, said))))
            text = rng.choice(["Common elements: we compare.\n\n", ""]) + text
            gold = "\\{" + ", ".join(map(str, sorted(items))) + "\\}"
            law = "named sets" if paid else "named sets, other"
            yield Row(law, problem, gold, text, paid)


_WORKED = (
    # (question, gold, line that answers, line with another value)
    ("Differentiate f(x) = \\ln(x^2+1).", "\\frac{2x}{x^2+1}", "f′(x) = 2x/(x²+1)",
     "f′(x) = x/(x²+1)"),
    ("Expand (2x - 3)^2.", "4x^2-12x+9", "(2x − 3)² = 4x² − 12x + 9",
     "(2x − 3)² = 4x² − 6x + 9"),
    ("Factor x^2 - 5x + 6.", "(x-2)(x-3)", "x² − 5x + 6 = (x − 2)(x − 3)",
     "x² − 5x + 6 = (x + 2)(x − 3)"),
    ("Find an antiderivative of x^2.", "\\frac{x^3}{3}+C", "∫ x² dx = x³/3 + C",
     "∫ x² dx = x³/2 + C"),
    ("Find the equation of the line.", "y = 2x + 1", "y = 2x + 1", "y = 2x − 1"),
    ("Simplify (x^2-1)/(x-1).", "x+1", "(x² − 1)/(x − 1) = x + 1", "(x² − 1)/(x − 1) = x − 1"),
    ("Differentiate x e^x.", "(x+1)e^x", "f'(x) = (x + 1)e^x", "f'(x) = xe^x"),
    ("Find the inverse of f(x) = 2x - 6.", "\\frac{x+6}{2}", "f⁻¹(x) = (x + 6)/2",
     "f⁻¹(x) = (x − 6)/2"),
)  # fmt: skip
_REMARKS = (
    "That's it — valid for every real x.", "A quick test with x = 1: both sides agree ✓",
    "Check with x = 2: 7 = 7 ✓", "Done!", "This holds for all x where both sides are defined.",
    "Hope this helps!", "That is all.", "No further simplification is possible.",
    "(One can check this by substituting x = 0.)", "Test x = 0: 9 = 9 ✓", "Check: at x = 3 we "
    "get 9. ✓",
    "Quick sanity check at x = 1: 1 = 1 ✔", "A quick check at x = 2 gives 1 on both sides.",
    "And we're done.", "Nice and tidy.", "To verify, put x = 1: both sides are 2.",
    "Valid for all real numbers x.", "As a check, x = 10 gives 17² = 289 on both sides.",
    "One last check, for x = 4: 25 = 25 ✓",
)  # fmt: skip


def lines_with_remarks(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield an answer in a line of its own and a remark behind it."""
    for _ in range(count):
        problem, gold, right, wrong = rng.choice(_WORKED)
        remark = rng.choice(_REMARKS)
        lead = rng.choice(["", "We use the rule.\n\n", "Outer 1/(x²+1), inner 2x.\n\n"])
        for line, paid in ((right, True), (wrong, False)):
            text = f"{lead}{line}{rng.choice(['.', ''])}\n\n{remark}"
            law = "lines with remarks" if paid else "lines with remarks, other"
            yield Row(law, problem, gold, text, paid)


_TAKES_BACK = ("Wait, that is not right.", "But this is wrong.", "Hmm, I made a mistake there.",
               "No, that is incorrect.")  # fmt: skip


def lines_taken_back(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield an answer in a line of its own that is taken back."""
    for _ in range(count // 4):
        problem, gold, right, _ = rng.choice(_WORKED)
        text = f"{right}\n\n{rng.choice(_TAKES_BACK)}"
        yield Row("lines taken back", problem, gold, text, False)
        yield Row("lines as they are", problem, gold, right, True)


_BLOCKS = (
    ("A/x + B/(x+2): A = 1/2, B = −1/2.", "\\frac12\\left(\\frac1x-\\frac1{x+2}\\right)",
     "\\frac{1}{2x}-\\frac{1}{2(x+2)}", "\\frac12\\left(\\frac1x+\\frac1{x+2}\\right)"),
    ("u = x², du = 2x dx.", "\\frac{e^{x^2}}{2}+C", "\\frac12 e^{x^2}+C", "e^{x^2}+C"),
    ("Sum a = 3, product b = 2.", "x^2-3x+2", "x^2-3x+2", "x^2+3x+2"),
    ("a = 2, r = 3:", "2\\cdot 3^{n-1}", "2\\cdot 3^{n-1}", "2\\cdot 3^{n}"),
    ("f' = 2x, f'(1) = 2; so:", "y=2x-1", "y=2x-1", "y=2x+1"),
)  # fmt: skip


def blocks_behind_text(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a displayed formula behind a line of steps."""
    for _ in range(count):
        lead, right, gold, wrong = rng.choice(_BLOCKS)
        shape = rng.choice(["$${}$$", "$$\n{}\n$$", "\\[{}\\]", "\\[\n{}\n\\]", "${}$"])
        gap = rng.choice(["\n\n", "\n"])
        yield Row("blocks behind text", "", gold, lead + gap + shape.format(right), True)
        yield Row("blocks behind text, other", "", gold, lead + gap + shape.format(wrong), False)


# --- sentences ---

_POINTS = (
    "The lines meet at the point with x-coordinate {0} and y-coordinate {1}.",
    "So the x-coordinate is {0} and the y-coordinate is {1}.",
    "The point has abscissa {0} and ordinate {1}.", "They cross where x is {0} and y is {1}.",
    "They meet at x = {0}, y = {1}.", "So the lines intersect when x = {0} and y = {1}.",
    "The vertex lies at x-coordinate {0}, y-coordinate {1}.",
    "Its x-value is {0} and its y-value is {1}.",
    "Der Schnittpunkt hat die x-Koordinate {0} und die y-Koordinate {1}.",
    "Le point a pour abscisse {0} et pour ordonnée {1}.",
    "El punto tiene abscisa {0} y ordenada {1}.",
    "Il punto ha ascissa {0} e ordinata {1}.", "O ponto tem abscissa {0} e ordenada {1}.",
    "交点的横坐标为{0}，纵坐标为{1}。", "交点のx座標は{0}、y座標は{1}である。",
    "The y-coordinate is {1} and the x-coordinate is {0}.",
)  # fmt: skip


def coordinates(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the coordinates of a point in words; exchanged, they are another point."""
    for _ in range(count):
        x, y = rng.sample(range(-9, 20), 2)
        text = f"2x = 7 and so on.\n\n{rng.choice(_POINTS).format(x, y)}"
        problem = "Find the intersection point of the lines."
        yield Row("coordinates", problem, f"({x},{y})", text, True)
        yield Row("coordinates, exchanged", problem, f"({y},{x})", text, False)


_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LEADS_TO = ("Monday + {n} days → {d}.", "60 mod 7 = {n} → {d}", "Monday plus {n} is {d}.",
             "{n} days after Monday: {d}.", "60 ≡ {n} (mod 7), so {d}.", "Remainder {n} ⇒ {d}.",
             "Monday + {n} = {d}", "Counting on {n} days from Monday: **{d}**",
             "Monday + {n} days -> {d}.", "{n} days past Monday gives {d}.")  # fmt: skip


def days(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a day of the week that a line ends in behind the number of days."""
    for _ in range(count):
        n = rng.randrange(1, 7)
        text = f"31 + 29 = 60.\n\n{rng.choice(_LEADS_TO).format(n=n, d=_DAYS[n])}"
        problem = "January 1 was a Monday. What day of the week was March 1?"
        yield Row("days", problem, _DAYS[n], text, True)
        yield Row("days, other", problem, _DAYS[(n + 1) % 7], text, False)


_ARROWS = (
    ("Which element has 17 protons?", "chlorine", "17 protons → {}", "sulfur"),
    ("Write 49 in Roman numerals.", "XLIX", "40 = XL, 9 = IX → {}", "XLIV"),
    ("Is the function even, odd or neither?", "odd", "f(−x) = −f(x) → {}", "even"),
    ("What kind of triangle is it?", "isosceles", "a = b = 5 → {}", "scalene"),
    ("Does the series converge or diverge?", "diverges", "lim a_n = 1/2 ≠ 0 ⇒ {}", "converges"),
    ("Write 49 in Roman numerals.", "XLIX", "40 = XL, 9 = IX, so {}", "XLIV"),
    ("Find the common elements.", "\\emptyset", "no common elements → {}", "{1}"),
)  # fmt: skip


def arrows(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a word behind an arrow at the end."""
    for _ in range(count):
        problem, gold, shape, other = rng.choice(_ARROWS)
        said = rng.choice(["{}", "∅"]) if gold.startswith("\\") else gold
        said = said if not said[0].isalpha() else rng.choice([said, f"**{said}**"])
        end = rng.choice([".", ""])
        for word, paid in ((said, True), (other, False)):
            law = "arrows" if paid else "arrows, other"
            yield Row(law, problem, gold, shape.format(word) + end, paid)


_SIGNS = "零一二三四五六七八九十"
_PARTS = (
    ("确率为{w}分之{p}。", _SIGNS), ("所求概率为{w}分之{p}。", _SIGNS),
    ("答案：{w}分之{p}", "digits"), ("**答え：{w}分の{p}**", "digits"),
    ("答えは{w}分の{p}です。", "digits"),
    ("確率は{w}分の{p}である。", _SIGNS),
    ("답: {w}분의 {p}", "digits"), ("확률은 {w}분의 {p}이다.", "digits"),
    ("\\boxed{{{w}分の{p}}}", "digits"), ("\\boxed{{{w}分之{p}}}", "digits"),
)  # fmt: skip


def parts_in_words(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a fraction in the words of Chinese, Japanese or Korean."""
    for _ in range(count):
        shape, signs = rng.choice(_PARTS)
        part, whole = sorted(rng.sample(range(1, 10), 2))
        said = [str(n) if signs == "digits" else signs[n] for n in (whole, part)]
        text = shape.format(w=said[0], p=said[1])
        yield Row("parts in words", "", f"\\frac{{{part}}}{{{whole}}}", text, True)
        yield Row("parts in words, other", "", f"\\frac{{{whole}}}{{{part}}}", text, False)


_EVALUATED = (
    "Give the fully evaluated number, not a power.", "Write out the number; do not leave a power.",
    "Give your answer as a single integer, not in exponential form.",
    "Evaluate completely.", "Your answer should be a plain integer without exponents.",
    "Give the evaluated number.", "Do not leave exponents or factorials in the answer.",
    "Work it out fully.", "Express the result as a plain integer.",
    "No powers or factorials in the final answer, please.",
)  # fmt: skip


def evaluated(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield powers and factorials where the question wants the number, and where it does not."""
    for _ in range(count):
        base, power = rng.choice((2, 3, 5)), rng.randrange(4, 10)
        value = base**power
        asked = "How many such functions are there?"
        said = rng.choice(
            [f"{base}^{power}", f"{base}^{{{power}}}", f"{base} \\cdot {base}^{power - 1}"]
        )
        box = rng.choice(["\\boxed{{{}}}", "Answer: ${}$", "The number is ${}$."])
        demand = f"{asked} {rng.choice(_EVALUATED)}"
        yield Row("evaluated", demand, str(value), box.format(said), False)
        yield Row("evaluated", demand, str(value), box.format(value), True)
        chain = rng.choice([f"{said} = {value}", f"{value} = {said}"])
        yield Row("evaluated", demand, str(value), box.format(chain), True)
        yield Row("evaluated, free", asked, str(value), box.format(said), True)


_STRESSED = (
    ("How old is Ann now?", "Ann is {} years old now."), ("How old is Ben?", "Ben is {}."),
    ("How many marbles has Eva?", "Eva has {} marbles."),
    ("How many are there?", "There are {} of them."),
    ("How old is she?", "She is {} years old."), ("How long does it take?", "It takes {} minutes."),
    ("Wie alt ist Anna?", "Anna ist {} Jahre alt."), ("Quel âge a Luc ?", "Luc a {} ans."),
    ("¿Cuántos años tiene Eva?", "Eva tiene {} años."),
    ("How much does he pay?", "Tom pays {} dollars."),
    ("How many pages does Tim get?", "Tim gets {} pages in total."),
    ("Сколько лет Ане?", "Ане {} лет."),
    ("Quanti anni ha Ugo?", "Ugo ha {} anni."),
)  # fmt: skip


def stressed_sentences(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a whole sentence in bold."""
    for _ in range(count):
        problem, sentence = rng.choice(_STRESSED)
        value = rng.randrange(13, 90)
        lead = rng.choice(["", "3b + 8 = 2(b + 8).\n\n", "Check: 16 and 32 ✓.\n\n"])
        mark = rng.choice(["**{}**", "*{}*", "__{}__", "**{}**"])
        text = lead + mark.format(sentence.format(value))
        yield Row("stressed sentences", problem, str(value), text, True)
        yield Row("stressed sentences, other", problem, str(value + 1), text, False)


_REGIONS = (
    "Answer: all real x with {}.", "Answer: all x such that {}", "**All real numbers x with {}**",
    "The solution is all real numbers x satisfying {}.", "All x with {}.", "So every x with {} "
    "works.",
    "The inequality holds exactly for {}.", "x must satisfy {}.", "Solution: {}",
    "\\boxed{{\\text{{all real }} x \\text{{ with }} {}}}", "It is true precisely when {}.",
    "Lösung: alle reellen x mit {}.", "Réponse : tous les réels x tels que {}.",
    "Ответ: все x, для которых {}.", "Respuesta: todos los x reales con {}.",
)  # fmt: skip


def regions(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield an interval by a double inequality behind words for all numbers."""
    for _ in range(count):
        low, high = sorted(rng.sample(range(-9, 10), 2))
        shape = rng.choice(_REGIONS)
        sign = "\\le" if "boxed" in shape else "≤"
        text = shape.format(
            f"{low} {sign} x {sign} {high}".replace("-", "-" if "boxed" in shape else "−")
        )
        problem = "Solve the inequality."
        yield Row("regions in words", problem, f"[{low}, {high}]", text, True)
        yield Row("regions in words, other", problem, f"({low}, {high}]", text, False)
        yield Row("regions in words, other", problem, f"[{low}, {high + 1}]", text, False)


_LAST_STEPS = (
    "so {k}x = {m} and x = {v}.", "{k}x = {m}, x = {v}.", "thus {k}x = {m} and therefore x = {v}.",
    "we get {k}x = {m}, hence x = {v}.", "{k}x = {m} and so x = {v}", "{k}x = {m} → x = {v}",
    "also gilt {k}x = {m} und x = {v}.", "donc {k}x = {m} et x = {v}.",
    "entonces {k}x = {m} y x = {v}.", "значит, {k}x = {m} и x = {v}.", "so {k}x = {m}; x = {v}.",
)  # fmt: skip


def last_steps(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the value of an unknown behind the equation of its multiple."""
    for _ in range(count):
        k, v = rng.choice((2, 4, 5)), rng.randrange(3, 30) / 2
        said = f"{v:g}"
        text = "We solve it; " + rng.choice(_LAST_STEPS).format(k=k, m=f"{k * v:g}", v=said)
        yield Row("last steps", "Solve for x.", said, text, True)
        yield Row("last steps, other", "Solve for x.", f"{k * v:g}", text, False)


_COMMAS = (
    "Ergebnis: $\\boxed{{{}}}$", "\\boxed{{{}}}", "${}$", "Also ist $x = {}$.", "**{}**",
    "Ergebnis: {}",
)  # fmt: skip
_COMMA_TASKS = (
    ("Berechne 7,5 : 4.", "7,5 : 4 = {}"), ("Calcule 7,5 ÷ 4.", "7,5 ÷ 4 = {}"),
    ("Вычислите 7,5 : 4.", "7,5 : 4 = {}"), ("Calcola 7,5 : 4.", "7,5 : 4 = {}"),
    ("Calculez 7,5 : 4.", "7,5 : 4 = {}"), ("Rechne aus: 0,5 · 3,75", "0,5 · 3,75 = {}"),
)  # fmt: skip


def commas(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a decimal comma before three digits, where the question has decimal commas."""
    for _ in range(count):
        problem, work = rng.choice(_COMMA_TASKS)
        value = f"{rng.randrange(1, 40)}.{rng.randrange(101, 999)}"
        comma = rng.choice([",", "{,}"])
        said = rng.choice(_COMMAS).format(value.replace(".", comma))
        said = said if "$" in said or "\\" in said else said.replace("{,}", ",")
        text = f"{work.format(value.replace('.', ','))}\n\n{said}"
        yield Row("decimal commas", problem, value, text, True)
        yield Row("decimal commas, other", problem, value.replace(".", ""), text, False)


_DENOMINATORS = {
    # language: (words of one part, words of several parts, sentences)
    "German": ("Drittel Viertel Fünftel Sechstel Siebtel Achtel Neuntel Zehntel", "",
               "Die Wahrscheinlichkeit ist #.|Also beträgt die Wahrscheinlichkeit #.|Antwort: #"),
    "French": ("tiers quart cinquième sixième septième huitième neuvième dixième",
               "tiers quarts cinquièmes sixièmes septièmes huitièmes neuvièmes dixièmes",
               "La probabilité est #.|La probabilité est de #.|Réponse : #"),
    "Spanish": ("tercio cuarto quinto sexto séptimo octavo noveno décimo",
                "tercios cuartos quintos sextos séptimos octavos novenos décimos",
                "La probabilidad es #.|La probabilidad es de #.|Respuesta: #"),
    "Portuguese": ("terço quarto quinto sexto sétimo oitavo nono décimo",
                   "terços quartos quintos sextos sétimos oitavos nonos décimos",
                   "A probabilidade é #.|A probabilidade é de #.|Resposta: #"),
    "Italian": ("terzo quarto quinto sesto settimo ottavo nono decimo",
                "terzi quarti quinti sesti settimi ottavi noni decimi",
                "La probabilità è #.|La probabilità è di #.|Risposta: #"),
}  # fmt: skip
_ONE_OF = {"German": "ein", "French": "un", "Spanish": "un", "Portuguese": "um", "Italian": "un"}


def foreign_parts(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a fraction in the words of a language."""
    for _ in range(count):
        language = rng.choice([*_DENOMINATORS])
        single, several, sentences = _DENOMINATORS[language]
        part, whole = sorted(rng.sample(range(1, 10), 2))
        whole += 1 if whole < 3 else 0
        is_single = part == 1
        nouns = (single if is_single else several or single).split()
        said = f"{_ONE_OF[language] if is_single else worded(part, language)} {nouns[whole - 3]}"
        text = f"Fälle: 3.\n\n{rng.choice(sentences.split('|')).replace('#', said)}"
        yield Row("parts in words", "", f"\\frac{{{part}}}{{{whole}}}", text, True)
        yield Row("parts in words, other", "", str(part), text, False)
        yield Row("parts in words, other", "", f"\\frac{{{part}}}{{{whole + 1}}}", text, False)


_CHANCES = ("So it is a {0}-in-{1} chance.", "The chance is {0} in {1}.", "That's {0} out of {1}.",
            "So the probability is {0} out of {1}.", "{0} out of {1}.",
            "This happens {0} in {1} times.",
            "That is a {0} in {1} chance.", "There is a {0}-in-{1} chance.")  # fmt: skip


def chances(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a probability as so many out of so many, in digits or in words."""
    problem = "What is the probability of a six?"
    for _ in range(count):
        part, whole = sorted(rng.sample(range(1, 60), 2))
        said = (
            [part, whole] if rng.random() < 0.5 else [worded(n, "English") for n in (part, whole)]
        )
        text = f"We count.\n\n{rng.choice(_CHANCES).format(*said)}"
        text = text[:11] + text[11:].capitalize()
        yield Row("chances", problem, f"\\frac{{{part}}}{{{whole}}}", text, True)
        yield Row("chances, other", problem, str(whole), text, False)
        yield Row("chances, other", problem, f"\\frac{{{part}}}{{{whole + 1}}}", text, False)


_BOUNDS = (
    ("smaller than", "<"), ("less than", "<"), ("greater than", ">"), ("larger than", ">"),
    ("at least", "\\ge"), ("at most", "\\le"), ("greater than or equal to", "\\ge"),
    ("bigger than", ">"), ("less than or equal to", "\\le"), ("no more than", "\\le"),
    ("no less than", "\\ge"), ("above", ">"), ("below", "<"),
)  # fmt: skip
_BOUNDED = (
    "So all numbers {} are solutions.", "The solutions are all numbers {}.", "Answer: all x {}",
    "So the inequality holds for all real numbers {}.", "All real numbers {}.", "Answer: x is {}.",
    "So x must be {}.", "Every x {} works.", "The solution set is all real x {}.", "x is {}.",
    "The answer is all real numbers {}.", "Hence x has to be {}.",
)  # fmt: skip


_UNBOUNDED = (
    "So the inequality fails when x is {}.", "It is false for all numbers {}.",
    "The expression is undefined if x is {}.", "So there is no solution unless x is {}.",
    "Not all x {} are solutions.",
)  # fmt: skip


def bounds_in_words(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield an inequality in words; the same bound turned round is another."""
    for _ in range(count):
        (said, sign), value = rng.choice(_BOUNDS), rng.randrange(-9, 10)
        written = rng.choice(["-{}", "−{}"]).format(-value) if value < 0 else str(value)
        text = f"−2x > 8.\n\n{rng.choice(_BOUNDED).format(f'{said} {written}')}"
        turned = {"<": ">", ">": "<", "\\ge": "\\le", "\\le": "\\ge"}[sign]
        problem = "Solve the inequality."
        yield Row("bounds in words", problem, f"x {sign} {value}", text, True)
        yield Row("bounds in words, other", problem, f"x {turned} {value}", text, False)
        yield Row("bounds in words, other", problem, f"x {sign} {value + 1}", text, False)
        text = rng.choice(_UNBOUNDED).format(f"{said} {written}")
        yield Row("bounds in words, of another", problem, f"x {sign} {value}", text, False)


_NO_LIMIT = (
    "The one-sided limits disagree, hence there is no limit at {}.", "So there is no limit.",
    "Therefore the limit at {} does not exist.", "So the limit doesn't exist.",
    "Hence the limit as x approaches {} does not exist.", "Thus $f$ has no limit at {}.",
    "So the two-sided limit does not exist at x = {}.",
)  # fmt: skip
_LIMIT = ("So the limit at {} exists.", "There is no doubt that the limit at {} exists.",
          "If so, there is no limit at {}.",
          "It is not true that there is no limit at {}.")  # fmt: skip


def missing_limits(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield sentences that a limit does not exist, and such that do not say so."""
    for _ in range(count // 2):
        for shapes, paid in ((_NO_LIMIT, True), (_LIMIT, False)):
            text = f"From the left −1.\n\n{rng.choice(shapes).format(rng.randrange(9))}"
            yield Row("missing limits", "Find the limit.", "does not exist", text, paid)


DRAWS = (
    again, rounded, repeated, verdicts, verdicts_left_open, exact_chains, named_sets,
    lines_with_remarks, lines_taken_back, blocks_behind_text, coordinates, days, arrows,
    parts_in_words, evaluated, stressed_sentences, regions, last_steps, commas,
    foreign_parts, chances, bounds_in_words, missing_limits,
)  # fmt: skip
"""Every law of this file, as a function of a generator and the number of draws."""
