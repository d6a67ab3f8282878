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
    message = cases.thinking(step.said, apart=apart) if step.thought else step.said
    answer = message
    if step.thought and not apart and chat.opening.rstrip().endswith("<think>"):
        # The policy would sample the turn without the tag that the template opened.
        said = message.text[len("<think>\n") :]
        answer = Message(role=message.role, content=said, tool_calls=message.tool_calls)
    try:
        prompt = chat.prompt([cases.ASKED], [])
        sampled_ids = chat.answer(answer, [cases.TOOL])
        if not step.ended:
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
