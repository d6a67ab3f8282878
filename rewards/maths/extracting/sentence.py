"""The closing sentence of a response, and whether a value in the sentence is denied, left open or
beside the point.
"""

from __future__ import annotations

import re

from ..reading.dates import DATE
from ..reading.locales import CLOCK
from ..reading.plain import formulas
from .candidate import Candidate, CandidateKind
from .phrases import BOUND, DENIED_BEHIND, DENIED_BY_VERB, MAY_BE
from .stance import related
from .surface import MAX_CLAUSE, clause_before, lowered

NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.,^])R\\?\$ ?\d{1,3}(?:\.?\d{3})*(?:,\d\d)?(?![\d.,]*\d)"
    r"|(?<![A-Za-z0-9_.,^])(?<![A-Za-z]/)[-+−]?(?:\\?[$£€]\s?)?[-+]?"
    r"(?:0(?:b[01]+|o[0-7]+|x[\da-fA-F]+)"
    r"|(?:(?<![\d.,] )\d{1,3}(?: \d{3})++(?! {0,3}\d)|\d+(?:,\d+|['’]\d{3})*)"
    r"(?:\.\d+(?:[eE][-+]?\d{1,3})?)?(?:/\d+|[¼-¾⅐-⅞])?"
    r"|\.\d+(?:[eE][-+]?\d{1,3})?(?:/\d+)?|[¼-¾⅐-⅞])(?:\s?%|\\%)?"
    r"(?:(?![A-Za-z0-9_])|(?=(?:st|nd|rd|th)(?:\s+(?:days?|weeks?"
    r"|months?|years?|hours?|minutes?|place|position|floor|time|try|attempt|throw|round)\b"
    r"|\W*$))|(?=h\d\d\b|(?:[kcm]?m|k?g|s|h|L|ft|in|mi)[²³]?(?!\w)))"
)
CALCULATED = re.compile(
    r"(?s)[\d)%]\s*[A-Za-z]*\s*=\s*(?P<value>[-−]?(?:\\?[$£€]\s?)?[-−]?"
    r"(?:(?<=[$£€])\d{1,3}(?: \d{3})+(?!\d)|\d(?:[\d,.]*\d)?+(?: \d{1,3}(?=/\d))?)(?:/\d+"
    r"|[¼-¾⅐-⅞])?%?)(?<![.,])(?![\d]*\s*[-+*/^x×·=])(?![^→]{0,12}→\s*[-−\d])(?!.*(?:따라서|所以|因此"
    r"|したがって|よって|,\s(?:so|donc|also|daher|alors|así que|por tanto|portanto|então|quindi"
    r"|dunque|значит|поэтому)\s).*\d)(?!.*(?:=|\b(?:is|are|was|were|gets?|has|have|leaves?|makes?|gives?"
    r"|rounds?|(?<=so )altogether|(?<=so )in total|ist|gleich|beträgt|sind|est|vaut|sont|es|son|é"
    r"|são|è|sono|vale|равн[аоы]?|равен)\b.*\d))(?![\d.]*\s?[,;][^.\d]{0,30}\d[\d.,]*\s?"
    r"(?:%|per ?cen|pour ?cent|por ?cient|por cento|[Pp]rozent|procent|процент))"
)
"""The result of the last calculation of a sentence: `140 - 60 = 80 more than ...`."""
POINT = re.compile(
    r"[(\[]\s*[-−]?\d[\d./]*(?:\s*[,;]\s*[-−]?\d[\d./]*)+\s*[)\]]"
    r"|(?<![\w.,/$])-?\d[\d./]*(?: [-+−×·] \d+(?:[./]\d+)*)+(?! ?[\w=])"
    r"|(?<![A-Za-z\d_:.])\d+(?:(?: : |:)\d+)+(?: ?[aApP]\.?[mM]\b| in the (?:morning|afternoon"
    r"|evening))?(?![A-Za-z\d_:])"
    rf"|{DATE}|{re.sub('[?]P<[a-z]+>', '?:', CLOCK.pattern)}"
    r"|(?<![\w.,:])\d{1,2} Uhr \d{2}(?!\w)"
    r"|(?<![\w.,/:])\d+ ?(?:h|heures?|Stunden?|horas?|or[ae]|час(?:а|ов)?) ?(?:(?:et|und|y|e|и) )?"
    r"\d+ ?(?:min\w*|Min\w*|мин\w*)\b|(?<![\w.,/:])\d{1,2} ?h ?\d\d(?![\w/])"
    r"|(?<![\w.,/])\d+ ?(?:weeks?|days?|hours?|hrs?|h|minutes?|mins?|years?|feet|foot|ft|pounds?"
    r"|lbs?),?(?: and)? \d+ ?(?:days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|s|months?|inche?s?"
    r"|ounces?|oz)\b|(?<![\w.,/])\d[\d.,]* (?:dollars?|[Ee]uros?|reais|рубл\w+|грив\w+),? "
    r"(?:(?:and|und|et|y|e|и) )?\d+ (?:[Cc]ents?|centimes|c[ée]nt[ai]vos|centesimi|коп[еі]\w+)\b"
    r"|(?<![\w.,/^])\d{1,4}(?: | and (?!\S+ (?:is|are|was|were|remain)))\d{1,3}/\d{1,4}(?![\w/])"
    r"|(?<=\bratio is )\d+ to \d+(?! ?[\w=])"
)
UNSURE = re.compile(
    r"(?i)\b(?:either(?![^.]*=[^.]*\bor\b[^.]*=[^.,;]*\.?\s*$)|maybe|perhaps|possibly|might|could "
    r"be|whether|not sure|unsure|(?<!in )between|depends|anything|would be\b.*\bif)\b"
)
"""Words of doubt: a sentence that has these and several values claims none of the values."""
_STEP_LEFT = (
    r"(?:\b(?:I|we)(?:['’](?:d|ll)| would| will)? still (?:have|need) (?:to|the|its|their)\b"
    r"|\b(?:it|what) remains (?:is )?to\b|\b(?:il (?:nous )?reste à|bleibt (?:nur |noch )+"
    r"|bleibt zu"
    r"|(?:wir|ich) müssen (?:\w+ )?noch|(?:nos )?(?:falta|queda)(?: por)?"
    r"|(?:ci )?resta (?:da )?(?=\w+r[e ])"
    r"|(?:осталось|остаётся|надо ещё) (?=\w+т[ьи]))|还(?:需要?|要)|あとは)"
    r"(?:[^.\d$=。]|\s(?:find|determine|compute|calculate|evaluate|simplify|check|verify|solve"
    r"|add)\b"
    r"(?:(?!\b(?:to (?:get|obtain|reach)|giving|gives?|get|which|so|for)\b)[^.;:→]"
    r"|\.(?=\d))*)*[.。…\s]*$"
)
"""Words that announce a step of the work with which a text stops."""
GIVEN_UP = re.compile(
    r"(?i)\b(?:do(?:n't| not) know|(?:can(?:'t|not)|could(?:n't| not)|unable to) (?:tell|say"
    r"|choose|pick|determine|decide|solve|find|answer|finish|be (?:determined|decided|found|solved"
    r"|answered))"
    r"|no idea|rather not|stuck(?! (?:in|on|at|to|with|behind)\b)|g[ai]ve up(?!\s*[\d$])|ran out"
    r"|impossible to (?:say|tell)|mentions?|cases to (?:consider|check)|guessed?"
    r"|needs?\b[^.;]*\bto (?:answer|decide|solve|tell)|(?:not|n't) "
    rf"(?:sure|certain|clear) (?:how|what))\b|{_STEP_LEFT}"
    r"|\bwould be\b[^;]*\bif\b(?!.*;)"
    r"|не (?:могу|можем|знаю) (?:выбрать|решить|определить|сказать)|kann (?:es |mich )?nicht "
    r"(?:entscheiden|sagen|bestimmen|wählen)|ne (?:peux|sais|parviens) pas (?:à )?(?:choisir"
    r"|décider|trancher|dire)|no (?:puedo|sé|logro) (?:elegir|decidir|decir)|non "
    r"(?:so|posso|riesco a) (?:scegliere|decidere|dire)|não (?:sei|consigo|posso) "
    r"(?:escolher|decidir|dizer)"
    r"|(?:无法|不能|没法)(?:决定|确定|判断|选择)|(?:決め|選べ|判断でき)(?:られ)?(?:ない|ません)"
    r"|(?:결정|판단|선택)할 수 없"
)
"""Words of giving up: a closing sentence that has these claims no number."""
_OTHERS_SAY = re.compile(r"(?i)\b(?:many|some|most) (?:people|students)\b")
OWN_WORK = re.compile(
    r"(?i)^\W*(?:(?:it|this|that|which)\s+)?(?:took|cost)\s+me\b|^\W*(?:give|allow|grant)\s+me\b"
    r"|^\W*i\s+(?:have\s+)?(?:used|spent|tried|wrote|written|took|taken|needed)\b[^.=]*\b(?:lines?"
    r"|steps?|approach(?:es)?|methods?|words?|attempts?|tries|ways|tokens|seconds|minutes|hours)\b"
    r"|\b\d+ ?% (?:sure|certain|confident)\b|^\W*(?:this|the) (?:problem|question|exercise"
    r"|task) (?:is|was|comes|came|appeared) (?:\w+ )?(?:from|in|on|by|at)\b"
)
"""A sentence about the writer's work or the source of the problem, which states no answer."""
DENIAL = re.compile(
    r"(?:\b(?:not|nobody|no one|isn't|aren't|never|nicht|kein\w*|pas|não|non(?!-)|не|neither|cannot"
    r"|nor|no(?! (?:doubt|other)\b)|rather than|instead of|exclud\w+|reject\w*"
    r"|rul(?:e[sd]?|ing) out|eliminat\w+|discard\w*|(?<!cannot be )(?:every|any)thing but"
    r"|any \w+ but|all but|except(?: for)?|wrong|incorrect|impossible|mistake|pitfall|tempt\w*"
    r"|differs? from|(?<!none )other than|unequal to)|n't)\b[^;\n]*?(?=\b(?:but|mais|sondern|sino"
    r"|ma|which|so|hence|thus|therefore)\b|(?<=\d)\s+(?:it's|it\s+is)\b|[,.:](?!\d)|[;\n→⇒∴]|$)"
    r"|(?:不是"
    r"|不等于|不可能|并非|不为)[^,。;\n]*|^\s*(?:if|si|wenn|falls|se|если)\b[^,.;\n]*"
    r"|^\s*(?:如果|若|もし"
    r"|만약)[^,.;\n]*",
    re.IGNORECASE,
)
"""Words that deny the rest of their clause."""
# `more than 5`, `at most 5`: a bound, not a value.
_BOUNDED = re.compile(
    r"\b(?:(?:more|less|(?!oth|rath)\w+er) than"
    rf"|{BOUND}|(?<!add )(?<!adds )(?<!sum )up to|under|over|above|below|exceeds?|roughly)[ *$]*$"
)
_DATE = re.compile(DATE)
_DATE_BESIDE = re.compile(
    r"\b(?:before|after|since|until|from|than|vor(?: dem)?|nach(?: dem)?|seit(?: dem)?|ab(?: dem)?"
    r"|bis(?: zum)?|avant|après|depuis|dès|antes (?:de|del|do)|después del?|depois de|desde|dopo"
    r"|prima del?|dal|до|после|с)(?: the| le| el| l['’]| il)?\s*$"
)
# `Step 3`, `Figure 2`: the number names a part of the text.
_LABEL = re.compile(
    r"\b(?:step|case|part|question|problem|exercise|figure|table|equation|chapter|section|example"
    r"|line|theorem|lemma|rule|in base)s?\s*[#($]?$"
)
# `for 50 minutes`, `5 of the`: a number behind a preposition is beside the point.
_GOVERNED = re.compile(
    r"(?:(?<![A-Za-zα-ω] )≈|~|\b(?:about|approximately|approx\.?|roughly)"
    r"|\d\s+\w+s of)\s*[ *$]*$|\b(?:for|in|on"
    r"|per|after|before|every|each|within|during|over|with|than|on top of|apart from|besides"
    r"|except(?: for)?|out of|of the|of these|of those|because|since|from|to [a-z]+|en|dans|pour"
    r"|par|avec|für|mit|aus|nach|por|para|con|com|em|за|в|на|из|для)(?: (?:the|these|those|all|her"
    r"|his|their|its|your|our|only|about|each|every|first|last|next|other|remaining))*[ *$]*$"
    r"|\b(?:over|within|during|across|in) (?:an?"
    r"|the) (?:\w+ )?(?:distance|period|span|course|time|duration|interval|space|stretch) of[ *$]*$"
)
# `to be 5`, `to get 5`: here the preposition does introduce the value.
_VALUE_VERB = re.compile(
    r"\bto (?:be|about|exactly|approximately|get|obtain|make|give|yield|roughly|equal)[ *$]*$"
    r"|\b(?:left|ends? up|remains?) with[ *$]*$"
)
_ASIDE = re.compile(
    r"(?i)\b(?:(?<!\bat )(?<!\bin )(?<!\bfor )(?<!\bon )(?<!\bfrom )"
    r"which(?!\s+(?:comes|gives|makes|equals|totals"
    r"|amounts|adds|sums|means|shows|leaves|yields|implies|simplifies|reduces|evaluates|forces"
    r"|rounds))"
    r"|where|whose|when|while|although|though|if|since|because|as long as|working|using|having"
    r"|assuming|attained|reached|achieved|taken (?:at|when|for)|twice|half|(?:von|unter) denen"
    r"|dont|de l[oa]s (?:cuales"
    r"|que)|d[ao]s quais|(?:di|tra) cui|из (?:них|которых))\b(?:(?!\b(?:therefore|thus"
    r"|hence)\b)[^,;])*|\bi\.e\.[^;,]*"
    r"|,\s+(?:bringing|raising|lifting|lowering|pushing|dropping|reducing|increasing"
    r"|so that|compared)\b[^;]*|,\s+(?:and|while"
    r"|but)\s+(?:her|his|its|their|the(?!\s+(?:\w*(?:est|most)|sum|result|total"
    r"|answer)\b))\s+\w+\s+(?:is|are|was|has"
    r"|have)\b[^,;]*"
)
"""A clause beside the main clause."""
# A closing remark in brackets, which is not the closing sentence.
# A bracket that a formula ends in is none: `6(x - 3)`, `V = (1; 4)`, `3 (mod 5)`.
_REMARK = re.compile(
    r"(?<![A-Za-z0-9)\]^\\])(?<![-=<>≤≥≡∈+−·×*/^])(?<![-=<>≤≥≡∈+−·×*/^]\s)\((?!mod\b|[A-J1-9]\))[^()\n]{1,150}\)"
    r"[\s.!]*+$"
)


