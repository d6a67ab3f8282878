"""Phrases of several languages that announce an answer: data without logic.

A phrase is a noun (`anchors` are its searched spellings, lower case) and a link to the value
that follows. To teach the extraction a language, add a `PhraseLanguage` and cases to its tests.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PhraseLanguage:
    """The phrases of a language as regular expressions, each anchored at the noun."""

    name: str
    anchors: tuple[str, ...]
    """Lower-case spellings, one of which occurs in every noun. Searching for these is fast, and
    only matches run the expressions.
    """
    answer: str
    """Nouns that mean the answer."""
    result: str
    """Nouns that may mean the answer or an intermediate result."""
    link: str
    """Words or signs between the noun and the value. Denying words (`isn't`, `n'est`) are included,
    because a denied answer has to be found before `DENIED` can tell that it is denied.
    """
    complement: str = ""
    """Words that may stand between noun and link (`to the question`)."""
    behind: str = ""
    """Words after the value that are not part of the value (`です`)."""
    inverted: str = ""
    """Words before a noun that is directly followed by the value (`lautet die Antwort 42`); empty
    in languages without such an order of words.
    """


_COLON = r"[*_\"'`)\]}]*\s*(?::|=|→|⇒|->|-->|—|–|➜|➔|➡|▶|(?<=\s)-(?=\s))"

ENGLISH = PhraseLanguage(
    name="English",
    anchors=(
        "answer",
        "result",
        "solution",
        "roots",
        "option",
        "choice",
        "value",
        "correct",
        "statement",
        "ans",
        "mine",
    ),
    answer=r"answers?(?: value)?|ans\b\.?|mine|(?<=correct )(?:result|value|solution|option|choice"
    r"|statement)s?"
    r"|(?<=right )(?:result|value|solution|option|choice|statement)s?|(?<=true )statements?"
    r"|(?<=final )(?:result|value|solution)s?|options?|choices?|(?:correct|right) one",
    result=r"results?|solutions?|roots",
    complement=r"(?:\s*,[^.,:;!?\n\d$\\=*]{1,30},|\s+(?:to|of|for|in|from|we|i|that|as)\b"
    r"[^.:;!?\n\d$\\=*]{0,60}?)?",
    link=r"(?:[*_\"'`)\]}]*\s*(?:\s(?:(?:is|are)(?:n't)?|equals|becomes|comes out (?:to be|to|as"
    r"|at)|(?:turns|works) out (?:to be|to)|(?:will|would|should|must|can only|has to|have to"
    r"|could|might|may|ought to|cannot|can't|could not|couldn't|must not|won't) be)\b|\bis\b|'s\b"
    r"|(?<=answer)\sof(?=\s*[\d$\\-]))(?:\s+(?:therefore|thus|then|hence|so|simply|indeed|also"
    r"|just|clearly|given by|equal to|that|exactly|actually|really|in fact|now|probably|likely"
    r"|definitely|certainly|for sure)\b,?)*\s*:?"
    rf"|{_COLON})",
)
LANGUAGES: tuple[PhraseLanguage, ...] = (
    ENGLISH,
    PhraseLanguage(
        name="French",
        anchors=("ponse", "résultat", "resultat", "solution", "valeur"),
        answer=r"r?[ée]?ponses?|valeur (?:cherchée|recherchée)",
        result=r"r[ée]sultats?|solutions?",
        complement=r"(?:\s+(?:finale|correcte|exacte|à|au|aux|de|du"
        r"|pour)\b[^.:;!?\n\d$\\=*]{0,60}?)?",
        link=r"(?:\s*(?:\s(?:n'|ne\s)?(?:est|sont|vaut|valent|serait|doit être)\b)(?:\s+(?:donc"
        r"|alors|ainsi|bien"
        r"|égale? à|l'option|l[ae](?=\s+\(?[A-J]\b))\b)*\s*:?|" + _COLON + ")",
    ),
    PhraseLanguage(
        name="German",
        anchors=("antwort", "ergebnis", "lösung", "loesung"),
        answer=r"(?:end)?antwort(?:en)?|endergebnis",
        result=r"ergebnis(?:se)?|l(?:ö|oe)sung(?:en)?",
        complement=r"(?:\s+(?:auf|zu|zur|der|des|für)\b[^.:;!?\n\d$\\=*]{0,60}?)?",
        link=r"(?:\s*(?:\s(?:ist|sind|lautet|lauten|beträgt|wäre|erhalten wir|erhält man"
        r"|ergibt sich)\b)(?:\s+(?:also|somit|daher|folglich|demnach|gleich)\b)*\s*:?"
        r"|" + _COLON + ")",
        inverted=r"\b(?:lautet|ist|beträgt)\s+(?:also\s+|somit\s+|daher\s+)?(?:die"
        r"|das)\s+(?:\w+\s+)?$",
    ),
    PhraseLanguage(
        name="Spanish",
        anchors=("respuesta", "resultado", "soluci"),
        answer=r"respuestas?",
        result=r"resultados?|soluci(?:ó|o)n(?:es)?",
        complement=r"(?:\s+(?:final|correcta|a|al|de|del|para)\b[^.:;!?\n\d$\\=*]{0,60}?)?",
        link=r"(?:\s*(?:\s(?:no\s)?(?:es|son|sería|será|vale|debe ser)(?=\W))(?:\s+(?:entonces"
        r"|por tanto|igual a"
        r"|la opción|la(?=\s+\(?[A-J]\b))(?=\W))*\s*:?|" + _COLON + ")",
    ),
    PhraseLanguage(
        name="Portuguese",
        anchors=("resposta", "resultado", "solução", "alternativa", "opção"),
        answer=r"respostas?|alternativa(?: correta)?|opção correta",
        result=r"resultados?|soluç(?:ão|ões)",
        complement=r"(?:\s+(?:final|correta|certa|à|ao|da|do|de|para)\b[^.:;!?\n\d$\\=*]{0,60}?)?",
        link=r"(?:\s*(?:\s(?:não\s)?(?:é|são|será|seria|vale)(?=\W))(?:\s+(?:então|portanto"
        r"|igual a|a letra"
        r"|a opção|a(?=\s+\(?[A-J]\b))(?=\W))*\s*:?|" + _COLON + ")",
    ),
    PhraseLanguage(
        name="Italian",
        anchors=("risposta", "risultato", "soluzion"),
        answer=r"rispost[ae]",
        result=r"risultat[oi]|soluzion[ei]",
        complement=r"(?:\s+(?:finale|corretta|giusta|esatta|alla|al|della|del|di|per)\b"
        r"[^.:;!?\n\d$\\=*]{0,60}?)?",
        link=r"(?:\s*(?:\s(?:non\s)?(?:è|e'|sono|sarà|sarebbe|vale)(?=\W))(?:\s+(?:quindi|dunque"
        r"|pari a"
        r"|la(?=\s+\(?[A-J]\b))(?=\W))*\s*:?|" + _COLON + ")",
    ),
    PhraseLanguage(
        name="Russian",
        anchors=("ответ", "результат", "решени", "искомо", "корн"),
        answer=r"ответ(?:ом|ы|а)?|(?:искомое|искомым) (?:число|значение)",
        result=r"результат|решени(?:я|ем?)|корн[ия]",
        complement=r"(?:\s+таков(?=\s*:)|\s+(?:на|к|в)\s[^.:;!?\n\d$\\=*]{0,60}?)?",
        link=r"(?:\s*(?:\s(?:равен|равно|равна|будет|есть|составляет|является)\b)"
        r"(?:\s+(?:числ[оу]|вариант|значение)\b)*\s*:?|\s+-(?=\s)|\s+не(?=\s)|\s+(?=[\d$(\\−-]"
        r"|[A-J]\b)|" + _COLON + ")",
    ),
    PhraseLanguage(
        name="Japanese",
        anchors=("答", "正解", "回答", "結果", "値", "解"),
        answer=r"答え?|正解|解答|(?<=求める)値|回答",
        result=r"結果|解",
        link=r"(?:[*_】\]]*\s*(?:は|が|:|=|→|】)\s*(?:、|それぞれ|次の通り)?)",
        behind=r"\s{0,3}(?:です|である|であり|でした|だ(?=\W|$)|となります|になります|となる|になる|となり|と分かる"
        r"|とわかる)",
    ),
    PhraseLanguage(
        name="Korean",
        anchors=("답", "값", "결과"),
        answer=r"(?:정답|해답|답)|(?<=구하는 )값",
        result=r"결과|결괏값",
        link=r"(?:[*_]*\s*(?:은|는|이|가|:|=|→)\s*)",
        behind=r"\s{0,3}(?:입니다|이다|이에요|예요|이고|이며|임(?=\W|$)|(?:이|가) 됩니다|(?:이"
        r"|가) 된다|(?:으로|로) 나온)",
    ),
    PhraseLanguage(
        name="Hindi",
        anchors=("उत्तर",),
        answer=r"उत्तर",
        result=r"(?!)",  # matches nothing: there is no second noun
        link=r"(?:[*_]*\s*(?::|=|है|→|(?=\s[\d$\\-]))\s*)",
        behind=r"\s{0,3}है",
    ),
    PhraseLanguage(
        name="Chinese",
        anchors=("答", "结果", "結果", "选", "選", "正确选项", "解"),
        answer=r"答案|答(?=[:：])|正确选项|(?:故|应|應|所以|因此)?[选選]择?擇?(?=[*\s]*:?\s*[*(]*[A-J](?![a-z]))",
        result=r"结果|結果|解(?=[是为為:])",
        complement=r"(?:就|应该|應該|应|應|便|即)?",
        link=r"(?:[*_】\]]*\s*(?:是|为|為|等于|等於|即|选|選|:|=|→)?\s*:?)",
        behind=r"",
    ),
    # Headings of further languages, and the verb where one is usual.
    PhraseLanguage(
        name="further",
        anchors=(
            "odpowied", "odpověď", "cevap", "yanıt", "đáp án", "đáp số", "jawaban", "antwoord",
            "svar", "відповідь", "απάντηση", "răspuns", "คำตอบ", "תשובה", "الجواب",
            "الإجابة", "پاسخ",
        ),
        answer=r"odpowied(?:ź|zią)|odpověď|cevap|yanıt|đáp (?:án|số)|jawaban(?:nya)?|antwoord"
        r"|svar(?:et)?|відповідь|απάντηση|răspuns(?:ul)?|คำตอบ|תשובה|الجواب(?: النهائي)?"
        r"|الإجابة(?: النهائية)?|پاسخ",
        result=r"(?!)",
        link=r"(?:\s*(?:\s(?:to|jest|je|là|adalah|ialah|is|är|er|on|є|είναι|este|a|คือ|היא|הוא|هو|هي"
        r"|است)(?=\s))\s*:?|" + _COLON + ")",
    ),
)  # fmt: skip
