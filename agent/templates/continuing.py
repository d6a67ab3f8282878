"""A test of whether messages can be appended to a sampled turn without rewriting the turn.

An episode appends the ids of new messages to the ids of a prompt and a sampled turn. The result is
compared with the ids that the chat template gives for the whole conversation.
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
    message = cases.thinking(step.said, apart=apart) if step.thought else step.said
    answer = message
    if step.thought and not apart and chat.opening.rstrip().endswith("<think>"):
        # The policy would sample the turn without the tag that the template opened.
        sampled_text = message.text[len("<think>\n") :]
        answer = Message(role=message.role, content=sampled_text, tool_calls=message.tool_calls)
    try:
        prompt = chat.prompt([cases.ASKED], [])
        sampled_ids = chat.answer(answer, [cases.TOOL])
        if not step.ended:  # a turn that was cut lacks the token that ends turns
            sampled_ids = sampled_ids[:-1]
        added = chat.extension(
            step.new,
            ended=step.ended,
            thought=step.thought,
            last=sampled_ids[-1] if sampled_ids else None,
        )
        full_prompt = chat.prompt([cases.ASKED, message, *step.new], [])
    except TemplateRefused as error:
        return Outcome.REFUSED, short_reason(error), []
    if added is None:
        reason = "the template rewrites the turn, so that a new segment (row) begins"
        return Outcome.REPAIRED, reason, ["new segment"]
    extended = [*prompt, *sampled_ids, *added]
    extended_text = chat.tokenizer.decode(extended, skip_special_tokens=False)
    full_text = chat.tokenizer.decode(full_prompt, skip_special_tokens=False)
    # None of these differences is a fault: what the policy sampled is never rewritten, and the
    # detail tells how the template's own text differs.
    if extended_text != full_text:
        change = first_change(extended_text, full_text)
        detail = f"the turn stays as sampled; the template would write {change}"
    elif not getattr(chat.tokenizer, "verified", True):
        detail = "text alike; tokens unverified: no tokenizer"
    elif extended == full_prompt:
        detail = "text and tokens alike"
    else:
        # The tokenizer would join characters across the border of two pieces that were encoded
        # apart.
        detail = "text alike; tokens split otherwise at a seam"
    return Outcome.SUPPORTED, detail, []
