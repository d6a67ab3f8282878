"""The words that a mathematical answer may contain: functions, number words, connectives and
units.
"""

from __future__ import annotations

import re
from fractions import Fraction


def words(listing: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(listing.split())


def pairs(listing: str) -> dict[str, str]:
    """Return the words `name=value` of a text as a dictionary."""
    split = (pair.partition("=") for pair in listing.split())
    return {name: value for name, _, value in split}


NO_SOLUTION = (
    r"(?:there (?:is|are) )?no (?:real(?:-valued)? )?(?:solutions?|roots?)(?: exists?)?"
    r"(?: (?:in|over|among) (?:the reals?(?: numbers?)?|\$?(?:\\mathbb ?\{?R\}?|ℝ)\$?))?"
    r"|(?:there (?:is|are) )?no such (?:[a-z]+ )?(?:integers?|numbers?|values?|pairs?"
    r"|\$?[a-z]\$?)(?: exists?)?"
    r"|there are none|(?:there (?:is|are) )?no integers?(?: \$?[a-z]\$?)?(?: exists?| that"
    r"| satisf(?:y|ies)| works?)"
    r"(?: works?| (?:it|(?:the|this) [a-z]+))?"
    r"|no real (?:number|value)s?(?: of [a-z])? (?:satisf(?:y|ies)|solves?) (?:it"
    r"|(?:the|this) equation)"
    r"|(?:the )?solution set is empty"
    r"|keine? (?:reellen? )?(?:Lösung|Nullstelle)(?:e?n)?(?: in (?:den reellen Zahlen|ℝ))?"
    r"|(?:pas de|aucune) (?:solution|racine)s?(?: réelles?)?(?: dans (?:ℝ|les réels))?"
    r"|(?:no (?:tiene|hay)|sin) (?:solución|soluciones|raíz|raíces)(?: real(?:es)?)?"
    r"|(?:não (?:tem|há|possui)|sem) (?:solução|soluções|raiz|raízes)(?: rea(?:l|is))?"
    r"|(?:non (?:ha|ci sono)|nessuna|senza) (?:soluzion|radic)[ei](?: real[ei])?"
    r"|(?:нет|не имеет) (?:(?:действительн|вещественн)ых )?(?:решени|корне)й"
    r"|(?:действительн|вещественн)ых (?:решени|корне)й нет"
    r"|(?:没有|沒有|无|無)(?:实数|實數|实|實)?(?:解|根)|(?:実数)?解(?:は|を|が)?(?:存在しない|ない|[持も]たない|なし)"
    r"|(?:실수 ?)?[해근][가는이은]? ?(?:없다|없습니다|없음)"
)
"""Matches words of several languages that an equation has no real solution."""
FUNCTIONS = words(
    "sin cos tan cot sec csc sinh cosh tanh coth sech csch arcsin arccos arctan arccot "
    "arcsinh arccosh arctanh ln log lg exp max min gcd lcm det deg dim cis arg sgn sign floor ceil "
    "Re Im abs erf"
)
ALIASES = pairs(
    "asin=arcsin acos=arccos atan=arctan sgn=sign cosec=csc asinh=arcsinh acosh=arccosh "
    "atanh=arctanh arsinh=arcsinh arcosh=arccosh artanh=arctanh cosech=csch tg=tan ctg=cot "
    "arctg=arctan lb=log"
)
GREEK = words(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi "
    "rho varrho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma "
    "Upsilon Phi Psi Omega ell hbar partial nabla aleph Re Im imath jmath angle triangle prime "
    "square triangledown bigtriangleup star top"
)
UNITS_OF_NUMBER = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14,
    "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20,
    "thirty": 30, "forty": 40, "fourty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80,
    "ninety": 90,
}  # fmt: skip
SCALES = {
    "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12,
    "dozen": 12, "lakh": 10**5, "lakhs": 10**5, "crore": 10**7, "crores": 10**7,
}  # fmt: skip
FRACTION_WORDS = {
    "half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourth": 4,
    "fourths": 4, "fifth": 5, "fifths": 5, "sixth": 6, "sixths": 6, "seventh": 7, "sevenths": 7,
    "eighth": 8, "eighths": 8, "ninth": 9, "ninths": 9, "tenth": 10, "tenths": 10,
}  # fmt: skip
NUMBER_WORDS = frozenset({*UNITS_OF_NUMBER, *SCALES, *FRACTION_WORDS})

