"""Askers have a model write judgements: a server's model, a folder's model, or the policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ludus.errors import ConfigError, MissingExtra

from ...judge.caller import Effort, JudgeCaller, JudgeServer
from ...judge.prompt import JudgeQuestion, repaired
from ...judge.reading import UnreadableVerdict
from ...judge.store import JudgementStore
from .head import AskerSettings, HeadSettings
from .policy_text import NoRoomToAnswer, PolicyText
from .weights import model_folder

T = TypeVar("T")


class Asker(Protocol):
    """Puts a judge's questions to a model; `JudgeCaller` is an asker of a model behind a server."""

    async def ask(
        self, question: JudgeQuestion, read: Callable[[str], T], effort: Effort, *, draw: int = 0
    ) -> T:
        """Return the verdict that `read` finds in the answer; see `JudgeCaller.ask`."""
        ...

    async def close(self) -> None:
        """Release the connections or the model that the asker holds."""
        ...


@dataclass(slots=True)
class TextAsker:
    """An asker of a model in this process: a folder's model, or the policy in training.

    No answer is cached, since the policy's weights change. There is no deadline either: the process
    that owns the model bounds the time.

    Args:
        policy: the model that answers.
        temperature: temperature of every answer; 0 makes draws equal.
        max_tokens: most tokens of one answer.
    """

    policy: PolicyText
    temperature: float = 0.0
    max_tokens: int = 512

    async def ask(
        self, question: JudgeQuestion, read: Callable[[str], T], effort: Effort, *, draw: int = 0
    ) -> T:
        """Ask, and ask once more after an answer that `read` refuses; return the verdict.

        Raises:
            UnreadableVerdict: neither answer can be read, or the question leaves no room for one.
        """
        text = await self._write(question, effort, draw)
        try:
            return read(_finished_text(*text))
        except UnreadableVerdict:
            effort.repaired += 1
            return read(_finished_text(*await self._write(repaired(question), effort, draw)))

    async def close(self) -> None:
        """Release the model, unless the model is the policy in training."""
        await self.policy.close()

    async def _write(self, question: JudgeQuestion, effort: Effort, draw: int) -> tuple[str, bool]:
        try:
            written = await self.policy.write(
                question.messages,
                max_tokens=self.max_tokens,
                temperature=self.temperature,
                seed=draw,
            )
        except NoRoomToAnswer as error:
            raise UnreadableVerdict(str(error)) from error
        effort.asked += 1
        return written


def _finished_text(text: str, has_ended: bool) -> str:
    if not has_ended:
        raise UnreadableVerdict("the answer was cut off by its token limit; raise max_tokens")
    return text


def open_asker(verifier: str, settings: AskerSettings) -> JudgeCaller | TextAsker:
    """Open an asker of the server's model, or of a folder's model where no server is named.

    Raises:
        ConfigError: the server's settings or the folder cannot be used.
        MissingExtra: torch or transformers is not installed.
    """
    if settings.base_url:
        if not settings.model:
            raise ConfigError(f"{verifier}: base_url needs model, the name of the server's model")
        server = JudgeServer(
            base_url=settings.base_url,
            model=settings.model,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            guided=settings.guided,
            concurrency=settings.concurrency,
            deadline_s=settings.deadline_s,
        )
        return JudgeCaller(server, JudgementStore(settings.cache or ":memory:"))
    folder = model_folder(settings.model, verifier=verifier)
    try:
        from .folder_text import FolderText
    except ImportError as error:
        raise MissingExtra.of("train", needed_for=verifier) from error
    head_settings = HeadSettings(device=settings.device, dtype=settings.dtype)
    text = FolderText(folder, verifier, head_settings)
    return TextAsker(text, settings.temperature, settings.max_tokens)