# A remark with such words may hold the real answer, and is kept.
_CORRECTS = re.compile(r"(?i)\b(?:correction|should|actually|edit|update)\b")
# `4 of which`, `3 older than`: the number counts a part or a difference.
_OF_THEM = re.compile(
    r"\s+(?:more|less|fewer|older|younger|higher|lower|longer|shorter)(?:\s+\w+)?\s+than\b"
    r"|\s+(?:\w+\s+)?(?:of (?:which|whom|them|these|those)\b|davon\b|dont\b|из них\b)"
)

_ALL_OF_THEM = re.compile(r"\b(?:makes?|there are|that is|that's)\s$")


_DONE = re.compile(r"(?:\$*\\(?:blacksquare|square|qed|Box)|[∎□■▢◼]|\bQ\.?E\.?D\b)[\s$.*]*$")
"""The sign behind a proof."""


def closing_sentence(body: str) -> tuple[int, int]:
    """Return (start, end) of the last sentence, without a trailing remark in brackets."""
    end = len(body.rstrip())
    tail = body[max(0, end - 24) : end]
    plain = tail.isascii() and "\\" not in tail and "D" not in tail
    done = None if plain else _DONE.search(body, max(0, end - 24), end)
    end = (len(body[: done.start()].rstrip()) or end) if done else end
    bracketed = ")" in body[max(0, end - 16) : end]
    remark = _REMARK.search(body, max(0, end - 180), end) if bracketed else None
    if remark and not (
        _CORRECTS.search(remark[0])
        or POINT.match(body, remark.start())
        or _is_factor(body, remark.start(), remark.end())
    ):
        line = body[max(0, remark.start() - 200) : remark.start()].rpartition("\n")[2]
        end = remark.start() if any(map(str.isdigit, line)) else end
    base = max(0, end - 400)
    last = base + len(body[base:end].rstrip(" .!?。\n*_`✓✔✅\ufe0f"))
    return last - len(clause_before(body, last)), end


