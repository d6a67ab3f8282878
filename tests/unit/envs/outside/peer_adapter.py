"""A peer in miniature, which tests run in an interpreter of its own: the standard library alone."""

import builtins
import os
import random
import socket
import subprocess
import sys
import time
from typing import Any

from inside.contract import PeerRefusal, as_reward, as_text  # pyright: ignore  # ty: ignore
from inside.line import ask  # pyright: ignore

print("an import that prints", flush=True)
os.write(1, b"Lw1\n and writes what looks like a frame")


class Opaque:
    """An observation that is not text."""


def load(settings: dict[str, Any]) -> dict[str, Any]:
    return {"version": "1"}


def make(family: str, settings: dict[str, Any]) -> Any:
    if family not in FAMILIES:
        raise PeerRefusal(f"no family {family!r}")
    return Env(family, settings)


def catalogue() -> dict[str, Any]:
    return {"package": "peer", "version": "1", "families": [{"name": one} for one in FAMILIES]}


class Env:
    def __init__(self, family: str, settings: dict[str, Any]) -> None:
        self.family, self.settings = family, settings
        self.gold = ""

    def about(self) -> dict[str, Any]:
        if self.family == "bounded":
            return {"rewards": [-1, 3]}
        if self.family == "listed":
            return {"sizes": {"train": 3, "test": 1}}
        if self.family == "game":
            return {"players": 2}
        return {}

    def reset(self, task: dict[str, Any]) -> dict[str, Any]:
        print("a reset that prints")
        if self.family == "fails-at-reset":
            raise RuntimeError("no such level")
        seed = 0 if self.family == "without-seeds" else task["seed"]
        self.gold = random.Random(seed).choice(["salve", "vale", "gratias", "ave"])
        if self.family == "without-seeds":
            self.gold = random.choice(["salve", "vale"])
        shown: Any = f"say {self.gold[::-1]} backwards"
        if self.family == "data":
            shown = {"word": self.gold[::-1], "n": [1, 2]}
        if self.family == "opaque":
            shown = Opaque()
        if self.family == "game":
            self.turns = 0
            time.sleep(self.settings["reset_s"])
            return {"observation": "player 0 begins", "info": {"player": 0}}
        return {
            "observation": as_text(shown),
            "gold": self.gold,
            "expert": self.gold,
            "system_prompt": "Say the word backwards.",
        }

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        did: Any = getattr(self, "_" + self.family.replace("-", "_"), None)
        reward = did(action["text"]) if did else float(action["text"].strip() == self.gold)
        if isinstance(reward, dict):
            return reward
        return {"observation": "", "reward": as_reward(reward), "terminated": True}

    def _bounded(self, text: str) -> Any:
        return float(text) if text.replace("-", "").replace(".", "").isdigit() else -1

    def _not_finite(self, text: str) -> Any:
        return float("nan")

    def _not_a_number(self, text: str) -> Any:
        return "well done"

    def _raises(self, text: str) -> Any:
        raise KeyError("board")

    def _exits(self, text: str) -> Any:
        sys.exit(3)

    def _dies(self, text: str) -> Any:
        os._exit(7)

    def _sleeps(self, text: str) -> Any:
        time.sleep(600)

    def _spins(self, text: str) -> Any:
        while True:
            pass

    def _starts(self, text: str) -> Any:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        time.sleep(600)

    def _wrong_form(self, text: str) -> Any:
        return {"observation": 7, "reward": "much"}

    def _endless(self, text: str) -> Any:
        return {"observation": text * 2, "reward": 0.0, "terminated": False}

    def _runs(self, text: str) -> Any:
        ran = ask({"run": text, "stdin": "5", "timeout_s": 10})
        return {"observation": ran["stdout"], "reward": float(ran["ok"]), "terminated": True}

    def _evaluates(self, text: str) -> Any:
        """Do what a scorer does that evaluates an answer."""
        try:
            return {"observation": str(builtins.eval(text)), "reward": 1.0, "terminated": True}
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
            return {"observation": said, "reward": 0.0, "terminated": True}

    def _game(self, text: str) -> Any:
        """Two players say a word each in turn; a word may take long."""
        if text == "think":
            time.sleep(1.5)
        self.turns += 1
        if self.turns < 3:
            told = {"player": self.turns % 2}
            return {"observation": f"{text} was said", "reward": 0.0, "info": told}
        told = {"rewards": {"0": 1.0, "1": 0.0}, "shown": {"0": "won", "1": "lost"}, "reason": ""}
        return {"observation": "", "reward": 0.0, "terminated": True, "info": told}

    def _connects(self, text: str) -> Any:
        with socket.socket() as sock:
            sock.connect(("127.0.0.1", int(text)))
        return 1.0


FAMILIES = [
    "echo", "bounded", "listed", "fails-at-reset", "without-seeds", "data", "opaque", "not-finite",
    "not-a-number", "raises", "exits", "dies", "sleeps", "spins", "starts", "wrong-form", "endless",
    "runs", "evaluates", "connects", "game",
]  # fmt: skip
