"""ludus environments for Inspect: a `Task` whose solver plays, and whose score is the reward.

    from ludus.integrations.inspect_ai import ludus_task
    inspect_ai.eval(ludus_task("ludus/arithmetic-v0", split="test", count=100), model="a/model")

An episode whose verdict is not ok is unscored, which Inspect leaves out of its metrics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ludus.background import on_background
from ludus.envs.protocol import TextEnv
from ludus.envs.tools.spec import ToolSpec
from ludus.errors import LudusError
from ludus.messages import Message, Role, ToolCall, assistant

from .bridge import EnvBridge, peer_package

_inspect: Any = peer_package("inspect_ai", "inspect")
_dataset: Any = peer_package("inspect_ai.dataset", "inspect")
_model: Any = peer_package("inspect_ai.model", "inspect")
_scorer: Any = peer_package("inspect_ai.scorer", "inspect")
_solver: Any = peer_package("inspect_ai.solver", "inspect")
_tool: Any = peer_package("inspect_ai.tool", "inspect")

EPISODE = "ludus_verdict"
"""The key in the state's store of the episode's result, which the solver leaves for the scorer."""
MAX_TURNS = 64
"""The most turns of an episode that the environment does not bound."""


def ludus_task(
    env: str | type[TextEnv],
    *,
    split: str = "test",
    count: int = 100,
    offset: int = 0,
    seed: int = 0,
    url: str = "",
    token: str | None = None,
) -> object:
    """Return an Inspect `Task` with a sample for each task of the environment.

    Args:
        env: an id, with constructor arguments as in `me/env-v0?length=3`, or a `TextEnv` class.
        split: the split that the tasks are of.
        count: how many tasks.
        offset: the index of the first.
        seed: the seed of the episodes' random numbers.
        url: the address of a `ludus serve` that offers the environment.
        token: the token of that server.

    Raises:
        MissingExtra: Inspect is not installed.
        UnknownTask: no such split.
    """
    bridge = EnvBridge(env, url=url, token=token)
    try:
        tasks = bridge.tasks(split, count, offset=offset)
    except LudusError:
        bridge.close()  # nobody will play in its worker processes
        raise
    samples = [
        _dataset.Sample(
            id=task.id, input=f"{bridge.id}, task {task.id}", metadata={"task": task.id}
        )
        for task in tasks
    ]
    return _inspect.Task(
        name=bridge.id.replace("/", "_"),
        dataset=_dataset.MemoryDataset(samples, name=bridge.id),
        solver=_play(bridge, seed),
        scorer=_reward(),
    )


class SolverState(Protocol):
    """The attributes of Inspect's `TaskState` that are read and written here."""

    metadata: dict[str, Any]
    messages: list[Any]
    tools: list[Any]
    output: Any
    store: Any


Generate = Callable[..., Awaitable[SolverState]]
"""Inspect's function that asks the model, and appends its answer to the state."""


@_solver.solver(name="ludus_play")  # type: ignore[untyped-decorator]
def _play(
    bridge: EnvBridge, seed: int
) -> Callable[[SolverState, Generate], Awaitable[SolverState]]:
    async def solve(state: SolverState, generate: Generate) -> SolverState:
        episode = bridge.episode()
        try:
            opening = await on_background(episode.begin(task=state.metadata["task"], seed=seed))
            state.messages = [_shown(message) for message in opening]
            state.tools = [_offered(tool) for tool in episode.tools]
            for _ in range(episode.max_turns or MAX_TURNS):
                if episode.over:
                    break
                state = await generate(state, tool_calls="none")
                reply = state.output.message
                calls = [
                    ToolCall(
                        name=call.function,
                        arguments=dict(call.arguments or {}),
                        id=call.id,
                        error=call.parse_error or "",
                    )
                    for call in reply.tool_calls or ()
                ]
                action = assistant(str(reply.text), calls) if calls else str(reply.text)
                answer = await on_background(episode.act(action))
                state.messages += [_shown(message) for message in answer]
        finally:
            await on_background(episode.close())
        verdict = episode.verdict
        result = {
            "reward": verdict.reward,
            "detail": verdict.detail or str(verdict.status),
            "parts": {name: value for name, (value, _) in verdict.parts.items()},
            "turns": episode.turn,
        }
        state.store.set(EPISODE, result)
        return state

    return solve


@_scorer.scorer(name="ludus_reward", metrics=[_scorer.mean(), _scorer.stderr()])  # type: ignore[untyped-decorator]
def _reward() -> Callable[[SolverState, object], Awaitable[object]]:
    async def score(state: SolverState, target: object) -> object:
        result = state.store.get(EPISODE)
        if result is None or result["reward"] is None:
            reason = result["detail"] if result else "the episode was not played to an end"
            return _scorer.Score.unscored(explanation=reason, reason="scoring_failed")
        return _scorer.Score(
            value=result["reward"],
            answer=state.output.completion,
            explanation=result["detail"],
            metadata={"turns": result["turns"], "parts": result["parts"]},
        )

    return score


def _offered(tool: ToolSpec) -> Any:
    async def execute(**arguments: Any) -> str:
        raise RuntimeError("the solver plays the calls")

    return _tool.ToolDef(
        execute,
        name=tool.name,
        description=tool.description or tool.name,
        parameters=_tool.ToolParams.model_validate(tool.parameters),
    ).as_tool()


def _shown(message: Message) -> Any:
    match message.role:
        case Role.SYSTEM:
            return _model.ChatMessageSystem(content=message.text)
        case Role.TOOL:
            return _model.ChatMessageTool(
                content=message.text, tool_call_id=message.tool_call_id, function=message.name
            )
        case Role.ASSISTANT:
            return _model.ChatMessageAssistant(content=message.text)
        case Role.USER:
            return _model.ChatMessageUser(content=message.text)