def _is_factor(body: str, start: int, end: int) -> bool:
    """Return whether a bracket is a factor of the formula before it: `cos x (4 cos² x - 3)`."""
    stop = body.rindex(")", start, end)
    if not _SUM.fullmatch(body, start + 1, stop):
        return False
    return any(
        begin < start < stop < last for begin, last in formulas(body, max(0, start - 40), end)
    )


_SUM = re.compile(r"(?=[^()]*[^\W\d_])[^()=<>≈,;]+ [-+−] [^()=<>≈,;]+")


def unanswered(body: str, start: int, end: int) -> Candidate | None:
    """Return a void candidate when the closing sentence asks, gives up or leaves the answer open,
    else None.
    """
    sentence = body[start:end]
    reason = ""
    if sentence.rstrip("*_ \n").endswith("?"):
        reason = "the response ends with a question"
    elif sentence.rstrip("*_ \n").endswith(":"):
        reason = "the response stops before its answer"
    elif (
        _OTHERS_SAY.search(sentence)
        or GIVEN_UP.search(sentence)
        or (
            (_REFUSES.match(body) or len(body) < MAX_CLAUSE)
            and GIVEN_UP.search(body, 0, MAX_CLAUSE)
            and not _GOES_ON.search(sentence)
        )
    ):
        reason = "the response gives up"
    elif MAY_BE.match(lowered(sentence)) and not _LAST_CLAUSE.search(sentence):
        reason = "the closing sentence only offers a value"
    elif OWN_WORK.search(sentence):
        reason = "the closing sentence is about the writer's work"
    elif CASES.search(body, max(0, start - 120, end - CASES_REACH), end):
        reason = "each value holds only in one case"
    elif _COUNTERFACTUAL.search(sentence):
        reason = "the closing sentence only supposes a value"
    elif CALCULATED.search(sentence) or _STATED_LAST.search(sentence):
        pass
    elif UNSURE.search(last_clause := _LAST_CLAUSE.split(sentence)[-1]) and (
        sum(1 for _ in NUMBER.finditer(last_clause)) > 1
    ):
        reason = "the closing sentence leaves several values open"
    return (
        Candidate(CandidateKind.NUMBER, "", start, end, start, end, void=reason) if reason else None
    )


