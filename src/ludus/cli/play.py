"""`ludus play`: play an environment in the terminal, where text cannot move the cursor."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from ludus.agent import Episode, EpisodeLimits, HumanPolicy, play
from ludus.agent.human_policy import EARNED, usage
from ludus.envs import EnvSession, ToolSpec
from ludus.envs.gym import Playable
from ludus.messages import Message, Role

from .arguments import VerbHelp, parse
from .sessions import named, opener

STYLES = {Role.SYSTEM: "dim", Role.USER: "cyan", Role.ASSISTANT: "green", Role.TOOL: "yellow"}

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for tab and line feed
    "\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that reverse the direction of text
    "\ud800-\udfff]"  # lone surrogates cannot be printed
)


def escaped(text: str) -> str:
    r"""Write control characters as Python escapes, so that the terminal does not obey the text.

    >>> escaped("\x1b[31mred")
    '\\x1b[31mred'
    """
    return _OBEYED.sub(lambda match: ascii(match[0])[1:-1], text)


def show_message(console: Console, message: Message) -> None:
    """Draw a message in a box, with role, text and tool calls."""
    title = f"{message.role} {message.name}".strip()
    lines = [message.text] if message.text else []
    for call in message.tool_calls:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        lines.append(f"{call.name}({arguments})")
    body = "\n".join(lines)
    body += f"\n[{len(message.images)} images]" if message.images else ""
    style = STYLES[message.role]
    panel = Panel(Text(escaped(body)), title=escaped(title), title_align="left", border_style=style)
    console.print(panel)


def show_tools(console: Console, tools: Sequence[ToolSpec]) -> None:
    """Print a line for each tool: how to call the tool, and a summary."""
    for tool in tools:
        summary = tool.description.partition("\n")[0]
        console.print(Text(escaped(f"  {usage(tool)}  {summary}"), "yellow"))


PATIENCE_S = 24 * 3600.0
HELP = "your text is the answer; /tool calls a tool; /undo, /help; /quit or Ctrl-D leaves"


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    """The options of `ludus play`."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """The environment's id; constructor arguments as in 'ludus/arithmetic-v0?max_operations=1'."""
    url: Annotated[str, tyro.conf.arg(metavar="URL")] = ""
    """The server on which to play the environment; by default it runs in this process."""
    task: Annotated[str, tyro.conf.arg(metavar="ID")] = ""
    """The id of the task, such as train/17; by default the seed chooses a task of the split."""
    split: str = "train"
    """The split that the task is taken from."""
    seed: int = 0
    """The seed of the episode, and of the task if none is named."""


def main(arguments: Sequence[str]) -> int:
    """Play an episode; returns 1 if the episode ended without a reward, else 0."""
    options = parse(
        PlayOptions,
        arguments,
        VerbHelp(
            verb="play",
            about="Play an environment yourself; what you see is what a policy is shown.",
            example="ludus play ludus/arithmetic-v0 --seed 7",
        ),
    )
    name = named(options.env, options.url)
    # Not asyncio.run: it would hold Ctrl-C back while input() waits on the loop's own thread.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_play(options, name))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _play(options: PlayOptions, name: str) -> int:
    console = Console(highlight=False)
    async with opener(name) as open_session:
        session = open_session()
        try:
            return await _play_session(console, session, options)
        finally:
            await session.close()


async def _play_session(console: Console, session: Playable, options: PlayOptions) -> int:
    """Play until the end. To take a line back, the episode is played again from the start without
    the last line, which gives the same state where an environment is deterministic.
    """
    script: list[str] = []
    while True:
        place = PlayerPrompt(console, script, can_undo=lambda: session.deterministic)
        episode = await play(
            session,
            HumanPolicy(place.ask),
            task=options.task or None,
            split=options.split,
            seed=options.seed,
            limits=EpisodeLimits(max_turns=10_000, max_idle_turns=0, episode_timeout_s=PATIENCE_S),
        )
        if not place.undone:
            return _show_end(console, session, episode, has_left=place.left)
        script = place.lines[:-1]


class PlayerPrompt:
    """Shows a person what is new in an episode, and asks for the next message.

    Args:
        console: where it is shown.
        script: lines that are played first, unseen.
        can_undo: whether the same lines give the same episode.
    """

    def __init__(
        self,
        console: Console,
        script: Sequence[str] = (),
        *,
        can_undo: Callable[[], bool] = lambda: False,
    ) -> None:
        self.console = console
        self.left, self.undone = False, False
        self.lines: list[str] = []
        """The lines so far that were actions."""
        self._script, self._can_undo = list(script), can_undo
        self._greeted = bool(script)

    def ask(self, new: Sequence[Message], tools: Sequence[ToolSpec], complaint: str) -> str:
        """Show the new messages and the complaint about the last answer, and return the line typed.

        Raises:
            EOFError: the person leaves, by `/quit` or end of input, or takes the last line back.
        """
        if complaint and not complaint.startswith(EARNED):
            self.lines.pop()  # it was no action
        if self._script:
            self.lines.append(self._script.pop(0))
            return self.lines[-1]
        for message in new:
            show_message(self.console, message)
        if complaint:
            style = "green" if complaint.startswith(EARNED) else "red"
            self.console.print(Text(escaped(complaint), style))
        if not self._greeted:
            self._greeted = True
            show_tools(self.console, tools)
            self.console.print(Text(HELP, "dim"))
        with contextlib.suppress(ImportError):
            importlib.import_module("readline")  # gives input() history and editing
        while True:
            try:
                line = input("you> ")
            except EOFError:
                self.left = True
                raise
            if line.strip() == "/quit":
                self.left = True
                raise EOFError
            if line.strip() == "/undo":
                self._undo()
            elif line.strip() == "/help":
                show_tools(self.console, tools)
                self.console.print(Text(HELP, "dim"))
            else:
                self.lines.append(line)
                return line

    def _undo(self) -> None:
        """Take the last action back, or say why that cannot be.

        Raises:
            EOFError: the episode is to be played again without it.
        """
        if not self.lines:
            self.console.print(Text("there is nothing to take back", "red"))
        elif not self._can_undo():
            self.console.print(
                Text("nothing can be taken back: this environment is not deterministic", "red")
            )
        else:
            self.undone = True
            raise EOFError


def _show_end(console: Console, session: Playable, episode: Episode, *, has_left: bool) -> int:
    trajectory = episode.trajectories[0]
    verdict = trajectory.verdict
    if has_left:
        console.print(f"left {escaped(episode.task)} before the end")
        return 0
    if not verdict.ok:
        console.print(Text(escaped(f"no reward ({verdict.status}): {verdict.detail}"), "red"))
        return 1
    for message in trajectory.closing:  # what the last action was answered
        show_message(console, message)
    parts = ", ".join(f"{name} {value:g}" for name, (value, _) in verdict.parts.items())
    summary = f"reward {verdict.unwrap():g} ({parts}), {trajectory.stop}, task {episode.task}"
    console.print(Text(escaped(f"{summary}. {verdict.detail}".strip())))
    gold = session.env.gold() if isinstance(session, EnvSession) else None
    if gold is not None:
        console.print(Text(escaped(f"the answer: {gold}"), "dim"))
    return 0
