"""A server of OpenEnv for tests: its word pays 1, and the first letter of the word half."""

import random
import sys
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class SayAction(Action):  # type: ignore[misc]
    text: str


class SayObservation(Observation):  # type: ignore[misc]
    shown: str = ""


class SayEnvironment(Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.word = ""

    def reset(self, seed: int | None = None, **_: Any) -> SayObservation:
        self.word = random.Random(seed).choice(["salve", "vale", "ave", "gratias"])
        return SayObservation(shown=f"say {self.word}", done=False, reward=None)

    def step(self, action: SayAction, **_: Any) -> SayObservation:
        if action.text == "boom":
            raise RuntimeError("the board fell down")
        reward = 1.0 if action.text == self.word else 0.5 * (action.text == self.word[0])
        return SayObservation(shown="", done=True, reward=reward)

    @property
    def state(self) -> State:
        return State()


app = create_fastapi_app(SayEnvironment, SayAction, SayObservation, max_concurrent_envs=8)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