_REFUSES = re.compile(
    r"(?i)\W*(?:(?:I['’]m |I am )?(?:sorry|afraid|unfortunately),? (?:but )?)?"
    r"I(?:['’]m| am| do| could| can)?(?: ?n['’]t| ?not|['’]t| unable)\b"
)
_GOES_ON = re.compile(r"(?i)\b(?:so|hence|thus|therefore),? (?!I\b|you\b)[^.]*\d")
# `It lies between 41 and 43, so it is 42`: the last clause says what the others leave open.
_LAST_CLAUSE = re.compile(r",\s+(?=(?:so|but|hence|thus|therefore|the|it|which|we)\b[^,]*\d)")
# `Were zero included, we would have 11`: the verb before its subject supposes.
_COUNTERFACTUAL = re.compile(r"(?i)^\W*(?:were|had)\s[^.;]*\bwould\b(?!.*[;.]\s)")
_AT_MOST_CAN = re.compile(
    r"\b(?:can|could|may|needs?|will|must|should|requires?)\s+(?:\w+\s+){0,2}(?:at (?:least|most)"
    r"|up to)[ *$]*$"
)

# `the representative between 0 and 12 is **8**`
_STATED_LAST = re.compile(
    r"(?is)^(?!.*\b(?:either|maybe|perhaps|possibly|might|could|whether|not|unsure|depends|guess"
    r"|exclud\w+|would)"
    r"\b).*\b(?:is|are|equals) \*\*[^*\n]{1,40}\*\*[.!]?\s*$"
)

