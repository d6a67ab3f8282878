"""Laws of what a language writes: numbers in words, decimal marks, units, named values, lists, and
what the question names.

Each law draws questions with their golds and says of a response whether it is paid. The oracle is
the draw itself: a value is put into words by the tables here, which the verifier does not know.
`maths_laws.py` runs these laws beside its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple


class Row(NamedTuple):
    """A drawn case: its law, question, gold and response, and whether the response is paid."""

    law: str
    problem: str
    gold: str
    response: str
    paid: bool


# --- numbers in words: the numbers from 0 to 20, then the tens, by language ---

_COUNTING = {
    "English": "zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy "
    "eighty ninety",
    "German": "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn "
    "vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn zwanzig dreißig vierzig fünfzig sechzig "
    "siebzig achtzig neunzig",
    "French": "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze "
    "quinze seize dix-sept dix-huit dix-neuf vingt trente quarante cinquante soixante",
    "Spanish": "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce "
    "quince dieciséis diecisiete dieciocho diecinueve veinte treinta cuarenta cincuenta sesenta "
    "setenta ochenta noventa",
    "Portuguese": "zero um dois três quatro cinco seis sete oito nove dez onze doze treze catorze "
    "quinze dezesseis dezessete dezoito dezenove vinte trinta quarenta cinquenta sessenta setenta "
    "oitenta noventa",
    "Italian": "zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici "
    "quattordici quindici sedici diciassette diciotto diciannove venti trenta quaranta cinquanta "
    "sessanta settanta ottanta novanta",
    "Russian": "ноль один два три четыре пять шесть семь восемь девять десять одиннадцать "
    "двенадцать тринадцать четырнадцать пятнадцать шестнадцать семнадцать восемнадцать "
    "девятнадцать двадцать тридцать сорок пятьдесят шестьдесят семьдесят восемьдесят девяносто",
}
_JOINTS: dict[str, Callable[[str, str], str]] = {
    "English": lambda ten, unit: f"{ten}-{unit}",
    "German": lambda ten, unit: f"{'ein' if unit == 'eins' else unit}und{ten}",
    "French": lambda ten, unit: f"{ten} et un" if unit == "un" else f"{ten}-{unit}",
    "Spanish": lambda ten, unit: f"{ten} y {unit}",
    "Portuguese": lambda ten, unit: f"{ten} e {unit}",
    "Italian": lambda ten, unit: (ten[:-1] if unit[0] in "uo" else ten) + unit,
    "Russian": lambda ten, unit: f"{ten} {unit}",
}
_VEINTI = dict(zip(range(22, 30), ["veintidós", "veintitrés", "veinticuatro", "veinticinco", "veintiséis", "veintisiete", "veintiocho", "veintinueve"], strict=True))  # fmt: skip


# How a language joins (a number, its size, the rest): the words of one hundred and one thousand,
# the other hundreds where they are words of their own, and what stands between the parts.
_LARGE = {
    "English": ("one hundred", "one thousand", "{} hundred", "{} thousand", " and ", " "),
    "German": ("hundert", "tausend", "{}hundert", "{}tausend", "", ""),
    "French": ("cent", "mille", "{} cent", "{} mille", " ", " "),
    "Spanish": ("ciento", "mil", "doscientos trescientos cuatrocientos quinientos seiscientos "
                "setecientos ochocientos novecientos", "{} mil", " ", " "),
    "Portuguese": ("cento", "mil", "duzentos trezentos quatrocentos quinhentos seiscentos "
                   "setecentos oitocentos novecentos", "{} mil", " e ", " "),
    "Italian": ("cento", "mille", "{}cento", "{}mila", "", ""),
    "Russian": ("сто", "тысяча", "двести триста четыреста пятьсот шестьсот семьсот восемьсот "
                "девятьсот", "{} тысяч", " ", " "),
}  # fmt: skip


def worded(number: int, language: str) -> str:
    """Return a number from 0 to 999,999 in the words of a language; its rest below a hundred is
    from 0 to 69.

    >>> worded(31, "English"), worded(31, "German"), worded(22, "Spanish")
    ('thirty-one', 'einunddreißig', 'veintidós')
    >>> worded(1234, "German"), worded(250_000, "French")
    ('tausendzweihundertvierunddreißig', 'deux cent cinquante mille')
    """
    for size, place in ((1000, 1), (100, 0)):
        many, remainder = divmod(number, size)
        if many:
            single, several, joint = (_LARGE[language][at + place] for at in (0, 2, 4))
            words = several.split(" ")
            said = (
                single if many == 1 else several.format(worded(many, language))
                if "{}" in several else words[many - 2]
            )  # fmt: skip
            return f"{said}{joint}{worded(remainder, language)}" if remainder else said
    counting = _COUNTING[language].split()
    if number <= 20:
        return counting[number]
    if language == "Spanish" and number in _VEINTI:
        return _VEINTI[number]
    tens, ones = divmod(number, 10)
    ten = counting[18 + tens]
    return ten if not ones else _JOINTS[language](ten, counting[ones])


# A sentence that ends in a count, `#`, of things; numbers from 2, since one has a gender.
_COUNTS = {
    "English": [
        "So 25! ends with # zeros.", "Therefore there are # real solutions.",
        "So the ladder reaches # feet up the wall.", "Hence the polygon has # sides.",
        "We conclude that it takes # days.", "So the answer is #.", "Thus x is equal to #.",
        "This leaves # full boxes.", "So she needs # more stamps.", "\\boxed{\\text{#}}", "**#**",
        "Adding 4 and 9 more, we see that he has # marbles.",
    ],
    "German": ["Also endet 25! auf # Nullen.", "Es gibt # Lösungen.", "Die Antwort ist #.",
               "Antwort: #", "\\boxed{\\text{#}}", "Also hat das Vieleck # Seiten."],
    "French": ["Il y a donc # solutions.", "La réponse est #.", "Réponse : #",
               "\\boxed{\\text{#}}", "Donc le polygone a # côtés."],
    "Spanish": ["Hay # soluciones.", "La respuesta es #.", "Respuesta: #", "\\boxed{\\text{#}}",
                "Por tanto, el polígono tiene # lados."],
    "Portuguese": ["Há # soluções.", "A resposta é #.", "Resposta: #", "\\boxed{\\text{#}}",
                   "Portanto, o polígono tem # lados."],
    "Italian": ["Ci sono # soluzioni.", "La risposta è #.", "Risposta: #", "\\boxed{\\text{#}}",
                "Quindi il poligono ha # lati."],
    "Russian": ["Ответ: #", "Ответ: #.", "\\boxed{\\text{#}}", "Значит, есть # решений."],
}  # fmt: skip


def counts(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield counts in words; the same words with another gold are not paid."""
    for _ in range(count):
        language = rng.choice([*_COUNTS, "English", "English"])
        # Of a large number the thousands end in no one, which has forms of its own.
        number = rng.choice((0, 100, 300, 2000, 12_700, 250_000)) + rng.randrange(2, 61)
        phrase = worded(number, language)
        response = rng.choice(_COUNTS[language]).replace("#", phrase)
        law = "counts in words" if language == "English" else "counts in words, other languages"
        yield Row(law, "", str(number), response, True)
        yield Row(law, "", str(number + rng.choice((1, 10))), response, False)


