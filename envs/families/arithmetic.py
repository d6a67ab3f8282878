"""The arithmetic environment: random expressions with exact answers, and a calculator tool.

After "Reasoning or Memorization?" (arXiv 2507.10532): problems drawn fresh from a generator cannot
have been in anyone's training data, so a rising reward means learning.

    user       12-7*3
    assistant  calculator(expression="12-7*3")
    tool       -9
    assistant  -9                                    reward 1

The answer is an exact rational such as `-9` or `7/3`; a fraction counts in lowest terms only, so
that a division is no answer to itself. Difficulty is the number of operations. No expression is in
two splits: a digest of the expression's text decides its split.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from ludus.errors import ConfigError, ToolError
from ludus.messages import Message, ToolCall, assistant

from ..protocol import TextEnv
from ..tasks import SPLITS, GeneratedTasks, Task, TaskSet, digest_of
from ..tools import ToolResult, tool

OPERATORS = "+-*/"
MAX_EXPRESSION_CHARS = 400
MAX_NUMBER_DIGITS = 30
SPLIT_BY_TENTH = (*["train"] * 8, "validation", "test")
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
_TOKEN = re.compile(r"\s*(?:(\d+)|([-+*/()]))")


@dataclass(frozen=True, slots=True)
class Expression:
    """An arithmetic expression as text, with the exact value."""

    text: str
    value: Fraction


def generate(
    rng: random.Random, *, operations: int, operators: str = OPERATORS, max_number: int = 99
) -> Expression:
    """Draw an expression tree with `operations` inner nodes that never divides by zero.

    At each node the number of operations on the left is uniform over all possibilities.
    """
    while True:
        try:
            text, value, _ = _tree(rng, operations, operators, max_number)
        except ZeroDivisionError:
            continue
        return Expression(text, value)


def split_of(text: str) -> str:
    """Return the split of an expression: 80 % are train, 10 % validation, 10 % test.

    The split is decided by a digest of the text alone, so no expression is ever in two splits.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return SPLIT_BY_TENTH[int.from_bytes(digest) % len(SPLIT_BY_TENTH)]


def _tree(
    rng: random.Random, operations: int, operators: str, max_number: int
) -> tuple[str, Fraction, int]:
    """Draw a random tree and return (text, value, precedence of the root operator)."""
    if operations == 0:
        number = rng.randint(1, max_number)
        return str(number), Fraction(number), 3  # a number binds more tightly than any operator
    operator = rng.choice(operators)
    left_operations = rng.randint(0, operations - 1)
    left = _tree(rng, left_operations, operators, max_number)
    right = _tree(rng, operations - 1 - left_operations, operators, max_number)
    precedence = _PRECEDENCE[operator]
    # Operators group from the left, so on the right an operator of the same precedence needs
    # parentheses: a-(b-c).
    left_text = f"({left[0]})" if left[2] < precedence else left[0]
    right_text = f"({right[0]})" if right[2] <= precedence else right[0]
    return f"{left_text}{operator}{right_text}", _apply(operator, left[1], right[1]), precedence


def _apply(operator: str, left: Fraction, right: Fraction) -> Fraction:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left / right


def evaluate(text: str) -> Fraction:
    """Return the exact value of an expression of digits, + - * / and parentheses.

    The shunting-yard algorithm takes time linear in the text and needs no `eval`.

    >>> evaluate("1/2+1/3")
    Fraction(5, 6)

    Raises:
        ToolError: the text is not such an expression, too long, or divides by zero.
    """
    if len(text) > MAX_EXPRESSION_CHARS:
        raise ToolError(
            f"the expression has {len(text)} characters; at most {MAX_EXPRESSION_CHARS} are read"
        )
    values: list[Fraction] = []
    waiting: list[str] = []
    operand_next = True
    for token in _tokens(text):
        if token.isdigit():
            _expect(operand_next, token, text)
            values.append(Fraction(int(token)))
            operand_next = False
        elif token == "(":
            _expect(operand_next, token, text)
            waiting.append(token)
        elif token == ")":
            _expect(not operand_next, token, text)
            _reduce(values, waiting, 0)
            if not waiting:
                raise ToolError(f"a ')' without '(' in {text!r}")
            waiting.pop()
        elif operand_next and token in "+-":
            # A sign waits as `~` or, for a plus, as the empty text. These have no entry in
            # `_PRECEDENCE`, and `_reduce` lets them bind more tightly than any operator.
            waiting.append("~" if token == "-" else "")
        else:
            _expect(not operand_next, token, text)
            _reduce(values, waiting, _PRECEDENCE[token])
            waiting.append(token)
            operand_next = True
    _expect(not operand_next, "the end", text)
    _reduce(values, waiting, 0)
    if waiting:
        raise ToolError(f"a '(' is not closed in {text!r}")
    return values[0]


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise ToolError(
                f"cannot read {stripped[position : position + 12]!r} in {text!r}; use "
                "digits + - * / ( )"
            )
        token = match[1] or match[2]
        if len(token) > MAX_NUMBER_DIGITS:
            raise ToolError(
                f"a number has {len(token)} digits; at most {MAX_NUMBER_DIGITS} are read"
            )
        tokens.append(token)
        position = match.end()
    return tokens


