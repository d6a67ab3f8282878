"""Any environment as a `gymnasium.Env`, local or behind HTTP.

Plain-`def` environments run on the caller's own thread. Async ones run on one background event loop
shared by the process, so that `ludus.make` works in a script, in a notebook and under a running
loop alike.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

import gymnasium
from gymnasium.envs.registration import EnvSpec

from ludus.background import run_on_loop
from ludus.errors import ConfigError
from ludus.messages import Message, Observation

from .protocol import Info, TextEnv
from .registry import build_env
from .session import EnvSession, Stepped
from .spaces import TextSpace
from .tasks import TaskPage, TaskSet

T = TypeVar("T")


class Playable(Protocol):
    """Anything that plays episodes: a local `EnvSession`, or a session on a server."""

    id: str

    @property
    def deterministic(self) -> bool: ...

    def task_page(
        self, split: str, *, offset: int = 0, limit: int = 100
    ) -> Coroutine[Any, Any, TaskPage]: ...

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> Coroutine[Any, Any, tuple[Observation, Info]]: ...

    def step(self, action: str | Message) -> Coroutine[Any, Any, Stepped]: ...

    def close(self) -> Coroutine[Any, Any, None]: ...


class PlayableWithTasks(Playable, Protocol):
    """A session whose tasks can be had without waiting on an event loop."""

    def tasks(self, split: str) -> TaskSet: ...


class GymEnv(gymnasium.Env[Any, Any]):
    """A ludus environment with gymnasium's own API."""

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (gymnasium's own convention)

    def __init__(
        self,
        session: PlayableWithTasks,
        run: Callable[[Coroutine[Any, Any, Any]], Any],
        *,
        remake: Callable[..., GymEnv],
    ) -> None:
        """Adapt `session`; `run` waits for the session's coroutines, `remake()` makes another such
        environment.
        """
        self.session = session
        self._run = run
        self._shown: Observation = ""
        self.render_mode = "ansi"
        self.action_space = TextSpace()
        self.observation_space = TextSpace()
        # gymnasium.make replaces this by the spec it was asked for.
        self.spec = EnvSpec(
            id=_spec_id(session.id),
            entry_point=partial(_remade, remake),
            nondeterministic=not session.deterministic,
            disable_env_checker=True,
            order_enforce=False,
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode; without a seed, on the next task of the seeded sequence."""
        super().reset(seed=seed)
        reset_seed = seed if seed is not None else int(self.np_random.integers(1 << 31))
        self._shown, info = self._run(self.session.reset(seed=reset_seed, options=options))
        return self._shown, info

    def step(self, action: str | Message) -> Stepped:
        """Play an action of the policy."""
        stepped: Stepped = self._run(self.session.step(action))
        self._shown = stepped[0]
        return stepped

    def render(self) -> str:
        """The last observation as text."""
        if isinstance(self._shown, str):
            return self._shown
        return "\n".join(message.text for message in self._shown)

    def tasks(self, split: str) -> TaskSet:
        """The tasks of a split."""
        return self.session.tasks(split)

    def close(self) -> None:
        """Release the environment; safe to call twice."""
        self._run(self.session.close())


def make(
    env: str | type[TextEnv] | TextEnv, *, render_mode: str | None = "ansi", **arguments: Any
) -> GymEnv:
    """Make an environment as a `gymnasium.Env`.

    Args:
        env: an id, or a `TextEnv` class or object of your own.
        render_mode: `ansi` is the only one there is.
        arguments: the arguments for its constructor.

    Raises:
        UnknownEnv: nobody registered the id; the message names the near miss.
    """
    _check_render_mode(render_mode)
    session = make_async(env, **arguments)
    run = run_on_loop if is_async_env(session.env) else run_sync
    return GymEnv(session, run, remake=partial(make, env, **arguments))


def make_async(env: str | type[TextEnv] | TextEnv, **arguments: Any) -> EnvSession:
    """Make an environment with `async` reset, step and close."""
    if isinstance(env, TextEnv):
        return EnvSession(env)
    if isinstance(env, type):
        return EnvSession(env(**arguments), env.__name__)
    return EnvSession(build_env(env, **arguments), env)


def _spec_id(env_id: str) -> str:
    """Return an id that gymnasium takes, where `env_id` holds the address of a server.

    >>> _spec_id("openenv/http://127.0.0.1:8000"), _spec_id("me/echo-v0")
    ('openenv/http-127.0.0.1-8000', 'me/echo-v0')
    """
    head, slash, name = env_id.partition("/")
    return head + slash + re.sub(r"[^\w.\-]+", "-", name)


def _remade(
    remake: Callable[..., GymEnv], *, render_mode: str | None = "ansi", **arguments: Any
) -> GymEnv:
    """Make a new environment for `env.spec.make(render_mode=...)`."""
    _check_render_mode(render_mode)
    return remake(**arguments)


def _check_render_mode(render_mode: str | None) -> None:
    if render_mode not in ("ansi", None):
        raise ConfigError(f"render_mode must be 'ansi', got {render_mode!r}: text is all there is")


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, on this thread, with no event loop."""
    try:
        work.send(None)
    except StopIteration as stopped:
        value: T = stopped.value
        return value
    work.close()
    raise RuntimeError("a plain-def environment waited on something; make its methods `async def`")


def is_async_env(env: TextEnv) -> bool:
    """Whether any method the session calls is `async def`."""
    methods = [env.reset, env.step, env.close]
    plain = not any(inspect.iscoroutinefunction(method) for method in methods)
    return not plain or any(tool.is_async for tool in env.tools.values())
