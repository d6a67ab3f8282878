"""What experts do is written and read alike in every tool format."""

from itertools import islice
from typing import Any

import pytest

from ludus.agent.parsing import TOOL_FORMATS, tool_format
from ludus.envs import EnvSession, build_env, env_ids
from ludus.errors import MissingExtra
from ludus.messages import Message, as_action, assistant

SHIPPED = [env_id for env_id in env_ids() if env_id.startswith("ludus/")]
TURNS = 12


def as_message(shown: str | Message) -> Message:
    return shown if isinstance(shown, Message) else assistant(shown)


def alone(arguments: dict[str, Any], stripped: bool) -> dict[str, Any]:
    """The arguments, a single text without the space around it."""
    (value,) = arguments.values() if len(arguments) == 1 else [None]
    if not stripped or not isinstance(value, str):
        return arguments
    return dict.fromkeys(arguments, value.strip())


@pytest.mark.parametrize("env_id", SHIPPED)
async def test_a_demonstration_is_read_as_it_was_meant(env_id: str) -> None:
    try:
        session = EnvSession(build_env(env_id))
        _, info = await session.reset(seed=3, options={"split": "train"})
    except MissingExtra as error:
        pytest.skip(str(error))
    tools = info["briefing"].tools
    for shown in islice(iter(session.env.demonstrate, None), TURNS):
        meant = as_message(shown)
        for name in TOOL_FORMATS:
            one = tool_format(name)
            calls = one.render(meant.tool_calls, tools=tools)
            text = "\n".join(part for part in (meant.text, calls) if part)
            read = one.parse(text, tools=tools)
            stripped = name == "tags"  # a tag's content is
            wanted = [(c.name, alone(c.arguments, stripped), "") for c in meant.tool_calls]
            assert [(c.name, c.arguments, c.error) for c in read.tool_calls] == wanted, name
            assert read.text == meant.text, name
        _, _, terminated, truncated, _ = await session.step(as_action(shown))
        if terminated or truncated:
            break
    await session.close()
