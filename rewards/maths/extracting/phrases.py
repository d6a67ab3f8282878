"""Words of several languages that deny, join, check or take back answers: data without logic. Those
that announce one are in `languages`. Most are for texts in small letters, which are searched three
times as fast as if the case were ignored.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..reading.vocabulary import words

DETERMINERS = re.compile(
    r"(?:(?<!\w)(?:the|our|my|its|a|an|final|correct|right|best|only|overall|exact|required"
    r"|desired|true|actual|numerical|la|le|les|bonne|notre|die|das|der|endgültige|finale|richtige"
    r"|korrekte|el|o|il|окончательный|правильный|верный|итоговый)(?!\w)|正しい|正確な|最終的な"
    r"|最终|最終|最后|最後"
    r"|正确|正確|최종|올바른|[#*_>\s])++$"
)
"""Articles and adjectives before the noun, which belong to the statement."""

DENIED = re.compile(
    r"\b(?:not|never|cannot|neither|nor|no longer|hardly|unlikely|anything (?:but|except)"
    r"|everything (?:but|except)|nothing like|different from|far from|other than|close to|nearly"
    r"|almost|unlike|nicht|kein\w*|nie|jamais|ne|n'est|no(?=\s+(?:es|son))|não|non(?!-)|нет"
    r"|не)\b|n't\b"
    r"|(?<=答案)不|不是|不为",
    re.IGNORECASE,
)
"""Words between noun and value that deny the value."""
DENIED_BEHIND = re.compile(
    r"^.{0,40}?\b(?:değil|błędn\w+|yanlış|salah|bukan|niet|inte|ikke)\b"
    r"|^.{0,40}?(?:では|じゃ)(?:ない|なく|ありません)|^.{0,40}?아니|^.{0,40}?아닙"
)
"""Denials that follow the value."""
ATTRIBUTED = re.compile(
    r"(?i)(?:^|[\s,(])(?!(?:oxidation|excited|ground|quantum|bound|steady|energy|final|initial|spin"
    r"|transition|possible|stationary|valence|electronic|in|the|of)\s+states?\b)"
    r"([\w'-]+)\s+(?:(?:might|would|could|may|will|had|has|have|did|do(?:es)?(?:n't)?"
    r"|also|often|wrongly|already|first)\s+){0,2}(?:claim(?:s|ed)?|sa(?:y|ys|id)|state[sd]?"
    r"|think(?:s)?|thought|believe[sd]?|guess(?:es|ed)?|argue[sd]?|suggest(?:s|ed)?|ask(?:s|ed)?"
    r"|tell(?:s)?|told(?: \w+)?|assert(?:s|ed)?|insist(?:s|ed)?|wrote|writes|reads)"
    r"(?:,|:|\s+that)?\s*[\"“]?$"
)
"""Words directly before a statement that somebody else makes; group 1 is the speaker."""
# `I think the answer is 5` has the form of `ATTRIBUTED`, and is still the writer's own claim.
SPEAKERS = words(
    "i we i'd we'd i'll we'll can let me my our could this that which it not theorem formula rule"
    " identity law lemma computation calculation definition equation inequality test"
)

_COPULA = (
    r"(?:(?:(?:is|was|are|were|seem|looks?|appear|turn)(?:s|ed)?(?: out)?|(?:has|have|had|must"
    r"|will|would|might|may)(?: to)?)(?: to)?(?: be)?\s+|'s\s+)"
)
_NOT = (
    r"(?:(?:is|are|was|were|do(?:es)?|did|has|have|can|could|will|would|should|must)(?:n't| not"
    r"| never| hardly| no longer)|cannot|can't|won't|(?:seem|look|appear)s? not|never)"
)
_GOOD = (
    r"(?:right|correct|true|valid|possible|acceptable|accurate|allowed|admissible|permitted"
    r"|feasible|consistent|enough|work|satisfy|satisfied|fit|hold|match|add up|make sense|agree"
    r"|be(?=\W*[.,;\n]|\W*$)|it(?=\W*[.,;\n]|\W*$))\b"
)
_ANSWER = (
    r"(?:what (?:was|we|is|the|i)|(?:the|my|our|an?) (?:(?:final|correct|right|actual|intended"
    r"|required|valid|real|true) )?(?:answer|solution|result|value|option|choice))\b"
)
_BAD = (
    r"(?:wrong|incorrect|false|impossible|invalid|absurd|inconsistent|inadmissible|excluded"
    r"|ruled out|eliminated|rejected|unacceptable|mistaken|flawed|unfounded|useless|off\b"
    r"|nonsens\w+|contradictory|something else|tempting|extraneous|spurious|the (?:\w+ )?(?:wrong"
    r"|trap|naive|incorrect|false|extraneous|spurious)|too \w+|off by|(?:only|merely"
    r"|just) (?:the first|an? (?:first|partial|intermediate|guess))"
    r"|(?:an? )?(?:\w+ )?(?:contradiction|mistake|error|slip|trap|guess|miscalculation|red herring"
    r"|overcount|undercount)|an? (?:upper|lower|rough) (?:bound|estimate))\b"
)
_FAILS = (
    r"(?:fail(?:s|ed)?|contradict(?:s|ed)|violate[sd]?|(?:over|under|mis|double[- ]?)count(?:s|ed)"
    r"|miss(?:es|ed)|ignore[sd]|neglect(?:s|ed)|overlook(?:s|ed)|omit(?:s|ted)|forgets|forgot"
    r"|breaks|leaves out|left out|leads to an? contradiction|count(?:s|ed)\b[^.\n]{0,30}\btwice)\b"
)
_ADVERB = r"(?:(?:\w+ly|also|still|just|then|of course|in fact|again)\s+)?"
REFUTES = (
    rf"(?:{_NOT}(?=\s*[.!;\n]|\s*$)|{_NOT}\s+(?:\w+\s+){{0,3}}?{_GOOD}"
    rf"|{_NOT}\s+(?:be |\w+ly )?{_ANSWER}"
    r"|(?:must|should|ha[sd] to|can|will|is to|are to) be (?:\w+ly )?(?:discard|reject|exclud"
    r"|eliminat|ignor|dismiss|dropp)\w*|remains? (?:to be|open|unproven|unclear)"
    r"|(?:gives?|yields?|produces?) an? contradiction|(?:seem|look)s? \w+,? but\b"
    rf"|{_COPULA}{_ADVERB}{_BAD}|{_ADVERB}{_FAILS})"
)
"""A predicate that says of its subject that it is not the answer."""


RELATED = re.compile(
    r"\b(?:(?:(?:multiple|divisor|factor|successor|predecessor|negation|negative|opposite"
    r"|reciprocal"
    r"|inverse|square|cube|root|double|half|power|complement|short|fewer|shy|digits?) (?:of|than)"
    r"|(?:(?<!cannot be )anything but|divides|(?:co|relatively )prime (?:to|with)|(?:bounded"
    r"|divisible|limited) (?:\w+ )?by|(?:start|begin)s? with|ends? (?:in|with)|(?:clos|near)e(?:r"
    r"|st) to|(?:subtract|add(?! up\b)|take|remove)\b[^.,;]{1,20}(?:from|to)|(?:see|on) (?:page"
    r"|line|figure)|twice|thrice|double|triple|halve|square|negate|as \w+ as(?: the| an?)?"
    r"|(?:supplementary|complementary|proportional|adjacent"
    r"|congruent) to))[^\w:]{0,3}(?:[a-z]\s*=\s*)?"
    r"|(?:(?:careless|naive|hasty|sloppy|wrong|incorrect|extraneous|spurious|rejected|discarded"
    r"|invalid|previous) (?!and\b|but\b|so\b)\w+\b(?! (?:was|is) not)|(?:might|would|could"
    r"|may)(?: \w+ly)? (?:answer|say|guess|expect|claim|think|believe|suspect|conclude)\b"
    r"|(?:cannot|can't|can not|unable to|refuse to|fail to|hesitate to) (?:confirm|answer|say|prove"
    r"|show|establish|support|accept|recommend)\b|hardly\b|an? (?:upper|lower|rough|crude)"
    r" (?:bound|estimate)\b)[^.,;:]*)$"
    r"|^\W*(?:(?:(?:but|here|now|so),? )?(?:an?|one|another|the) (?:\w+ ){0,3}(?:mistake|error"
    r"|pitfall|trap|misconception|fallacy)\b[^.,;:]*|(?:according to (?:\w+ )?(?:book|textbook|key"
    r"|friend|internet|forum|legend)|rumou?r|whether|but for|except for|should"
    r"|nothing (?!but|else|other))\b[^.;:]*)$"
)
"""Words before a value that relate the answer to it, or leave the claim to somebody else."""
CONTRAST = re.compile(r",\s+(?:but|yet|however|whereas|while|sondern|aber|mais|pero|mas|ma)\b")
"""What a clause of contrast leaves behind: words before it say nothing of the value after it."""
_SAME_CLAUSE = (
    r"(?!(?:and|as|because|but|if|since|so|that|when|where|whereas|which|while)\b|\d)\w+ "
)
"""A word behind a value that begins no clause on another value."""
DENIED_BY_VERB = re.compile(
    r"(?:[ *$)\]\\]|\n(?!\n)){0,6}(?:(?:ist|est|es|è|é) (?:\w+ )?(?:nicht|pas|falsch|fau(?:x|sse)"
    r"|falsa?|incorrect[oae]?|sbagliat[oa]|errad[oa])\b|(?:—|-)?\s?неверн|(?:\w+\s+)?(?:is|was|are"
    r"|were|would be|seems|has|have)\s+not\b|(?:isn't|aren't|does(?:n't| not))\b"
    rf"|(?:{_SAME_CLAUSE}){{0,3}}(?:would|will|do|does) not (?:suffice|be enough|fit|work)\b"
    rf"|(?:of them )?(?:(?:{_SAME_CLAUSE}){{0,4}}(?:is|are|would be) (?:far |much |still )?)?too"
    r" (?:many|few|much|little|large|small|big|high|low)\b"
    rf"|(?:\w+\s+)?{REFUTES})",
    re.IGNORECASE,
)
"""Words behind a value that deny the value."""


class StancePhrases(NamedTuple):
    """The words with which a sentence takes one stance towards a value, in all languages."""

    stance: str
    """The member of `Stance` that the words mean."""
    side: str
    """Where the words stand: `before` the value, at the start of its `clause`, or `behind`."""
    words: re.Pattern[str]
    marked: bool | None = None
    """Whether the row is for formal marks only (True), for announcements only (False), or both."""
    whole: bool = False
    """Whether articles and adjectives before the noun belong to the searched text."""


def _row(head: str, words: str) -> StancePhrases:
    """Return a row by its head: the stance, the side, and `marked`, `announced` or `whole`."""
    stance, side, *limits = head.split()
    marked = True if "marked" in limits else False if "announced" in limits else None
    return StancePhrases(stance, side, re.compile(words), marked, "whole" in limits)


COMMENTS = re.compile(
    r"\b(?:check\w*|consistent|match\w*|satisf\w+|works|fits|holds|reasonable|makes sense|sides?"
    r"|lhs|rhs|as (?:before|expected|claimed|required)|instead|would|if|because|since)\b|代入"
    r"|जाँच|सत्याप"
)
"""Words anywhere in a sentence behind a mark that make it a comment on the answer."""
STANCES = (
    _row(
        "ANOTHER before announced whole",
        r"\b(?:incorrect|wrong|false|impossible|invalid|bad|naive|common|frequent|typical"
        r"|tempting|previous|old|rejected"
        r"|eliminated|(?:friend|teacher|textbook|book|student|neighbou?r|key)(?:'s|s')|another"
        r"|many|some|other)\s*$",
    ),
    _row(
        "ANOTHER clause",
        r"^\W*(?:expected|reference|gold|target|ground[- ]truth|dummy)"
        r"(?:\s+(?:answer|output|result|solution))?\W*(?::|=|\bis\b|(?=\s*$))[\s*$\\(\[]*$",
    ),
    _row(
        "ANOTHER clause marked",
        r"\b(?:student|friend|classmate|pupil|textbook|book|colleague|beginner)s?"
        r"(?:['’]s? (?:\w+ )?(?:answer|claim|result|guess|conclusion|solution) (?:is|was)"
        r"|(?: \w+ly)? (?:claim|sa(?:y|id)|state|think|thought|believe|argue)(?:s|d|ed)? that\b"
        r"[^,;]*)\W*$",
    ),
    _row(
        "SUPPOSITION before announced",
        r"(?:\b(?:if|whether|unless|suppos(?:e|ing)|assum(?:e|ing)|imagine"
        r"|(?<!i'd )(?<!i would )say|hypothetically|pretend|si|wenn|falls|если|examples?|e\.g\."
        r"|for instance|(?:write|print"
        r"|output)(?=\s*:)|(?<!no )doubt|wrong to \w+)|假设|如果|若|もし|\bnot (?:say"
        r"|think|believe|mean)"
        r"|n't (?:say|think|believe|mean))(?:,|:|\s+(?:for example,\s*)?that|\s+que|\s+da(?:ß"
        r"|ss)|,?\s+что)?\s*$|(?:\b(?:unlikely|doubtful|wrong|false|untrue|incorrect"
        r"|impossible|not true|not the case)|n't true)\s+that\s*$",
    ),
    _row(
        "SUPPOSITION clause",
        r"^\W*(?:(?:now|but|let us|let's|we|first)\W+)?(?:suppose|assume|imagine|pretend|say"
        r"|supposons|angenommen|supongamos|suponha|supponiamo|предположим|допустим|假设|假設"
        r"|仮に)(?!.*(?:\b(?:then|so|get|gives?|hence|thus|therefore|obtain|have)\b|[:;]))",
    ),
    _row(
        "SUPPOSITION clause marked",
        r"\b(?:if|had|were|whether|si|wenn|falls|если)\W+(?:the|our|my|la|die"
        r"|das)?\W*(?:\w+\s+)?(?:answer|result|value|solution|it|réponse|antwort|respuesta"
        r"|ответ)(?:\s+(?:were|was|is|be|had been|to be|était|wäre|fuera|был бы))?[\s$:]*$"
        r"|^\W*(?:if|had)\b.*\bwould\b[^.]*$|如果答案[是为]\W*$|若答案[是为]\W*$",
    ),
    _row(
        "EXAMPLE before marked",
        r"(?:for example|for instance|e\.g\.|such as|something like),?\s*[\"“`]*$|\b(?:format"
        r"|template|example|placeholder|instructions?)\b[^.\n]{0,24}(?:\bis|\bbe|:|\blike"
        r"|of)\s*[\"“`]*$|(?<!can )(?<!may )(?<!could )(?<!we )(?<!also )\b(?:put|write|give"
        r"|enclose|place)\b[^.\n]{0,40}\b(?:in|as|inside"
        r"|within|like)\s*[\"“`]*$",
    ),
    _row(
        "DENIAL before marked",
        r"(?:\b(?:not|never|cannot be|neither|instead of|rather than|except|(?:(?:do|does|did"
        r"|must|should|would|could|will|can) ?(?:not|n't)|cannot|never) \w+|tempt\w* to (?:say"
        r"|answer|write|claim)|far from|wrong (?:to say|answer(?: is)?))|n't(?: be)?)\s*:?$",
    ),
    _row(
        "DENIAL before",
        r"\b(?:ignor|exclud|reject|discard|eliminat|disregard|dismiss|avoid|rul)(?:e|es|ed|ing"
        r"|s)?(?: out)?(?: the (?:\w+ )?(?:answer|value|case|root|solution|result"
        r"|candidate)\w*)?\s*$|\b(?:mistake|wrong|incorrect|error|false|tempting"
        r"|naive) to \w+\s*$|\b(?:naive|wrong|incorrect|false|common|tempting|initial"
        r"|first) (?:wrong )?(?:answer|value|result|guess|solution)\s*(?:is|was|would be"
        r"|:)\s*$|\b(?:would|might|could) have been\s*$|\b(?:nobody|no one|none of us"
        r"|few) (?:\w+ )?\w+\s*$",
    ),
    _row(
        "SUPPOSITION before marked",
        r"\b(?:would|might|could)(?: \w+ly)?(?: have)? (?!be\b|been\b|have\b)\w+\s*$",
    ),
    _row("SUPPOSITION behind", r"[\s*$)\]\\]{0,6}would\b[^.\n]*\b(?:if|were|had|without)\b"),
    _row(
        "DENIAL behind",
        rf"{DENIED_BY_VERB.pattern}"
        rf"|[\s*$)\]\\]{{0,6}}[,;]? (?:but|yet|which) (?:this |that |it )?{REFUTES}",
    ),
    _row(
        "ANOTHER behind",
        r"[\s*$)\]\\]{0,6}(?:is|was) (?:my |his |her |their |the )?\w+['’]s (?:\w+ )?"
        r"(?:answer|guess|result|solution)",
    ),
    _row("QUESTION behind", r"[\s*$)\]\\.}]{0,4}\?(?!\s*(?:yes|indeed)\b)"),
    _row(
        "CONDITION behind",
        r"[\s*$)\]\\]{0,6},?\s*(?:otherwise\b|(?:if|when|for)\b[^.\n]*\b(?:otherwise|else)\b"
        r"|(?:sinon|sonst|иначе|否则))",
    ),
)
"""The words of each stance. The first row whose words are found decides."""
_SUPPOSE = (
    r"suppose|assume|imagine|pretend|supposons|supposez|angenommen|nehmen wir an|supongamos"
    r"|suponga\w*|suponha\w*|supponiamo|предположим|допустим"
)
BOUND = (
    r"(?:at (?:most|least)|höchstens|mindestens|au (?:plus|moins)|como (?:máximo|mucho|mínimo)"
    r"|al (?:menos|más|massimo|più)|almeno|no máximo|pelo menos|не (?:более|менее)|самое большее)"
)
"""Words of a bound before a value, or at the start of its sentence."""
_UNSURE = (
    r"(?:maybe|perhaps|possibly|conceivably|vielleicht|möglicherweise|womöglich|peut[- ]être"
    r"|quizás?|tal vez|talvez|forse|возможно|может быть)"
)
MAY_BE = re.compile(
    rf"\W*(?:(?:or|but|and|then again|oder|aber|ou|mais|o|pero|mas|ma|или|но|а),?\s+)?(?:(?:it"
    rf"|es|this) (?:is|ist|est|es|son|sono) )?"
    rf"(?:{_UNSURE}\b|alternatively\b|either (?:that|this) or\b|(?:i am|i'm"
    rf"|we are) (?:not (?:\w+ )?sure|unsure|uncertain))"
    r"|.*(?:^|[\s,;])(?:(?:it|this|that) (?:could|may|might) (?:\w+ ){0,2}be\W{1,4}[\d$\\]"
    r"|könnten? (?:\w+ ){0,2}auch"
    r"|pourrai\w* (?:\w+ )?être|podrían? (?:\w+ )?ser|poderiam? (?:\w+ )?ser"
    r"|potrebber?o? (?:\w+ )?essere"
    r"|(?:может|могут) (?:\w+ )?быть)|.*(?:かもしれ|일지도|일 수도|可能(?:也|还)?是)|(?:もしか"
    r"|어쩌면|也许|或许|也可能|или возможно)"
)
"""A sentence that offers another value as possible."""
FRAMES = (
    _row(
        "DENIAL before",
        r"(?:\b(?:not|never|cannot|hardly|nobody|nothing|no one|none)"
        r"|n't) (?:\w+ ){0,3}?(?:(?:true"
        r"|right|correct|the case|certain|sure|clear|known|shown|proved|convinced"
        r"|(?:conclude|know|show|prove|follow|mean|say)s?|impl(?:y|ies))(?: yet)?"
        r"(?:,|:| that| if| whether)|(?:think|believe|say|claim)s?\b)|\bno (?:evidence"
        r"|proof|reason|sign|guarantee)\b"
        r"|\bfails? to be true\b|\bhard to (?:say|tell|believe) that\b"
        r"|\b(?:false|untrue|wrong|incorrect|absurd|a mistake)"
        r"(?:,|(?<!that is wrong):(?<!that's wrong:)| that| to \w+)"
        r"|\b(?:stimmt nicht|nicht (?:wahr|richtig|sicher|der fall)|falsch, dass|pas (?:vrai"
        r"|sûr|certain|le cas) que|faux que|no es (?:cierto|verdad|seguro) que|es falso que|não"
        r" é (?:verdade|certo) que|é falso que|non è (?:vero|certo|detto) che|è falso che"
        r"|не ?верно|нельзя (?:сказать|утверждать)|неправда|не факт|не уверен\w*)"
        r"|\b(?:far from|different from|unlike|nothing like|close to|nearly|almost)\W*"
        r"(?:[a-z]\w?\s*=\W*)?$",
    ),
    _row(
        "DOUBT before",
        r"^(?!.*\b(?:no|not|without|beyond|little)\b[^,;:]{0,20}\bdoubt).*?\bdoubt(?:s|ed|ful)?\b"
        r"|\b(?:unlikely|unclear|uncertain|unsure|questionable|impossible|wonder)"
        r"(?::| (?:that|if|whether(?! to))\b)"
        r"|\b(?:(?:be)?zweifle|je doute|dud[oa]|duvid[oa]|dubito)\b"
        rf"|сомнева|\b{_UNSURE}\b(?! (?:surpris|unexpect)\w+ly)"
        r"|\b(?:might|(?:it|there|this|that) (?:could|may)) (?:(?!only\b)\w+ )?(?:be|have)"
        r"(?! \w+(?:ed|en|wn|ne|ght|ing)\b)"
        r"|\b(?:one|you|we) (?:might|would|could|may) (?:think|say|guess|expect|believe)\b"
        r"|\bwould (?:then )?(?:follow|mean|imply) that\b|\bopen question\b"
        r"|\b(?:thought|believed|said|claimed|supposed) to (?:be|have)\b"
        r"|\bi(?:['’]d| would) guess\b|\bsomewhere (?:around|near)\b"
        r"|也许|或许|もしかし|어쩌면",
    ),
    _row(
        "SUPPOSITION before",
        rf"^\W*(?:(?:now|let us|let's|we|first|and)\W+)*(?:{_SUPPOSE})\b"
        r"(?!(?:\W+\w+){4,}:)|(?:^|[,:])\W*(?:if|unless|whether|wenn|falls|ob|если)\b[^,;:]*$",
    ),
    _row(
        "ANOTHER before",
        r"\b(?:student|friend|teacher|book|textbook|key|author|people|some(?:one|body)?|many"
        r"|others?"
        r"|everyone|he|she|they|one)s? (?:\w+ )?(?:claim|sa(?:y|id)|state|think|thought|believe"
        r"|guess|argue|suggest|assert|insist|wrote|write|expect)(?:e?s|e?d)?(?: that\b|:)",
    ),
    _row(
        "BOUND before",
        rf"^\W*{BOUND},?\s+(?:there|we|it|he|she|they|gibt|sind|hat|il|hay|há|ci|есть)\b"
        r"(?!.*\b(?:can|could|may|needs?|will|must|should|requires?)\b)",
    ),
    _row(
        "DOUBT behind",
        rf",\s*{_UNSURE}\W*$|\bor (?:so|thereabouts)\W*$|かもしれ|일지도|일 수도"
        r"|,\s+(?:but|though|although|yet) (?:i|we) (?:\w+ )?(?:doubt|(?:am|are|'m|'re) not)\b",
    ),
    _row("DENIAL behind", rf",\s+(?:which|but (?:this|that|it))\s+{REFUTES}"),
    _row("QUESTION behind", r"\?[\s*_]*$"),
)
"""What a sentence does with all that it says behind a frame (`it is not true that`), and up to
words at its end (`or so`).
"""
UNASSERTED = re.compile(
    r"(?is)^(?!.*\b(?:mean|impl|show|conclude|see|know|follow|find|found|clear|true|sure|certain"
    r"|obvious"
    r"|eviden|fact|prove|infer|deduce|note|recall|get|have|give|tell|guarantee|ensure|confirm"
    r"|demonstrate|yield|state|says|no doubt)\w*(?: us)? that\W+$|.*\bso that\W+$)"
    r".*\bthat\W+$"
    r"|\b(?:remains?|want|need|have|wish|hope|try|fail|hard|enough|suffices) to \w+ that\W+$"
    r"|(?:^|[.;])\W*(?:if|when|unless|provided|under)\b[^,;:]*,\s+$"
)
"""What leads a clause that is not claimed: `that` behind no word of assertion, or a condition."""
TURN = re.compile(
    r".*(?:;|,\s+also\b|\b(?:but|yet|however|(?<!think )(?<!believe )(?<!not )(?<!or )so"
    r"(?! (?:that|far|much|many|sure)\b)|hence|thus|therefore|then"
    r"|which (?:means|gives|implies|forces|leaves)"
    r"|(?<!that )we (?:get|obtain|have|find)|sondern|aber|daher|somit|folglich"
    r"|mais|donc|pero|así que|luego"
    r"|por (?:lo )?tanto|entonces|mas|portanto|logo|então|quindi|dunque|però|но|значит|поэтому"
    r"|следовательно)\b)|^\W*(?:since|because|as|although|though|while|da|weil|comme|puisque"
    r"|como|так как)\b[^,;]*,"
)
"""The end of what a frame governs: a contrast, a consequence, or a clause of reason that leads."""
HEDGE = re.compile(
    r"(?i)\b(?:if (?:that|this|it|the|my|i)\b[^.]{0,60}?"
    r"\b(?:wrong|incorrect|not (?:right|correct|accepted)|mistaken)|if not\b|if wrong|otherwise|"
    r"alternatively|or (?:maybe|perhaps|else|possibly)|(?:could|might) also be|second guess|"
    r"another (?:possible )?(?:answer|candidate)|backup answer|in case)\b"
)
"""Words between two statements that offer the second in case the first is wrong."""
HEDGE_BEHIND = re.compile(
    r"(?i)\bif\b[^.\n]{0,40}\b(?:wrong|incorrect|not (?:right|correct|accepted|it))\b|\bor (?:maybe"
    r"|perhaps|else|possibly)\b|\b(?:maybe|perhaps|possibly)\s+(?=[\d$])|^\W{0,4}alternatively\b"
    r"|\b(?:could|might|may) also be\b|\b(?:another|other|second|backup|alternative) (?:possible "
    r"|valid )?(?:answer|guess|option|candidate|choice)\b[^.\n]{0,20}\b(?:is|be|:)"
    r"|^\W{0,4}if\b[^.\n]{0,60}?,\s*(?=[\d$\\-])"
)
"""Words after the last statement that offer another answer in case this one is wrong."""
FILLER = re.compile(
    r"(?i)(?:[^\w]|_|\b(?:or|and|also|maybe|perhaps|possibly|probably|hmm+|um|uh|else|either"
    r"|then|the"
    r"|my|our|so|thus|hence|therefore|it|i|we|think|guess|say|is|be|could|can|might|may|would"
    r"|answer|first|second|third|last|next|another|other|guess(?:es)?|final|ou|oder|o|или|または|或"
    r"|또는)\b)*"
)
"""Words that give no reason to change an answer.

