"""Functions that work on text."""

from __future__ import annotations


def run_lengths(text: str) -> str:
    """Each run of one character as the character and its length.

    >>> run_lengths("aaab")
    'a3b1'
    """
    written = ""
    count = 0
    for place, character in enumerate(text):
        count += 1
        if place + 1 == len(text) or text[place + 1] != character:
            written += character + str(count)
            count = 0
    return written


def is_balanced(text: str) -> bool:
    """Whether every ( [ and { is closed by its own kind, in order; other characters do not matter.

    >>> is_balanced("f(x[1], {2})")
    True
    >>> is_balanced("(]")
    False
    """
    closing = {"(": ")", "[": "]", "{": "}"}
    expected: list[str] = []
    for character in text:
        if character in closing:
            expected.append(closing[character])
        elif character in closing.values() and (not expected or expected.pop() != character):
            return False
    return not expected


def shifted(text: str, places: int) -> str:
    """Lower-case letters moved on in the alphabet, a following z; the rest as it is.

    >>> shifted("xyz, A", 2)
    'zab, A'
    """
    written = ""
    for character in text:
        if "a" <= character <= "z":
            written += chr((ord(character) - ord("a") + places) % 26 + ord("a"))
        else:
            written += character
    return written


def is_palindrome(text: str) -> bool:
    """Whether the letters and digits read the same both ways, whatever their case.

    >>> is_palindrome("No lemon, no melon!")
    True
    >>> is_palindrome("ab")
    False
    """
    kept = [character.lower() for character in text if character.isalnum()]
    low, high = 0, len(kept) - 1
    while low < high:
        if kept[low] != kept[high]:
            return False
        low += 1
        high -= 1
    return True


def wrapped(text: str, width: int) -> list[str]:
    """The words in lines of at most `width` characters, as many as fit on each; a longer word
    stands alone.

    >>> wrapped("to be or not to be", 6)
    ['to be', 'or not', 'to be']
    """
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) <= width:
            line += " " + word
        else:
            if line:
                lines.append(line)
            line = word
    if line:
        lines.append(line)
    return lines


def common_start(words: list[str]) -> str:
    """The longest text all words begin with; empty if there are no words.

    >>> common_start(["flower", "flow", "flight"])
    'fl'
    """
    if not words:
        return ""
    shortest = min(words, key=len)
    for place, character in enumerate(shortest):
        for word in words:
            if word[place] != character:
                return shortest[:place]
    return shortest


def initials(name: str) -> str:
    """The first letters of all words in upper case, each followed by a dot.

    >>> initials("ada  king lovelace")
    'A.K.L.'
    """
    written = ""
    for word in name.split():
        written += word[0].upper() + "."
    return written


def edit_distance(one: str, other: str) -> int:
    """The fewest letters to insert, remove or replace that make one text the other.

    >>> edit_distance("kitten", "sitting")
    3
    """
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        diagonal, row[0] = row[0], i
        for j, against in enumerate(other, 1):
            cost = 0 if letter == against else 1
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + cost)
            diagonal, row[j] = row[j], best
    return row[-1]


def word_counts(text: str) -> dict[str, int]:
    """How often each word occurs, in lower case, without .,;:!? at its ends.

    >>> word_counts("No, no: yes!")
    {'no': 2, 'yes': 1}
    """
    counts: dict[str, int] = {}
    for piece in text.lower().split():
        word = piece.strip(".,;:!?")
        if word:
            counts[word] = counts.get(word, 0) + 1
    return counts


def is_subsequence(short: str, long: str) -> bool:
    """Whether the letters of one text stand in another, in order, with gaps allowed.

    >>> is_subsequence("ace", "abcde")
    True
    >>> is_subsequence("aec", "abcde")
    False
    """
    found = 0
    for character in long:
        if found < len(short) and short[found] == character:
            found += 1
    return found == len(short)


def snake_case(name: str) -> str:
    """A camelCase name in snake_case.

    >>> snake_case("maxLineWidth")
    'max_line_width'
    """
    written = ""
    for place, character in enumerate(name):
        if character.isupper():
            if place > 0 and name[place - 1] != "_":
                written += "_"
            written += character.lower()
        else:
            written += character
    return written


def longest_word(text: str) -> str:
    """The longest word, the first of them if there are several; empty if there is none.

    >>> longest_word("an old red house and a large mouse")
    'house'
    """
    longest = ""
    for word in text.split():
        if len(word) > len(longest):
            longest = word
    return longest
