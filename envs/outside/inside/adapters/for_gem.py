"""The adapter of gem, the General Experience Maker: word games, and problems of data sets.

It runs in the process of the peer package. A program that a policy wrote is never run there: it
goes to the owner, the process that started this one, which runs it in a sandbox.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import re
import threading
from importlib import metadata
from typing import Any

from ..contract import PeerRefusal, as_reward, as_text, refuse_unknown, split
from ..line import ask
from ..reading import guard_parsers, guarded

_GAME = re.compile(r"game:(.+?)-v\d+(?:-(.+))?$")
_NUMBERED = re.compile(r"(.+?)-(d\d+)$")
_TERMINAL = "TERMINAL_STATE"
"""The peer's observation after the end of an episode, which is not shown."""
_asking = threading.Lock()
"""Held while the owner is asked: the peer runs the tests of a program side by side."""


def load(settings: dict[str, Any]) -> dict[str, Any]:
    """Import the package."""
    importlib.import_module("gem")
    _registered()
    guard_parsers("reasoning_gym")
    return {"version": metadata.version("gem-llm")}


def make(family: str, settings: dict[str, Any]) -> GemFamily:
    """Return the environment of a family."""
    return GemFamily(family, settings)


def variants() -> dict[str, dict[str, str]]:
    """Return the peer's ids by family and variant."""
    families: dict[str, dict[str, str]] = {}
    for name in _registered():
        if name == "rg:composite":  # needs a list of families
            continue
        game, (kind, _, setting) = _GAME.match(name), name.partition(":")
        numbered = _NUMBERED.match(setting)
        if game is not None:
            family, variant = game[1], game[2] or ""
        elif kind == "rg":
            family, variant = "reasoning-gym", setting
        elif numbered is not None:
            family, variant = f"{kind}-{numbered[1]}", numbered[2]
        else:
            family, variant = f"{kind}-{setting}", ""
        families.setdefault(family, {})[variant] = name
    return families


def catalogue() -> dict[str, Any]:
    """Return all families, and what each needs."""
    families: list[dict[str, Any]] = []
    for name, ids in sorted(variants().items()):
        first = ids[_default(ids)]
        family: dict[str, Any] = {"name": name, "topic": first.partition(":")[0]}
        if list(ids) != [""]:
            family["variants"] = sorted(ids)
        dataset = _registered()[first].kwargs.get("dataset_name")
        if dataset:
            family["needs"] = f"the data set {dataset}, as JSON lines named by the setting data"
        else:
            family |= _lack(first)
        families.append(family)
    version = metadata.version("gem-llm")
    return {"package": "gem-llm", "version": version, "families": families}


def _lack(peer_id: str) -> dict[str, str]:
    """Return fields of the catalogue that say why an environment cannot be played here; else {}."""
    try:
        importlib.import_module("gem").make(peer_id).reset(seed=1)
    except Exception as error:
        message = " ".join(str(error).split())
        if isinstance(error, LookupError) and "Resource" in message:
            return {"needs": "data of NLTK in NLTK_DATA: words, averaged_perceptron_tagger_eng"}
        return {"problem": f"the package fails: {type(error).__name__}: {message[:80]}"}
    return {}


def _default(ids: dict[str, str]) -> str:
    return next((variant for variant in ("", "easy") if variant in ids), next(iter(ids)))


def _registered() -> dict[str, Any]:
    importlib.import_module("gem.envs")
    registry: dict[str, Any] = importlib.import_module("gem.envs.registration").ENV_REGISTRY
    return registry


