"""Laws of values that close a response in another shape than a number: an infinite limit, pairs by
their letters, a name or several in rows, a chance, a ratio, statements, amounts of money.

Each law draws questions with their golds and says of a response whether it is paid, in both
directions. `maths_laws.py` runs these laws beside its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from maths_words import Row, worded

_INFINITE = (
    "As x approaches 0 from the right, 1/x grows without bound, so the limit is {}.",
    "For x = 0.001 we have 1/x = 1000, so the limit equals {}.", "Hence the limit is {}",
    "The numerator tends to 1, the denominator to 0, so the limit is **{}**.",
    "1/x wächst über alle Grenzen, also ist der Grenzwert {}.", "Der Grenzwert ist also {}.",
    "1/x devient arbitrairement grand, donc la limite est {}.", "La limite vaut donc {}.",
    "El numerador tiende a 1, así que el límite es {}.", "Portanto, o limite é {}.",
    "Il numeratore tende a 1, quindi il limite è {}.", "Значит, предел равен {}.",
    "分子趋于1，所以极限为{}。", "したがって、極限は{}です。", "따라서 극한은 {}이다.",
)  # fmt: skip
_FINITE = (
    "As x → {}, 1/x → 0, so the limit is 3.", "The limit at {} is 3.", "So at {} the limit is 3.",
    "Für x → {} ist der Grenzwert 3.", "Quand x tend vers {}, la limite est 3.",
    "The limit is not {}.", "The limit is 3, not {}.",
)  # fmt: skip


def infinite(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield limits that are infinite, and such that are taken there and are not."""
    problem = "Evaluate $\\lim_{x\\to 0^+}\\frac{1}{x}$."
    for _ in range(count):
        sign = rng.choice(["+∞", "−∞"])
        said = rng.choice(("∞", sign)) if sign == "+∞" else sign
        gold = "\\infty" if sign == "+∞" else "-\\infty"
        wrong = "-\\infty" if sign == "+∞" else "\\infty"
        response = rng.choice(_INFINITE).format(said)
        yield Row("infinite limits", problem, gold, response, True)
        yield Row("infinite limits, other sign", problem, wrong, response, False)
        response = rng.choice(_FINITE).format(said)
        yield Row("limits at infinity", problem, gold, response, False)


_OR = {
    "English": ("or", "So {}.", "Find all pairs $(a, b)$ of positive integers."),
    "German": ("oder", "Also {}.", "Bestimme alle Paare $(a, b)$ natürlicher Zahlen."),
    "French": ("ou", "Donc {}.", "Trouvez tous les couples $(a, b)$ d'entiers."),
    "Spanish": ("o", "Por tanto, {}.", "Halla todos los pares $(a, b)$ de enteros positivos."),
    "Portuguese": ("ou", "Portanto, {}.", "Encontre todos os pares $(a, b)$ de inteiros."),
    "Italian": ("o", "Quindi {}.", "Trova tutte le coppie $(a, b)$ di interi."),
    "Russian": ("или", "Значит, {}.", "Найдите все пары $(a, b)$ целых чисел."),
    "Chinese": ("或", "因此 {}。", "求所有正整数对 $(a, b)$。"),
    "Japanese": ("または", "したがって {}。", "正の整数の組 $(a, b)$ をすべて求めよ。"),
    "Korean": ("또는", "따라서 {}.", "양의 정수쌍 $(a, b)$를 모두 구하시오."),
}