Two statements with only such words in between are made in one breath: the second is no correction,
and both have to be right.
"""
_CONNECTIVE = (
    r"\b(?:but|and|so|yet|thus|hence|then|actually|wait|hmm+|however|still|alas|\w+ly"
    r"|(?:up)?on (?:closer |further )?(?:reflection|inspection|second thoughts?))\b,?\s"
)
_CLAUSE = rf"(?:(?:^|[.!?;,:(\n—–]\s{{0,3}})(?:{_CONNECTIVE}){{0,2}}|{_CONNECTIVE})"
_NOUN = (
    r"(?:answer|value|result|number|count|total|guess|claim|reasoning|argument|calculation"
    r"|computation|solution|attempt)"
)
_IT = (
    r"(?:this|that|it|these|they|both|what i \w+"
    rf"|(?:the|my|our|this|that)(?! (?:other|naive|next|second)\b) (?:\w+ )?{_NOUN}(?: (?:above"
    rf"|here))?)(?:\s+|(?='))"
)
RETRACTION = re.compile(
    rf"(?:^[\s$)}}\]\\*,]*which\s|{_CLAUSE}{_IT}){_ADVERB}{REFUTES}"
    r"|(?:^|[.!?;\n]\s{0,3})(?:(?:an?|what an?) )?(?:contradiction|impossible|wrong|incorrect|nope"
    r"|absurd)\s*[.!]|\bi(?:'ve| have| had)? (?:(?:\w+ly|just|also) )?(?:made (?:an?|one|the"
    r"|some) (?:\w+ ){0,2}?(?:mistake|error|slip|typo|blunder|oversight)|was wrong|mis\w+|forgot"
    r"|overlooked|erred|dropped|omitted|disagree|doubt|double[- ]?counted|overcounted|undercounted"
    r"|counted \w+ (?:\w+ )?twice|take (?:it|that) back|retract|withdraw|reject (?:it|this|that)"
    r"|(?:do not|don't) (?:think"
    r"|believe) (?:so|(?:this|that|it)(?:'s| is) (?:right|correct)))\b|\b(?:wait,? no|no,? wait"
    r"|(?:scratch|strike) that|just kidding|on second thoughts?|oops|my (?:mistake|bad|error)"
    r"|should (?:have been|be|read) (?=[\d$(\\*-]|[b-j]\b|a\b(?! \w))"
    r"|let me (?:correct|fix|redo) (?:that|this|it|my)|(?:actually|hmm|sorry),? no\b)"
    r"|(?:correction|korrektur|corrección|correção|correzione"
    r"|исправление)\s?:|(?:^|[.!?\n]\s{0,3})(?:no, (?:that|this"
    r"|it)\b)|j'ai fait une erreur|je me suis trompé|c'est (?:faux|impossible|une erreur)"
    r"|das (?:ist|war|stimmt) (?:\w+ )?(?:falsch|nicht|unmöglich|ein (?:fehler|widerspruch))"
    r"|ich habe mich (?:ver\w+|geirrt)|(?:esto|eso) es (?:imposible|falso|incorrecto|un error)"
    r"|me equivoqu|es incorrecto|(?:isso|isto) é (?:impossível|falso|um erro)|me enganei|errei\b"
    r"|(?:questo|ciò) è (?:impossibile|falso|un errore)|mi sono sbagliat|я ошиб|это (?:неверно"
    r"|невозможно|неправильно|ошибка|противоречие)|間違え|間違い|誤り|ミス|矛盾|틀렸|모순"
    r"|(?<!모든 )(?<!모든 \*\*)실수"
    r"|算错|错了|有误|不对|不對|矛盾|更正"
    r"|纠正|訂正|정정"
)
"""Words that take back an earlier statement."""
_FIRST = (
    r"(?:first|former|earlier|previous|initial|original)"
    r"(?: (?:one|value|answer|box)(?! (?:of|in|that|which|we|i|greater|less|above|below)\b)"
    r"| of (?:these|them|the two)|(?=\s*(?:[,.;]|$)))"
)
POINTS_BACK = re.compile(
    r"\b(?:answer|value|result|number|degree|one|box|solution|figure|count)\b"
    r"[^.\n]{0,60}?\s"
    rf"(?:is|remains|must be|should be|has to be) (?:(?:therefore|thus|still|indeed) )?the {_FIRST}"
    r"|\b(?:the|my) (?:first|former|earlier|previous|initial|original)"
    r"(?: (?:one|value|answer|box))?"
    r" (?:is (?:(?:the|my) )?(?:(?:final|right|correct|actual|required) )?"
    r"(?:answer|right|correct|meant|wanted|one)\b"
    r"(?! (?:only|just|for|if|when|to (?:another|an?|part))\b)"
    r"|stands\b|counts(?=\s*(?:[.,;]|$)))"
    r"|(?<!would )(?<!might )(?<!could )(?<!not )(?<!n't )(?<!never )"
    r"\b(?:go(?:ing)? with|stick(?:ing)? (?:with|to)|keep|choose|return to|report)"
    rf" (?:the|my) {_FIRST}"
)
"""Words behind a second value that mean the first one: `the value to report is the first one`."""
REOPENED = re.compile(
    r"(?i)(?:^[\s$)}\]\\*.]*|[.!?\n]\s{0,3})(?:but |ah,? |oh,? )?(?:wait|hold on|hmm+|sorry|oops"
    r"|no(?=[,.])|actually|on reflection)\b"
)
"""The start of a sentence that reopens the question, without saying that the answer is wrong."""
TURNED = re.compile(
    r"(?is)^\W*(?:however|but|yet|still|that said|nevertheless|on (?:the other hand|reflection))\b"
    r"(?=.*\b(?:should|must|not|cannot|really|actually|in fact)\b|.*n['’]t\b)"
    r"[^.]*?\b(?:(?:so|hence|thus|therefore),? (?:(?:really|actually|in fact|instead),? )?(?:it(?:"
    rf"['’]s| is)|we (?:get|have)|(?:the|our) {_NOUN} is)|(?:is|are)(?= (?:really|actually|in fact)"
    r"\b)|which leaves)(?: really| actually| in fact)?[ $*\\(]+(?=[-−\d]|[dt]?frac|sqrt)"
    r"|^(?!.*\bnot\b).*\b(?:as|is|['’]s) (?:my|the final) (?:final )?answer\b"
)
"""A sentence that concludes behind a contrast, or calls what it says the final answer."""
CONCLUDES = re.compile(
    r"(?i)^\W*(?:so|therefore|thus|hence)\b|\b(?:is|are|equals?) (?:therefore|thus|hence|then"
    r"|in fact)\b"
)
"""Words of a sentence that concludes. If it has a single number, that number may replace an earlier
answer.
"""
GIVES = re.compile(
    r"(?i)\b(?:so|therefore|thus|hence|gives?|giving|making|leaving|that's|leaves|it'?s|it is|makes"
    r"|equals|get|have|is|are)\b"
)
"""Words of a sentence that states a value. Many sentences have these, so they matter only after
the question was reopened (`REOPENED`).
"""
REASON = re.compile(
    r"(?i)[,;] so [a-z] =|[,;]\s{1,3}(?:(?:but|yet|though|although|and|so) )?(?:I|we|my|our|you"
    r"|they|he|she|this"
    r"|these|that|there|please)\b|[,;]?\s{1,3}\(?(?:if|unless|assuming|provided) (?:that )?I(?:'m"
    r"|'ve)? (?:\w+ )?(?:read|understood|understand|did|am|have|made|slipped|calculated|counted"
    r"|remember|recall|got|mis\w+)\b|(?<=[\s,;(])\(?(?:(?:i\.e\.|that is,|in other words|namely"
    r"|because|since|for the reason|due to|given that|even though|although|despite|as (?=[a-z(]+ "
    r"(?:is|are|was|has|have|does|can|would|contradict)\w*)|rather than|instead of|(?<!does "
    r")(?<!do )(?<!is )(?<!can )not\b|and not\b|but not\b|which (?:is|are|was|means|makes|agrees"
    r"|can|\w+s\b)|as (?:required|expected|desired|claimed|needed)|car|parce que|puisque|weil|da"
    r"|denn|nicht|porque|ya que|pues|pois|perché|poiché|так как|потому что|поскольку|а не)(?!\w))"
    r"|因为|因為|なぜなら|왜냐하면|而不是"
)
"""Words that start a reason after the answer; these are not part of the answer."""
NO_LIMIT = re.compile(
    r"(?i)(?!\W*(?:if|suppose|assume|when|unless|si|wenn|se|если)\b)[^.;\n]{0,120}?(?<!true )"
    r"(?<!that )(?P<said>\blimit\b[^.;,\n]{0,40}?[\s*](?:do(?:es)? \**not\**|doesn['’]t|cannot"
    r"|fails? to) exist|\b(?:is|has) no (?:[a-z-]+ )?limit\b|(?:\bl[ií]mite?|\bGrenzwert|\bпредел"
    r"|[极極]限|극한)[^.;,。\n]{0,40}?(?:n['’]existe pas|n[oã]o? existe|non esiste|не существует"
    r"|existiert \**nicht|不存在|存在しない|존재하지 않\w*)|\bexistiert der Grenzwert \**nicht)"
    r"(?: (?:at|as|for) [^.;,\n]{1,24})?[\s.!*。]*$"
)
"""A limit that does not exist, up to the end of a sentence."""
