"""Laws of forms and notations: the form that a question asks for, and the spellings of what is no
plain number (permutations, matrices, vectors, sets of reals, formulas of logic and chemistry, days,
numerals in bases and Roman ones).

Each law draws questions with their golds and says of a response whether it is paid, in both
directions. `maths_laws.py` runs these laws beside its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from maths_words import Row

# --- forms of complex numbers ---

_MODULI = ((1, 1, 4), (1, 3, 3), (3, 1, 6))
"""The squares of the parts of a number in the first quadrant, and the divisor of pi in its angle."""
_COMPLEX_ASKED = {
    "a+bi": (
        "Write $\\#$ in the form $a+bi$.", "Express # in rectangular form.",
        "Convert # to Cartesian form.", "Schreibe # in der Form $a+bi$.", "Schreibe # in kartesischer Form.",
        "Mettre # sous forme algébrique.", "Écrire # sous la forme $x+iy$.",
        "Escribe # en forma binómica.", "Escreva # na forma algébrica.", "Scrivi # in forma algebrica.",
        "Запишите # в алгебраической форме.", "把 # 写成代数形式。", "# を $a+bi$ の形で表せ。",
        "# 를 $a+bi$ 꼴로 나타내시오.",
    ),
    "polar": (
        "Write # in polar form.", "Express # in trigonometric form.", "Schreibe # in Polarform.",
        "Mettre # sous forme trigonométrique.", "Escribe # en forma polar.",
        "Escreva # na forma trigonométrica.", "Scrivi # in forma trigonometrica.",
        "Запишите # в тригонометрической форме.", "把 # 写成三角形式。", "# を極形式で表せ。",
        "# 를 극형식으로 나타내시오.",
    ),
    "exponential": (
        "Write # in exponential form.", "Write # in the form $re^{i\\theta}$.",
        "Schreibe # in Exponentialform.", "Mettre # sous forme exponentielle.",
        "Escribe # en forma exponencial.", "Scrivi # in forma esponenziale.",
        "Запишите # в показательной форме.", "把 # 写成指数形式。", "# を指数形式で表せ。",
    ),
}  # fmt: skip
_SHOWN = ("\\boxed{{{}}}", "So it is ${}$.", "$z = {}$", "**Answer:** ${}$")


def complex_forms(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a complex number in three forms, of which a question asks for one or for none."""
    for _ in range(count):
        (first, second, part), size = rng.choice(_MODULI), rng.choice((2, 4, 6))
        real, imaginary = (
            f"{size // 2 if square > 1 or first != second else size}"
            + (f"\\sqrt{{{square}}}" if square > 1 else "")
            for square in (first, second)
        )
        size = size if first != second else 0
        modulus = str(size) if size else f"{real}\\sqrt2"
        forms = {
            "a+bi": (f"{real}+{imaginary}i", f"{real}+i\\,{imaginary}"),
            "polar": (
                f"{modulus}(\\cos\\frac{{\\pi}}{{{part}}}+i\\sin\\frac{{\\pi}}{{{part}}})",
                f"{modulus}\\left(\\cos({180 // part}^\\circ)+i\\sin({180 // part}^\\circ)\\right)",
                f"{modulus}\\operatorname{{cis}}\\frac{{\\pi}}{{{part}}}",
            ),
            "exponential": (
                f"{modulus}e^{{i\\pi/{part}}}",
                f"{modulus}e^{{\\frac{{i\\pi}}{{{part}}}}}",
            ),
        }
        asked = rng.choice(list(forms))
        prompt = rng.choice(_COMPLEX_ASKED[asked]).replace("\\#", "w").replace("#", "$w$")
        gold, shape = forms[asked][0], rng.choice(_SHOWN)
        for form, spellings in forms.items():
            said = shape.format(rng.choice(spellings))
            # A number in exponential form is one in polar form.
            in_functions = any(word in prompt for word in ("rigon", "тригон", "三角"))
            in_form = form == asked or (asked, form, in_functions) == (
                "polar",
                "exponential",
                False,
            )
            yield Row(
                "complex forms" if in_form else "complex forms, another",
                prompt,
                gold,
                said,
                in_form,
            )
            free = "Solve for $z$."
            yield Row("complex forms, none asked", free, gold, said, True)


# --- simplified ---

_SIMPLIFY = (
    "Simplify #.", "Simplifie #.", "Vereinfache #.", "Simplifica #.", "Semplifica #.",
    "Упростите #.", "化简 #。", "# を簡単にせよ。", "Write # in simplest radical form.",
    "Fully simplify #.", "Simplifique #.",
)  # fmt: skip