CONNECTIVES = {"and": "and", "or": "or", "lor": "or", "land": "and"}
QUALIFIERS = words("for where if when with given whenever such otherwise as")
DENIALS = words(
    "not is are was isn't than least most unless else wrong incorrect maybe perhaps possibly but "
    "except instead false fail fails cannot never hundreds thousands millions billions dozens "
    "squared cubed factorial plus minus over divided mod modulo double triple twice half halves "
    "third thirds quarters fourths fifths sixths sevenths eighths ninths tenths negative "
    "pair pairs couple couples fold gross inclusive exclusive tens hundredths thousandths "
    "drittel viertel fünftel sechstel siebtel achtel neuntel zehntel hundert tausend million "
    "millionen milliarde milliarden dutzend hoch komma weniger mindestens höchstens "
    "demi demie cinquièmes sixièmes septièmes huitièmes neuvièmes dixièmes milliers milliard "
    "milliards douzaine douzaines virgule carré puissance moins "
    "tercio tercios cuartos quintos sextos séptimos octavos novenos décimos millón millones docena "
    "docenas cuadrado elevado máximo mínimo menos más "
    "terço terços quartos oitavos nonos milhão milhões dúzia dúzias vírgula quadrado "
    "terzi quarti quinti sesti settimi ottavi noni decimi mila milione milioni miliardi dozzina "
    "dozzine virgola quadrato massimo minimo meno più mezzo "
    "трети третьих четверти четвёртых пятых шестых седьмых восьмых девятых десятых целых половиной "
    "тысяча тысячи тысяч миллион миллиона миллионов дюжина дюжины дюжин квадрате кубе степени "
    "более менее больше меньше "
    "oder bis mehr mais meio meia mezza или до 또는 이상 이하 미만 초과 배"
)
"""Words after a value that take the value back or change the amount, in several languages."""
COUNTER = (
    "(?:[个個人名本枚匹台冊册张張只隻头頭件条條辆輛棵瓶杯袋箱盒次回日天年月周種种組组套層层位支颗顆块塊页頁题題道班场場步歩段级級间"
    "間家岁歳歲点點番号號片根座所校艘架朵束串把份篇首句字行列排队隊轮輪局圈项項类類匹羽粒滴座株门門期届票]"
    "|小时|小時|時間|通り|人前|か所|ヶ所|つ|とおり|[개명권대장잔병번살칸층쪽점회차줄척벌채]|마리|가지|사람|송이|그루|자루|조각)"
)
"""Matches a word that counts, in scripts without spaces: what is behind it is counted."""
ALTERS = (
    "以[上下内外前后]|未[満满]|左右|超|不[足到是对對]|ではな|ではあ|じゃな|でな|错|錯|误|誤|吗|嗎|倍|半$|多$|余$|か$|说|的平方|的一半|的倒数"
    "|次方|每|点[一二三四五六七八九]|与|根$|아니|아님|이상|이하|이내|미만|초과|정도|보다|분의|배$"
)
"""Matches what behind such a word makes the number another one, bounds it or denies it."""
FOREIGN_CHANGES = words(
    "млн млрд тыс тысяч тысячи миллион миллиона миллионов миллиард миллиарда хиляди милиона "
    "десятков сотен третей не нет нельзя неверно неправильно "
    "लाख करोड़ हज़ार हजार सौ अरब नहीं नही ล้าน พัน หมื่น แสน ร้อย ไม่ ไม่ใช่ "
    "ألف آلاف مليون ملايين مليار ليس ليست لا غير مئة "
    "triệu tỷ tỉ nghìn ngàn trăm chục vạn không yüz değil tysięcy tysiące milionów "
    "é è était não größer höher weniger bilhões není χιλιάδες εκατομμύρια δεν"
)
"""Words of further languages that do the same behind a number."""
SHORT_WORDS = words(
    "yes no pct odd all any and or not the is are in of to if for one two six ten non none per sq "
    "cu "
    "pm am red day sum man men boy box cat dog car new old big low mon tue wed thu fri sat sun "
    "true only each"
)

