"""Verdicts in sentences of any language: `L'affirmation est fausse`, `нет, неверно`, `该命题正确`.

A sentence gives a verdict if each of its words is known here: a noun for a statement, a verb, a
denial, a word of truth or of yes and no. Any other word (`the converse is true`, `may be true`)
leaves it without one.
"""

from __future__ import annotations

import re

from ..reading.vocabulary import words

_YES = words("yes ja oui sí si sì sim да evet tak はい 예 네 是 是的")
_NO = words("no nein non não нет hayır nie いいえ 아니요 아니오 否 不是")
_TRUE = words(
    "true correct right holds valid wahr richtig korrekt stimmt zutreffend gilt vrai vraie exact "
    "exacte juste correcte verdadero verdadera cierto cierta correcto correcta verdad verdadeiro "
    "verdadeira certo certa correto vero vera corretto corretta giusto giusta верно истинно верное "
    "верна верен истинна истинное правда правильно doğru prawda 正确 正確 对 對 成立 为真 為真 "
    "真 正しい 正しく "
    "참 옳다 맞다 так hold correta"
)
_FALSE = words(
    "false incorrect wrong untrue invalid falsch unwahr inkorrekt faux fausse inexact inexacte "
    "incorrecte falso falsa incorrecto incorrecta incorreto incorreta errado errada erróneo "
    "errónea "
    "scorretto scorretta errato errata sbagliato неверно ложно ложна неправда неправильно неверна "
    "yanlış fałsz 错误 錯誤 错 錯 为假 為假 假 偽 거짓 틀리다"
)
_NOT = words("not isn't doesn't don't cannot nicht kein pas ne n no não non не 不 ない 없다")
_SUBJECTS = words(
    "statement claim proposition assertion sentence conjecture conclusion affirmation énoncé "
    "proposition aussage behauptung satz afirmación proposición enunciado afirmação proposição "
    "sentença affermazione proposizione enunciato утверждение высказывание предложение 命题 "
    "命題 说法 "
    "判断 陈述 论断 結論 结论 主張 명제 주장 진술 answer antwort réponse respuesta resposta "
    "risposta ответ 答案 答"
)
_GRAMMAR = words(
    "the this that given is it are so hence thus therefore then indeed clearly above we "
    "conclude die "
    "das dies diese ist also damit daher somit folglich es l la le cette cet est donc c ce "
    "ainsi el "
    "es esta este por tanto lo luego a o é esta este portanto logo então è l questa questo quindi "
    "dunque это данное значит следовательно поэтому итак 该 此 这个 這個 这 这一 故 所以 因此 "
    "是 的 "
    "は で この 次の よって したがって である です だ と が 따라서 이 그러므로 은 는 이다 "
    "입니다 as shown "
    "conclusion fazit does do ある"
)
_KINDS = (
    ("true", _TRUE), ("false", _FALSE), ("yes", _YES), ("no", _NO), ("not", _NOT),
    ("", _SUBJECTS), ("", _GRAMMAR),
)  # fmt: skip
_UNSPACED = re.compile("[぀-ヿ一-鿿가-힣]")
_CLAUSES = re.compile(r"[,;:.。、，：；!！—–\n]+\s*")
MAX_VERDICT = 120
"""The longest sentence, in characters, that is read as a verdict."""


def _table() -> dict[str, frozenset[str]]:
    table: dict[str, set[str]] = {}
    for kind, listed in _KINDS:
        for word in listed:
            table.setdefault(word, set()).add(kind)
    return {word: frozenset(kinds) for word, kinds in table.items()}


_TABLE = _table()
_SIGNS = re.compile(
    "|".join(sorted((w for w in _TABLE if _UNSPACED.match(w)), key=len, reverse=True))
)