_WHEN = r"(?:if|when|wenn|falls|si|se|если)"
CASES = re.compile(
    rf"(?i)(?:^|[.;,:\n]|\b(?:but|and)\s)\s*+{_WHEN}\b(?=[^.\n]{{0,90}}\d)[^.;\n]{{3,90}}[;.,]\s*"
    rf"(?:(?:and|but|while|whereas|et|und|y|e|а|но)\s+)?(?:{_WHEN}|otherwise|else|sonst|sinon"
    rf"|иначе)"
    rf"\b[^.;\n]{{0,60}}\d[^.;\n]{{0,20}}\.?\s*\Z"
)
"""`If order matters it is 72; if not, 36.`: two cases of which the writer chooses none.

They end the response, so that it is searched from `CASES_REACH` characters before the end.
"""
CASES_REACH = 320


def denied(body: str, start: int, end: int, place: int, stop: int) -> bool:
    """Return whether the sentence from `start` to `end` denies, or only bounds, the value at
    `place`.
    """
    if place < start:
        return False
    before = body[max(start, place - 60) : place].lower()
    if _BOUNDED.search(before) and not _AT_MOST_CAN.search(before):
        return True
    if related(body[max(start, place - 120) : place]):
        return True
    if _DATE_BESIDE.search(before) and _DATE.match(body, place):
        return True
    ranges = _RANGE_BEFORE.search(before) or (
        _RANGE_BEHIND.match(body, stop) and not PRECISION.match(body, stop + 1)
    )
    if ranges and "ratio is " not in before:
        return True
    if DENIED_BY_VERB.match(body, stop, min(end, stop + 60)) or (
        not body.isascii() and DENIED_BEHIND.match(body[stop : stop + 12])
    ):
        return True
    sentence = body[start:end]
    return any(
        denial.start() <= place - start < denial.end()
        and not (
            _EVENT.search(sentence, 0, denial.start())
            and _OF_EVENT.fullmatch(sentence, denial.start(), place - start)
        )
        for denial in DENIAL.finditer(sentence)
    )