def simplified(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield simplified formulas, and equal ones with arithmetic of numbers left in them."""
    for _ in range(count):
        a, b = rng.sample((2, 3, 5, 7, 11), 2)
        m, n = rng.randrange(2, 9), rng.randrange(2, 9)
        if rng.random() < 0.5:
            question, gold = f"\\sqrt{{{a * a * b}}}", f"{a}\\sqrt{{{b}}}"
            right = [
                f"{a}\\sqrt{{{b}}}",
                f"{a} \\cdot \\sqrt{b}",
                f"{a}√{b}",
                f"\\sqrt{{{b}}}\\cdot {a}",
            ]
            wrong = [
                f"\\sqrt{{{a * a}\\cdot {b}}}", f"\\sqrt{{{a}^2\\cdot {b}}}", f"\\sqrt{{{a * a * b}}}",
                f"\\sqrt{{{a * a * b - 1}+1}}", f"\\sqrt{{{a * a}}}\\sqrt{{{b}}}",
                f"\\frac{{{2 * a}\\sqrt{{{b}}}}}{{2}}",
            ]  # fmt: skip
        elif rng.random() < 0.5:
            question, gold = f"x^{{{m}}}\\cdot x^{{{n}}}", f"x^{{{m + n}}}"
            right = [f"x^{{{m + n}}}", f"x^{m + n}" if m + n < 10 else f"x^{{{m + n}}}"]
            wrong = [f"x^{{{m}+{n}}}", f"x^{{{m + n + 2}-2}}"]
        else:
            question, gold = f"\\frac{{{a * m}x}}{{{b * m}y}}", f"\\frac{{{a}x}}{{{b}y}}"
            right = [
                gold,
                f"\\dfrac{{{a}x}}{{{b}y}}",
                f"{a}x/({b}y)",
                f"\\frac{{{a}}}{{{b}}}\\cdot\\frac{{x}}{{y}}",
            ]
            wrong = [
                f"\\frac{{{a}\\cdot {m}x}}{{{b}\\cdot {m}y}}", f"\\frac{{{a * 2}x}}{{{b * 2}y}}",
                f"\\frac{{({a + 1}-1)x}}{{{b}y}}",
            ]  # fmt: skip
        prompt, shape = rng.choice(_SIMPLIFY).replace("#", f"${question}$"), rng.choice(_SHOWN[:2])
        yield Row("simplified", prompt, gold, shape.format(rng.choice(right)), True)
        step, last = rng.choice(wrong), rng.choice(right)
        yield Row("simplified, not", prompt, gold, shape.format(step), False)
        yield Row("simplified", prompt, gold, shape.format(f"{step} = {last}"), True)
        if "sqrt" in gold and "cos" not in prompt:
            free = "How long is the diagonal?"
            yield Row(
                "simplified, not asked", free, gold, shape.format(f"\\sqrt{{{a * a * b}}}"), True
            )


# --- permutations ---

_CYCLED = (
    "Write $\\sigma$ in cycle notation.", "Write the permutation as a product of disjoint cycles.",
    "Schreibe die Permutation in Zykelschreibweise.", "Écris $\\sigma$ comme produit de cycles disjoints.",
    "Escribe la permutación como producto de ciclos disjuntos.",
    "Scrivi la permutazione come prodotto di cicli disgiunti.",
    "Escreva a permutação como produto de ciclos disjuntos.",
    "Запишите подстановку в виде произведения независимых циклов.", "将置换写成不相交轮换的乘积。",
)  # fmt: skip
_CYCLE_ENDS = (
    "So $\\sigma={}$.", "\\boxed{{{}}}", "Answer: ${}$", "${}$", "1 → 3, 3 → 2. So $\\sigma = {}$",
    "$\\pi = {}$", "Hence the permutation is ${}$.",
)  # fmt: skip


def cycles(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield products of disjoint cycles, each turned and in any order, and another permutation."""
    for _ in range(count):
        numbers = rng.sample(range(1, 8), 5)
        parts = rng.choice(([numbers[:3]], [numbers[:3], numbers[3:]], [numbers[:4]], [numbers]))
        gap = rng.choice((" ", "\\ ", "\\,", "~"))

        def written(cycled: list[list[int]], gap: str = gap) -> str:
            return "".join(f"({gap.join(map(str, cycle))})" for cycle in cycled)

        turned = [
            cycle[turn:] + cycle[:turn]
            for cycle in parts
            if (turn := rng.randrange(len(cycle))) + 1
        ]
        rng.shuffle(turned)
        other = [[cycle[1], cycle[0], *cycle[2:]] if len(cycle) > 2 else cycle for cycle in turned]
        shape, prompt = rng.choice(_CYCLE_ENDS), rng.choice(_CYCLED)
        for said, paid in ((turned, True), (other, False)):
            law = "cycles" if paid else "cycles, another"
            yield Row(law, prompt, written(parts, " "), shape.format(written(said)), paid)
            yield Row(law, prompt, written(parts, "\\ "), shape.format(written(said)), paid)
            chain = shape.format(f"{written(said)} = {written(parts)}")
            yield Row(law, prompt, written(parts, " "), chain, paid)


# --- matrices and vectors ---

_MATRIX_ASKED = ("Compute $A^{6}$.", "Berechne $A^6$.", "Calcula $A^6$.", "Calculez $A^6$.",
                 "Find $A^{27} + A^{31}$.", "Вычислите $A^6$.", "求 $A^6$。")  # fmt: skip


def multiples_of_one(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a multiple of the identity by its name, and another multiple."""
    for _ in range(count):
        size, factor = rng.choice((2, 3)), rng.choice((-3, -1, 0, 1, 2, 5))
        rows = [" & ".join(str(factor * (r == c)) for c in range(size)) for r in range(size)]
        gold = "\\begin{pmatrix}" + " \\\\ ".join(rows) + "\\end{pmatrix}"
        name = rng.choice((
            "I", "E", "I_#", "E_#", "\\mathbf{I}", "\\mathbf{I}_#", "I_{#}", "\\mathbb{I}", "\\mathrm{Id}",
            "\\mathbf{E}", "I_{# \\times #}",
        )).replace("#", str(size))  # fmt: skip
        prompt, shape = rng.choice(_MATRIX_ASKED), rng.choice(
            ("\\boxed{{{}}}", "So $A^6 = {}$.", "The sum is $-I + A - A = {}$.", "**Answer:** ${}$",
             "The sum is \\boxed{{{}}}, where $I$ is the identity matrix.")
        )  # fmt: skip
        zero = rng.choice(("0", "O", "\\mathbf{0}", "\\mathbf{O}"))

        def multiple(factor: int, name: str = name, zero: str = zero) -> str:
            return {1: name, -1: f"-{name}", 0: zero}.get(factor, f"{factor}{name}")

        if "-I" in shape and factor != -1:
            shape = shape.replace("-I + A - A = ", "")
        yield Row("multiples of one", prompt, gold, shape.format(multiple(factor)), True)
        other = multiple(factor + rng.choice((1, -1, 3)))
        yield Row("multiples of one, another", prompt, gold, shape.format(other), False)
        bare = f"\\boxed{{{factor or 4}}}"
        yield Row("multiples of one, a number", prompt, gold, bare, False)
        wrong = (
            gold.replace(rows[0], rows[0].replace("0", "1", 1))
            if factor != 1
            else gold.replace("0", "1", 1)
        )
        if multiple(factor) != "0":
            said = shape.format(multiple(factor))
            yield Row("multiples of one, no multiple", prompt, wrong, said, False)


_VECTOR_ASKED = (
    "Find a unit vector in the direction of $(6,-8)$.", "Find the vector.", "Gib den Vektor an.",
    "Trouve le vecteur.", "Halla el vector.",
)  # fmt: skip
_UNIT_VECTORS = (
    "{}\\mathbf i{}\\mathbf j", "{}\\hat\\imath{}\\hat\\jmath", "{}i{}j", "{}\\,\\mathbf{{i}}{}\\,\\mathbf{{j}}",
    "{}\\vec i{}\\vec j", "{}\\hat{{i}}{}\\hat{{j}}", "{}\\hat{{\\imath}}{}\\hat{{\\jmath}}",
    "{} i {} j",
)  # fmt: skip
_VECTOR_ENDS = (
    "\\boxed{{{}}}", "$\\hat u={}$", "So $\\mathbf{{u}} = {}$.", "$\\vec u=\\frac12({},{})={}$",
    "$\\hat u=\\frac1{{10}}\\langle {},{}\\rangle={}$", "So the vector is ${}$.",
)  # fmt: skip


def unit_vectors(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a vector in its unit vectors, alone or as the end of a chain, and another vector."""
    for _ in range(count):
        first, second = rng.sample(range(2, 9), 2)
        gold = rng.choice((
            f"\\left({first},-{second}\\right)", f"({first}, -{second})",
            f"\\begin{{pmatrix}}{first}\\\\-{second}\\end{{pmatrix}}", f"\\langle {first},-{second}\\rangle",
        ))  # fmt: skip
        prompt, shape, spelt = (
            rng.choice(_VECTOR_ASKED),
            rng.choice(_VECTOR_ENDS),
            rng.choice(_UNIT_VECTORS),
        )
        for pair, paid in (
            ((first, -second), True),
            ((first, second), False),
            ((second, -first), False),
        ):
            written = spelt.format(pair[0], f"{pair[1]:+d}")
            factor = 10 if "{{10}}" in shape else 2
            scaled = shape.count("{}") > 1
            said = (
                shape.format(*(factor * part for part in pair), written)
                if scaled
                else shape.format(written)
            )
            yield Row("unit vectors" if paid else "unit vectors, another", prompt, gold, said, paid)
        if scaled:
            said = shape.format(
                factor * first, factor * second, spelt.format(first, f"{-second:+d}")
            )
            yield Row("unit vectors, a false chain", prompt, gold, said, False)


_PRINTED = ("```\n{}\n```", "```python\n{}\n```", "{}", "\\boxed{{{}}}", "`{}`")


def printed_matrices(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a matrix as a list of rows, in a block of code at the end or in line."""
    for _ in range(count):
        rows, columns = rng.choice(((2, 2), (2, 3), (3, 3), (3, 2)))
        cells = [[rng.randrange(-9, 10) for _ in range(columns)] for _ in range(rows)]
        body = "\\\\".join("&".join(map(str, row)) for row in cells)
        gold = f"\\begin{{{rng.choice(('pmatrix', 'bmatrix'))}}}{body}\\end{{pmatrix}}"
        if gold.startswith("\\begin{b"):
            gold = gold.replace("end{p", "end{b")
        lead = rng.choice(
            ("det = 6 − 5 = 1, so the inverse is\n\n", "The matrix is\n\n", "So the result is:\n\n")
        )
        shape = rng.choice(_PRINTED)
        if not shape.startswith("```"):
            lead = lead.replace("\n\n", " ")
        changed = [[*row] for row in cells]
        changed[-1][0] += 1
        for matrix, paid in (
            (cells, True),
            (changed, False),
            ([*cells[1:], cells[0]], cells[0] == cells[1] == cells[-1]),
        ):
            joint = rng.choice((",\n ", ", ")) if shape.startswith("```") else ", "
            text = "[" + joint.join("[" + ", ".join(map(str, row)) + "]" for row in matrix) + "]"
            if "\n" in joint and rng.random() < 0.4:  # as numpy prints it
                text = text.replace(",", "")
            law = "printed matrices" if paid else "printed matrices, another"
            yield Row(law, "Find the inverse of the matrix.", gold, lead + shape.format(text), paid)


# --- sets of reals ---

_PUNCTURED = (
    "So: ${low}<x<{high}$ with $x\\neq {hole}$.", "${low}<x<{high}$, $x \\ne {hole}$",
    "\\boxed{{{low}<x<{high},\\ x \\ne {hole}}}", "\\boxed{{({low},{high})\\setminus\\{{{hole}\\}}}}",
    "So $x\\in({low},{high})$, $x \\ne {hole}$.", "Answer: all $x$ with {low} < x < {high}, x ≠ {hole}.",
    "So: {low} < x < {high} except x = {hole}.", "So ${low} < x < {high}$ except $x = {hole}$.",
    "The solution is ${low}<x<{high}$ and $x\\neq {hole}$.", "Also ${low}<x<{high}$ außer $x={hole}$.",
    "Also gilt ${low}<x<{high}$ mit $x\\ne {hole}$.", "Donc ${low}<x<{high}$ avec $x\\neq {hole}$.",
    "Donc ${low}<x<{high}$ sauf $x={hole}$.", "Por tanto, ${low}<x<{high}$ con $x\\neq {hole}$.",
    "Por tanto, ${low}<x<{high}$ excepto $x={hole}$.", "Portanto, ${low}<x<{high}$ com $x\\ne {hole}$.",
    "Portanto, ${low}<x<{high}$ exceto $x={hole}$.",
    "Quindi ${low}<x<{high}$ con $x\\ne {hole}$.", "Quindi ${low}<x<{high}$ tranne $x={hole}$.",
    "Значит, ${low}<x<{high}$, кроме $x={hole}$.", "Значит, ${low}<x<{high}$ при $x\\ne {hole}$.",
    "所以 ${low}<x<{high}$ 且 $x\\neq {hole}$。", "よって ${low}<x<{high}$ ただし $x\\neq {hole}$。",
    "따라서 ${low}<x<{high}$, 단 $x\\neq {hole}$.",
)  # fmt: skip


def punctured(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield an interval without a point, another one, and the interval with it."""
    for _ in range(count):
        low, hole, high = sorted(rng.sample(range(60), 3))
        gold = f"({low},{hole}) \\cup ({hole},{high})"
        shape, prompt = rng.choice(_PUNCTURED), "Solve the inequality."
        said = shape.format(low=low, hole=hole, high=high)
        lead = rng.choice(("", "The numerator vanishes there.\n\n"))
        yield Row("punctured", prompt, gold, lead + said, True)
        for other in (
            (low, hole + 1, high + 2),
            (low, hole, high + 1),
            (low + 1, hole + 1, high + 1),
        ):
            said = lead + shape.format(low=other[0], hole=other[1], high=other[2])
            yield Row("punctured, another", prompt, gold, said, False)
        whole = f"({low},{high})"
        yield Row(
            "punctured, whole",
            prompt,
            whole,
            lead + shape.format(low=low, hole=hole, high=high),
            False,
        )


_EVERYWHERE = (
    "A polynomial is defined everywhere, so the domain is **all real numbers**.",
    "The domain is all real numbers.", "**ℝ**", "The domain is $\\mathbb{R}$.", "Domain: all reals",
    "So every real $x$ works.", "So every real number is a solution.", "All real numbers.",
    "It holds for all real numbers.", "\\boxed{\\text{all real numbers}}", "Answer: all real numbers",
    "So the inequality holds for all real x.", "So the solution set is the set of all real numbers.",
    "Die Definitionsmenge ist die Menge aller reellen Zahlen.", "Lösung: alle reellen Zahlen",
    "Also ist die Definitionsmenge $\\mathbb{R}$.", "Die Lösungen sind alle reellen Zahlen.",
    "Le domaine est l'ensemble des nombres réels.", "Réponse : tous les nombres réels",
    "Donc l'ensemble de définition est **tous les réels**.",
    "El dominio son **todos los números reales**.", "Respuesta: todos los números reales",
    "O domínio é o conjunto de todos os números reais.", "Resposta: todos os números reais",
    "Il dominio è l'insieme di tutti i numeri reali.", "Risposta: tutti i numeri reali",
    "Ответ: все действительные числа", "Область определения — все действительные числа.",
    "所以定义域是**全体实数**。", "答案：所有实数", "定義域は**すべての実数**である。", "答え：全ての実数",
    "정의역은 **모든 실수**이다.", "답: 모든 실수",
)  # fmt: skip
_NOT_EVERYWHERE = (
    "The domain is all real numbers except 3.", "The domain is all positive real numbers.",
    "The domain is not all real numbers.", "All real numbers greater than 2.", "The domain is all integers.",
    "Answer: all real numbers x with x > 0", "Die Definitionsmenge sind alle reellen Zahlen außer 0.",
    "Alle positiven reellen Zahlen.", "Le domaine est tous les réels sauf 1.", "Tous les réels positifs.",
    "El dominio son todos los números reales excepto 2.", "All non-negative real numbers",
    "Ответ: все действительные числа, кроме 0", "Ответ: все положительные действительные числа",
    "答案：除0以外的所有实数", "答案：所有正实数", "答え：0以外のすべての実数", "답: 0을 제외한 모든 실수",
    "Is the domain all real numbers?", "All rational numbers.", "It is unclear whether the domain is all real numbers.",
)  # fmt: skip


def all_reals(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the real numbers in words or by their sign, and a part of them."""
    for _ in range(count):
        gold = rng.choice(
            ("(-\\infty,\\infty)", "(-\\infty, \\infty)", "\\mathbb{R}", "\\text{all real numbers}")
        )
        prompt = rng.choice(("What is the domain of $f(x)=x^3-4x$?", "Solve $x^2 + 1 > 0$."))
        lead = rng.choice(("", "We look at both sides.\n\n", "$x^2 \\ge 0$.\n\n"))
        yield Row("all reals", prompt, gold, lead + rng.choice(_EVERYWHERE), True)
        yield Row("all reals, a part", prompt, gold, lead + rng.choice(_NOT_EVERYWHERE), False)
        part = rng.choice(("[0,\\infty)", "(0,\\infty)", "(-\\infty,3)\\cup(3,\\infty)"))
        yield Row("all reals, of another", prompt, part, lead + rng.choice(_EVERYWHERE), False)


# --- logic and chemistry ---

_BOOLEAN = (
    # (gold, spellings, other formulas)
    ("A \\lor B", ("A OR B", "A ∨ B", "$A \\lor B$", "$A + B$", "A + B", "$A \\vee B$", "B OR A",
                   "$A\\ \\text{OR}\\ B$"), ("A AND B", "A ∧ B", "$A \\land B$", "AB", "A XOR B", "A OR NOT B")),
    ("A \\land B", ("A AND B", "A ∧ B", "$A \\land B$", "$AB$", "$A \\cdot B$", "A · B"),
     ("A OR B", "$A + B$", "A ∨ B", "NOT A AND B")),
    ("\\lnot A \\lor B", ("NOT A OR B", "¬A ∨ B", "$\\lnot A \\lor B$", "$\\bar A + B$", "$\\overline{A} + B$",
                          "$A' + B$", "(NOT A) OR B"), ("NOT A AND B", "A OR B", "$A + B$", "NOT (A OR B)")),
    ("A + B", ("A OR B", "A ∨ B", "$A \\lor B$", "A + B"), ("A AND B", "$A \\land B$", "A XOR B")),
    ("A + BC", ("A OR (B AND C)", "$A + BC$", "$A \\lor (B \\land C)$", "A + B·C", "A OR B AND C"),
     ("(A OR B) AND C", "A AND (B OR C)", "$(A+B)C$")),
    ("p \\land \\neg q", ("p AND NOT q", "p ∧ ¬q", "$p \\land \\neg q$", "$p \\wedge \\lnot q$"),
     ("p OR NOT q", "p AND q", "NOT p AND q", "$\\neg(p \\land q)$")),
)  # fmt: skip
_BOOLEAN_ASKED = ("Simplify the Boolean expression.", "Simplify the logical expression.",
                  "Use Boolean algebra to simplify $\\lnot(\\lnot A \\land \\lnot B)$.",
                  "Vereinfache den booleschen Ausdruck.")  # fmt: skip


def boolean(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield formulas of logic in words, signs and those of algebra."""
    for _ in range(count):
        gold, same, others = rng.choice(_BOOLEAN)
        shape = rng.choice(
            ("Result: **{}**", "Answer: {}", "So it is {}.", "**{}**", "Final answer: {}")
        )
        prompt, work = rng.choice(_BOOLEAN_ASKED), "By De Morgan's law both are negated.\n\n"
        yield Row("boolean", prompt, gold, work + shape.format(rng.choice(same)), True)
        yield Row("boolean, another", prompt, gold, work + shape.format(rng.choice(others)), False)


_CHEMICALS = (
    "CH_2O",
    "C_6H_{12}O_6",
    "Fe_2O_3",
    "P_2O_5",
    "C_2H_6",
    "NO_2",
    "CaCO_3",
    "H_2SO_4",
    "MgCl_2",
)
_CHEMICAL_ENDS = (
    "Empirical formula: **{}**", "**{}**", "The formula is **{}**.", "So the empirical formula is {}.",
    "Summenformel: **{}**", "Formule brute : **{}**", "Fórmula empírica: **{}**", "Formula empirica: {}",
    "Эмпирическая формула: **{}**", "实验式：**{}**", "Answer: {}", "The compound is **{}**",
)  # fmt: skip
_LOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def chemical_ends(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a chemical formula with small digits as the last word, and another compound."""
    table = (
        "| Element | mass (g) | moles |\n|---|---|---|\n| C | 40.0 | 3.33 |\n| H | 6.7 | 6.65 |\n\n"
    )
    for _ in range(count):
        right, wrong = rng.sample(_CHEMICALS, 2)
        lead, shape = (
            rng.choice((table, "Moles: 3.33, 6.65.\n\n", "40.0/12 = 3.33. The ratio is 1:2.\n\n")),
            rng.choice(_CHEMICAL_ENDS),
        )
        for name, paid in ((right, True), (wrong, False)):
            plain = name.replace("_", "").replace("{", "").replace("}", "")
            said = shape.format(rng.choice((plain.translate(_LOW), plain.translate(_LOW), plain)))
            prompt = "What is its empirical formula?"
            yield Row(
                "chemical ends" if paid else "chemical ends, another",
                prompt,
                f"\\mathrm{{{right}}}",
                lead + said,
                paid,
            )


# --- days, bases, Roman numerals ---

_DAYS = (
    "Monday Mon. Mon|Tuesday Tue. Tues.|Wednesday Wed. Wed|Thursday Thu. Thurs.|Friday Fri. Fri|Saturday Sat. Sat|Sunday Sun. Sun",
    "Montag Mo. Mo|Dienstag Di.|Mittwoch Mi.|Donnerstag Do.|Freitag Fr.|Samstag Sa.|Sonntag So.",
    "lundi lun.|mardi mar.|mercredi mer.|jeudi jeu.|vendredi ven.|samedi sam.|dimanche dim.",
    "lunes lun.|martes mar.|miércoles mié.|jueves jue.|viernes vie.|sábado sáb.|domingo dom.",
    "понедельник пн.|вторник вт.|среда ср.|четверг чт.|пятница пт.|суббота сб.|воскресенье вс.",
    "January Jan.|February Feb.|March Mar.|April Apr.|August Aug.|September Sept. Sep.|October Oct.|November Nov.|December Dec.",
    "Januar Jan.|Februar Feb.|April Apr.|August Aug.|September Sept.|Oktober Okt.|November Nov.|Dezember Dez.",
    "janvier janv.|février févr.|avril avr.|juillet juill.|septembre sept.|octobre oct.|novembre nov.|décembre déc.",
    "enero ene.|febrero feb.|abril abr.|agosto ago.|septiembre sept.|octubre oct.|noviembre nov.|diciembre dic.",
)  # fmt: skip
_DAY_ENDS = (
    "Final answer: **{}**",
    "Answer: {}",
    "\\boxed{{\\text{{{}}}}}",
    "**{}**",
    "Result: {}",
)


def short_names(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield days and months in their short forms."""
    for _ in range(count):
        table = [names.split() for names in rng.choice(_DAYS).split("|")]
        right, wrong = rng.sample(table, 2)
        gold = rng.choice((f"\\text{{{right[0]}}}", right[0]))
        shape = rng.choice(_DAY_ENDS)
        work = "Days: 31+28+31+30+31+30+3 = 184. 184 mod 7 = 2.\n\n"
        prompt = "What day of the week is it?" if len(table) == 7 else "Which month is it?"
        for names, paid in ((right, True), (wrong, False)):
            said = rng.choice(names[1:])
            yield Row(
                "short names" if paid else "short names, another",
                prompt,
                gold,
                work + shape.format(said),
                paid,
            )
            yield Row(
                "short names" if paid else "short names, another",
                prompt,
                gold,
                work + shape.format(names[0]),
                paid,
            )


_BASE_NAMES = {
    2: "two",
    3: "three",
    4: "four",
    5: "five",
    6: "six",
    7: "seven",
    8: "eight",
    9: "nine",
}
_BASE_ENDS = (
    "So the quotient in base five reads **#**.", "In base five it is #.", "In base five, the answer is #.",
    "In base 5 this is **#**.", "So the result is # in base five.", "The answer is # (base 5).",
    "So in base-5 notation we get #.", "Written in base five, the number is **#**.", "The answer in base 5 is #.",
    "\\boxed{#} in base five", "So the base-five form is #.", "So it is # in base 5.",
)  # fmt: skip


def in_base(number: int, base: int) -> str:
    return (in_base(number // base, base) if number >= base else "") + str(number % base)


def bases_in_words(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a numeral whose base its sentence names."""
    for _ in range(count):
        base, number = rng.choice(list(_BASE_NAMES)), rng.randrange(60, 400)
        digits, other = in_base(number, base), in_base(number + 1, base)
        prompt = rng.choice((f"Express ${number}$ in base {base}.", f"Find the quotient in base ${base}$.",
                             f"Convert {number} to base {_BASE_NAMES[base]}."))  # fmt: skip
        shape = rng.choice(_BASE_ENDS).replace("five", _BASE_NAMES[base]).replace("5", str(base))
        work = f"We divide by {base} again and again.\n\n"
        yield Row(
            "bases in words", prompt, f"{digits}_{base}", work + shape.replace("#", digits), True
        )
        yield Row(
            "bases in words, another",
            prompt,
            f"{digits}_{base}",
            work + shape.replace("#", other),
            False,
        )
        foreign = 5 if base != 5 else 6
        shape = shape.replace(_BASE_NAMES[base], _BASE_NAMES[foreign]).replace(
            str(base), str(foreign)
        )
        yield Row(
            "bases in words, another base",
            prompt,
            f"{digits}_{base}",
            work + shape.replace("#", digits),
            False,
        )


_SIGNS = (
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
)


def roman(number: int) -> str:
    said = ""
    for size, sign in _SIGNS:
        said += sign * (number // size)
        number %= size
    return said


_ROMAN_ENDS = (
    "{n} = {r}", "90 = XC and 4 = IV.\n\n{n} = {r}", "So ${n} = \\text{{{r}}}$.", "$${n} = \\mathrm{{{r}}}$$",
    "{n} = {r}.", "**{n} = {r}**", "So {n} = {r}.", "{n} in Roman numerals is **{r}**.", "**{r}**", "{n} → {r}",
    "Therefore {n} is written {r}.", "\\boxed{{\\text{{{r}}}}}",
)  # fmt: skip


def roman_ends(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a Roman numeral as the end of a chain with its number, and another numeral."""
    for _ in range(count):
        number = rng.randrange(11, 300)
        gold = rng.choice(("\\text{{{}}}", "\\mathrm{{{}}}", "{}")).format(roman(number))
        prompt, shape = f"Write the number {number} in Roman numerals.", rng.choice(_ROMAN_ENDS)
        yield Row("roman ends", prompt, gold, shape.format(n=number, r=roman(number)), True)
        yield Row(
            "roman ends, another", prompt, gold, shape.format(n=number, r=roman(number + 1)), False
        )
        if "{n}" in shape and "=" in shape:
            said = shape.format(n=number + 1, r=roman(number))
            yield Row("roman ends, a false chain", prompt, gold, said, False)


_UNIT_GROUPS = (  # spellings of one unit, and those of others of the same kind
    ("speed", (("km/h", "kilometers per hour", "$\\text{km/h}$", "km h$^{-1}$"),
               ("m/s", "meters per second", "$\\mathrm{m/s}$"), ("miles per hour", "mph"))),
    ("area", (("square meters", "m²", "$\\text{m}^2$"), ("square centimeters", "cm²", "$cm^2$"),
              ("square feet", "ft²"))),
    ("density", (("g/cm³", "grams per cubic centimeter"), ("kg/m³", "$\\text{kg/m}^3$"))),
    ("molar energy", (("kJ/mol", "kilojoules per mole"), ("J/mol", "joules per mole"))),
    ("acceleration", (("m/s²", "$\\text{m/s}^2$", "m/s$^2$"), ("cm/s²", "$\\text{cm/s}^2$"))),
    ("flow", (("liters per minute", "L/min"), ("mL/min", "milliliters per minute"))),
    ("work", (("joules", "J"), ("kJ", "kilojoules"))),
    ("length", (("metres", "m"), ("km", "kilometers"), ("cm", "centimetres"))),
    ("power", (("watts", "W"), ("kW", "kilowatts"), ("MW", "megawatts"))),
    ("mass", (("grams", "g"), ("kg", "kilograms"), ("mg", "milligrams"))),
    ("time", (("seconds", "seconds"), ("milliseconds", "milliseconds"), ("minutes", "min"))),
    ("force", (("newtons", "N", "kg m/s^2"), ("kN", "kilonewtons"))),
)  # fmt: skip
_UNIT_ASKED = (
    "What is the {} in {}?",
    "Find the {} in {}.",
    "Give the {} in {} to the nearest integer.",
)
_UNIT_SAID = (
    "The answer is {} {}.", "**{} {}**", "So it is {} {}.", "Answer: {} {}", "**x = {} {}**",
    "Thus v_0 = {} {}.",
)  # fmt: skip


def asked_units(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a number with the unit that the question asks for, with none, and with another unit of
    the same kind; the gold is a bare number.
    """
    for _ in range(count):
        kind, units = rng.choice(_UNIT_GROUPS)
        asked, other = rng.sample(units, 2)
        prompt = rng.choice(_UNIT_ASKED).format(kind, rng.choice(asked))
        gold, shape = str(rng.randrange(2, 90)), rng.choice(_UNIT_SAID)
        said = shape.format(gold, rng.choice(asked))
        yield Row("asked units", prompt, gold, said, True)
        yield Row("asked units, none", prompt, gold, f"\\boxed{{{gold}}}", True)
        said = shape.format(gold, rng.choice(other))
        yield Row("asked units, another", prompt, gold, said, False)
        length, area, foreign = rng.choice(
            (("cm", "cm²", "m²"), ("miles", "miles per hour", "km/h"))
        )
        prompt = f"A length in {length} is {gold}. What is asked of the figure?"
        yield Row("units of what is given", prompt, gold, shape.format(gold, area), True)
        said = shape.format(gold, foreign)
        yield Row("units of what is given, another", prompt, gold, said, False)


_BOUND_LOGS = ("\\log n", "\\log_2 n", "\\log_{10} n", "\\ln n", "\\lg n", "\\log(n)")
_BOUND_SHAPES = ("O({})", "O(n {})", "O(n^2 {})", "\\mathcal{{O}}(n{})")


def bounds(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a bound with a logarithm of any base, which only changes a constant, and bounds of
    another order.
    """
    prompt = "What is the worst-case time complexity of this algorithm on $n$ elements?"
    for _ in range(count):
        shape, other = rng.sample(_BOUND_SHAPES[:3], 2)
        gold, answer = (shape.format(rng.choice(_BOUND_LOGS)) for _ in range(2))
        yield Row("bounds", prompt, gold, f"\\boxed{{{answer}}}", True)
        wrong = other.format(rng.choice(_BOUND_LOGS))
        yield Row("bounds of another order", prompt, gold, f"\\boxed{{{wrong}}}", False)
        wrong = shape.format(rng.choice(("n", "\\sqrt n", "\\log(\\log n)", "(\\log n)^2")))
        yield Row("bounds without the logarithm", prompt, gold, f"\\boxed{{{wrong}}}", False)


_HEADS = (
    "### Final result", "## Answer", "**Answer:**", "Answer:", "**Final Answer**", "# Result", "Results:",
)  # fmt: skip
_MEASURED = ("width", "length", "area", "perimeter", "diagonal")


def headed_rows(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield rows with labels below a heading, of which the question asks for one, and a closing
    line in a fence.
    """
    for _ in range(count):
        names = rng.sample(_MEASURED, rng.randrange(2, 5))
        values = rng.sample(range(3, 90), len(names))
        place = rng.randrange(len(names))
        gap = rng.choice(("\n", "\n\n"))
        mark = rng.choice(("- {}: {}", "* {}: {}", "- **{}: {}**", "- {} = {}"))
        rows = "\n".join(mark.format(*row) for row in zip(names, values, strict=True))
        said = f"2w + 2l = 30.\n\n{rng.choice(_HEADS)}{gap}{rows}"
        prompt = f"What is the {names[place]} of the rectangle?"
        yield Row("headed rows", prompt, str(values[place]), said, True)
        other = values[place - 1]
        yield Row("headed rows, another", prompt, str(other), said, False)
        had, gone = values[place] + other, other
        thing, left_label = (
            rng.choice(("apples", "coins", "pens")),
            rng.choice(("Remaining", "Now", "Kept")),
        )
        counts = ((thing.capitalize(), had), ("Gone", gone), (left_label, had - gone))
        rows = "\n".join(mark.format(*row) for row in counts)
        prompt = f"Of {had} {thing} {gone} are gone. How many {thing} are left?"
        said = f"{rng.choice(('', rng.choice(_HEADS) + gap))}{rows}"
        yield Row("rows of counts", prompt, str(had - gone), said, True)
        yield Row("rows of counts, what was before", prompt, str(had), said, False)
        total = f"{other} + {values[place]} = {other + values[place]}"
        fenced = f"{total}\n\n```{rng.choice(('', 'text'))}\n{{}}\n```"
        said, gold = fenced.format(other + values[place]), str(other + values[place])
        yield Row("a fenced line", "What is the total?", gold, said, True)
        yield Row("a fenced line, another", "What is the total?", gold, fenced.format(other), False)


DRAWS = (
    complex_forms, simplified, cycles, multiples_of_one, unit_vectors, printed_matrices, punctured,
    all_reals, boolean, chemical_ends, short_names, bases_in_words, roman_ends, asked_units,
    bounds, headed_rows,
)  # fmt: skip
"""Every law of this file, as a function of a generator and the number of draws."""