def verdict(sentence: str) -> str:
    """Return "true", "false", "yes" or "no" as a sentence says and nothing else, or "".

    >>> verdict("L'affirmation est **fausse**."), verdict("нет, неверно"), verdict("该命题不正确。")
    ('false', 'no', 'false')
    >>> verdict("The converse is true."), verdict("It is true or false.")
    ('', '')
    """
    plain = re.sub(r"[*_`\"“”«»$]|\\(?:text|mathrm)\{|\}", " ", sentence).strip().lower()
    if len(plain) > MAX_VERDICT or "?" in plain or "？" in plain:
        return ""
    said = ""
    for clause in filter(None, _CLAUSES.split(plain)):
        truth = _clause(clause)
        if truth is None:
            return ""
        if truth == "not":  # `no, it is not` only repeats
            if _truth(said) is not False:
                return ""
        elif truth:
            if said and _truth(said) != _truth(truth):
                return ""
            said = said or truth
    return said


def _clause(clause: str) -> str | None:
    """Return the verdict of a clause, "not" for a mere denial, "" for no verdict, and None if it
    says anything else.
    """
    kinds: list[str] = []
    denied = False
    tokens = _tokens(clause)
    for turn, token in enumerate(tokens):
        known = _TABLE.get(token)
        if known is None:
            return None
        alone, last = len(tokens) == 1, turn == len(tokens) - 1
        if "not" in known and not ("no" in known and last):
            denied = True
        # `是` alone is yes; before other words it is the verb.
        elif "" not in known or alone or (last and len(tokens) < 3):
            kinds += sorted(known - {"", "not"})[:1]
    truths = {_truth(kind) for kind in kinds}
    if len(truths) > 1:
        return None
    if not kinds:
        return "not" if denied else ""
    opposite = {"true": "false", "false": "true", "yes": "no", "no": "no"}
    return opposite[kinds[0]] if denied else kinds[0]


def _tokens(clause: str) -> list[str]:
    """Return the words of a clause; of scripts without spaces its known signs, and "?" for any
    other.
    """
    if not _UNSPACED.search(clause):
        return _WORD.findall(clause.replace("’", "'"))
    tokens, place = list[str](), 0
    clause = re.sub(r"\s", "", clause)
    while place < len(clause):
        sign = _SIGNS.match(clause, place)
        tokens.append(sign[0] if sign else "?")
        place = sign.end() if sign else len(clause)
    return tokens


_WORD = re.compile(r"[^\W\d_]+n't(?!\w)|[^\W\d_]+|[^\s']")


def _truth(said: str) -> bool | None:
    return {"true": True, "yes": True, "false": False, "no": False}.get(said)


def agrees(prompt: str, gold: str, said: str) -> bool:
    """Return whether a verdict says the same as a gold that is one; yes and true are the same only
    where a question asks whether something is true.
    """
    wanted = verdict(gold)
    if not wanted or _truth(wanted) is not _truth(said):
        return False
    same_kind = (wanted in {"yes", "no"}) == (said in {"yes", "no"})
    return same_kind or _ASKS_TRUTH.search(prompt) is not None


_ASKS_TRUTH = re.compile(
    r"(?i)\b(?:true|correct|right|wahr|richtig|stimmt|vrai|exact|verdader[oa]|ciert[oa]"
    r"|correct[oa]|verdadeir[oa]"
    r"|corret[oa]|vero|corrett[oa]|верно|правда|правильно|истинно)\b|正确|正確|对错|成立|真偽"
    r"|正しい|참|맞"
)


# --- verdicts in a word ---