# `the probability that it does not rain is 0.65`: the denial belongs to the event.
_EVENT = re.compile(
    r"(?i)\b(?:probability|chances?|likelihood|numbers?|proportion|fraction|percentage|share"
    r"|ways)\b"
    r"\b[^.;:\n]*\b(?:that|which|who|of|where|with)\b[^.;:\n]*$"
)
_OF_EVENT = re.compile(
    r"(?!not (?:is|are)\b)[^.;:\n]*\s(?:is|are|equals|was)\s+(?:\w+ly )?[*$\\(]*"
)


def labels(body: str, place: int) -> bool:
    """Return whether the number at `place` is a label, as in `Step 3`, or numbers a line."""
    before = body[max(0, place - 16) : place]
    number = _NUMBERING.match(body, place)
    if number and not before.rpartition("\n")[2].strip("*#> -"):
        above = rf"(?m)^[*#> -]{{0,9}}{int(number[1]) - 1}[.)]\s"
        return number[1] == "1" or re.search(above, body[max(0, place - 1500) : place]) is not None
    precision = PRECISION.search(body, max(0, place - 16))
    return _LABEL.search(before.lower()) is not None or (
        precision is not None and precision.start("digits") == place
    )


PRECISION = re.compile(
    r"(?i)(?:\b(?:to|with|auf|à|avec|a|con|com|до|с)"
    r"|保留到?)\s*[*$]*(?P<digits>\d{1,2})(?:[ -](?:decimals?"
    r"|d\.?p\b|s\.?f\b|sig\w*[. ]+(?:fig|digit)|dezimal|nachkomma|décimales|chiffres|decimales"
    r"|cifras|casas decimais|cifre|знак)\w*(?: places?)?|\s?(?:位小数|位有效数字))"
)
"""How many digits a value has: `to 2 decimal places`."""
_NUMBERING = re.compile(r"(\d{1,2})[.)]\s+[^\W\d_]")


_RANGE_BEFORE = re.compile(r"\d\s+to\s+$")
_RANGE_BEHIND = re.compile(r"\s+to\s+\d|\?")


