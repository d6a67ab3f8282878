"""Names of values: which name a value has, and the order that names give to several values."""

from __future__ import annotations

import re

from ..proving.judge import Judge
from ..reading.nodes import EXACT, Node, is_scalar, sym, symbols
from ..reading.vocabulary import DENIALS, words
from .definitions import assigned, is_one_name


def spread(node: Node) -> Node:
    """Return `(x, y) = (1, 2)` as the list `x = 1, y = 2`; other nodes are returned unchanged."""
    if node.op != "rel" or node.note != "=" or len(node.args) != 2:
        return node
    names, values = node.args
    tuples = names.op == values.op == "bracket" and len(names.args) == len(values.args)
    if not tuples or not is_one_name(names):
        return node
    pairs = zip(names.args, values.args, strict=True)
    return Node("list", tuple(Node("rel", pair, 0, "=") for pair in pairs), 0, ",")


def is_claim(node: Node) -> bool:
    """Return whether `node` is a value or `x = value`: "1 and 2" and "1 or 2" then list the same
    values.
    """
    return node.note == "=" if node.op == "rel" else node.op not in {"sym", "text", "call"}


def by_letter(node: Node, judge: Judge) -> list[Node]:
    """Return the values of `y=2, x=1`, sorted by name where the names are neighbouring letters or
    share a letter; otherwise in written order.
    """
    pairs = [assigned(item, judge) for item in node.args]
    assignments = [pair for pair in pairs if pair is not None]
    if len(assignments) != len(pairs):
        return list(node.args)
    if any(name.op == "text" for name, _ in assignments):
        return [value for _, value in assignments]
    names = [name.note for name, _ in assignments]
    letters = "".join(sorted(names)) in _ALPHABET or len({name[:1] for name in names}) == 1
    if letters:
        assignments.sort(key=lambda pair: pair[0].note)
    return [value for _, value in assignments]


def point(node: Node) -> Node:
    """Return the coordinates of a point with its name, `A(1, 4)`; other nodes are unchanged."""
    named = node.op == "call" and re.fullmatch(r"[A-Z](?:_\d)?'?", node.note)
    return Node("bracket", node.args, 0, "()") if named and len(node.args) > 1 else node


def is_unordered(node: Node) -> bool:
    """Return whether a list gives several values to one name, or to words, of which none comes
    first: neither `x = 2, x = 5` nor `mode = 8, mean = 9` is a point.
    """
    names = [item.args[0] for item in node.args if item.op == "rel" and item.note == "="]
    worded = any(name.op == "text" for name in names)
    return len(names) == len(node.args) > 1 and (worded or len(set(names)) == 1)


_ALPHABET = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""The alphabet in which neighbouring letters are taken for coordinates: x, y, z or a, b."""


def may_agree(first: Node, second: Node) -> bool:
    """Return False for two different exact numbers. This cheap test settles most pairs of a long
    list.
    """
    return first.op not in EXACT or second.op not in EXACT or first.value == second.value


_LABEL = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")
# Words that change what is said about a value: `half of x = 3`, `less than x = 3`.
_CHANGES = DENIALS | words(
    "less more half twice double triple almost nearly minus negative non all except neither either "
    "up over under between opposite false about un no nor none any some maximum minimum if only "
    "without inverse square root"
)


def is_plain_label(name: Node) -> bool:
    """Return whether words before an equals sign only name the value: `area`, never `less than
    x`.
    """
    label = name.note.casefold()
    plain = _LABEL.fullmatch(label) is not None
    return plain and not _CHANGES.intersection(re.split(r"[ '-]", label))


def says_otherwise(name: Node) -> bool:
    """Return whether words before an equals sign change the claim about the value."""
    said = _STATES.sub("", name.note.casefold())
    return name.op == "text" and bool(_CHANGES.intersection(re.split(r"[^\w]+", said)))


_STATES = re.compile(r"\s(?:is|are|occurs|lies)(?: at)?(?: [a-z])?\s*$")
"""The verb behind a name: `the asymptote is at`."""


def one_residue_name(gold: Node, answer: Node) -> bool:
    """Return whether a gold `t = 3 (mod 7)` and its answer use the same variable, as far as both
    name a variable.
    """
    sides = [node.args[0] for node in (gold, answer) if node.op == "mod"]
    names = {side.args[0] for side in sides if side.op == "rel"}
    return len(names) < 2


def branches(node: Node) -> list[Node]:
    return [
        Node("bracket", (value, condition), 0, "()")
        for value, condition in zip(node.args[::2], node.args[1::2], strict=True)
    ]


def names_fit(gold: Node, answer: Node, judge: Judge) -> bool:
    """Decide whether two equal values also describe the same thing.

    Another name is another answer, unless the name is in words (`Area` for A) or `y` stands for
    `f(x)`.
    """
    if gold == answer:
        return judge.decided("named value", True)
    if gold.op == answer.op == "text":
        first, second = (set(re.findall(r"\w+", name.note.casefold())) for name in (gold, answer))
        return judge.decided(
            "named value", first <= second or second <= first, "the words name another value"
        )
    if "text" in (gold.op, answer.op):
        plain = all(is_plain_label(name) for name in (gold, answer) if name.op == "text")
        return judge.decided("named value", plain, "the words name another value")
    stems = [name.note.split("_")[0] for name in (gold, answer)]
    if gold.op == answer.op == "sym" and stems[0] == stems[1] and "_" not in gold.note:
        return judge.decided("named value", True)
    applied = answer.op == "mul" and len(answer.args) == 2 and answer.args[0] == gold
    if applied and gold.op == "sym" and answer.args[1].op == "sym":  # `y(x) = ...` for `y = ...`
        return judge.decided("named value", True)
    plots = {gold.op, answer.op} == {"sym", "call"} and all(
        name == _Y if name.op == "sym" else name.note.removesuffix("^-1").isalpha()
        for name in (gold, answer)
    )
    if plots:
        return judge.decided("named value", True)
    both_scalars = is_scalar(gold) and is_scalar(answer) and gold.op not in {"sym", "call"}
    same = both_scalars and judge.equal(gold, answer)
    return judge.decided("named value", same, "the answer is about another variable")


_Y = sym("y")


def is_curve(node: Node) -> bool:
    return node.op == "rel" and len(node.args) == 2 and all(is_scalar(side) for side in node.args)


def about_one_variable(gold: Node, answer: Node) -> bool:
    """Return whether two inequalities, or lists of inequalities, concern the same letters."""
    if not {gold.op, answer.op} <= {"rel", "list"}:
        return True
    subjects = [_subject(node) for node in (gold, answer)]
    if None not in subjects and subjects[0] != subjects[1]:
        return False
    gold_symbols, answer_symbols = symbols(gold), symbols(answer)
    return not gold_symbols or not answer_symbols or bool(gold_symbols & answer_symbols)


def _subject(node: Node) -> Node | None:
    """Return the letter or call that a plain inequality constrains, None where no single side
    qualifies.
    """
    if node.op != "rel" or len(node.args) != 2:
        return None
    sides = [side for side in node.args if symbols(side)]
    return sides[0] if len(sides) == 1 and sides[0].op in {"sym", "call"} else None