YES_NO = re.compile(
    r"(?i)^[\s*_\"]*(?P<word>yes|no|true|false|ja|nein|oui|non|s[ií]|sì|sim|não|да|нет)\b[*_\"]*"
    r"(?:(?P<mark>[,.;:—–-]|\s[—–-])[*_\"]*)?\s*(?:(?:(?=\()|(?(mark)|(?!)))(?:(?:since|because|as"
    r"|denn|weil|da|car|puisque|porque|ya que|pues|pois|perché|poiché|так как|потому что)\s)?"
    r"(?=[^=≠≡<>×·*]*[=≠≡<>×·*])(?P<sum>(?:\\[a-z]+|[^\W\d_](?![^\W\d_])|[^\w?]|[\d_])++)$"
    r"|(?=(?:since|because|as|for)\b))"
    r"(?![^.]*\b(?:unless|if|except|provided|only|otherwise|else)\b)"
)
"""A yes or no before its reason: a clause, or nothing but a calculation."""
# `So no such integer exists.\n\n**No.**`: a sentence of its own at the end.
_LAST_WORD = re.compile(
    r"(?i)(?:(?:(?<=[.!:*$)\]])[ ]*\n|\n[ ]*\n|。)\s*(?:(?:so|hence|thus|therefore|answer)\W{1,3})?"
    r"|[.:]\s+(?:so|hence|thus|therefore)[,:]?\s+|(?<=\w[.!])\s(?=\W*\b(?:yes|no)\b))[*_\"]*"
    r"(?P<word>(?:mon|tues|wednes|thurs|fri|satur|sun)day|yes|no|true|false|ja|nein|oui|non|s[ií]|sì|sim|não|да|нет|wahr|falsch|vrai|faux"
    r"|verdadero|falso|vero|верно|неверно|是的?|否|はい|いいえ|예|아니요)[*_\".!。]*\s*$"
)
_TO_ONESELF = re.compile(
    r"(?i)\?\W*$|\b(?:check|verify|sure|certain|wrong|mistake|(?:is it|or) not"
    r"|not (?:yet|quite|convinced|done)|(?<!the )claims?|says|said|guess\w*"
    r"|suppose|assume)"
    r"\b[^.!\n]*\W*$"
)
"""The end of a line that asks, checks or doubts, which a verdict behind it speaks of."""


def last_word(body: str) -> re.Match[str] | None:
    """Return the verdict that is the last sentence, unless it speaks of the line before."""
    word = _LAST_WORD.search(body, max(0, len(body) - MAX_LAST_WORD))
    before = body[: word.start() + 1].rstrip()[-120:] if word else ""
    return None if _TO_ONESELF.search(before) else word


def to_oneself(before: str) -> bool:
    """Return whether a verdict behind a text speaks of what the text asks or doubts, or only ends
    its sentence.
    """
    ended = before.rstrip(' *_"\n')[-1:] in _ENDS or before.rstrip(" *_").endswith("\n\n")
    return not ended or _TO_ONESELF.search(before.rstrip()[-120:]) is not None


_ENDS = ("", ".", "!", ":", "。", "$", ")", "✓", "✔")


# `So no, 2047 is not prime`: the word and the whole statement.
LAST_VERDICT = re.compile(
    r"(?i)\W*(?:(?:so|hence|thus|therefore)\W{1,3})?(?P<word>yes|no|ja|nein|oui|non|sí|sì|sim"
    r"|não|да|нет|evet|hayır|tak|nie|是的?|不是|否|はい|いいえ|네|예|아니요)"
    r"(?:\b[*_\"]*[,;:—–]\s|(?<=[^\x00-\x7f])[，、,])(?![^.。]*(?:[如若但吗]|もし|만약|\b(?:wenn"
    r"|falls|sofern|aber|nur|si|mais|pero|solo|sólo|se|mas|ma"
    r"|если|но|только)\b))(?![^.]*\b(?:unless|if|except|provided|only|otherwise|else|but|yes|no"
    r"|or|assuming"
    r"|when(?:ever)?|depend\w*|where|with|for|sometimes|usually|however|wait|actually|sorry"
    r"|(?:as|so) long|let|I|we|redo|mistake|wrong|that['’]s|that is|this is)\b)[^.\n]*[.!*]*\s*$"
)
MAX_LAST_WORD = 40
"""The characters at the end of a response that are searched for such a sentence."""
