"""Multiple choice: single letters, sets of letters, or a letter with the text of the option."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..reading.notation import as_words

_SEVERAL = re.compile(r"^(?!.*II)[(\s]*[A-J](?:[\s,()&]|AND)*(?:[A-J](?:[\s,()&]|AND)*){1,5}$")
_ONE = re.compile(r"^[\s(]*([A-J])[\s).:]*$")
# `(B) 12`, `B. 12`: a letter with the text of its option; no operator may follow.
_WITH_TEXT = re.compile(r"^(?:\(([A-J])\)|([A-J])\)|([A-J])[.:](?=\s))\s*(?![-+*/=<>^_])(\S.*)$")
# An answer that begins with a letter: `B`, `(b)`, `Option B:`, `B. because ...`.
_ANSWER = re.compile(
    r"(?i)^(?:option|choice|answer)?\s*\(?([A-Ja-j])(?:\)(?![\w'*^+])|\s*[.:](?=\s|$)|\s*$)"
)
_LETTER = re.compile(r"[A-J]|(?<![A-Za-z\\])[a-j](?![A-Za-z])")
_TAKEN_BACK = re.compile(
    r"^[^,.;]*\b(?:wrong|incorrect|except|false)\b|^\(?[A-J]\)?(?:\s*(?:[,/]\s*)?\(?[A-J]\)?)+$"
)
"""Matches an answer that denies a letter or names several of them: neither picks an option."""
_MARKUP = re.compile(r"\\(?:text|mathrm|mathbf|mbox)[a-z]*\s*|\\[ ,;:!()\[\]]")
# `A \cup B` is a formula about sets, not a choice.
_OPERATOR = re.compile(r"\\(?:cup|cap|setminus|times|in|subset|cdot|to)(?![a-z])")
_MARK = re.compile(r"[().:]")
MAX_OPTION = 200


class ChoiceVerdict(NamedTuple):
    """The decision of multiple choice about a pair: `equal` is None where the letters leave the
    question open.

    `option` is then the text of the gold's option, which the answer may give instead of the
    letter.
    """

    equal: bool | None
    detail: str = ""
    option: str = ""


OPEN = ChoiceVerdict(None)


def letters_in_order(gold: str, answer: str) -> bool | None:
    """Decide whether two lists of letters are the same sequence; None where they are no lists."""
    if len(gold) > MAX_OPTION or len(answer) > MAX_OPTION:
        return None
    texts = [as_words(text).upper() for text in (gold, answer)]
    if not all(map(_SEVERAL.match, texts)):
        return None
    first, second = (re.sub(r"AND|[^A-J]", "", text) for text in texts)
    return first == second


def choose(gold: str, answer: str) -> ChoiceVerdict:
    """Decide whether the answer picks the gold's option, provided that the gold is a choice.

    >>> choose("C", "(C) 12").equal, choose("(D) 12", "12").option
    (True, '12')
    """
    if len(gold) > MAX_OPTION or _LETTER.search(gold) is None:
        return OPEN
    words = as_words(gold).upper()
    if _SEVERAL.match(words):
        said = as_words(answer).upper()
        if _SEVERAL.match(said):
            first, second = (set(re.sub(r"AND|[^A-J]", "", text)) for text in (words, said))
            same = first == second
            return ChoiceVerdict(same, "the same choices" if same else "other choices")
        if re.fullmatch(r"(?:\W|\bOR\b|\b[A-J]\b)+", said):
            return ChoiceVerdict(False, "the answer leaves several choices open")
    # `_WITH_TEXT` needs one of four marks behind a letter: a gold without them needs no search.
    if alone := _ONE.match(words):
        letter, option = alone[1], ""
    elif (
        not _MARK.search(gold)
        or not (lettered := _WITH_TEXT.match(bare(gold)))
        or _OPERATOR.search(gold)
    ):
        return OPEN
    else:
        letter, option = lettered[1] or lettered[2] or lettered[3], lettered[4]
    chosen = chosen_letter(answer)
    if chosen is None:
        return ChoiceVerdict(None, option=option)
    same = chosen == letter
    return ChoiceVerdict(same, "the same choice" if same else f"choice {chosen}, not {letter}")


def chosen_letter(answer: str) -> str | None:
    """Return the letter that an answer picks, or None.

    The letter stands alone, or before the text of the option, or in a short sentence that
    mentions no other letter (`for sure D`). A mark on the letter (a bar, a prime, a sign) makes
    the letter a name of something else.
    """
    answer_text = " ".join(bare(answer).split())
    if _TAKEN_BACK.search(answer_text):
        return None
    if match := _ANSWER.match(answer_text):
        return match[1].upper()
    match = _SENTENCE.fullmatch(re.split(r"[,.;]", answer_text, maxsplit=1)[0].strip())
    return match[1] if match else None


_SENTENCE = re.compile(
    r"(?:(?i:for sure|definitely|surely|clearly|so|thus|hence|therefore|i (?:choose|pick|say)"
    r"|choose|pick|it is|it's|(?:the |la |die |el )?(?:correct |right |final |best "
    r"|bonne )?(?:answer|option|choice|statement|réponse|antwort|respuesta|opción|вариант"
    r"|ответ)(?: (?:is|must be|should be))?)[,:]?\s+)+\(?([A-J])\)?(?i: is (?:correct|right|true"
    r"|the (?:correct |right )?(?:answer|option|choice)))?"
)
"""Sentences that name one letter and nothing else."""


def bare(text: str) -> str:
    """Return the text without LaTeX markup, punctuation kept."""
    return re.sub(r"[{}$*]", "", _MARKUP.sub(" ", text)).strip()


_MARKED = (
    re.compile(r"(?<![\w$])\(([A-J])\)"),
    re.compile(r"(?<![\w$(])([A-J])[.):．、]\s*(?=\S)"),
    re.compile(r"(?m)^[ \t]*([a-j])\)\s*(?=\S)"),
)
"""The ways to mark options: `(A) 4`, `A. 4` and `a) 4` in lines."""


def listed(prompt: str) -> dict[str, str]:
    """Return the options that a question lists, by letter; empty if it lists none.

    >>> listed("Which is prime? (A) 4 (B) 7 (C) 9")
    {'A': '4', 'B': '7', 'C': '9'}
    """
    for pattern in _MARKED:
        marks = list(pattern.finditer(prompt))
        letters = [match[1].upper() for match in marks]
        if len(letters) > 1 and "".join(letters) == "ABCDEFGHIJ"[: len(letters)]:
            break
    else:
        return {}
    ends = [match.start() for match in marks[1:]] + [len(prompt)]
    spans = zip(marks, ends, strict=True)
    texts = [prompt[match.end() : end].strip(" \n\t,;.$\\*") for match, end in spans]
    whole = all(texts) and max(map(len, texts)) <= MAX_OPTION
    return dict(zip(letters, texts, strict=True)) if whole else {}


_CIRCLED = {0x2460 + place: f"({letter})" for place, letter in enumerate("ABCDEFGHIJ")}
_BRACKETED = re.compile(r"(?<![\w)/*^+·×-])\(([1-9])\)(?!\s*[(/*^+·×=-])")
_CHOICE_ASKED = re.compile(
    r"(?is)(?:\b(?:which|choose|select|option|correct)\b|다음 중|下列|哪|次のうち).*?\(1\)"
)


def numbered(prompt: str) -> bool:
    """Return whether a question lets choose from options `(1)`, `(2)` and so on."""
    is_choice = "(2)" in prompt and _CHOICE_ASKED.search(prompt)
    marks = _BRACKETED.findall(prompt) if is_choice else []
    return len(marks) > 1 and "".join(marks) == "123456789"[: len(marks)]


_PLAIN = re.compile(r"[\s$]*([1-9])[\s$]*번?[\s.$]*")


def in_letters(prompt: str, gold: str, answer: str) -> tuple[str, str, str]:
    """Return a question, its gold and an answer with letters for options in circles or by numbers
    in brackets, where gold or answer has such a sign; then a plain number that is the value of no
    option is a sign too.

    >>> in_letters("Which? ① 4 ② 7 ③ 9", "7", "②")[1:], in_letters("Which? ① 4 ② 7", "2", "②")[1:]
    (('7', '(B)'), ('(B)', '(B)'))
    """
    texts = [text.translate(_CIRCLED) for text in (prompt, gold, answer)]
    if numbered(prompt):
        texts = [_BRACKETED.sub(lambda sign: f"({'_ABCDEFGHI'[int(sign[1])]})", t) for t in texts]
    if texts[1:] == [gold, answer]:
        return prompt, gold, answer
    values = listed(texts[0]).values()
    for place in (1, 2):
        number = _PLAIN.fullmatch(texts[place])
        if number and number[1] not in values:
            texts[place] = _CIRCLED[0x245F + int(number[1])]
    return texts[0], texts[1], texts[2]
