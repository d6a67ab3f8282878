"""Whoever writes judgements: a model behind an endpoint, one of a folder, or the policy itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ludus.errors import ConfigError, MissingExtra

from ...judge.caller import Effort, JudgeCaller, JudgeServer
from ...judge.prompt import JudgeQuestion, repaired
from ...judge.reading import UnreadableVerdict
from ...judge.store import JudgementStore
from .policy_text import NoRoomToAnswer, PolicyText
from .weights import model_folder

T = TypeVar("T")


class Asker(Protocol):
    """Answers questions of a judge's kind; `JudgeCaller` is one, over an endpoint."""

    async def ask(
        self, question: JudgeQuestion, read: Callable[[str], T], effort: Effort, *, draw: int = 0
    ) -> T:
        """The verdict that `read` finds in the answer; see `JudgeCaller.ask`."""
        ...

    async def close(self) -> None:
        """Release what is held."""
        ...


@dataclass(slots=True)
class TextAsker:
    """Asks a model that is at hand: of a folder, or the policy in training.

    Nothing is kept: the policy's weights move.

    Args:
        policy: who answers.
        temperature: of the first answer and all others; 0 makes draws equal.
        max_tokens: of one answer.
    """

    policy: PolicyText
    temperature: float = 0.0
    max_tokens: int = 512

    async def ask(
        self, question: JudgeQuestion, read: Callable[[str], T], effort: Effort, *, draw: int = 0
    ) -> T:
        """The verdict that `read` finds; an answer that cannot be read is asked for once more.

        Raises:
            UnreadableVerdict: neither answer can be read, or the question leaves no room for one.
        """
        said = await self._written(question, effort, draw)
        try:
            return read(_whole(*said))
        except UnreadableVerdict:
            effort.repaired += 1
            return read(_whole(*await self._written(repaired(question), effort, draw)))

    async def close(self) -> None:
        """Release what was opened for this."""
        await self.policy.close()

    async def _written(
        self, question: JudgeQuestion, effort: Effort, draw: int
    ) -> tuple[str, bool]:
        try:
            said = await self.policy.write(
                question.messages,
                max_tokens=self.max_tokens,
                temperature=self.temperature,
                seed=draw,
            )
        except NoRoomToAnswer as error:
            raise UnreadableVerdict(str(error)) from error
        effort.asked += 1
        return said


def _whole(text: str, ended: bool) -> str:
    if not ended:
        raise UnreadableVerdict("the answer was cut off by its token limit; raise max_tokens")
    return text


def open_asker(
    verifier: str,
    *,
    model: str,
    base_url: str,
    temperature: float,
    max_tokens: int,
    guided: bool,
    concurrency: int,
    deadline_s: float,
    cache: str,
    device: str,
    dtype: str,
) -> JudgeCaller | TextAsker:
    """Whoever `model` names: of the server at `base_url`, or without one of a folder.

    Raises:
        ConfigError: neither can be used.
        MissingExtra: torch or transformers is not installed.
    """
    if base_url:
        if not model:
            raise ConfigError(f"{verifier}: base_url needs model, the name of the server's model")
        server = JudgeServer(
            base_url=base_url, model=model, temperature=temperature, max_tokens=max_tokens,
            guided=guided, concurrency=concurrency, deadline_s=deadline_s,
        )  # fmt: skip
        return JudgeCaller(server, JudgementStore(cache or ":memory:"))
    folder = model_folder(model, verifier=verifier)
    try:
        from .folder_text import FolderText
    except ImportError as error:
        raise MissingExtra.of("train", needed_for=verifier) from error
    text = FolderText(folder, name=verifier, device=device, dtype=dtype)
    return TextAsker(text, temperature, max_tokens)