class GemFamily:
    """The environments of a family of gem. Settings that are not named here go to the peer's class.

    Settings:
        variant: the peer's variant, such as `hard`.
        data: a file of JSON lines in place of the peer's data set, with the fields of that data
            set.
    """

    def __init__(self, family: str, settings: dict[str, Any]) -> None:
        families, peer_settings = variants(), dict(settings)
        refuse_unknown(family, sorted(families), "family of gem")
        variant = str(peer_settings.pop("variant", _default(families[family])))
        refuse_unknown(variant, sorted(families[family]), f"variant of {family}")
        self.peer_id = families[family][variant]
        self.rows = _rows(str(peer_settings.pop("data", "")), self.peer_id)
        self.settings = peer_settings
        self._guard = not self.peer_id.startswith("game:")
        self._env: Any = self._new_env(1)

    def about(self) -> dict[str, Any]:
        """Return the sizes of the splits of a data set, and the bounds of the rewards if known."""
        facts: dict[str, Any] = {}
        if self.rows is not None:
            facts["sizes"] = {name: len(rows) for name, rows in self.rows.items()}
        if self.peer_id.startswith("rg:"):
            facts["rewards"] = [0.0, 1.0]
        return facts

    def reset(self, task: dict[str, Any]) -> dict[str, Any]:
        """Begin the episode of the task's seed, or of the task's row in the data set."""
        seed = int(task["seed"])
        if self.rows is None:
            self._env = self._new_env(seed)
        else:
            self._env.dataset = [self.rows[str(task["split"])][int(task["index"])]]
        observation, info = self._env.reset(seed=seed)
        return {"observation": self._shown(observation, info)}

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Play an action."""
        with guarded() if self._guard else contextlib.nullcontext():
            observation, reward, terminated, truncated, info = self._env.step(str(action["text"]))
        return {
            "observation": self._shown(observation, info),
            "reward": as_reward(reward),
            "terminated": bool(terminated),
            # gem says both at every end; an episode that has ended was not cut
            "truncated": bool(truncated) and not terminated,
        }

    def _shown(self, observation: Any, info: Any) -> str:
        text = as_text(observation)
        suffix = info.get("suffix", "") if isinstance(info, dict) else ""
        shown = "" if _TERMINAL in text else text
        return f"{shown}\n{suffix}".strip()

    def _new_env(self, seed: int) -> Any:
        settings = dict(self.settings)
        random.seed(seed)
        importlib.import_module("numpy").random.seed(seed % (1 << 32))
        if self.peer_id.startswith("rg:"):
            settings |= {"seed": seed, "size": 1}
        if self.rows is not None:
            every = [row for rows in self.rows.values() for row in rows]
            settings["dataset"] = importlib.import_module("datasets").Dataset.from_list(every[:1])
            settings["use_mp"] = False
            _send_programs_out()
        try:
            return importlib.import_module("gem").make(self.peer_id, **settings)
        except (TypeError, ValueError, AssertionError) as error:
            raise PeerRefusal(
                f"{self.peer_id} of gem cannot be made with {settings!r:.200}: {error}"
            ) from error


def _rows(place: str, peer_id: str) -> dict[str, list[dict[str, Any]]] | None:
    """Read a data set, and assign each row to a split by a digest of the question."""
    dataset = _registered()[peer_id].kwargs.get("dataset_name")
    if not dataset:
        if place:
            raise PeerRefusal(f"{peer_id} of gem has no data set; leave data out")
        return None
    if not place:
        raise PeerRefusal(
            f"{peer_id} of gem needs the data set {dataset}, which is not downloaded here: name a "
            "file of its rows as JSON lines by data=FILE"
        )
    key = _registered()[peer_id].kwargs.get("question_key", "problem")
    try:
        with open(place, encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise PeerRefusal(f"data={place!r} cannot be read: {error}") from error
    for row in rows:
        if not isinstance(row, dict) or key not in row:
            raise PeerRefusal(f"data={place!r}: a row without the field {key!r}: {row!r:.80}")
    if not rows:
        raise PeerRefusal(f"data={place!r} has no rows")
    return split(rows, lambda row: str(row[key]))


def _send_programs_out() -> None:
    """Have the peer's `run_python` ask the owner, who runs the program in a sandbox."""

    def run_python(
        code: str, sandbox_type: str, stdin: str | None = None, timeout: int = 5
    ) -> tuple[bool, str, str]:
        with _asking:
            ran = ask({"run": code, "stdin": stdin or "", "timeout_s": timeout})
        return ran["ok"], ran["stdout"], ran["stderr"]

    for name in ("gem.envs.code_env", "gem.tools.python_code_tool", "gem.utils.sandbox"):
        with contextlib.suppress(ImportError):
            vars(importlib.import_module(name))["run_python"] = run_python