_LENGTH = {
    "nm": 1e-9, "um": 1e-6, "mm": 1e-3, "cm": 1e-2, "dm": 0.1, "m": 1.0, "km": 1e3,
    "in": 0.0254, "ft": 0.3048, "yd": 0.9144, "mi": 1609.344,
}  # fmt: skip
_UNIT_WORDS = pairs(
    "meter=m metre=m inch=in inche=in foot=ft feet=ft yard=yd mile=mi second=s sec=s minute=min "
    "hour=h hr=h day=day week=week month=month year=year yr=year gram=g kilo=kg tonne=t ton=t "
    "pound=lb ounce=oz liter=L litre=L ml=mL l=L gallon=gal quart=qt pint=pt cup=cup "
    "dollar=dollar buck=dollar usd=dollar cent=cent euro=euro eur=euro gbp=pound-sterling "
    "inr=rupee rmb=yuan cny=yuan jpy=yen ruble=ruble rub=ruble zloty=zloty pln=zloty won=won "
    "krw=won kr=krona krona=krona kronor=krona kroner=krona sek=krona nok=krona dkk=krona "
    "rupee=rupee yuan=yuan yen=yen newton=N joule=J calorie=cal watt=W volt=V ohm=ohm ampere=A "
    "amp=A hertz=Hz hz=Hz kelvin=K pascal=Pa coulomb=C mole=mol mph=mph kph=kph tesla=T farad=F "
    "henry=H weber=Wb kilowatt-hour=kWh decibel=dB parsec=pc radian=rad unit=unit celsius=degC "
    "fahrenheit=degF"
)
# symbol -> (factor to the base unit, base dimension)
UNITS: dict[str, tuple[float | Fraction, str]] = {
    **{name: (factor, "m") for name, factor in _LENGTH.items()},
    "s": (1.0, "s"), "ms": (1e-3, "s"), "min": (60.0, "s"), "h": (3600.0, "s"),
    "day": (86400.0, "s"), "week": (604800.0, "s"), "month": (1.0, "month"),
    "year": (12.0, "month"), "mg": (1e-3, "g"), "g": (1.0, "g"), "kg": (1e3, "g"), "t": (1e6, "g"),
    "lb": (453.59237, "g"), "oz": (28.349523125, "g"), "mL": (1e-6, "m^3"), "L": (1e-3, "m^3"),
    "gal": (3.785411784e-3, "m^3"), "qt": (0.946352946e-3, "m^3"), "pt": (0.473176473e-3, "m^3"),
    "cup": (0.2365882365e-3, "m^3"), "dollar": (1.0, "dollar"), "cent": (0.01, "dollar"),
    "euro": (1.0, "euro"), "pound-sterling": (1.0, "gbp"), "jiao": (0.1, "yuan"),
    "fen": (0.01, "yuan"), "kopek": (0.01, "ruble"),
    "hryvnia": (1.0, "hryvnia"), "kopiyka": (0.01, "hryvnia"), "eurocent": (0.01, "euro"),
    "centavo": (1.0, "centavo"), "jin": (500.0, "g"), "real": (1.0, "real"),
    "rupee": (1.0, "rupee"), "yuan": (1.0, "yuan"), "yen": (1.0, "yen"), "ruble": (1.0, "ruble"),
    "zloty": (1.0, "zloty"), "won": (1.0, "won"), "krona": (1.0, "krona"), "rad": (1.0, "rad"),
    "unit": (1.0, "unit"), "degC": (1.0, "degC"), "degF": (1.0, "degF"), "mol": (1.0, "mol"),
    "mmol": (1e-3, "mol"), "kmol": (1e3, "mol"), "K": (1.0, "K"), "mK": (1e-3, "K"),
    "cal": (4184.0, "g*m^2/s^2"), "kcal": (4184e3, "g*m^2/s^2"),
    "eV": (1.602176634e-16, "g*m^2/s^2"), "keV": (1.602176634e-13, "g*m^2/s^2"),
    "MeV": (1.602176634e-10, "g*m^2/s^2"), "atm": (101325e3, "g/m/s^2"), "bar": (1e8, "g/m/s^2"),
    "Wh": (3.6e6, "g*m^2/s^2"), "kWh": (3.6e9, "g*m^2/s^2"), "ha": (1e4, "m^2"), "ug": (1e-6, "g"),
    "us": (1e-6, "s"), "ns": (1e-9, "s"), "dL": (1e-4, "m^3"), "cL": (1e-5, "m^3"),
    "THz": (1e12, "/s"), "pF": (Fraction("1e-15"), "A^2*s^4/g/m^2"),
    "pC": (Fraction("1e-12"), "A*s"), "pA": (Fraction("1e-12"), "A"), "TW": (1e15, "g*m^2/s^3"),
    "TJ": (1e15, "g*m^2/s^2"),
    **{
        prefix + name: (Fraction(str(factor)) * Fraction(str(scale)), base)
        for name, scale, base in (
            ("N", 1e3, "g*m/s^2"), ("J", 1e3, "g*m^2/s^2"), ("W", 1e3, "g*m^2/s^3"),
            ("Pa", 1e3, "g/m/s^2"), ("V", 1e3, "g*m^2/s^3/A"), ("ohm", 1e3, "g*m^2/s^3/A^2"),
            ("A", 1.0, "A"), ("C", 1.0, "A*s"), ("Hz", 1.0, "/s"), ("F", 1e-3, "A^2*s^4/g/m^2"),
            ("H", 1e3, "g*m^2/s^2/A^2"), ("T", 1e3, "g/s^2/A"), ("Wb", 1e3, "g*m^2/s^2/A"),
        )
        for prefix, factor in (
            ("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9),
        )
        if prefix + name != "kT"  # the energy of heat
    },
    "pc": (Fraction("3.0856775814913673e16"), "m"), "kpc": (Fraction("3.0856775814913673e19"), "m"),
    "Mpc": (Fraction("3.0856775814913673e22"), "m"), "ly": (9460730472580800, "m"),
    "AU": (149597870700, "m"), "acre": (4046.8564224, "m^2"), "dB": (1.0, "dB"),
    "bit": (1.0, "bit"), "byte": (8.0, "bit"), "mM": (1.0, "mol/m^3"), "uM": (1e-3, "mol/m^3"),
    "nM": (1e-6, "mol/m^3"), "mph": (0.44704, "m/s"), "kph": (Fraction(5, 18), "m/s"),
}  # fmt: skip


UNIT_LETTERS = words("m s g h L N J W V A K C F T H")
PREFIXES = pairs("pico=p nano=n micro=u milli=m centi=c deci=d kilo=k mega=M giga=G tera=T")
"""The prefixes of units in full -> in symbols."""


def unit_symbol(word: str) -> str | None:
    """Return the symbol of a unit written as `word`, or None.

    >>> unit_symbol("centimeters"), unit_symbol("hrs"), unit_symbol("eggs")
    ('cm', 'h', None)
    """
    if word in UNITS:
        return word
    lowered = word.lower().rstrip(".")
    for form in (lowered, lowered.removesuffix("s"), lowered.removesuffix("es")):
        if form in _UNIT_WORDS:
            return _UNIT_WORDS[form]
        if form in UNITS and (word[:1].islower() or word.rstrip(".") in _UNIT_SPELLINGS):
            return form
    for prefix, sign in PREFIXES.items():
        base = _UNIT_WORDS.get(lowered.removeprefix(prefix).removesuffix("s"), "")
        if lowered.startswith(prefix) and base and sign + base in UNITS:
            return sign + base
    return None


_UNIT_SPELLINGS = words("Km KM Cm CM MM Kg KG ML Ml FT Ft LB Lb Lbs OZ Oz MPH Mph KPH Min Hz Sec")
"""Capitalised spellings of unit symbols that do occur; `Mm`, in contrast, is a product of two
masses.
"""


_PRODUCTS = words("pM aM pc ly dB kpc Mpc")
"""Letters that are a product unless a number and a space stand before them: `pM/RT`, `20 pc`."""
_CAPITALS = words("AND OR USD EUR GBP INR RMB CNY JPY")


def is_word(run: str) -> bool:
    """Return whether letters written without markup are a word rather than a product of variables.

    >>> is_word("increasing"), is_word("km"), is_word("xyz"), is_word("bx")
    (True, True, False, False)
    """
    lowered = run.lower()
    if len(run) == 1 or (run.isupper() and len(run) <= 3 and run not in _CAPITALS):
        return False
    if run in _PRODUCTS:
        return False
    if lowered in SHORT_WORDS or lowered in NUMBER_WORDS or lowered in CONNECTIVES:
        return True
    if unit_symbol(run) is not None and run not in {"pt", "ms", "in", "mi", "as"}:
        return True
    vowels = sum(letter in "aeiouy" for letter in lowered)
    return len(lowered) >= 4 and 0 < vowels < len(lowered)


ALL_REALS = re.compile(
    r"(?i)(?:(?:the )?set of )?(?:all|any|every|each) (?:the )?real(?:s|(?: (?:numbers?|values?))?"
    r"(?: (?:of )?\$?[a-z]\$?)?)(?![\w-])|(?:the )?(?:set of )?(?:reals|real numbers)(?!\w)"
    r"|(?:die )?(?:menge aller|alle|jede) reellen? (?:zahl(?:en)?|[a-z])(?!\w)"
    r"|(?:l['’]ensemble (?:de tous les|des)|tous les|tout) (?:nombres? )?réels?(?!\w)"
    r"|(?:el conjunto de )?(?:todos los|todo) (?:números? )?real(?:es)?(?!\w)"
    r"|(?:o conjunto de )?todos os (?:números )?reais(?!\w)"
    r"|(?:l['’]insieme di )?tutti i (?:numeri )?reali(?!\w)"
    r"|(?:множество )?всех? (?:действительн|вещественн)ы[ех] чис(?:ел|ла)(?!\w)"
    r"|(?:全体|所有|任意|一切)(?:的)?[实實]数|(?:すべて|全て)の実数|実数全体|모든 실수|ℝ"
)
"""The real numbers in words."""