def _expect(right: bool, token: str, text: str) -> None:
    if not right:
        raise ToolError(f"did not expect {token!r} there in {text!r}")


def _reduce(values: list[Fraction], waiting: list[str], precedence: int) -> None:
    """Apply the waiting operators that bind at least as tightly as `precedence`."""
    while waiting and waiting[-1] != "(" and _PRECEDENCE.get(waiting[-1], 3) >= precedence:
        operator = waiting.pop()
        if operator in ("~", ""):
            values[-1] = -values[-1] if operator else values[-1]
            continue
        right = values.pop()
        if operator == "/" and right == 0:
            raise ToolError("division by zero")
        values[-1] = _apply(operator, values[-1], right)


MISTAKEN_FOR = {"+": "-", "-": "+", "*": "+", "/": "*"}
"""The wrong operator that a faulty demonstrator writes for each right operator. The mapping is
one-to-one: if several operators shared a mistake, the right operator could still be the most
likely.
"""
MAX_CHARACTERS = 1000
"""The most characters of an answer; a longer answer counts as wrong."""
MAX_DRAWS = 10_000
"""How many expressions are drawn before giving up on finding one that belongs to the task's split;
in the smaller splits one draw in ten does.
"""


class DemoFault(StrEnum):
    """The mistake that a biased demonstrator makes; see `Arithmetic(demo_fault=...)`."""

    NONE = "none"
    """Calls the calculator with the expression, then answers with its result."""
    SKIP_CALCULATOR = "skip-calculator"
    """Answers at once, with a guess."""
    WRONG_OPERATOR = "wrong-operator"
    """Calls the calculator with the first operator mistaken for another (`MISTAKEN_FOR`)."""