# `1 out of 3, i.e. 1/3`: a bare value behind `i.e.` that ends the text is the value itself.
# `We only need to find the remainder, which is $1$`: the clause gives what was sought.
_RESTATED = re.compile(
    r"(?:\bi\.e\.,?(?: in \w+)?|\b(?:find|seek|want|look(?:ing)? for|compute"
    r"|determine)\b[^.;]*\bwhich is)"
    r"\s+[$*(\\]*$"
)
_COUNTS_OTHERS = re.compile(
    r"\b(?:left|remain\w*|not|instead|rather|without|of the|from the|original\w*|than|except|half"
    r"|twice|below|above|divisor|subtract\w*|exceed\w*|exclud\w*|cannot|must|never|counting)\b"
)
# `$9 \\times 10$, which is 90 palindromes`: the clause works the formula out.
_WORKED_OUT = re.compile(
    r"(?:[-+*/!^]|\\(?:times|cdot|binom|div)(?![a-z]))(?:[^$A-Za-z=]|\\(?:times|cdot|binom|div"
    r"|[dt]?frac|left|right)(?![a-z]))*\$\s?,?\s+which (?:is|equals|gives|makes)\s+[$*(\\]*$"
)
_SPOKEN_ON = re.compile(r",? (?:which is|i\.e\.,?|that is,?)\s+[$*(\\]*$")
_TO_WORK_OUT = re.compile(r"[^\d,;:]*+\d[^/×·*÷+−^,;:]*+[/×·*÷+−^][^\d,;:]*+\d[^,;:]*+$")
_COMPOUND = re.compile(r"(?:(?<![\w_])\d|[-+*/^·×]\s?)\w{0,12}\s*$")
_COMPARED = re.compile(
    r"\s?%|[^.;\n]{0,30}\b(?:times|per ?cent|more|less|fewer|as|[a-z]+er than)\b"
)
_NOTHING = re.compile(r"[^\w\n]*(?:\n|$)")
# `$f(x) = \\frac{1}{x - 2}$, provided $x \\ne 2$`: the points that an equation leaves out.
_EXCLUDES = re.compile(r"\s*[a-z]\s*(?:\\neq?(?![a-z])|≠|!=)")
_EQUATED = re.compile(
    r"(?:=|\\[dt]?frac(?![a-z])|/)[^$=;]+\$?\s?,?\s+\(?(?:(?:provided|as long as|so long as"
    r"|assuming|where|with|for|if|when|and)"
    r"(?: that)?\s+)?(?:all\s+)?[$(]*$"
)


def _spoken_on(before: str, behind: str) -> bool:
    """Return whether a clause works out the chain before it, of one name and without marks: `R =
    V / I = 12 V / 0.5 A, which is 24 ohms`.
    """
    link = _SPOKEN_ON.search(before)
    name, *sides = before[: link.start()].split("=") if link else [""]
    is_worked = bool(sides) and _TO_WORK_OUT.match(sides[-1]) is not None
    return is_worked and not (_COMPOUND.search(name) or _COMPARED.match(behind))


def governed(body: str, start: int, place: int, stop: int) -> bool:
    """Return whether the value from `place` to `stop` is beside the point of the sentence that
    begins at `start`.

    Such a value follows a preposition, stands in a side clause, or counts a part (`4 of which`).
    """
    part = _OF_THEM.match(body, stop) and not _ALL_OF_THEM.search(body, start, place)
    if part or body[place - 1 : place] == "(":
        return True
    if _EXCLUDES.match(body, place, stop) and _EQUATED.search(body, start, place):
        return True
    worked = _WORKED_OUT.search(body, start, place) or _spoken_on(body[start:place], body[stop:])
    if worked and not _COUNTS_OTHERS.search(body, start, place):
        return False
    if _RESTATED.search(body, start, place) and _NOTHING.match(body, stop):
        return False
    if any(aside.end() > place for aside in _ASIDE.finditer(body, start, place + 1)):
        return True
    before = body[max(start, place - 40) : place].lower()
    return _GOVERNED.search(before) is not None and _VALUE_VERB.search(before) is None
