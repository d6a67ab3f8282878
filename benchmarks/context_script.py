"""The scripted policy of `context.py`, as an engine: a window's tokens in, its words out."""

import json
import re
from collections.abc import Sequence

from context_worlds import World, call

from ludus.agent import ChatFormat, Finish, Generation, Sampling
from ludus.agent.images import PlacedImage
from ludus.messages import Message, Role

END, ASK, STATE, FOLD = "<|im_end|>", "Sum up.", "Note.", "Compress."
PATH = "/memories/notes"
_CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)
_RESULT = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)


class ScriptedEngine:
    """Reads a window and answers as the world's policy does under a manager.

    Args:
        chat: of the tokens.
        world: the environment's reader.
        manager: name of the manager, as in settings.
        session: the episode; only for the plan of a search.
        max_length: the most tokens of a row.
    """

    version = 0

    def __init__(
        self, chat: ChatFormat, world: World, manager: str, session, max_length: int
    ) -> None:
        self.chat, self.world, self.session = chat, world, session
        self.parts = {part.partition("?")[0] for part in manager.split("+")}
        self.max_length = max_length
        self.longest = 0

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        """Say what the policy says to this window."""
        text = self.chat.tokenizer.decode(list(ids), skip_special_tokens=False)
        said = self.chat.tokenizer.encode(self.says(text) + END, add_special_tokens=False)
        said = said[: sampling.max_tokens]
        self.longest = max(self.longest, len(ids) + len(said))
        return Generation(
            ids=said,
            logprobs=[0.0] * len(said),
            finish=Finish.STOP if said[-1] in sampling.stop_token_ids else Finish.LENGTH,
            versions=[0] * len(said),
        )

    def says(self, text: str) -> str:
        """The words for a window."""
        messages = window_of(text)
        facts = self.world.facts(messages)
        notes = self.world.notes(facts, self.session)
        if messages[-1].text.endswith(ASK):
            return notes
        action = self._own_call(messages, facts) or self.world.act(messages, facts, self.session)
        if "mem1" in self.parts:
            return f"<IS>{notes}</IS>{action}"
        if "agent_fold" in self.parts and any(
            message.role is Role.ASSISTANT for message in messages
        ):
            done = [
                int(last) for last in re.findall(r"Steps? (?:\d+ to )?(\d+):", messages[1].text)
            ]
            step = 1 + max(done, default=0)
            directive = {"compress_range": [1, step], "compress_text": notes}
            return f"<compress>{json.dumps(directive)}</compress>{action}"
        return action

    def _own_call(self, messages: Sequence[Message], facts: dict[str, str]) -> str:
        """A call of a manager's tool where one is due."""
        shown = "\n".join(message.text for message in messages)
        if "memory" in self.parts:
            listed = "Your files:" in messages[1].text
            saved = [
                index
                for index, message in enumerate(messages)
                if PATH in message.text and index > 1
            ]
            if listed and not saved:
                return call("memory", command="view", path=PATH)
            known = self.world.noted([messages[saved[-1]]]) if saved else {}
            notes = self.world.notes(facts, self.session)
            if notes != self.world.notes(known, self.session):
                return call("memory", command="create", path=PATH, file_text=notes)
        if "records" in self.parts:
            wanted = self.world.missing(facts, self.session)
            line = re.search(rf"^(\d+): .*{re.escape(wanted)}.*$", shown, re.MULTILINE)
            if wanted and line:
                return call("fetch_record", id=int(line[1]))
        if "fold" in self.parts:
            opened = [
                index
                for index, message in enumerate(messages)
                if "You are in a branch" in message.text
            ]
            if not opened:
                return call("branch", prompt="go on")
            if len(self.world.read_all(messages[opened[-1] :])) >= self.world.save_every:
                return call("return_branch", message=self.world.notes(facts, self.session))
        return ""

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        """Not measured here."""
        return [0.0] * len(ids)

    async def close(self) -> None:
        """Nothing to close."""


class Scribe:
    """The separate summariser of `resum`: the same reader, over a transcript."""

    def __init__(self, world: World, session) -> None:
        self.world, self.session = world, session

    async def write(self, messages: Sequence[Message], max_tokens: int) -> str:
        """Notes on the conversation in the last message."""
        parts = re.split(r"\n\n\[(\w+)\] ", messages[-1].text)
        rows = zip(parts[1::2], parts[2::2], strict=True)
        said = joined([Message(role=Role(role), content=text) for role, text in rows])
        return self.world.notes(self.world.facts(said), self.session)

    async def close(self) -> None:
        """Nothing to close."""


def window_of(text: str) -> list[Message]:
    """The messages of a rendered window; a call and its result are one text, `name(...) -> ...`."""
    messages: list[Message] = []
    for block in text.split("<|im_start|>")[1:]:
        role, _, said = block.partition("\n")
        messages.append(Message(role=Role(role), content=said.split(END)[0]))
    return joined(
        [message for message in messages if message.content or message.role is not Role.ASSISTANT]
    )


def joined(messages: Sequence[Message]) -> list[Message]:
    """Put each call in front of its result."""
    merged: list[Message] = []
    for message in messages:
        results = _RESULT.findall(message.text) or [message.text] * (message.role is Role.TOOL)
        if results and merged:
            calls = [json.loads(match) for match in _CALL.findall(merged[-1].text)]
            named = [f"{request['name']}({json.dumps(request['arguments'])})" for request in calls]
            heads = named or [merged[-1].text.strip()]
            shown = [f"{head} -> {text}" for head, text in zip(heads, results, strict=False)]
            merged.append(Message(role=Role.TOOL, content="\n".join(shown)))
        else:
            merged.append(message)
    return merged