class ArithmeticTasks(GeneratedTasks):
    """A task set with a single expression per seed; the difficulty is the number of operations."""

    def __init__(
        self, split: str, operations: tuple[int, int], expression_of: Callable[[Task], Expression]
    ) -> None:
        super().__init__(split)
        self.operations = operations
        self._expression_of = expression_of

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty and a digest of the expression."""
        task = super().at(index)
        return Task(
            id=task.id,
            split=task.split,
            seed=task.seed,
            difficulty=float(self.operations_of(task)),
            problem=digest_of(self._expression_of(task).text),
        )

    def operations_of(self, task: Task) -> int:
        """Return how many operations the expression of `task` has."""
        return random.Random(f"operations/{task.seed}").randint(*self.operations)


class Arithmetic(TextEnv):
    """An environment that asks for the exact value of a random expression and offers a calculator.

    Args:
        min_operations: the fewest operations an expression has.
        max_operations: the most operations an expression has.
        operators: which of + - * / appear.
        max_number: numbers are drawn from 1 to this.
        demo_fault: what `demonstrate` does wrong.
        demo_fault_rate: the probability that a demonstration is faulty; above one half the most
            likely behaviour is wrong.

    Raises:
        ConfigError: a setting is out of range, or so few expressions are possible that a split has
            none.
    """

    never_blocks = True
    forks = "copy"
    system_prompt = "Work out the expression."
    answer_format = "Answer with a number or a reduced fraction such as 7/3, nothing else."
    max_turns = 6

    def __init__(
        self,
        *,
        min_operations: int = 1,
        max_operations: int = 3,
        operators: str = OPERATORS,
        max_number: int = 99,
        demo_fault: str = DemoFault.NONE,
        demo_fault_rate: float = 0.7,
    ) -> None:
        if not 1 <= min_operations <= max_operations <= 64:
            raise ConfigError(
                "need 1 <= min_operations <= max_operations <= 64, got "
                f"{min_operations}, {max_operations}"
            )
        if not operators or set(operators) - set(OPERATORS):
            raise ConfigError(f"operators must be some of {OPERATORS!r}, got {operators!r}")
        if max_number < 1:
            raise ConfigError(f"max_number must be at least 1, got {max_number}")
        digits = len(str(min(max_number, 10**MAX_NUMBER_DIGITS)))
        # Numbers, operators, and parentheses around every operation but the first.
        longest = (max_operations + 1) * digits + max_operations + 2 * (max_operations - 1)
        if digits > MAX_NUMBER_DIGITS or longest > MAX_EXPRESSION_CHARS:
            raise ConfigError(
                f"the calculator reads numbers of {MAX_NUMBER_DIGITS} digits and expressions of "
                f"{MAX_EXPRESSION_CHARS} characters; lower max_number or max_operations"
            )
        if not 0 <= demo_fault_rate <= 1:
            raise ConfigError(f"demo_fault_rate must be in [0, 1], got {demo_fault_rate}")
        if demo_fault not in list(DemoFault):
            raise ConfigError(
                f"demo_fault must be one of {', '.join(DemoFault)}, got {demo_fault!r}"
            )
        self.operations = (min_operations, max_operations)
        self.operators = operators
        self.max_number = max_number
        self.demo_fault = DemoFault(demo_fault)
        self.demo_fault_rate = demo_fault_rate
        self.expression = Expression("0", Fraction(0))
        self.last_result: str | None = None
        # More operations make more expressions: where the fewest suffice, all do.
        for split in SPLITS:
            self._draw(random.Random(f"probe/{split}"), min_operations, split)

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set; no expression is in two splits."""
        return ArithmeticTasks(split, self.operations, self._expression_of)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Show the expression of the task."""
        self.expression = self._expression_of(self.task)
        self.last_result = None
        self._slips = (
            self.rng.random() < self.demo_fault_rate and self.demo_fault is not DemoFault.NONE
        )
        return self.expression.text, {}

    def _expression_of(self, task: Task) -> Expression:
        tasks = ArithmeticTasks(task.split, self.operations, self._expression_of)
        rng = random.Random(f"expression/{task.seed}")
        return self._draw(rng, tasks.operations_of(task), task.split)

    def _draw(self, rng: random.Random, operations: int, split: str) -> Expression:
        """Return the first drawn expression that belongs to `split` and is not its own answer."""
        for _ in range(MAX_DRAWS):
            problem = generate(
                rng, operations=operations, operators=self.operators, max_number=self.max_number
            )
            if split_of(problem.text) == split and problem.text != str(problem.value):
                return problem
        raise ConfigError(
            f"too few expressions have {operations} operations of {self.operators!r} on numbers "
            f"to {self.max_number}: none was found for split {split!r}; enlarge max_number, "
            "min_operations or operators"
        )

    @tool
    def calculator(self, expression: str) -> ToolResult:
        """Work out an arithmetic expression exactly.

        Args:
            expression: digits, + - * / and parentheses
        """
        self.last_result = str(evaluate(expression))
        return ToolResult(content=self.last_result)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Score the answer: 1 for the exact value, else 0. The episode ends."""
        answer = read_answer(action) if isinstance(action, str) else None
        return "", float(answer == self.expression.value), True, False, {"answer": str(answer)}

    def gold(self) -> str:
        """Return the exact value, as text."""
        return str(self.expression.value)

    def demonstrate(self) -> str | Message:
        """Call the calculator, then answer with the result, or make the mistake of `demo_fault`."""
        if self.last_result is not None:
            return self.last_result
        if self._slips and self.demo_fault is DemoFault.SKIP_CALCULATOR:
            return str(self.rng.randint(0, self.max_number))
        text = self.expression.text
        if self._slips:
            # Replace the first operator as `MISTAKEN_FOR` says: the mistake is always the same.
            position = next(i for i, character in enumerate(text) if character in OPERATORS)
            text = f"{text[:position]}{MISTAKEN_FOR[text[position]]}{text[position + 1 :]}"
        return assistant("", [ToolCall(name="calculator", arguments={"expression": text})])


def read_answer(text: str) -> Fraction | None:
    """Read an exact number (integer, reduced fraction or decimal), perhaps with a full stop or a
    typographic minus; None if unreadable.

    >>> read_answer(" -7/3. "), read_answer("\u22127/3"), read_answer("-14/6")
    (Fraction(-7, 3), Fraction(-7, 3), None)
    """
    stripped = text.strip().removesuffix(".").replace("\u2212", "-")
    if len(stripped) > MAX_CHARACTERS or "e" in stripped.lower() or "_" in stripped:
        return None
    try:
        value = Fraction(stripped)
    except (ValueError, ZeroDivisionError):
        return None
    is_reduced = "/" not in stripped or str(value) == stripped.removeprefix("+")
    return value if is_reduced else None