def lettered_pairs(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield pairs by their letters, as alternatives, for a gold of tuples."""
    for _ in range(count):
        joint, sentence, problem = _OR[rng.choice([*_OR])]
        a, b, c, d = rng.sample(range(2, 60), 4)
        shape = rng.choice(("$a={},\\,b={}$", "$a={}$, $b={}$", "a = {}, b = {}", "$a={}, b={}$"))
        said = f" {joint} ".join(shape.format(*pair) for pair in ((a, b), (c, d)))
        response = f"$m+n=5$.\n\n{sentence.format(said)}"
        for gold, paid in (
            (f"({a},{b}), ({c},{d})", True), (f"({c},{d}), ({a},{b})", True),
            (f"({b},{a}), ({d},{c})", False), (f"({a},{b}), ({c},{d + 1})", False),
            (f"({c},{d})", False),
        ):  # fmt: skip
            yield Row("pairs by letters", problem, gold, response, paid)


_SEEN = (
    "Facing north and turning right by 90° you look {}.", "So after 6 turns she faces {}.",
    "2250 = 6·360 + 90, so in the end you face {}.", "That leaves 90°, so she is looking {}.",
    "After 3 of 4 moves he ends up heading {}.", "Nach 90° schaut sie also nach {}.",
)  # fmt: skip
_UNSEEN = ("At first she faced {}.", "She does not look {}.", "After 2 turns she might face {}.",
           "If she turned by 90° more, she would face {}.")  # fmt: skip


def stressed_names(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a name in bold behind any verb, for a gold that is a word."""
    problem = "She turns by 2250 degrees. Which direction (north, south, east or west) is it?"
    for _ in range(count):
        name, other = rng.sample(["north", "south", "east", "west"], 2)
        mark = rng.choice(("**{}**", "*{}*"))
        response = rng.choice(_SEEN).format(mark.format(name.capitalize()))
        for gold in (name, f"\\text{{{name}}}"):
            yield Row("stressed names", problem, gold, response, True)
        yield Row("stressed names, other", problem, f"\\text{{{other}}}", response, False)
        response = "2250 = 6·360 + 90.\n\n" + rng.choice(_UNSEEN).format(
            mark.format(name.capitalize())
        )
        yield Row("stressed names, unclaimed", problem, f"\\text{{{name}}}", response, False)


_CHANCES = {
    "English": ("What is the probability of a sum of 7?",
                "The probability is therefore **{} in {}**.|So it is a {} in {} chance.|"
                "Hence the probability is {} out of {}.|**{} chance in {}**|"
                "The chance is then **{}-in-{}**."),
    "French": ("Quelle est la probabilité que la somme soit 7 ?",
               "La probabilité est donc de **{} chance sur {}**.|Il y a donc {} chances sur {}.|"
               "C'est donc {} sur {}.|La probabilité est de {} sur {}."),
    "German": ("Wie groß ist die Wahrscheinlichkeit für die Summe 7?",
               "Die Wahrscheinlichkeit beträgt also **{} zu {}**-|"
               "Die Wahrscheinlichkeit ist also {} von {}.|Die Chance beträgt {} von {}."),
    "Spanish": ("¿Cuál es la probabilidad de que la suma sea 7?",
                "La probabilidad es, por tanto, **{} de cada {}**.|Hay {} posibilidades entre {}.|"
                "La probabilidad es de {} entre {}.|Es decir, {} en {}."),
    "Portuguese": ("Qual é a probabilidade de a soma ser 7?",
                   "A probabilidade é **{} em {}**.|A probabilidade é de {} em cada {}.|"
                   "Portanto, há {} chances em {}."),
    "Italian": ("Qual è la probabilità che la somma sia 7?",
                "La probabilità è quindi **{} su {}**.|C'è {} possibilità su {}.|"
                "La probabilità è di {} su {}."),
    "Russian": ("Какова вероятность того, что сумма равна 7?",
                "Вероятность равна **{} из {}**.|Значит, это {} шанс из {}.|"
                "Итак, вероятность — {} к {}-"),
}  # fmt: skip


def foreign_chances(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a probability as so many out of so many in several languages, in digits or words; a
    ratio of odds (`1 zu 5`) is none.
    """
    for _ in range(count):
        language = rng.choice([*_CHANCES])
        problem, sentences = _CHANCES[language]
        part, whole = sorted(rng.sample([3, 4, 5, *range(7, 11), *range(12, 60)], 2))
        said: list[object] = [part, whole]
        if rng.random() < 0.3:
            said = [worded(part, language), worded(whole, language)]
        sentence = rng.choice(sentences.split("|"))
        odds = sentence.endswith("-")
        response = "(1,6), (2,5), (3,4).\n\n" + sentence.rstrip("-").format(*said)
        gold = f"\\frac{{{part}}}{{{whole}}}"
        yield Row("chances by language", problem, gold, response, not odds)
        yield Row("chances, other", problem, f"\\frac{{{part}}}{{{whole + 1}}}", response, False)
        yield Row("chances, other", problem, str(whole), response, False)


_OF_OTHERS = ("The odds against are {} out of {}.", "The probability of a sum of 8 is {} in {}.",
              "It is not a {} in {} chance.", "He throws {} out of {}.")  # fmt: skip


def chances_of_others(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield so many out of so many that are no chance of what is asked, and one that is."""
    problem = _CHANCES["English"][0]
    for _ in range(count):
        part, whole = sorted(rng.sample(range(3, 60), 2))
        gold = f"\\frac{{{part}}}{{{whole}}}"
        other = f"We count.\n\n{rng.choice(_OF_OTHERS).format(part, whole)}"
        yield Row("chances of others", problem, gold, other, False)
        said = f"We count.\n\nThe probability is {part} in {whole}."
        yield Row("chances of others, not", problem, gold, said, True)


def named_sums(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a displayed chain, and below it the sum of its parts that the question asks for."""
    problem = "The product equals $\\tfrac{m}{n}$ in lowest terms. Find $m+n$."
    for _ in range(count):
        m, n = rng.sample(range(2, 99), 2)
        chain = (
            f"\\prod_{{k=1}}^9 \\frac{{k}}{{k+1}}=\\frac{{{2 * m}}}{{{2 * n}}}=\\frac{{{m}}}{{{n}}}"
        )
        lead = rng.choice(("$${}$$", "\\[{}\\]", "$$\n{}\n$$", "${}$"))
        last = rng.choice(
            ("$m+n={}+{}={}$", "$$m+n={}+{}={}$$", "m + n = {} + {} = {}", "$m + n = {2}$")
        )
        response = f"{lead.format(chain)}\n\n{last.format(m, n, m + n)}"
        yield Row("sums of parts", problem, str(m + n), response, True)
        yield Row("sums of parts, other", problem, str(m), response, False)
        yield Row("sums of parts, other", problem, f"\\frac{{{m}}}{{{n}}}", response, False)


_PREDICATES = ("a knight", "a knave", "a spy")


def statements(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield what each of several is, in any order and joined in any way."""
    problem = "A says: 'We are both knaves.' What are A and B?"
    for _ in range(count):
        names = rng.sample("ABC", 2)
        says = rng.sample(_PREDICATES, 2)
        said = [f"{name} is {what}" for name, what in zip(names, says, strict=True)]
        joint = rng.choice(("; ", ", ", " and ", ", and "))
        shape = rng.choice(
            ("**{}.**", "**{}**", "So {}.", "Therefore, {}.", "\\boxed{{\\text{{{}}}}}")
        )
        response = "A lies, so the statement is false.\n\n" + shape.format(joint.join(said))
        gold = ", ".join(rng.sample(said, 2))
        crossed = f"{names[0]} is {says[1]}, {names[1]} is {says[0]}"
        for written in (gold, f"\\text{{{gold}}}"):
            yield Row("statements", problem, written, response, True)
        yield Row("statements, crossed", problem, f"\\text{{{crossed}}}", response, False)
        yield Row("statements, half", problem, f"\\text{{{said[0]}}}", response, False)


_MARKERS = ("{n}. **({l})** ", "{n}. ({l}) ", "- **({l})** ", "**({l})** ", "({l}) ", "{l}) ",
            "* ({l}): ")  # fmt: skip
_WORKED_PARTS = (
    "$f''(-1)=-6<0$, so there is a local maximum at $x={}$.", "The minimum is at $x={}$.",
    "$f(-1)=-1+3={}$.", "$f(-1)=-1+3={}$", "The sum is therefore {}.", "We get $k = {}$.",
    "There are {} of them.",
)  # fmt: skip


def parts_in_lists(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the parts of a question in a list, each with its value at the end of a sentence."""
    problem = "Find (a) the maximum, (b) the minimum, (c) the value."
    for _ in range(count):
        values = rng.sample(range(2, 60), 3)
        marker = rng.choice(_MARKERS)
        lines = [
            marker.format(n=n + 1, l="abc"[n]) + rng.choice(_WORKED_PARTS).format(value)
            for n, value in enumerate(values)
        ]
        response = "$f'(x)=3x^2-3$.\n\n" + rng.choice(("\n", "\n\n")).join(lines)
        for given, paid in ((values, True), (values[::-1], False), ([*values[:2], 61], False)):
            gold = "; ".join(f"({part}) ${v}$" for part, v in zip("abc", given, strict=True))
            yield Row("parts in lists", problem, gold, response, paid)


_AMOUNTS = {
    "German": ("Wie viel zahlt James für jedes Paar Schuhe, wenn 24 Paar {0} $ kosten?",
               "Der Preis ist {0} $ : 2 = 7 $.",
               "James zahlt im Durchschnitt {0} $ pro Paar.|Insgesamt: {0} $|**Er zahlt {0} $.**|"
               "Also zahlt er {0} $."),
    "Spanish": ("¿Cuánto pagó Juan por los 4 teléfonos si cada uno cuesta {0} $?",
                "Los dos primeros cuestan 600 $ cada uno (1200 $).",
                "Total: {0} $|Juan pagó {0} $ en total.|**Total: {0} $**|Por tanto, pagó {0} $."),
    "Italian": ("Quanto ha pagato Ugo per i 4 telefoni se costano {0} $ ognuno?",
                "I primi due costano 600 $ ognuno (1200 $).",
                "Totale: {0} $|Ugo ha pagato {0} $ in totale.|Quindi ha pagato {0} $."),
}  # fmt: skip


def dollars_behind(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield amounts with a dollar sign behind, in the notation of their language."""
    for _ in range(count):
        prompt, lead, sentences = _AMOUNTS[rng.choice([*_AMOUNTS])]
        whole = rng.randrange(2, 9999)
        grouped = f"{whole:,}".replace(",", ".")
        said = rng.choice((f"{whole},00", grouped, str(whole), f"{whole % 999},50"))
        value = f"{whole % 999}.50" if said.endswith(",50") else str(whole)
        response = f"{lead.format(12)}\n\n{rng.choice(sentences.split('|')).format(said)}"
        problem = prompt.format(600)
        yield Row("dollars behind", problem, value, response, True)
        yield Row("dollars behind, other", problem, f"{whole + 1}", response, False)
        yield Row("dollars behind, other", problem, "12", response, False)


_SIZES = {
    "German": ("Berechne den Umfang auf zwei Dezimalstellen gerundet.",
               "**Der Umfang beträgt rund {} cm.**|**Der Umfang des Kreises ist {} cm.**|"
               "**Also ist der Umfang gleich {} cm**"),
    "French": ("Calcule le périmètre du cercle, arrondi au centième.",
               "**Le périmètre du cercle est d'environ {} cm.**|**Le périmètre vaut {} cm.**"),
    "Spanish": ("Calcula el perímetro del círculo con dos decimales.",
                "**El perímetro del círculo es de unos {} cm.**|**El perímetro es {} cm.**"),
    "Russian": ("Вычислите длину окружности с точностью до сотых.",
                "**Длина окружности равна {} см.**|**Длина примерно равна {} см.**"),
}  # fmt: skip


def stressed_measures(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a whole sentence in bold that ends in a decimal comma and a unit."""
    for _ in range(count):
        problem, sentences = _SIZES[rng.choice([*_SIZES])]
        whole, cents = rng.randrange(2, 99), rng.randrange(10, 99)
        sentence = rng.choice(sentences.split("|")).format(f"{whole},{cents}")
        response = f"$U=\\pi\\cdot4\\,\\text{{cm}}$\n\n{sentence}"
        for gold, paid in ((f"{whole}.{cents}", True), (f"{whole}{cents}", False), ("4", False)):
            yield Row("stressed measures", problem, gold, response, paid)


_THINGS = (("boys", "girls"), ("red marbles", "blue marbles"), ("cats", "dogs"), ("wins", "losses"))
_RATIOS = (
    "So there are **{0} {2} to {1} {3}**, a ratio of {0} to {1}.",
    "So it is a ratio of {0} to {1}.",
    "That is {0} {2} to {1} {3}.", "Hence there are {0} {2} to {1} {3}.",
    "There are {0} {2} for every {1} {3}.", "The ratio is {0} {2} to {1} {3}.",
    "So the ratio of {2} to {3} is {0} to {1}.", "We have {0} {2} to every {1} {3}.",
)  # fmt: skip
_NO_RATIOS = ("So the ratio of {3} to {2} is {1} to {0}.", "There are {1} {3} to {0} {2}.",
              "There are {1} {3} for every {0} {2}.")  # fmt: skip


def counted_ratios(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a ratio by what is counted, in the order that is asked; another order is not it."""
    for _ in range(count):
        first, second = rng.choice(_THINGS)
        a, b = rng.sample([2, 3, 5, 7, 11, 13], 2)
        problem = f"Of {a + b} a few are {first}. What is the ratio of {first} to {second}?"
        lead = "Both share the factor 6.\n\n"
        response = lead + rng.choice(_RATIOS).format(a, b, first, second)
        yield Row("counted ratios", problem, f"{a}:{b}", response, True)
        yield Row("counted ratios, turned", problem, f"{b}:{a}", response, False)
        response = lead + rng.choice(_NO_RATIOS).format(a, b, first, second)
        yield Row("counted ratios, turned", problem, f"{b}:{a}", response, False)


_NAMES = ["Alice", "Bob", "Carol", "Dan", "Eva", "Finn"]
_LEADS = ("So from shortest to tallest:\n\n", "The order is\n", "In order they are:\n\n")


def listed_names(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield names in rows, for a gold in an order that is asked, and for one without."""
    ordered = "List the three from shortest to tallest."
    for _ in range(count):
        names = rng.sample(_NAMES, 3)
        mark = rng.choice(("{}. ", "{}) ", "- ", "* ", "**{}.** ", "{}. **"))
        tail = "**" if mark.endswith(". **") else rng.choice(("", "", "."))
        rows = [mark.format(n + 1) + name + tail for n, name in enumerate(names)]
        response = "Alice > Carol > Bob.\n\n" + rng.choice(_LEADS) + "\n".join(rows)
        for gold, problem, paid in (
            (names, ordered, True), (names[::-1], ordered, False),
            (names[::-1], "Which three of them came?", True),
            ([*names[:2], "Gus"], "Which three of them came?", False),
        ):  # fmt: skip
            for written in (", ".join(gold), f"\\text{{{', '.join(gold)}}}"):
                yield Row("listed names", problem, written, response, paid)


def listed_sequences(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield sequences in rows, for a gold that lists all of their values."""
    problem = "There are two sequences of consecutive integers. Determine these two sequences."
    for _ in range(count):
        length = rng.choice((3, 4, 5))
        starts = rng.randrange(-9, 0), rng.randrange(3, 30)
        rows = [[str(start + n) for n in range(length)] for start in starts]
        shape = rng.choice(("{}. {}", "- {1}", "{}) {}", "* {1}", "- ${1}$"))
        lines = [
            shape.format(
                n + 1,
                ", ".join(row).replace("-", rng.choice(("-", "−")) if "$" not in shape else "-"),
            )
            for n, row in enumerate(rows)
        ]
        response = "So $n = 0$ or $n = 12$.\n\nThe two sequences are\n" + "\n".join(lines)
        gold = rng.sample(rows, 2)
        yield Row("listed sequences", problem, ",".join([*gold[0], *gold[1]]), response, True)
        wrong = [*rows[0], *rows[1][1:], "77"]
        yield Row("listed sequences, other", problem, ",".join(wrong), response, False)
        yield Row("listed sequences, half", problem, ",".join(rows[1]), response, False)


# The numbers from 2 to 20 by the languages whose word for "answer" is known.
_FURTHER = {
    "Cevap: {}": "iki üç dört beş altı yedi sekiz dokuz on|otuz beş=35|yirmi=20|on iki=12",
    "Odpowiedź: {}": "dwa trzy cztery pięć sześć siedem osiem dziewięć dziesięć|dwadzieścia pięć=25"
    "|dwanaście=12",
    "Odpověď: {}": "dva tři čtyři pět šest sedm osm devět deset|dvacet pět=25|dvanáct=12",
    "Đáp án: {}": "hai ba bốn năm sáu bảy tám chín mười|hai mươi lăm=25|mười hai=12",
    "Jawaban: {}": "dua tiga empat lima enam tujuh delapan sembilan sepuluh|dua puluh lima=25"
    "|dua belas=12",
    "Antwoord: {}": "twee drie vier vijf zes zeven acht negen tien|vijfentwintig=25|twaalf=12",
    "Svar: {}": "två tre fyra fem sex sju åtta nio tio|tjugofem=25|tolv=12|femogtyve=25|tjuefem=25",
    "Відповідь: {}": "два три чотири п'ять шість сім вісім дев'ять десять|двадцять п'ять=25",
    "Απάντηση: {}": "δύο τρία τέσσερα πέντε έξι επτά οκτώ εννέα δέκα|είκοσι πέντε=25|δώδεκα=12",
    "Răspuns: {}": "doi trei patru cinci șase șapte opt nouă zece|douăzeci și cinci=25"
    "|doisprezece=12",
    "คำตอบ: {}": "สอง สาม สี่ ห้า หก เจ็ด แปด เก้า สิบ|ยี่สิบห้า=25|สิบสอง=12",
    "תשובה: {}": "שתיים שלוש ארבע חמש שש שבע שמונה תשע עשר|עשרים וחמש=25",
    "الجواب: {}": "اثنان ثلاثة أربعة خمسة ستة سبعة ثمانية تسعة عشرة|خمسة وعشرون=25",
    "پاسخ: {}": "دو سه چهار پنج شش هفت هشت نه ده|بیست و پنج=25|دوازده=12",
    "उत्तर: {}": "दो तीन चार पाँच छह सात आठ नौ दस|बारह=12",
    "答え: {}": "二 三 四 五 六 七 八 九 十|二十五=25",
    "정답: {}": "둘 셋 넷 다섯 여섯 일곱 여덟 아홉 열|이십오=25",
}  # fmt: skip
_LARGER = {"Cevap: {}": "yüz", "Odpowiedź: {}": "tysięcy", "Đáp án: {}": "trăm",
           "Jawaban: {}": "ratus",
           "Antwoord: {}": "honderd", "Răspuns: {}": "sute", "Відповідь: {}": "тисяч",
           "Απάντηση: {}": "χιλιάδες", "Odpověď: {}": "tisíc", "Svar: {}": "hundra"}  # fmt: skip


def further_numbers(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield an announced number in the words of any language in which answers are announced."""
    for _ in range(count):
        shape = rng.choice([*_FURTHER])
        small, *large = _FURTHER[shape].split("|")
        known = {word: number for number, word in enumerate(small.split(), start=2)}
        known |= {word: int(number) for word, _, number in (pair.partition("=") for pair in large)}
        word = rng.choice([*known])
        lead = "$\\frac{60\\cdot3}{2}$.\n\n"
        said = rng.choice(("{}", "**{}**", "{}.")).format(word)
        yield Row("further numbers", "", str(known[word]), lead + shape.format(said), True)
        yield Row(
            "further numbers, other", "", str(known[word] + 1), lead + shape.format(said), False
        )
        if shape in _LARGER:
            more = lead + shape.format(f"{word} {_LARGER[shape]}")
            yield Row("further numbers, larger", "", str(known[word]), more, False)


_ARROWED = ("Next three terms → {}", "Next terms: {}", "The next three terms → {}",
            "next three ⇒ {}",
            "Nächste drei Glieder → {}", "Trois termes suivants → {}", "Siguientes términos → {}",
            "接下来三项→{}", "Next three terms -> {}")  # fmt: skip


def arrowed_lists(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a list behind words and an arrow."""
    problem = "The Fibonacci-like sequence begins $1,1,2,3,5,8$. Give the next three terms."
    for _ in range(count):
        values = [str(value) for value in rng.sample(range(2, 99), 3)]
        said = rng.choice(("; ", ", ", ", ")).join(values)
        response = f"5 + 8 = {values[0]}\n\n" + rng.choice(_ARROWED).format(said)
        yield Row("lists behind arrows", problem, ", ".join(values), response, True)
        for gold in ([*values[:2], "100"], values[::-1], values[2:]):
            yield Row("lists behind arrows, other", problem, ", ".join(gold), response, False)


_BELOW = (
    ("[^1]", "[^1]: Euler's formula gives 8 - {0} + 6 = 2."), ("*", "\\* A square has {0}."),
    ("†", "† Not to be confused with the {0} of a square."), ("[1]", "[1]: See book {0}."),
    ("", "— MathBot {0}"), ("", "-- The Tutor, {0} May"), ("", "Best regards,\nBot {0}"),
    ("", "### Key takeaways\n\n- A cube has {0} faces.\n- So one draws it."),
    ("", "**Tips:**\n1. Draw it.\n2. Count {0} on each side."),
    ("", "Hope that helps! Remember the {0} rules: draw, count, check."),
    ("", "A drawing has {0} lines, by the way."),
    ("", "A count with {0} lines confirms this result."),
)  # fmt: skip


def notes_below(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield footnotes, signatures, sections of remarks and words to the reader below a value."""
    problem = "How many edges has it?"
    for _ in range(count):
        value, other = rng.sample(range(20, 99), 2)
        mark, below = rng.choice(_BELOW)
        response = f"We count 4 of each.\n\nIt has {value} edges.{mark}\n\n{below.format(other)}"
        yield Row("notes below", problem, str(value), response, True)
        yield Row("notes below, other", problem, str(other), response, False)


_STEPS_LEFT = (
    "We still need the sum.", "It remains to compute the sum.", "What remains is to find $a+b$.",
    "I'd still have to evaluate it at x={1}...", "Es bleibt noch die Summe zu berechnen.",
    "Il reste à calculer la somme.", "Queda por calcular la suma.", "Осталось найти сумму.",
    "还需要求它们的和。",
)  # fmt: skip
_STEPS_TAKEN = ("We still need to add 3 to get {0}.", "It remains to add them, which gives {0}.",
                "After that we still have to pay {0} dollars.")  # fmt: skip


def steps_left(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield responses that stop before a step of the work, and such that take the step."""
    for _ in range(count):
        a, b = rng.sample(range(2, 60), 2)
        lead = f"(x-{a})(x-{b}) = 0, which leaves {a} and {b}. "
        for gold in (f"{a}, {b}", str(b), str(a + b)):
            left = lead + rng.choice(_STEPS_LEFT).format(a, b)
            yield Row("steps left", "Find the sum of the roots.", gold, left, False)
        taken = lead + rng.choice(_STEPS_TAKEN).format(a + b)
        yield Row("steps taken", "Find the sum of the roots.", str(a + b), taken, True)


_LETTERS = ("So x = {0}, which makes y = {1}.", "We find x = {0} and y = {1}.",
            "Hence $x = {0}$, $y = {1}$.", "y = {1} and hence x = {0}.",
            "Thus $y = {1}$ and $x = {0}$.")  # fmt: skip
_LETTERS_ASKED = ("Solve y = 2x + 1 and y = 9 for {}.", "Find the value of {}.", "Find {}.",
                  "Determine ${}$.")  # fmt: skip


def letters_asked(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield values of two letters in the closing sentence, of which the question asks for one."""
    for _ in range(count):
        values = dict(zip("xy", rng.sample(range(2, 99), 2), strict=True))
        response = f"Substitute. {rng.choice(_LETTERS).format(*values.values())}"
        asked, other = rng.sample("xy", 2)
        problem = rng.choice(_LETTERS_ASKED).format(asked)
        yield Row("letters asked", problem, str(values[asked]), response, True)
        yield Row("letters asked, other", problem, str(values[other]), response, False)
        either = f"Substitute. We have x = {values['x']} or y = {values['y']}."
        yield Row("letters asked, either", problem, str(values[asked]), either, False)


def rows_of_values(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield several values of a letter in rows, of which the last is not the only one."""
    for _ in range(count):
        values = [str(value) for value in rng.sample(range(-60, 60), rng.choice((2, 3)))]
        shape = rng.choice(("x = {}", "- {}", "* {}", "$x = {}$", "- $x = {}$"))
        response = "\n".join(map(shape.format, values))
        problem = rng.choice(("Find x.", "Find the solution set."))
        gold = ", ".join(rng.sample(values, len(values)))
        yield Row("rows of values", problem, f"\\{{{gold}\\}}", response, True)
        for part in (f"\\{{{values[-1]}\\}}", values[-1]):
            yield Row("rows of values, last", problem, part, response, False)


_MATCHES = ("This matches choice {}.", "It corresponds to option {}.", "That agrees with ({}).",
            "So the value matches option {}.", "This matches {}. Choice {} would be 10%.",
            "It matches ({}). Option {} forgets the factor.")  # fmt: skip


def matched_options(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield options that a sentence picks behind their value, be it another one's."""
    for _ in range(count):
        texts = rng.sample(range(2, 99), 4)
        listed = "\n".join(f"{letter}) {text}" for letter, text in zip("ABCD", texts, strict=True))
        problem = f"What is 15% of 200?\n{listed}"
        place = rng.randrange(4)
        letter, other = "ABCD"[place], "ABCD"[place - 1]
        lead = f"0.15 × 200 = {texts[place]}. "
        said = rng.choice(_MATCHES)
        yield Row("matched options", problem, letter, lead + said.format(letter, other), True)
        yield Row(
            "matched options, other", problem, letter, lead + said.format(other, letter), False
        )
        either = f"{lead}It matches {letter} or {other}."
        yield Row("matched options, either", problem, letter, either, False)


_PRECISE = ("The value is {0}, rounded to {1} decimals.", "It is {0} to {1} decimal places.",
            "So we get {0} to {1} significant figures.", "Das ist {0}, auf {1} Dezimalstellen.",
            "The answer is {0} rounded to {1} decimal places.")  # fmt: skip
_IMPRECISE = ("The answer should be rounded to {1} decimal places.", "Rounded to {1} decimals.",
              "We should give it to {1} significant figures.")  # fmt: skip


def precisions(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield values with the number of their digits, which is no value."""
    for _ in range(count):
        value, digits = f"{rng.randrange(11, 60)}.{rng.randrange(11, 99)}", rng.randrange(2, 7)
        said = rng.choice(_PRECISE).format(value.rstrip("0"), digits)
        yield Row("precisions", "Evaluate the root.", value, said, True)
        for response in (said, rng.choice(_IMPRECISE).format(value, digits)):
            yield Row("precisions, digits", "Evaluate the root.", str(digits), response, False)


def domains(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield the range or the domain of a relation where one of them is asked for."""
    for _ in range(count):
        pairs = list(zip(rng.sample(range(9), 3), rng.sample(range(20, 40), 3), strict=True))
        names = {
            name: ", ".join(map(str, sorted(side)))
            for name, side in zip(("domain", "range"), zip(*pairs, strict=True), strict=True)
        }
        asked, other = rng.sample(["domain", "range"], 2)
        problem = f"Find the {asked} of the relation {{{', '.join(map(str, pairs))}}}."
        shape = rng.choice(("{}: {{{}}}", "The {} is {{{}}}.", "{}: $\\{{{}\\}}$"))
        for name in (asked, other):
            response = shape.format(name if "The" in shape else name.title(), names[name])
            yield Row("domains", problem, f"\\{{{names[name]}\\}}", response, name == asked)


_CHAINS = (
    "{0} km/h × (1000 m / 1 km) × (1 h / 3600 s) = {1} m/s", "{0} km × (1000 m / 1 km) = {1} m",
    "10·{0} = 2·16 + 15 = {1}₁₀",
    "$x^2 < {0} \\iff |x| < 9 \\iff -{1} < x < {1}$.",
    "Der Umfang ist U = 2πr = 2 · π · 4 cm = {1}π cm ≈ {2} cm.",
)  # fmt: skip


def worked_chains(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield calculations that are the whole response: with units, a base, equivalences, or a
    rounded value with a decimal comma behind.
    """
    for _ in range(count):
        first, last = rng.sample(range(20, 99), 2)
        said = rng.choice(_CHAINS)
        rounded = f"{last * 3.14159265:.2f}".replace(".", ",")
        problem, gold = "Berechne den Wert.", "{0}"
        if "<" in said:
            problem, gold = "Solve the inequality.", "(-{0}, {0})"
        elif "π" in said:
            gold = "{0}\\pi"
        response = said.format(first, last, rounded)
        yield Row("worked chains", problem, gold.format(last), response, True)
        for other in (first, last + 1):
            yield Row("worked chains, other", problem, gold.format(other), response, False)
        wrong = said.format(first, last, "1" + rounded)
        if "≈" in said:
            yield Row("worked chains, rival", problem, gold.format(last), wrong, False)


DRAWS = (
    infinite, lettered_pairs, stressed_names, foreign_chances, chances_of_others, named_sums,
    statements,
    parts_in_lists, dollars_behind, stressed_measures, counted_ratios, listed_names,
    listed_sequences, further_numbers, arrowed_lists, notes_below,
    steps_left, letters_asked, rows_of_values, matched_options, precisions, domains,
    worked_chains,
)  # fmt: skip
"""Every law of this file, as a function of a generator and the number of draws."""
