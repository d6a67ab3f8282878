"""Whether messages can be appended to a sampled turn, as an episode does, and the turn stays.

The token ids of a prompt, a turn and what follows are compared with the ids that the chat template
gives for the whole conversation.
"""

from __future__ import annotations

from collections.abc import Sequence

from ludus.messages import Message

from ..chat import ChatFormat
from . import cases
from .cases import Continuation
from .report import Outcome
from .telling import first_change, short_reason
from .text import TemplateRefused


def continued(
    chat: ChatFormat, step: Continuation, *, apart: bool
) -> tuple[Outcome, str, Sequence[str]]:
    """Append messages to a turn as an episode does, and compare with the whole conversation.

    Args:
        chat: the chat format, with the repairs found so far.
        step: the turn, and what is appended to it.
        apart: whether thoughts stand in a field of their own, as in formats that mark whole turns.

    Returns:
        the outcome, a detail, and the repairs.
    """
    try:
        prompt, sampled_ids = chat.prompt([cases.ASKED], []), _sampled(chat, step, apart=apart)
        if not step.ended:
            sampled_ids = sampled_ids[:-1]
        added = chat.extension(
            step.new,
            ended=step.ended,
            thought=step.thought,
            last=sampled_ids[-1] if sampled_ids else None,
        )
        full_prompt = chat.prompt([cases.ASKED, _message_of(step, apart=apart), *step.new], [])
    except TemplateRefused as error:
        return Outcome.REFUSED, short_reason(error), []
    if added is None:
        reason = "the template rewrites the turn, so that a new segment (row) begins"
        return Outcome.REPAIRED, reason, ["new segment"]
    grown = [*prompt, *sampled_ids, *added]
    texts = [chat.tokenizer.decode(ids, skip_special_tokens=False) for ids in (grown, full_prompt)]
    if texts[0] != texts[1]:
        detail = f"the turn stays as sampled; the template would write {first_change(*texts)}"
    elif not getattr(chat.tokenizer, "verified", True):
        detail = "text alike; tokens unverified: no tokenizer"
    elif grown == full_prompt:
        detail = "text and tokens alike"
    else:
        detail = "text alike; tokens split otherwise at a seam"
    return Outcome.SUPPORTED, detail, []


def _message_of(step: Continuation, *, apart: bool) -> Message:
    return cases.thinking(step.said, apart=apart) if step.thought else step.said


def _sampled(chat: ChatFormat, step: Continuation, *, apart: bool) -> list[int]:
    """Return a turn as the policy would sample it: without the tag that the template opened."""
    answer = _message_of(step, apart=apart)
    thought_open = chat.opening.rstrip().endswith("<think>")
    if thought_open and step.thought and not apart:
        answer = Message(
            role=answer.role,
            content=answer.text[len("<think>\n") :],
            tool_calls=answer.tool_calls,
        )
    return chat.answer(answer, [cases.TOOL])