# Words of number that are no answer: the value in digits is.
_BESIDE = [
    "Of the two options, the second has # points.", "In these three cases there are # ways.",
    "The two roots have the sum #.", "Both of the four sides have length #.",
    "There are # ways for the two teams.", "So # pupils came by one of three buses.",
    "After three days he has # marbles left.", "The three numbers have the mean #.",
]  # fmt: skip


def digits_beside_words(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield closing sentences with a value in digits and words of number beside the point."""
    for _ in range(count):
        number = rng.randrange(20, 400)
        response = "We add up.\n\n" + rng.choice(_BESIDE).replace("#", str(number))
        yield Row("digits beside words", "", str(number), response, True)
        for other in (2, 3):
            yield Row("words beside digits", "", str(other), response, False)


_VALUES_IN_WORDS = (
    # (sentence with another number in digits, the least value that is put so)
    ("After @ have gone over the counter, the baker still has # of them on the shelf.", 13),
    ("5x = @, therefore x is #.", 2), ("With @ s gone it has travelled # metres.", 2),
    ("2a = @, folglich ist a gleich #.", 2), ("Nach @ Minuten sind noch # Schüler da.", 13),
    ("Comme 3x = @, x vaut #.", 2), ("Con @ cifras se forman # números.", 13),
    ("Dopo @ minuti ne restano # sul tavolo.", 13), ("Depois de @ dias sobram # reais.", 13),
)  # fmt: skip
_SPEAKS = dict(
    zip(
        _VALUES_IN_WORDS,
        ("English", "English", "English", "German", "German", "French", "Spanish", "Italian",
         "Portuguese"),
        strict=True,
    )
)  # fmt: skip


def values_in_words(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield closing sentences with a value in words behind another number in digits."""
    for _ in range(count):
        shape = rng.choice(_VALUES_IN_WORDS)
        number, other = rng.sample(range(shape[1], 61), 2)
        said = shape[0].replace("#", worded(number, _SPEAKS[shape])).replace("@", str(other))
        for gold, paid in ((number, True), (other, False)):
            yield Row("values in words", "", str(gold), f"We add up.\n\n{said}", paid)


# --- decimal marks ---

_PROMPTS = {
    "German": "Wie groß ist die Fläche eines Ackers, der 120 m lang und 85 m breit ist?",
    "Russian": "Вычислите площадь прямоугольника со сторонами 120 и 85.",
    "French": "Quelle est la longueur de la route qui relie les deux villes ?",
    "Spanish": "¿Cuál es el área de un terreno de 120 m de largo y 85 m de ancho?",
    "Italian": "Quanto vale l'area di un campo lungo 120 m e largo 85 m?",
    "Portuguese": "Qual é a área de um terreno com 120 m de comprimento e 85 m de largura?",
}
_ENDINGS = {
    "German": "Also ist die Fläche des Ackers",
    "Russian": "Значит, площадь равна",
    "French": "Donc la longueur de la route est",
    "Spanish": "Por lo tanto, el área es",
    "Italian": "Quindi l'area è",
    "Portuguese": "Portanto, a área é",
}
_GROUPS_BY_POINTS = ("German", "Spanish", "Italian", "Portuguese")


def decimal_marks(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield values as a language writes them; ten times the value is another one."""
    for _ in range(count):
        language = rng.choice(list(_PROMPTS))
        whole, cents = rng.randrange(2, 99_999), rng.randrange(1, 100)
        pointed = f"{whole:,}".replace(",", ".")
        comma = rng.choice([",", "{,}"])
        shapes = [(f"{whole % 100}{comma}{cents:02}", f"{whole % 100}.{cents:02}")]
        if language in _GROUPS_BY_POINTS and whole >= 10_000:
            shapes += [
                (pointed, str(whole)),
                (f"{pointed}{comma}{cents:02}", f"{whole}.{cents:02}"),
            ]
        said, value = rng.choice(shapes)
        box = rng.choice(
            [f"$\\boxed{{{said}}}$.", f"\\boxed{{{said}\\ \\text{{m}}^2}}.", f"${said}$.",
             f"{said.replace('{,}', ',')} m²."]
        )  # fmt: skip
        response = f"{_ENDINGS[language]} {box}"
        gold = value if "." not in value or rng.random() < 0.5 else value.replace(".", ",")
        tenfold = str(Fraction(value) * 10)
        yield Row("decimal marks", _PROMPTS[language], gold, response, True)
        yield Row("decimal marks, other value", _PROMPTS[language], tenfold, response, False)


_SHARES = {
    "What is the probability that the ball is red?": "The probability is",
    "What fraction of the class can swim?": "So the share is",
    "Mit welcher Wahrscheinlichkeit ist die gezogene Kugel rot?": "Also ist die Wahrscheinlichkeit",
    "Quelle est la probabilité que la boule soit rouge ?": "La probabilité est donc",
    "¿Cuál es la probabilidad de que la bola sea roja?": "Por tanto, la probabilidad es",
    "Какова вероятность, что шар красный?": "Значит, вероятность равна",
}


def shares(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield probabilities as percentages; a hundredth of the percentage is another one."""
    for _ in range(count):
        prompt, said = rng.choice(list(_SHARES.items()))
        percent = rng.randrange(2, 99)
        share = f"{percent / 100:.2f}".rstrip("0")
        if "fraction" not in prompt and "probability" not in prompt:
            share = rng.choice([share, share.replace(".", ",")])
        shape = rng.choice(["# %", "#\\%", "#\\,\\%", "#\\ \\%", "#%"])
        for number, paid in ((percent, True), (percent + 1, False)):
            written = shape.replace("#", str(number))
            box = rng.choice([f"$\\boxed{{{written}}}$", f"\\boxed{{{written}}}"])
            response = f"{said} {box}."
            yield Row("shares in percent", prompt, share, response, paid)


# --- lists ---

_AND = {
    "Spanish": ("y", "e"), "Portuguese": ("e",), "Italian": ("e",), "German": ("und",),
    "French": ("et",), "Russian": ("и",), "Chinese": ("和",), "Japanese": ("と",), "Korean": ("와",),
}  # fmt: skip
_FOUND = {
    "Spanish": "Las soluciones son #.", "Portuguese": "As soluções são #.",
    "Italian": "Le soluzioni sono #.", "German": "Die Lösungen sind #.",
    "French": "Les solutions sont #.", "Russian": "Решения: #.", "Chinese": "解是#。",
    "Japanese": "答えは#です。", "Korean": "답은 #입니다.",
}  # fmt: skip


def joined_lists(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield lists whose last two values the word of a language joins."""
    for _ in range(count):
        language = rng.choice(list(_AND))
        values = list(map(str, rng.sample(range(2, 99), rng.choice((2, 3, 4)))))
        word, gold = rng.choice(_AND[language]), ", ".join(values)
        head = ", ".join(values[:-1])
        shape = rng.choice([
            f"\\boxed{{{head} \\text{{ {word} }} {values[-1]}}}", f"{head} {word} {values[-1]}",
            f"$\\boxed{{{head}\\ \\text{{{word}}}\\ {values[-1]}}}$", f"\\boxed{{{head} {word} {values[-1]}}}",
        ])  # fmt: skip
        response = _FOUND[language].replace("#", shape)
        yield Row("joined lists", "", gold, response, True)
        yield Row(
            "joined lists, other value", "", f"{head}, {int(values[-1]) + 1}", response, False
        )
        yield Row("joined lists, other value", "", values[-1], response, False)


# --- what the question names ---

_ASKED = (
    # (question, name that is asked, values as the closing sentences name them)
    ("A baker packs 150 rolls in boxes. How many full boxes does he get?",
     "full boxes", "loose rolls"),
    ("How many neutrons does this atom have?", "neutrons", "protons"),
    ("How many girls are in the club?", "girls", "boys"),
    ("How many red marbles are in the bag?", "red marbles", "blue marbles"),
    ("How many hours did the trip take?", "hours", "stops"),
)  # fmt: skip
_TWO_COUNTS = (
    "That leaves {0} {1} and {2} {3}.", "So there are {0} {1} and {2} {3}.",
    "It has {0} {1} alongside its {2} {3}.", "So we have {2} {3} and {0} {1}.",
    "There are {0} {1} as well as {2} {3}.",
)  # fmt: skip


def counted_nouns(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield two counts in a sentence: the one whose noun the question asks for is the answer, and
    both are where it asks for both.
    """
    for _ in range(count):
        prompt, asked, other = rng.choice(_ASKED)
        first, second = rng.sample(range(2, 99), 2)
        response = rng.choice(_TWO_COUNTS).format(first, asked, second, other)
        yield Row("counted nouns", prompt, str(first), response, True)
        yield Row("counted nouns, other noun", prompt, str(second), response, False)
        both = f"How many {asked} and how many {other} are there?"
        in_order = f"{first} {asked} and {second} {other}"
        for shape in (f"\\boxed{{{first}\\text{{ {asked}}}, {second}\\text{{ {other}}}}}",
                      f"So there are {in_order}.", f"\\boxed{{\\text{{{in_order}}}}}"):  # fmt: skip
            yield Row("two counts", both, f"{first}, {second}", shape, True)
            yield Row("two counts, other value", both, f"{first}, {second + 1}", shape, False)


_OF_A_NAME = (
    # (question, name that is asked, another name)
    ("What is the perimeter of the rectangle?", "perimeter", "area"),
    ("Find the volume of the box.", "volume", "surface area"),
    ("What simple interest does the money earn?", "interest", "final balance"),
    ("Determine the mean of the data.", "mean", "median"),
)
_OF_NAMES = (
    "So we have a {0} of {1} and a {2} of {3}.", "It has a {2} of {3} and a {0} of {1}.",
    "So the result is a {0} of {1}, with a {2} of {3}.", "That makes {1} of {0} and {3} of {2}.",
    "So there is {1} in {0} on top of the rest, for a {2} of {3}.",
)  # fmt: skip


def quantities_of(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield two values that are said to be of names, of which the question asks for one."""
    for _ in range(count):
        prompt, asked, other = rng.choice(_OF_A_NAME)
        first, second = rng.sample(range(2, 999), 2)
        response = "We add up.\n\n" + rng.choice(_OF_NAMES).format(asked, first, other, second)
        yield Row("quantities of", prompt, str(first), response, True)
        yield Row("quantities of, other name", prompt, str(second), response, False)


_KINDS = (
    ("How many sides does the polygon have?", "sides", "the polygon"),
    ("How many real solutions does the equation have?", "real solutions", "the equation"),
    ("How many apples are left in the basket?", "apples", "the basket"),
    ("How many students passed the test?", "students", "the class"),
    ("How many edges does the graph have?", "edges", "the graph"),
)
_COUNTING_KINDS = (
    "So {subject} has {number} {kind}.", "Therefore, there are {number} {kind}.",
    "Hence {subject} has {number} {kind}, as claimed.", "Thus we find {number} {kind}.",
    "So {number} {kind} remain.", "This leaves {number} {kind}, which is the maximum.",
    "So {subject} must have {number} {kind}, making it a nice case.",
    "Therefore {subject} has {number} {kind}; this agrees with the figure.",
    "So {subject} has **{number}** {kind}.",
)  # fmt: skip


def asked_kinds(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a count of what the question counts, in words, in digits or as `no`, behind work with
    other numbers.
    """
    for _ in range(count):
        problem, kind, subject = rng.choice(_KINDS)
        gold, other, first = rng.choice([0, *range(2, 20)]), rng.randrange(2, 20), rng.randrange(9)
        shape, in_words = rng.choice(_COUNTING_KINDS), rng.random() < 0.7
        for number in (gold, other):
            said = ("no" if not number else worded(number, "English")) if in_words else str(number)
            last = shape.format(subject=subject, number=said, kind=kind)
            response = f"At first we have {gold + first}, and {first} of them go away.\n\n{last}"
            law = "asked kinds" if number == gold else "asked kinds, other value"
            yield Row(law, problem, str(gold), response, number == gold)


_LASTING = {
    # language: (sentence, words for hours and minutes)
    "English": ("So it takes {}.", "{} hours and {} minutes"),
    "German": ("Also dauert es {}.", "{} Stunden und {} Minuten"),
    "French": ("Cela dure donc {}.", "{} heures et {} minutes"),
    "Spanish": ("Por lo tanto dura {}.", "{} horas y {} minutos"),
    "Portuguese": ("Portanto dura {}.", "{} horas e {} minutos"),
    "Italian": ("Quindi dura {}.", "{} ore e {} minuti"),
    "Russian": ("Значит, это длится {}.", "{} часа {} минут"),
}


def durations(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a time in hours and minutes in the words of a language."""
    for _ in range(count):
        sentence, words = _LASTING[rng.choice([*_LASTING])]
        hours, minutes = rng.randrange(2, 12), rng.randrange(10, 60)
        said = rng.choice(["{}", "**{}**"]).format(words.format(hours, minutes))
        response = f"{hours * 60 + minutes} min.\n\n{sentence.format(said)}"
        gold = rng.choice([f"{hours} h {minutes} min", f"{hours} hours {minutes} minutes"])
        yield Row("durations", "", gold, response, True)
        other = f"{hours} h {minutes + 1} min"
        yield Row("durations, other value", "", other, response, False)


_STEPS = (
    ("Find the slope of the tangent to y = x^2 - 5x at x = 4.", "the slope is",
     "The tangent line is y = {}x − {}."),
    ("What is the radius of the circle?", "the radius is", "The area is then {}·{}π."),
    ("Find the common difference of the sequence.", "the common difference is",
     "The sequence goes on with {} and {}."),
    ("Find the y-intercept of the line.", "the y-intercept is", "The line is y = {}x + {}."),
)  # fmt: skip


def asked_names(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a value by the name that the question asks for, and a sentence that uses it."""
    for _ in range(count):
        prompt, said, follows = rng.choice(_STEPS)
        value, first, second = rng.sample(range(2, 99), 3)
        response = f"We work it out, and so {said} {value}. {follows.format(first, second)}"
        yield Row("asked by name", prompt, str(value), response, True)
        yield Row("asked by name, other value", prompt, str(second), response, False)


_PREDICATES = (
    ("Is the matrix invertible?", "it is{} invertible"),
    ("Is 91 a prime number?", "91 is{} a prime number"),
    ("Does the series converge?", "the series {} converge"),
    ("Are the two lines parallel?", "the lines are{} parallel"),
    ("Is $f$ continuous at $0$?", "$f$ is{} continuous at $0$"),
    ("Does the limit exist?", "the limit {} exist"),
    ("Can the graph be coloured with two colours?", "the graph can{} be coloured with two colours"),
)
_REASONS = (
    "Its determinant is 0, which means that {}.", "We compare both sides, so {}.",
    "By the theorem above, {}.", "Therefore {}.", "Since 7 divides it, {}.",
)  # fmt: skip


def predicates(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield questions of yes or no, answered by their own predicate or its denial."""
    for _ in range(count):
        prompt, predicate = rng.choice(_PREDICATES)
        yes = rng.random() < 0.5
        if " {} " in predicate:
            verb = "does" if yes else rng.choice(["does not", "doesn't"])
            said = predicate.format(verb)
        elif "can{}" in predicate:
            said = predicate.format("" if yes else rng.choice(["not", "'t"]))
        else:
            said = predicate.format("" if yes else rng.choice([" not", "n't"]))
        response = rng.choice(_REASONS).format(said)
        for gold in ("Yes", "No"):
            yield Row("yes or no by its predicate", prompt, gold, response, yes == (gold == "Yes"))
    for _ in range(count // 4):
        word = rng.choice(["isn't", "is not"])
        yield Row(
            "denied predicates", "", "not invertible", f"So the matrix {word} invertible.", True
        )
        yield Row("denied predicates", "", "invertible", f"So the matrix {word} invertible.", False)
        missing = rng.choice(["does not exist", "doesn't exist"])
        yield Row("denied predicates", "", "DNE", f"So the limit {missing}.", True)
        yield Row(
            "denied predicates",
            "",
            "does not exist",
            f"\\boxed{{\\text{{The limit {missing}}}}}",
            True,
        )


# --- named values: concepts with their words, of which an answer may exchange none ---

_NAMES = (
    ("Give the mean and the mode, in that order.", "mean", "mode"),
    ("Gib Mittelwert und Modus an, in dieser Reihenfolge.", "Mittelwert", "Modus"),
    ("Найдите медиану и моду набора.", "медиана", "мода"),
    ("Найдите среднее и размах набора.", "среднее", "размах"),
    ("Donnez la moyenne et la médiane.", "moyenne", "médiane"),
    ("Da la media y la moda, en ese orden.", "media", "moda"),
    ("Calcola la media e la moda.", "media", "moda"),
    ("Find the length and the width.", "length", "width"),
    ("求平均数和众数。", "平均数", "众数"),
    ("Determine the area and the perimeter of the rectangle.", "area", "perimeter"),
)  # fmt: skip
_PAIRED = (
    "\\boxed{{\\text{{{0}}}={1},\\ \\text{{{2}}}={3}}}", "{0} = {1} and {2} = {3}",
    "\\boxed{{\\text{{{0}}}: {1}; \\text{{{2}}}: {3}}}", "{0} = {1}, {2} = {3}",
    "\\boxed{{(\\text{{{0}}}, \\text{{{2}}}) = ({1}, {3})}}",
)  # fmt: skip


def named_pairs(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield two named values in both orders, and with the names exchanged."""
    for _ in range(count):
        prompt, first_name, second_name = rng.choice(_NAMES)
        first, second = rng.sample(range(2, 99), 2)
        golds = [
            f"{first}, {second}",
            f"({first}, {second})",
            f"\\text{{{first_name}}}={first}, \\text{{{second_name}}}={second}",
        ]
        gold, shape = rng.choice(golds), rng.choice(_PAIRED)
        if first_name[0] > "一":
            shape = shape.replace(" and ", "，")
        tuples = gold.startswith("(") or "({1}" in shape
        yield Row(
            "named values", prompt, gold, shape.format(first_name, first, second_name, second), True
        )
        if not tuples:
            yield Row(
                "named values",
                prompt,
                gold,
                shape.format(second_name, second, first_name, first),
                True,
            )
        yield Row(
            "named values, exchanged",
            prompt,
            gold,
            shape.format(first_name, second, second_name, first),
            False,
        )


_RIVALS = (
    # (question, name that is asked, other quantities)
    ("Найдите медиану набора.", "медиана", ("среднее", "мода", "размах")),
    ("Найдите площадь прямоугольника.", "площадь", ("периметр", "диагональ")),
    ("Найдите радиус окружности.", "радиус", ("диаметр", "площадь")),
    ("Чему равна площадь круга?", "площадь круга", ("радиус круга", "длина окружности")),
    ("Найдите остаток от деления.", "остаток", ("частное", "делитель")),
    ("Bestimme den Umfang des Rechtecks.", "Umfang", ("Fläche", "Flächeninhalt")),
    ("Berechne den Radius des Kreises.", "Radius", ("Durchmesser", "Umfang")),
    ("Calcula el área del círculo.", "área", ("perímetro", "radio", "diámetro")),
    ("Calculez l'aire du rectangle.", "aire", ("périmètre",)),
    ("Calcola il volume del cono.", "volume", ("area", "raggio")),
    ("Calcule a mediana.", "mediana", ("média", "moda")),
    ("求圆的面积。", "面积", ("周长", "半径")),
    ("円の面積を求めよ。", "面積", ("半径", "直径")),
    ("Find the median.", "median", ("mean", "mode", "range")),
    ("What is the radius?", "radius", ("diameter", "circumference")),
)  # fmt: skip
_NAMED = (
    "\\boxed{{\\text{{{0}}} = {1}}}",
    "{0} = {1}",
    "\\boxed{{\\text{{{0}: }} {1}}}",
    "${1}$ = {0}",
)


def rival_names(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a value by the name that is asked, and by the name of another quantity."""
    for _ in range(count):
        prompt, asked, others = rng.choice(_RIVALS)
        value, shape = rng.randrange(2, 99), rng.choice(_NAMED[:3])
        yield Row("names", prompt, str(value), shape.format(asked, value), True)
        other = shape.format(rng.choice(others), value)
        yield Row("names of another quantity", prompt, str(value), other, False)


# --- units and currencies: a gold, answers in words of its size, and of another size ---

_SIZES = (
    ("{} km", ("{} kilomètres", "{} kilómetros", "{} Kilometer", "{} километров", "{}公里"),
     ("{} milles", "{} millas", "{} Meilen", "{} миль", "{}英里", "{} miglia", "{} milhas", "{}マイル")),
    ("{}元", ("{}元", "{} 元", "{} yuan"), ("{}角", "{} jiao", "{}分钱")),
    ("{} €", ("{} euros", "{} евро", "{}欧元", "{} Euro"),
     ("{} centavos", "{} centimes", "{} Cent", "{} céntimos", "{} centesimi", "{} центов")),
    ("{} рублей", ("{} руб.", "{} рублей"), ("{} копеек", "{} коп.")),
    ("{} cm", ("{} centímetros", "{} Zentimeter", "{}厘米", "{} см"),
     ("{} pulgadas", "{} pouces", "{} Zoll", "{} дюймов", "{}英寸", "{}インチ", "{} pollici", "{} polegadas")),
    ("{} m", ("{} metros", "{} Meter", "{} метров"),
     ("{} pies", "{} pieds", "{} Fuß", "{} футов", "{}英尺", "{} piedi", "{} pés")),
    ("{} kg", ("{} kilos", "{} Kilogramm", "{} килограммов"), ("{} libras", "{} livres", "{} Pfund", "{} фунтов", "{}斤", "{} libbre")),
    ("{} L", ("{} litros", "{} Liter", "{} литров"), ("{} galones", "{} gallons", "{} Gallonen", "{}ガロン")),
    ("{} m²", ("{} metros cuadrados", "{} метров квадратных", "{} квадратных метров", "{} mètres carrés"),
     ("{} hectáreas", "{} Hektar", "{} гектаров", "{}公顷", "{} см²", "{} acres")),
)  # fmt: skip
_SAID = (
    "\\boxed{{\\text{{{}}}}}",
    "Ответ: {}.",
    "La respuesta es {}.",
    "Die Antwort ist {}.",
    "答案是{}。",
)


def unit_sizes(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield quantities with the unit of a language: the one of the gold, and one of another size."""
    for _ in range(count):
        gold, same, larger = rng.choice(_SIZES)
        value, said = rng.randrange(2, 99), rng.choice(_SAID)
        for shape, paid in ((rng.choice(same), True), (rng.choice(larger), False)):
            response = said.format(shape.format(value))
            law = "units in words" if paid else "units of another size"
            yield Row(law, "", gold.format(value), response, paid)


_SYMBOLS = (
    "m",
    "s",
    "g",
    "kg",
    "N",
    "J",
    "W",
    "V",
    "A",
    "K",
    "Pa",
    "Hz",
    "mol",
    "L",
    "cm",
    "kJ",
    "T",
    "C",
)
_SPELLINGS = (
    "Answer: {value} {plain}",
    "So it is **{value} {plain}**.",
    "\\boxed{{{value}\\ \\mathrm{{{latex}}}}}",
    "\\boxed{{{value}\\text{{ {plain}}}}}",
    "\\boxed{{{value} {plain}}}",
)


def compound_units(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield measured values in products and quotients of units, in plain letters and in LaTeX: with
    the unit of the gold, and with another power of one of its parts.
    """
    for _ in range(count):
        top, bottom = rng.sample(_SYMBOLS, 2), rng.sample(_SYMBOLS, 2)
        power, dot = rng.choice((2, 3)), rng.choice((" ", "·"))
        shapes = [
            (f"{top[0]}{dot}{top[1]}", rf"{top[0]}\cdot {top[1]}"),
            (f"{top[0]}/{bottom[0]}", f"{top[0]}/{bottom[0]}"),
            (
                f"{top[0]}/({bottom[0]}{dot}{bottom[1]})",
                rf"{top[0]}/({bottom[0]}\cdot {bottom[1]})",
            ),
            (f"{top[0]}/{bottom[0]}{'..²³'[power]}", f"{top[0]}/{bottom[0]}^{power}"),
        ]
        plain, latex = rng.choice(
            [pair for pair in shapes if top[0] not in {*bottom}] or shapes[:1]
        )
        value = f"{rng.randrange(101, 999) / 100:.2f}"
        for said, paid in ((value, True), (f"{float(value) + 1:.2f}", False)):
            response = rng.choice(_SPELLINGS).format(value=said, plain=plain, latex=latex)
            law = "compound units" if paid else "compound units, other value"
            yield Row(law, "", value, response, paid)
            yield Row(law, "", rf"{value} \mathrm{{{latex}}}", response, paid)
        further = rng.choice([name for name in _SYMBOLS if name not in {*top, *bottom}])
        other = rng.choice(_SPELLINGS).format(
            value=value, plain=f"{plain}{dot}{further}", latex=rf"{latex}\cdot {further}"
        )
        yield Row("compound units, other unit", "", rf"{value} \mathrm{{{latex}}}", other, False)


_QUANTITIES = [
    "area",
    "volume",
    "formula",
    "data",
    "perimeter",
    "sum",
    "mean",
    "median",
    "mode",
    "range",
    "slope",
    "period",
    "speed",
    "length",
    "width",
    "height",
    "depth",
    "mass",
    "charge",
    "force",
    "work",
    "power",
    "energy",
    "angle",
    "ratio",
    "rate",
    "profit",
    "cost",
    "price",
    "total",
    "count",
    "rank",
    "trace",
    "norm",
    "degree",
    "index",
    "order",
    "size",
    "age",
    "time",
    "tax",
    "interest",
    "area",
    "quota",
    "idea",
]


def headed_values(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a value behind the name of what is asked and a colon, and another value."""
    for _ in range(count):
        name, value = rng.choice(_QUANTITIES), rng.randrange(2, 99)
        for said, paid in ((value, True), (value + 1, False)):
            response = f"{rng.choice(('', 'Total ', '**'))}{name.capitalize()}: {said}"
            response += "**" if response.startswith("**") else ""
            law = "headed values" if paid else "headed values, other value"
            yield Row(law, f"What is the {name}?", str(value), response, paid)


_COUNTERS = [
    "个",
    "個",
    "人",
    "名",
    "本",
    "枚",
    "台",
    "张",
    "只",
    "件",
    "条",
    "瓶",
    "杯",
    "次",
    "回",
    "日",
    "年",
    "种",
    "组",
    "通り",
    "种方法",
    "名学生",
    "개",
    "명",
    "권",
    "마리",
    "대",
    "장",
    "번",
    "가지",
]
_ALTERED = [
    "倍",
    "万",
    "万人",
    "多个",
    "余人",
    "分之一",
    "以上",
    "以下",
    "个以上",
    "割",
    "打",
    "对",
    "배",
    "이상",
    "개이하",
    "만",
    "억",
]


def counters(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield numbers with a word behind them in scripts without spaces: one that says what is
    counted, and one that makes another number of it.
    """
    said = ("\\boxed{{{}}}", "**{}**", "答案是{}。", "답: {}", "\\boxed{{\\text{{{}}}}}")
    for _ in range(count):
        value, shape = rng.randrange(2, 99), rng.choice(said)
        for words, paid in ((rng.choice(_COUNTERS), True), (rng.choice(_ALTERED), False)):
            law = "counters" if paid else "counters that alter"
            yield Row(law, "", str(value), shape.format(f"{value}{words}"), paid)


_APART = (
    "Adding the equations gives 2x = {0}, so x = {1}. The second one says y = {2} − {3} = {4}.",
    "From the first, x = {0} − {1} = {1}. Hence y = {4}.\n\nCheck: {1} + {4} = {5} ✔",
    "x: ({1} + {1})/2 = {1}\n\ny: {4}\n\nThat is all there is to it.",
)
_BOXES = ("Quotient: $\\boxed{{{0}}}$, remainder: $\\boxed{{{1}}}$",
          "The quotient is \\boxed{{{0}}} and the remainder is \\boxed{{{1}}}.")  # fmt: skip


def apart(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the values of a pair that a text works out or boxes one by one; the pair in the other
    order is not paid.
    """
    system = "Solve the system x + y = 9, x - y = 3. Give (x, y)."
    division = "Divide 43 by 8 with remainder and give (quotient, remainder)."
    for _ in range(count):
        x, y, z = rng.sample(range(2, 60), 3)
        response = rng.choice(_APART).format(2 * x, x, y + z, z, y, x + y)
        for gold, paid in ((f"({x}, {y})", True), (f"({y}, {x})", False), (f"({x}, {z})", False)):
            yield Row("letters apart", system, gold, response, paid)
            boxes = rng.choice(_BOXES).format(x, y)
            yield Row("boxes in turn", division, gold, boxes, paid)


_LINES = (
    "The slope is {a}. In standard form the line reads {a}x − y = {b}.",
    "y = {a}x − {b}. It crosses the other axis at {b}.",
    "So {a}x − y = {b}, because the slope is {a}.", "This gives y + {b} = {a}x.",
)  # fmt: skip


def lines_asked(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield equations of a line in any form, where the question asks for one."""
    for _ in range(count):
        a, b = rng.sample(range(2, 20), 2)
        response = "We take two points.\n\n" + rng.choice(_LINES).format(a=a, b=b)
        prompt = "Find the equation of the line through the two points."
        yield Row("lines asked", prompt, f"y = {a}x - {b}", response, True)
        yield Row("lines asked, other line", prompt, f"y = {a}x - {b + 1}", response, False)


def constants(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield general solutions with any names of their two constants; a solution with one constant
    is not the general one.
    """
    for _ in range(count):
        first, second = rng.sample("abABcpqrCD", 2)
        k = rng.randrange(2, 9)
        prompt, gold = "Find the general solution.", f"y = (C_1 + C_2 x)e^{{{k}x}}"
        shape = "General solution: $y = {0}\\,e^{{{k}x}} + {1}x\\,e^{{{k}x}}$, where ${0}, {1} \\in \\mathbb{{R}}$."
        yield Row("constants", prompt, gold, shape.format(first, second, k=k), True)
        yield Row("constants, one", prompt, gold, shape.format(first, first, k=k), False)
        yield Row("constants, other", prompt, gold, shape.format(first, second, k=k + 1), False)


_MONEY = {
    "dollars and {} cents": "So the account stands at {}.",
    "Euro und {} Cent": "Auf dem Sparbuch liegen {}.", "euros et {} centimes": "Il reste donc {}.",
}  # fmt: skip


_PRICED = (
    ("Quanto custa comprar 4 camisetas, em reais?", "Resposta: o custo é R$ {}.",
     "Portanto, o preço total é R$ {}."),
    ("Wie viel kosten die vier Hemden zusammen?", "Antwort: der Preis beträgt {} €.",
     "Also ist der Preis {} €."),
)  # fmt: skip


def money(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield amounts in two units of money, and prices with a comma at the end of a sentence."""
    for _ in range(count):
        prompt, *sentences = rng.choice(_PRICED)
        whole, cents = rng.randrange(2, 1000), rng.randrange(10, 100)
        response = rng.choice(sentences).format(f"{whole},{cents}")
        yield Row("prices", prompt, f"{whole}.{cents}", response, True)
        yield Row("prices, other", prompt, f"{whole}{cents}", response, False)
        unit, sentence = rng.choice([*_MONEY.items()])
        whole, cents = rng.randrange(2, 2000), rng.randrange(10, 100)
        response = "We add up.\n\n" + sentence.format(f"{whole} {unit.format(cents)}")
        sign = "$" if "dollar" in unit else "€"
        yield Row("money", "", f"{sign}{whole}.{cents}", response, True)
        yield Row("money, other amount", "", f"{sign}{cents}", response, False)


_OPENINGS = (
    "Here ${0}={1}$.", "Now ${0}={1}$ and $q=2$.", "Given: ${0}={1}$.", "Hier ist ${0}={1}$:",
    "Use ${0}={1}$.", "Ici ${0}={1}$.", "Имеем ${0}={1}$.",
)  # fmt: skip
_DISPLAYS = ("$${}={}$$", "\\[{}={}\\]", "$$\n{} = {}.\n$$")


def shown_last(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a short line of what is given, and the result as a formula of its own."""
    for _ in range(count):
        given, result = rng.randrange(2, 60), rng.randrange(60, 400)
        line = rng.choice(_OPENINGS).format(rng.choice("abr"), given)
        response = f"{line}\n\n{rng.choice(_DISPLAYS).format(rng.choice('SVA'), result)}"
        yield Row("shown last", "Work it out.", str(result), response, True)
        yield Row("shown last, the given", "Work it out.", str(given), response, False)


_NAMED_UNITS = {
    "cm^3": ("cm³", "\\text{cm}^3"), "J/K": ("J·K⁻¹", "J/K", "\\text{ J K}^{-1}"),
    "V": ("V", "\\text{ V}"), "m/s^2": ("m/s²", "m·s⁻²"),
}  # fmt: skip


def signed_units(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield signed quantities where the question names the unit in any notation, and rounds."""
    for _ in range(count):
        unit = rng.choice([*_NAMED_UNITS])
        name, _, power = unit.partition("^")
        asked = f"{name}$^{rng.choice((power, f'{{{power}}}'))}$" if power else unit
        value, sign = rng.randrange(101, 999) / 100, rng.choice("+-")
        prompt = f"Find the change in {asked} to three significant figures."
        written = f"{value:.2f} {rng.choice(_NAMED_UNITS[unit])}"
        gold = f"{sign.strip('+')}{value:.2f} {unit}"
        other = "-" if sign == "+" else "+"
        yield Row("signed units", prompt, gold, f"It is \\boxed{{{sign}{written}}}.", True)
        yield Row("signed units, sign", prompt, gold, f"It is \\boxed{{{other}{written}}}.", False)


_MADE_UP = (
    "Question: What is {0} plus 1?\nAnswer: {1}", "Q: How far is it?\n\nA: {1} km",
    "Problem: Find {0} + 1.\nSolution: It is \\boxed{{{1}}}.", "Human: And {0} + 1?\n\nAssistant: {1}",
)  # fmt: skip


def next_questions(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield an answer behind which the writer goes on with a question of its own."""
    for _ in range(count):
        result, other = rng.sample(range(2, 900), 2)
        answer = rng.choice(("The answer is \\boxed{{{}}}.", "#### {}", "The answer is {}."))
        made_up = rng.choice(_MADE_UP).format(other - 1, other)
        response = f"We add up.\n\n{answer.format(result)}\n\n{made_up}"
        yield Row("next question", "Work it out.", str(result), response, True)
        yield Row("next question, its answer", "Work it out.", str(other), response, False)
        doubt = f"Is \\boxed{{{result}}} right?\n\nProblem: I forgot one.\n\nSo it is \\boxed{{{other}}}."
        yield Row("next question, a doubt", "Work it out.", str(other), doubt, True)


_POSITIVE = ("Ca", "Al", "Fe", "Mg", "Na", "K", "Ba", "NH4")
_NEGATIVE = ("SO4", "PO4", "OH", "NO3", "CO3", "Cl", "O", "S")


def compounds(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield formulas of salts in several spellings; another number of an ion is another salt."""

    def salt(ions: tuple[str, str], numbers: tuple[int, int], form: str) -> str:
        parts: list[str] = []
        for ion, number in zip(ions, numbers, strict=True):
            several = f"({ion})" if number > 1 and sum(map(str.isupper, ion)) > 1 else ion
            parts.append(several + (str(number) if number > 1 else ""))
        text = "".join(parts)
        if form == "low":
            return text.translate(str.maketrans("23456789", "₂₃₄₅₆₇₈₉"))
        return f"\\ce{{{text}}}" if form == "ce" else text

    for _ in range(count):
        ions = rng.choice(_POSITIVE), rng.choice(_NEGATIVE)
        numbers = rng.choice(((1, 2), (2, 1), (2, 3), (3, 2), (1, 3)))
        prompt, gold = "Give the formula of the salt.", salt(ions, numbers, "plain")
        for form in ("plain", "low", "ce"):
            answer, swapped = salt(ions, numbers, form), salt(ions, numbers[::-1], form)
            yield Row("compounds", prompt, gold, f"It is \\boxed{{{answer}}}.", True)
            yield Row("compounds, swapped", prompt, gold, f"It is \\boxed{{{swapped}}}.", False)


_FIELDS = ("answer", "final_answer", "result", "respuesta", "Antwort", "ответ")


def records(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield responses that are a record of JSON, with the answer in one of its fields."""
    for _ in range(count):
        result, other = rng.sample(range(2, 5000), 2)
        field, unit = rng.choice(_FIELDS), rng.choice(("", ', "unit": "cm"', ', "confidence": 0.9'))
        shape = rng.choice(("{}", "```json\n{}\n```", "{}\n"))
        steps = f'"reasoning": "{other} - 1 = {other - 1}"'
        value = rng.choice((str(result), f'"{result}"', f'{{"value": {result}}}'))
        record = "{" + f'{steps}, "{field}": {value}{unit}' + "}"
        yield Row("records", "How long is it, in cm?", str(result), shape.format(record), True)
        yield Row(
            "records, a step", "How long is it, in cm?", str(other), shape.format(record), False
        )


_COME_TO = (
    "\\boxed{{{}}} = {}.", "$\\boxed{{{}}} = {}$", "$\\boxed{{{}}}$, i.e. {}.",
    "\\boxed{{{}}}, that is, {}.", "\\boxed{{{}}} tiles, which makes {}.", "\\boxed{{{}}}, soit {}.",
)  # fmt: skip


def boxes_worked_out(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield boxes with what is to be worked out, and behind them what it comes to."""
    for _ in range(count):
        a, b = rng.randrange(3, 60), rng.randrange(3, 60)
        formula, value = rng.choice(
            ((f"{a} \\cdot {b}", a * b), (f"{a}+{b}", a + b), (f"{a}-{b}", a - b))
        )
        shape, prompt = rng.choice(_COME_TO), "How many tiles are there? Give a number."
        yield Row("boxes worked out", prompt, str(value), shape.format(formula, value), True)
        yield Row("boxes worked out, not", prompt, str(value), f"\\boxed{{{formula}}}.", False)
        yield Row(
            "boxes worked out, wrongly",
            prompt,
            str(value + 1),
            shape.format(formula, value + 1),
            False,
        )


_UNDECIDED = (
    "Entweder {} oder {}; ich kann mich nicht entscheiden.", "Soit {}, soit {} ; je ne peux pas choisir.",
    "O {} o {}: no puedo decidir.", "要么{},要么{},我无法确定。", "Либо {}, либо {} — не могу решить.",
    "Either {} or {}; I cannot choose.", "{}か{}、判断できません。",
)  # fmt: skip


def undecided(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield responses that leave two values open; neither is paid."""
    for _ in range(count):
        values = rng.sample(range(2, 900), 2)
        response = rng.choice(_UNDECIDED).format(*values)
        for value in values:
            yield Row("undecided", "How many are there?", str(value), response, False)
        last = f"{response}\n\nCounted once more: \\boxed{{{values[0]}}}"
        yield Row("undecided, then decided", "How many are there?", str(values[0]), last, True)


_AND_A_HALF = (
    "{} and a half", "{} und ein halb", "{} et demi", "{} y medio", "{} e mezzo", "{} e meio",
    "{} с половиной", "{} heures et demie", "{} horas y media", "{}个半",
)  # fmt: skip
_BELOW_ZERO = ("minus", "moins", "menos", "минус", "minus")
_SIX = (("six", 6), ("six", 6), ("seis", 6), ("шесть", 6), ("sieben", 7))


def halves(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield numbers with a half in words, and negative numbers in words: neither is the number
    without these words.
    """
    for _ in range(count):
        number = rng.randrange(2, 60)
        said = rng.choice(_AND_A_HALF).format(number)
        yield Row("halves", "How long?", f"{number}.5", f"\\boxed{{{said}}}", True)
        yield Row("halves, without", "How long?", str(number), f"\\boxed{{{said}}}", False)
        place = rng.randrange(5)
        below = f"{_BELOW_ZERO[place]} {_SIX[place][0]}"
        yield Row("below zero, without", "What is it?", str(_SIX[place][1]), below, False)


DRAWS = (
    counts, digits_beside_words, values_in_words, decimal_marks, shares, joined_lists, counted_nouns,
    quantities_of, asked_kinds,
    durations, asked_names,
    predicates, named_pairs, rival_names, unit_sizes, compound_units, counters,
    headed_values, apart, lines_asked, constants, money, shown_last, signed_units,
    next_questions, compounds, records, boxes_worked_out, undecided, halves,
)  # fmt: skip
"""Every law of this file, as a function of a generator and the number of draws."""
