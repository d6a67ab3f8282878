"""The conversations that the probe of a chat template renders.

They are made of words that no template writes by itself, so that a word in the rendered text comes
from a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import THOUGHT_MARKS, Message, ToolCall, assistant, system, tool_result, user

SYSTEM, LATER, USER, SECOND, ANSWER = (
    "kestrelsys",
    "kestrellate",
    "petrelask",
    "petrelnext",
    "terek",
)
THOUGHT, RESULT, OTHER_RESULT = "dotterelmuse", "whimbrelfound", "avocetfound"
SPOKEN, VALUE, OTHER_VALUE, SUMMARY = "plovertalk", "shrikevalue", "crakevalue", "knotsummary"

TOOL = ToolSpec(
    name="bitternlook",
    description="ruffdescribes a place.",
    parameters={
        "type": "object",
        "properties": {"egretat": {"type": "string", "description": "stiltexplains where"}},
        "required": ["egretat"],
    },
)
NAMES = (TOOL.name, "egretat")
DESCRIPTIONS = ("ruffdescribes", "stiltexplains")
CALL = ToolCall(name=TOOL.name, arguments={"egretat": VALUE}, id="call_0")
OTHER_CALL = ToolCall(name=TOOL.name, arguments={"egretat": OTHER_VALUE}, id="call_1")


@dataclass(frozen=True, slots=True)
class Case:
    """A conversation, and the words that the rendered text must contain."""

    messages: Sequence[Message]
    words: Sequence[str]
    """The words that must be shown."""
    tools: Sequence[ToolSpec] = ()
    twice: Sequence[str] = ()
    """Words of two messages, which must be shown at least twice."""


def thinking(answer: Message, *, apart: bool = False) -> Message:
    """Return an answer with thoughts, marked in the text or `apart` in a field of their own."""
    marks = None if apart else THOUGHT_MARKS
    return msgspec.structs.replace(answer, reasoning=THOUGHT, thought_marks=marks)


ASKED = user(USER)
CALLS = assistant("", [CALL])
CALLS_ALOUD = assistant(SPOKEN, [CALL])
CALLS_TWICE = assistant("", [CALL, OTHER_CALL])
FOUND, OTHER_FOUND = tool_result(RESULT, CALL), tool_result(OTHER_RESULT, OTHER_CALL)

QUESTION = [Case([ASKED], [USER]), Case([ASKED, assistant(ANSWER), user(SECOND)], [ANSWER, SECOND])]
WITH_SYSTEM = [Case([system(SYSTEM), ASKED], [SYSTEM, USER])]
IN_A_ROW = [Case([ASKED, user(SECOND)], [USER, SECOND])]
LATE_SYSTEM = [
    Case([system(SYSTEM), ASKED, assistant(ANSWER), system(LATER)], [SYSTEM, LATER]),
    Case([system(SYSTEM), ASKED, assistant(ANSWER), system(LATER), user(SECOND)], [LATER, SECOND]),
]
TOOLS = [
    Case([ASKED], [*NAMES, *DESCRIPTIONS, USER], [TOOL]),
    Case([system(SYSTEM), ASKED], [*NAMES, *DESCRIPTIONS, SYSTEM, USER], [TOOL]),
]
CALL_SHOWN = [
    Case([ASKED, CALLS, FOUND], [*NAMES, VALUE]),
    Case([ASKED, CALLS_ALOUD, FOUND], [SPOKEN, VALUE]),
    Case([ASKED, CALLS_TWICE, FOUND, OTHER_FOUND], [VALUE, OTHER_VALUE]),
]
RESULT_SHOWN = [
    Case([ASKED, CALLS, FOUND], [RESULT]),
    Case([ASKED, CALLS_TWICE, FOUND, OTHER_FOUND], [RESULT, OTHER_RESULT]),
    Case([ASKED, CALLS, FOUND, user(SECOND)], [RESULT, SECOND]),
]
EPISODES = [
    Case(
        [
            system(SYSTEM), ASKED, CALLS_ALOUD, FOUND, CALLS_ALOUD, FOUND, CALLS_TWICE, FOUND,
            OTHER_FOUND, assistant(ANSWER), user(SECOND), assistant(""), user(SUMMARY),
        ],
        [SYSTEM, USER, OTHER_VALUE, OTHER_RESULT, ANSWER, SECOND, SUMMARY, *NAMES],
        [TOOL],
        twice=[SPOKEN, RESULT],
    ),
    Case(
        [ASKED, user(SECOND), assistant(ANSWER), assistant(SPOKEN), tool_result("", CALL)],
        [USER, SECOND, ANSWER, SPOKEN],
        [TOOL],
    ),
    Case([system(SYSTEM), assistant(ANSWER), user(SECOND)], [SYSTEM, ANSWER, SECOND], [TOOL]),
]  # fmt: skip
"""Whole episodes with everything that an environment may do, so that the probe finds a template
that cannot render some of this, before a run would.
"""


def of_one_call(case: Case) -> Case:
    """Return a case with at most one call in each turn, and with thoughts in a field of their own.

    In formats that mark whole turns, a turn ends with its first call.
    """
    other_messages = {OTHER_VALUE, OTHER_RESULT}
    messages = [
        thinking(CALLS if message is CALLS_TWICE else message, apart=True)
        if message.role == "assistant"
        else message
        for message in case.messages
        if message is not OTHER_FOUND
    ]
    return replace(
        case, messages=messages, words=[w for w in case.words if w not in other_messages]
    )


@dataclass(frozen=True, slots=True)
class Continuation:
    """A turn of the policy, and the messages that follow the turn."""

    name: str
    said: Message
    """The turn of the policy."""
    new: Sequence[Message]
    """The messages that follow."""
    ended: bool = True
    """Whether the policy ended the turn; a turn that was cut has no end mark."""
    thought: bool = False
    """Whether the turn begins with thoughts."""


CONTINUATIONS = [
    Continuation("user after an answer", assistant(ANSWER), [user(SECOND)]),
    Continuation("result after a call", CALLS, [FOUND]),
    Continuation("results after two calls", CALLS_TWICE, [FOUND, OTHER_FOUND]),
    Continuation("summary after a result", CALLS, [FOUND, user(SUMMARY)]),
    Continuation("user after a cut turn", assistant(ANSWER), [user(SECOND)], ended=False),
    Continuation("user after thoughts", assistant(ANSWER), [user(SECOND)], thought=True),
    Continuation("result after thoughts", CALLS, [FOUND], thought=True),
]
