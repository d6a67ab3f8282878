"""Side remarks: sentences at the end of a response that claim no value of what is asked, such as an
offer, a check, a hypothesis, a comparison with something else or an explanation.

One classifier judges what ends a response without a mark and what follows a box. It reads the mood
of a sentence and the words that open it, and never looks at the gold.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..reading.plain import formulas
from ..reading.vocabulary import words
from .asked import asking
from .languages import LANGUAGES
from .phrases import MAY_BE, RETRACTION
from .sentence import NUMBER, OWN_WORK, closing_sentence
from .surface import lowered

MAX_ASIDES = 5
"""How many sentences at the end, and clauses of the last, are passed over as side remarks."""
MAX_COMMENT = 100
"""The longest comment without a value behind a check (`Both are smaller, as they should be.`)."""
REACH_BACK = 400
"""How many characters before a side remark are searched for the value that it speaks of."""
_CHECKS = (
    r"(?:(?:let us|let's|let me|we|we can|we may|you can|you may|one can|i|to|one|last"
    r"|as an?|an?|now|so|quick|brief|short|final"
    r"|sanity|cross|proof|consistency)[\s-]+)*"
    r"(?:(?:re|double[- ]?)?check(?:ing|s)?\b|verif\w+|confirm\w*"
    r"|tests?\b(?= (?:this|of|with|by|at|for)\b|:| \$?[a-z] ?=)|testing\b"
    r"|plug(?:ging)? \w+ (?:back )?in"
    r"|plugging (?:back )?in|(?:substitut|multiply|add|work|count)\w+ back|vérifi\w*|contrôle\b"
    r"|(?:gegen)?probe\b|kontroll\w*|(?:über)?prüf\w*|comprob\w*|comprueb\w*|confer(?:indo|imos"
    r"|e\b)|prova\s?:|controll\w*|провер\w*)(?!\w*ed\b)|(?:让我们?|我们)?来?(?:验证|驗證|检验|檢驗"
    r"|验算|代入检验)|検算|検証|確認すると|確かめ|검산|검증|확인해"
)
_EXPLAINS = (
    r"(?:hope (?:this|that|it) \w+|(?:remember|keep in mind|don['’]t forget)\b"
    r"(?!.*\b(?:so|hence|thus|therefore)\b))|note(?: that\b|:)|notice that\b|(?:(?:an?"
    r"|one) (?:\w+ )?)?(?:remark|comment)\w*\b"
    r"|(?:intuitively|geometrically)\b"
    r"|here,? \$?[\w.]+\$? (?:is|are|was|stands?|counts?|denotes?|means)\b|(?:this|that"
    r"|it) (?:(?:ex|in)cludes|makes (?:perfect )?sense|is because|works because|comes from)\b"
    r"|the (?:minus|plus|negative|positive)?\s?sign\b|we (?:divided?|multipl\w+|counted|used"
    r"|added) by\b|(?:for (?:example|instance)|e\.g\.),? (?:with|when|if|at|take|let|for"
    r"|\$?[a-z]\$? =)|(?:confidence|certainty|difficulty|rating|time)(?: \w+)?:|(?:das|dies"
    r"|diese\w*) schließ\w+ (?:\w+ )?|dabei (?:steht|ist)\b|hierbei\b|cela exclut|ici,"
    r"|esto excluye|aquí|isso exclui|aqui\b|questo esclude|qui\b|сюда не|здесь\b|これには|ここで"
    r"|여기에는|여기서|这不包括|这里的"
)
_DIGRESSES = (
    r"(?:by|for|in) (?:comparison|contrast|reference|context)\b(?! (?:with|to|the series)\b)"
    r"|as a (?:\w+ )?rule of thumb|fun fact|(?:quick |pro )?tip:"
    r"|side ?note|by the way|incidentally|as an aside|bonus:|p\.s\.|(?:zum|im) vergleich|übrigens"
    r"|nebenbei|tipp:|hinweis|anmerkung|bemerkung|à titre de|par comparaison|au passage|remarque"
    r"|à noter|d['’]ailleurs|por cierto|en comparación|observación|nota:|consejo:|aliás"
    r"|em comparação|para comparação|a propósito|observação|dica:|per (?:confronto|inciso)"
    r"|a proposito|tra l['’]altro|osservazione|для сравнения|кстати|замечание|примечание|заметим"
    r"|ちなみに|参考|なお|補足|참고로|덧붙|참고:|顺便|作为对比|作为比较|相比之下|另外|补充"
    r"|注[：:意]"
)
_OFFERS = (
    r"let me know|feel free|if you (?:\w+ ){0,2}?(?:like|want|wish|prefer|need|tell|give)\b"
    r"|just ask|(?:i|we) (?:can|could) also|happy to help|wenn (?:du|sie) (?:\w+ )?(?:möcht|will"
    r"|woll|wünsch)\w*|falls (?:du|sie)\b|gerne? (?:kann|rechne|zeige|erkläre)"
    r"|sag(?:en sie)? (?:mir |einfach )?bescheid|si (?:vous|tu) (?:le )?(?:vou|veu|souhait|désir"
    r"|préfér)\w*|n['’]hésite|si (?:lo )?(?:quier|dese|prefier)\w*|avísame|dime si"
    r"|se (?:você )?(?:quis|desej|prefer)\w*|se (?:lo )?(?:vuo|desider|prefer)\w*|fammi sapere"
    r"|если (?:вы |ты )?(?:хоти|хоче|нужно|желае)\w*|дайте знать|ご希望|必要(?:なら|であれば)"
    r"|よろしければ|원하(?:시면|면)|필요하(?:시면|면)|如果(?:你|您)?(?:需要|想|愿意)|(?:若"
    r"|如)(?:有)?需要?"
)
_ASKS_READER = (
    r"\b(?:you|your|shall i|should i|want (?:me|to)|soll ich|(?:möcht|willst)\w*|wollen sie|vous"
    r"|veux-tu|quier\w*|dese[ao]\w*|quer\b|gostaria|vuo[il]\w*|хотите|хочешь|нужно ли)\b"
    r"|ましょうか|드릴까요|드릴까|需要我|要不要|是否需要"
)
_HYPOTHETICAL = (
    r"\bwould(?:n't| not)?\b|['’]d (?:be|get|have|obtain|need|come)\b"
    r"|\b(?:wäre|hätte|käme|würde|könnte|ergäbe|bliebe|gäbe)\w{0,2}\b|\b\w{1,12}r(?:ait|aient"
    r"|ions|ía[ns]?|íamos|ebbe|ebbero|emmo|iam|íamos)\b"
    r"|\b(?:se|te|fica|da|have|leva|chega|custa|sobra|passa|paga|ganha)ria\b|\bharían?\b|\bбы\b"
    r"|だろう|でしょう|なっていた|것이다|것입니다"
    r"|었을|则会|就会|将是|会是|将会"
)
_SUBORDINATE = (
    r"^should\b|\b(?:if|had|were|with(?:out)?|counting|including|ignoring|instead|otherwise|unless"
    r"|other|then|for(?!\W*$)|by contrast|wenn|falls|hätten?|wären?|mit|ohne|für|sonst"
    r"|dagegen|hingegen|übrigens|si|sans|avec|sinon|pour|sin|con|para|sem|com|se|senza|per|если|без|при|для"
    r"|кстати)\b|もし"
    r"|なければ|なら|면|如果|若|假如|要是"
)
_OPENS = re.compile(rf"(?:{_CHECKS}|{_EXPLAINS}|{_DIGRESSES}|{_OFFERS})")
_DIGRESSES_OR_CHECKS = re.compile(
    rf"{_DIGRESSES}|{_CHECKS}|(?:and )?(?:indeed,?\s|(?:both|all)(?: \w+){{0,2}} (?:check|hold|work"
    r"|are satisfied)\b|which (?:\w+ )?(?:checks|verifies)\b)"
)
"""How a clause begins that only digresses from what stands before it, or checks it."""
_DIGRESSION = re.compile(rf"\W*(?:{_DIGRESSES}|{_OFFERS})|\s*\(")
_INSERTED = re.compile(
    r",\s(?:by (?:contrast|comparison|the way)|incidentally|for comparison|though not asked"
    r"|übrigens|hingegen|d['’]ailleurs|por cierto|aliás|tra l['’]altro|кстати|при этом)\b"
)
_ADDED = re.compile(
    r",\s(?:by the way|incidentally|for (?:reference|comparison)|übrigens|d['’]ailleurs|por cierto"
    r"|aliás|tra l['’]altro|кстати)[\s.!]*$"
    r"|^(?!.*\b(?:so|hence|thus|therefore)\b).*\b(?:approach|confirm|match|support|corroborat"
    r"|agree with"
    r"|back up|bestätig|confirma?|подтвержда)\w*\s(?:this|that|our|diesen|dieses|ce|cette|est[ea]"
    r"|это)"
    r"\s(?:value|result|answer|number|limit|wert|ergebnis|résultat|valeur|valor|resultado|значение)"
    r"\w*[\s.!]*$"
)
"""The end of a sentence that only adds to what was said, or agrees with it."""
_OFFERED = re.compile(_OFFERS)
_READER = re.compile(_ASKS_READER)
_MOOD = re.compile(_HYPOTHETICAL)
_UNDER = re.compile(_SUBORDINATE)
CONCLUDES = re.compile(
    r"(?:so|thus|hence|therefore|then|also|daher|somit|folglich|insgesamt|donc|ainsi|entonces|así"
    r"|por (?:lo )?tanto|luego|portanto|então|logo|quindi|dunque|perciò|значит|итак|поэтому"
    r"|следовательно|in total|in all|altogether|overall|따라서|그러므로)(?!\w)"
    r"|したがって|よって|ゆえに|所以|因此|故|于是"
)
_ENCLOSED = re.compile(r"\((?![A-J]\))(?:[A-ZÀ-ÞА-Я一-鿿぀-ヿ가-힣]|.*[.!?。]\)).*\)", re.DOTALL)


@lru_cache(maxsize=256)
def aside(sentence: str, *, conditional: bool = False) -> bool:
    """Return whether a sentence makes no claim about what is asked.

    Args:
        sentence: the sentence; in brackets if it stands in brackets.
        conditional: the question is in the conditional mood, so that its answer may be.
    """
    small = lowered(sentence).strip()
    bare = small.lstrip("([*_#>-–—¿¡ \n")
    if _TEMPTS.match(bare) or _AGREES.match(bare):
        return True
    supposed = not (conditional or CONCLUDES.match(bare)) and _supposes(bare)
    is_aside = (
        supposed
        or (small[:1] == "(" and _ENCLOSED.fullmatch(sentence.strip(" .\n")))
        or _OPENS.match(bare)
        or ((inserted := _INSERTED.search(bare)) and not _valued(bare[: inserted.start()]))
        or _OFFERED.search(bare)
        or _ADDED.search(bare)
        or (bare.endswith("?") and _READER.search(bare))
        or OWN_WORK.search(sentence)
    )
    if not is_aside or (supposed and _NOT_ASKED.search(small)):
        return bool(is_aside)
    return not (_reopens(small) or MAY_BE.match(bare))


def _reopens(text: str) -> bool:
    return (RETRACTION.search(text) or _CORRECTS.search(text)) is not None


def _supposes(sentence: str) -> bool:
    """Return whether a sentence supposes what it says, up to its last clause."""
    clauses = _CONTRASTED.split(sentence)
    last = clauses[-1]
    if any(map(_plainly_valued, clauses[:-1])):
        return False  # `It is 2.7; gold would be 19.3`
    if (
        len(clauses) > 1
        and _CLAIMS.search(last)
        and not (_MOOD.search(last) or _RULES.search(last))
    ):
        return _NOT_ASKED.search(sentence) is not None
    moods = (_MOOD.search(sentence), _UNDER.search(sentence))
    return all(moods) and _DRAWN.match(sentence) is None


_DRAWN = re.compile(
    r"(?!.*\b(?:if|had|with(?:out)?|unless|instead|otherwise|then|but)\b).*"
    r"\bwould (?:therefore|thus|hence)\b"
)
"""A conclusion in a polite mood: `This would therefore take 38 metres for the fence`."""


def _plainly_valued(clause: str) -> bool:
    """Return whether a clause says a value and supposes nothing."""
    return not (_MOOD.search(clause) or _UNDER.match(clause)) and NUMBER.search(clause) is not None


_NOT_ASKED = re.compile(r",\s(?:but|yet) (?:this|that|it)(?: is|'s) not (?:what|the case|so)\b")
_TEMPTS = re.compile(
    r"it(?:'s| is) (?:\w+ )?tempting\b|(?:one|you) (?:might|may|could) (?:be tempted|think)\b"
    r"|many (?:people|students)\b|(?:note:? )?(?:an? |the )?(?:common|typical|frequent"
    r"|usual) (?:mistake|error|pitfall|slip|trap|misconception)s?\b"
)
"""Words of a warning of what others would say."""
_AGREES = re.compile(
    r"(?:alternatively|equivalently|another way|an(?:other)? alternative|a second (?:way|method))\b"
    r".*\bthe same\b"
)
"""Another way to what the writer has found already."""
_CONTRASTED = re.compile(r";|,\s(?:but|aber|sondern|mais|pero|mas|ma|но|so)\b|,但")
_CLAIMS = re.compile(
    r"\b(?:here|it(?:'s| is| comes)|we (?:have|get)|there are|hier|ici|aquí?|qui|здесь|son|são"
    r"|sono|sind|est|is|are)\b.*[\d\w]|="
)
_RULES = re.compile(
    r"\b(?:is|are) (?:not )?(?:allowed|permitted|excluded|included|required|asked)\b"
)
_CORRECTS = re.compile(
    r"\b(?:correction|actually|edit|update|sorry|wait|oops|perhaps|maybe|possibly|alternatively"
    r"|either)\b|\b(?:i|we)(?: am| are|['’]m|['’]re) not (?:\w+ )?(?:sure|certain)\W*$"
)
"""Words of a remark that may hold the real answer, or open the question again."""


@lru_cache(maxsize=64)
def conditional(prompt: str) -> bool:
    """Return whether a question is in the conditional mood."""
    return _MOOD.search(lowered(prompt[-REACH_BACK:])) is not None


@lru_cache(maxsize=16)
def without_asides(body: str, prompt: str = "") -> str:
    """Return a text without the side remarks at its end, as long as a sentence with a value
    remains.
    """
    mood = conditional(prompt)
    kept = end = _without_paragraph(body)
    for _ in range(MAX_ASIDES):
        start = _last_start(body[:end])
        sentence = body[start:end]
        before = body[max(0, start - REACH_BACK) : start]
        if not before.strip():
            break
        if (_valued(sentence) or "**" in sentence) and not (
            _valued(before) or _DIGRESSION.match(lowered(sentence))
        ):
            break
        if (
            _TIMED.match(sentence)
            and _ASKS_TIME.search(prompt)
            and _CALCULATED.search(before.rstrip())
        ):
            break
        if aside(sentence, conditional=mood):
            kept = end = len(body[:start].rstrip())
        elif _comments(sentence):
            end = len(body[:start].rstrip())
        else:
            break
    kept = _conclusion_end(body, kept, prompt, mood=mood)
    body = body[:kept]
    start, end = closing_sentence(body)
    stop = claim_end(body, start, end, prompt, mood=mood)
    return body[:stop] if stop < end else body


_TIMED = re.compile(r"(?i)\W*(?:total )?time[*_]*:")
_CALCULATED = re.compile(
    r"(?i)(?:^|\n)(?!.*\b(?:is|are|needs?|takes?|so|hence|thus|therefore|answer)\b)[^\n]*=[^\n]*$"
)
"""A line that only calculates."""
_ASKS_TIME = re.compile(r"(?i)\b(?:time|how long|when|hours?|minutes?|seconds?)\b")
"""A question for what is a remark elsewhere: `Time: 5 minutes`."""


def _conclusion_end(body: str, end: int, prompt: str, *, mood: bool) -> int:
    """Return where the sentence ends that concludes a text, if all behind it are remarks because
    they conclude, correct and offer nothing and name nothing that is asked; else `end`.
    """
    asked = _asked(prompt)
    content = frozenset(asked)
    stop, supposed, operated = end, True, False
    for _ in range(MAX_DEFAULTS if asked else 0):
        start = _last_start(body[:stop])
        sentence = lowered(body[start:stop])
        if stop < end and _answers(body, start, stop, asked, supposed=supposed):
            return end if operated and not _CONCLUDED.search(sentence) else stop
        if _WORKS.search(sentence) or MAY_BE.match(sentence) or _reopens(sentence):
            break
        operated = operated or bool(_OPERATION.match(sentence) and not _OPERATIONS & content)
        is_bare = len(_WORD.findall(sentence)) < MIN_REMARK or bool(content & _content(sentence))
        is_supposed = not mood and _MOOD.search(sentence) is not None
        if is_bare and not is_supposed:
            break
        supposed = supposed and is_supposed and not is_bare
        stop = len(body[:start].rstrip())
    return end


def _answers(body: str, start: int, end: int, asked: list[str], *, supposed: bool) -> bool:
    """Return whether a sentence concludes with one value of what is asked (`So the speed is 60`,
    `Result: 60`, `This equals 60`, or `v = 120/2 = 60` in a line of its own).

    Args:
        body: the searched text.
        start: where the sentence begins.
        end: where it ends.
        asked: the content of the question.
        supposed: all that follows is supposed, so that any conclusion is the answer.
    """
    sentence = lowered(body[start:end]).strip(" \n*_#>-$")
    if concluded := _CONCLUDED.search(sentence):
        names = supposed or _named(asked, sentence) < len(asked)
        return names and 0 < len(NUMBER.findall(sentence, concluded.end())) < 3
    if label := _LABEL.match(sentence):
        names = _ANSWER.search(label[0]) is not None or _named(asked, label[0]) < len(asked)
        return names and _valued(sentence)
    if (
        _named(asked, sentence) == 0
        and len(NUMBER.findall(sentence)) < 3
        and _CLAIMED.search(sentence)
    ):
        return True
    return body[:start].rstrip(" ")[-1:] in ("", "\n") and _EQUATED.fullmatch(sentence) is not None


MAX_DEFAULTS = 3
"""How many sentences behind a conclusion may be remarks by default."""
MIN_REMARK = 3
"""The fewest words of such a remark: a value alone is none."""


@lru_cache(maxsize=64)
def _asked(prompt: str) -> list[str]:
    """Return the stems of the words that ask, in their order."""
    return _stems(asking(prompt) or (prompt if _TASK.match(prompt) else ""))


_TASK = re.compile(
    r"(?i)(?:simplify|evaluate|solve|convert|express|write|balance|factor|expand|differentiate"
    r"|integrate|round|multiply|divide|add|subtract)\b"
)


def _stems(text: str) -> list[str]:
    """Return the stems of the words of a text that say more than its grammar."""
    pieces = (word.removesuffix("s")[:5] for word in _PIECE.findall(text.lower()))
    return [stem for stem in dict.fromkeys(pieces) if stem not in _GRAMMAR]


def _content(text: str) -> frozenset[str]:
    return frozenset(_stems(text))


_WORD = re.compile(r"[^\W\d_]{2,}|[一-鿿぀-ヿ가-힣]")
_PIECE = re.compile(r"[^\W\d_]+/[^\W\d_]+|[一-鿿぀-ヿ가-힣]|[^\W\d_]{3,}")
_GRAMMAR = frozenset(
    word.removesuffix("s")
    for word in words(
        "the how many much what which and are was were has have had will can does did for with from"
        " that this there find who its one two you she his her our get let not all any out die der"
        " das den dem des und ist ein eine los las les por que una une del est con sur dans pour"
    )
)
_CONCLUDED = re.compile(
    rf"(?<!\w)(?:(?!then|luego|entonces|então){CONCLUDES.pattern}|i\.e\.|d\. ?h\.)"
    r"|\b(?:(?:we|you) (?:get|obtain|arrive at|end up (?:with|at)|are left with)"
    r"|on (?:obtient|trouve)"
    r"|wir (?:erhalten|bekommen)|(?:erhalten|bekommen) wir|obtenemos|llegamos a|chegamos a|obtemos"
    r"|otteniamo|arriviamo a|получаем|получим)\b"
)
_WORKS = re.compile(
    rf"(?<!\w){CONCLUDES.pattern}|\b(?:yet|but|however|my|our)\b|{_CONCLUDED.pattern}"
    r"|\*\*|[?=≈→⇒⟹]|\b(?:this|that|which) (?:means|leaves|gives|makes(?! (?:it|them) an? ))\b"
    r"|^\W*(?:\w+ ){0,2}(?:answer|result|total|value)s?\b|[:：][\s*$\\]*[-−(\[{]?\d[^:：]{0,40}$"
)
"""What a remark by default has not: words that conclude, a calculation, a stressed value."""
_OPERATION = re.compile(r"\W*(?:\w+ ){0,2}(?:sum|difference|product|quotient|remainder)s?\b")
_OPERATIONS = words("sum diffe produ quoti remai")
"""Nouns of what was worked out, unless the question asks for one of them."""
_LABEL = re.compile(r"(?:→|⇒|∴|(?:[^\W\d_]+ ){0,2}[^\W\d_]+\s?[:：])")
_ANSWER = re.compile(rf"[→⇒∴]|{'|'.join(f'{row.answer}|{row.result}' for row in LANGUAGES)}")
_CLAIMED = re.compile(
    r" (?:is|are|equals?|(?:comes|amounts) to|ist|sind|beträgt|est|sont|es|son|é|são|è|sono)"
    r"(?= [^\d]{0,20}[\d√π(\[][^ ]*(?: [^ ]+){0,4}$)(?!.* (?:if|when|not)\b)"
)
_EQUATED = re.compile(
    r"[^\W\d_]\w{0,3}\s?[=≈][^=≈]*\d[^=≈]*|(?!.*(?:[^\W\d_]{6}"
    r"|[,;]\s))[^=]+(?:[=→≈][^=→≈]*)+[=≈][^=≈]*\d[^=≈]*"
)


_MORE = (
    r"(?:less|more|fewer|greater|smaller|larger|weniger|mehr|kleiner|größer|moins|plus"
    r"|inférieur\w*|supérieur\w*|menos|más|menor|mayor|mais|maior|meno|più|minore|maggiore|меньше"
    r"|больше)"
)
_SIDE_CLAUSE = re.compile(
    r"(?:and )?(?:indeed|in particular|in fact|at (?:that|which) (?:time|point))\b(?!.*\b(?:so"
    r"|hence|thus)\b)|那时|此时|这时|その時|그때|after (?:that|this|which)\b|which (?:makes|gives"
    r"|is|leaves) [^,;]*\bif\b|(?:because|since|denn|weil|car|parce que|porque|perché|poiché|так"
    r" как|потому что)(?!\w)|(?:which|was|ce qui|lo que|o que|il che|что) (?:\w+ )?(?:explains?"
    r"|confirms?|shows?|match\w*|agrees?|vanish\w*|is (?:why|because|consistent|exactly what|due)"
    r"|erklärt|explique|explica|spiega|объясняет)\b"
    rf"|[^,;]*\b(?:{_MORE}(?: (?:than|als|que|de|di|à|a)\b|(?<=ше) (?=[\d$])))"
    r"|[^,;]*\b(?:below|above|under|beneath|within|unter|unterhalb|über|oberhalb|en dessous"
    r"|au-dessous|sous|por debajo|por encima|abaixo|acima|al di sotto|al di sopra|sotto|ниже"
    r"|выше) (?:\w+ )?[$\d]"
)
_SUBJECT = re.compile(
    r"(?:so|and|hence|thus|which (?:means|makes|gives)) (?:that )?(?:the |there (?:is|are"
    r"|remains?) )(?P<noun>[^\W\d_]+(?: [^\W\d_]+){0,3}?)(?= (?:[$\d−-]|is|are|has|have|was|were|of"
    r"|for|in|on|to|can|must|vanish\w*|exists?)\b)"
)
_GENERAL = re.compile(
    r"\b(?:answers?|values?|results?|numbers?|counts?|total|sum|difference|solutions?|integrals?"
    r"|antiderivatives?|derivatives?|limits?|products?|expressions?|only"
    r"|remaining|rest)\b"
)


def claim_end(body: str, start: int, end: int, prompt: str = "", *, mood: bool = True) -> int:
    """Return where a sentence ends without its side clauses, if a value stands before them.

    Args:
        body: the searched text.
        start: where the sentence begins.
        end: where it ends.
        prompt: the question.
        mood: the question is in the conditional mood, so that such a clause may answer it.
    """
    joints = list(_CLAUSE.finditer(body, start, end))
    end = _first_claim(body, start, end, prompt, joints)
    for joint in joints:  # `x = 16; for comparison, last year it was 17`
        behind = lowered(body[joint.end() : end])
        if _DIGRESSES_OR_CHECKS.match(behind) and _STATES.search(body, start, joint.start()):
            end = end if _CONCLUDED.search(behind) or _reopens(behind) else joint.start()
            break
    for joint in reversed([joint for joint in joints if joint.end() < end][-MAX_ASIDES:]):
        clause = lowered(body[joint.end() : end])
        is_side = _SIDE_CLAUSE.match(clause) or (
            not mood and _MOOD.search(clause) and (joint[0][0] == ";" or _UNDER.search(clause))
        )
        is_side = (
            is_side
            or (_ROUNDED.match(clause) and not ROUNDS.search(prompt))
            or _of_another(clause, body[start : joint.start()], prompt)
        )
        is_apart = joint[0][0] == ";" and NUMBER.search(body, start, joint.start())
        stated = is_apart or _STATES.search(body, start, joint.start())
        if not (is_side and stated) or _reopens(clause):
            break
        end = joint.start()
    return end


def _first_claim(body: str, start: int, end: int, prompt: str, joints: list[re.Match[str]]) -> int:
    """Return where the clause of a sentence ends that concludes with a value of what is asked, if
    all clauses behind it name nothing that is asked (`The number is therefore 63; reversed it is
    36`); else `end`.
    """
    asked = _asked(prompt) if joints and prompt else []
    for joint in joints if asked else ():
        before, behind = (
            lowered(body[a:b]) for a, b in ((start, joint.start()), (joint.end(), end))
        )
        named, other = (_named(asked, clause) for clause in (before, behind))
        concludes = _CONCLUDED.search(before) or (named == 0 and _CLAIMED.search(before))
        marked = bool(concludes) + (joint[0][0] == ";")
        if (
            named < other
            and (marked > 1 or (marked and other == len(asked)))
            and len(NUMBER.findall(before)) < 3
            and _STATES.search(before)
            and _BEGINS.match(behind)
            and not (_GOES_ON.search(behind) or MAY_BE.match(behind) or _reopens(behind))
        ):
            return joint.start()
    return end


def _named(asked: list[str], text: str) -> int:
    """Return which of the words of a question, of which the first says what is asked, a text names
    first; their number if it names none.
    """
    said = _content(text)
    return next((n for n, word in enumerate(asked) if word in said), len(asked))


_BEGINS = re.compile(r"[^\W\d_][^\d=$]*[^\W\d_]{4}[^\d=$]* ")
_GOES_ON = re.compile(
    rf"{_CONCLUDED.pattern}|\*\*|[?]|^which\b|\b(?:this|that) (?:means|leaves|gives|makes)\b"
    r"|(?<!ed )\b(?:this|it) (?:is|equals)\b|\b(?:total|answer|result|value|altogether)\b"
    r"|^(?:or|oder|ou|oppure|или)\b|\b(?:but|aber|sondern|mais|pero|mas|ma|но|not|nicht|no)\b"
)
"""Words of a clause that concludes, corrects or continues the one before."""


def _of_another(clause: str, before: str, prompt: str) -> bool:
    """Return whether a clause draws a consequence of which the question says nothing (`det = 22, so
    the matrix has rank 3`).
    """
    subject = _SUBJECT.match(clause) if prompt else None
    if subject is None or _GENERAL.search(subject["noun"]):
        return False
    stated = CONCLUDES.match(lowered(before).strip()) or "=" in before
    return bool(stated) and not _content(clause) & _content(prompt)


_ROUNDED = re.compile(
    r"(?:or |that(?: is|['’]s) |i\.e\. )?(?:approximately|about|roughly|around|ca\.|etwa|rund"
    r"|environ|circa|aproximadamente|примерно|около|≈|约|約)(?!\w)"
)
ROUNDS = re.compile(
    r"\b(?:round|approx|nearest|decimal|estimat|significant|about|rund|gerundet|näherung|arrondi"
    r"|environ|redonde|aproxim|arredond|approssim|округл|приблиз)|近似|四捨五入|保留|约|約|반올림",
    re.IGNORECASE,
)
"""Words of a question for a rounded value."""
_CLAUSE = re.compile(
    r"(?:(?:,|;|\s?—)\s+|,(?=[^\x00-\x7f]))(?:(?:es decir|ou seja|that is|i\.e\.|d\.h\.),?\s+)?"
)
_STATES = re.compile(r"[\d}π)$²³°%][^\d,;]{0,24}$")


def _without_paragraph(body: str) -> int:
    """Return where a text ends without what a question for a reason opens (`Why? ...`), or a last
    paragraph that a side remark opens, if no sentence of it concludes, corrects or offers another
    value.
    """
    end = len(body.rstrip())
    said = body[max(0, end - MAX_REASON) : end]
    asks = "?" in said or not said.isascii()
    asked = _REASON_ASKED.search(body, end - len(said), end) if asks else None
    start = asked.start() if asked else body.rfind("\n\n", max(0, end - MAX_PARAGRAPH), end)
    paragraph = lowered(body[start:end]).lstrip() if start > 0 else ""
    opening, *sentences = _SENTENCES.split(paragraph.lstrip("*_#>- ¿¡"))
    is_remark = asked or _OPENS.match(opening)
    if not sentences or not (is_remark or (opening.endswith("?") and _READER.search(opening))):
        return end
    claims = any(CONCLUDES.match(text) or MAY_BE.match(text) for text in sentences)
    if claims or _reopens(paragraph):
        return end
    return len(body[:start].rstrip()) if _valued(body[max(0, start - REACH_BACK) : start]) else end


_REASON_ASKED = re.compile(
    r"(?i)(?<![^.!?。\n*_#> ])[¿*_#> ]*(?:why|how (?:do|can) (?:we|you|i) (?:know|see|tell|be sure)"
    r"|(?:but )?where (?:does|do|is)\b[^.?\n]{1,40} (?:come )?from|warum|wieso|weshalb|woher"
    r"|pourquoi|d['’]où vien[nt]+|(?:por|de) (?:qué|dónde)|(?:por quê|de onde)|perché|da dove"
    r"|почему|откуда)\b[^.?\n]{0,60}\?|(?<![^.。\n ])(?:为什么|なぜ|왜)[^.?。？\n]{0,30}[?？。]"
)
"""A question for the reason of what was said before, which the writer answers."""
MAX_REASON = 1200
"""How many characters at the end of a text are searched for such a question."""
_SENTENCES = re.compile(r"(?<=[.!?])\s+|(?<=[。？！])")
MAX_PARAGRAPH = 600
"""The longest paragraph, in characters, that may be one side remark."""


def _last_start(body: str) -> int:
    """Return where the last sentence begins, or the brackets that end a text and hold sentences."""
    stop = len(body.rstrip(" .\n*_"))
    if body[stop - 1 : stop] == ")":
        depth = 0
        for place in range(stop - 1, max(-1, stop - REACH_BACK), -1):
            depth += {")": 1, "(": -1}.get(body[place], 0)
            if depth == 0:
                before = body[:place].rstrip(" *_")
                if (
                    _WORD.search(body, place, stop)
                    and (body[place - 1 : place].isspace() or before[-1:] == "。")
                    and (_ENDED.search(before[-4:]) or "\n" in body[len(before) : place])
                ):
                    return place
                break
    start = closing_sentence(body)[0]
    bracket = _BRACKET_ENDED.match(body, start)
    return bracket.end() if bracket else start


_ENDED = re.compile(r"(?<!\.\.)[.!?:。$]$|^$")
_BRACKET_ENDED = re.compile(r"\s*\([^()\n]*[.!?。]\)\s+(?=\w)")


def _valued(text: str) -> bool:
    return NUMBER.search(text) is not None or bool(formulas(text, 0, len(text)))


def _comments(sentence: str) -> bool:
    """Return whether a sentence may be the end of a side remark before it."""
    small = lowered(sentence).strip(" \n*_¡")
    is_short = len(small) < MAX_COMMENT and not re.search(r"[\d$\\]", small)
    return is_short and not CONCLUDES.match(small) and not _reopens(small)
