"""Plays ALFWorld: household tasks in words, on games that the project's download holds.

A family is a type of task, or `all` of them. The package's own wrappers and its engine (TextWorld)
play a game; the packaged agents, and the simulator with pictures, are not used.
"""

from __future__ import annotations

import importlib
import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any

from ..contract import PeerBroken, PeerRefusal, as_reward, as_text, refuse_unknown

FAMILIES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The package's types of tasks."""
FOLDERS = {"train": "train", "validation": "valid_seen", "test": "valid_unseen"}
"""The package's folder of each split."""
HOME = Path(os.environ.get("ALFWORLD_DATA", "~/.cache/alfworld")).expanduser()
"""Where `alfworld-download` writes. It is read here, since a child has another home folder."""
READS = [str(HOME)] if HOME.is_dir() else []
NEEDS = (
    "the project's games: alfworld-download writes them to ALFWORLD_DATA, or data=FOLDER names the "
    "folder with train, valid_seen and valid_unseen"
)
SYSTEM = """\
You are in a household and have a task. Answer each turn with one command and nothing else. The \
commands are:
look; inventory; go to RECEPTACLE; open RECEPTACLE; close RECEPTACLE; examine THING;
take OBJECT from RECEPTACLE; move OBJECT to RECEPTACLE; use OBJECT; heat OBJECT with RECEPTACLE;
clean OBJECT with RECEPTACLE; cool OBJECT with RECEPTACLE; slice OBJECT with OBJECT
Things have a number, such as shelf 1."""


def load(settings: dict[str, Any]) -> dict[str, Any]:
    """Import the package, which makes the folder ALFWORLD_DATA unless that path exists."""
    os.environ["ALFWORLD_DATA"] = os.devnull
    importlib.import_module("alfworld.agents.environment.alfred_tw_env")
    return {"version": metadata.version("alfworld")}


def make(family: str, settings: dict[str, Any]) -> AlfWorldFamily:
    """Return the environment of a family."""
    return AlfWorldFamily(family, settings)


def catalogue() -> dict[str, Any]:
    """Return all families; each needs the download."""
    families = [{"name": name, "topic": "household", "needs": NEEDS} for name in (*FAMILIES, "all")]
    return {"package": "alfworld", "version": metadata.version("alfworld"), "families": families}


class AlfWorldFamily:
    """The games of a type of task, in the order of folder names.

    Settings:
        data: the folder that has `train`, `valid_seen` and `valid_unseen`; `json_2.1.1` of the
            download by default.
        max_steps: the number of commands after which an episode is cut, 50 by default as in the
            package.
        show_commands: whether each observation lists the commands that are possible now, as some
            agents of the project are shown them; they are not by default.
        planner: whether the package's planner says what an expert would do at each step. By default
            an expert follows the walkthrough of the game's file, and falls silent where the policy
            has left it.
    """

    def __init__(self, family: str, settings: dict[str, Any]) -> None:
        refuse_unknown(family, [*FAMILIES, "all"], "family of alfworld")
        left = dict(settings)
        self.folder = Path(str(left.pop("data", "") or HOME / "json_2.1.1"))
        self.max_steps = int(left.pop("max_steps", 50))
        self.show_commands = bool(left.pop("show_commands", False))
        self.planner = bool(left.pop("planner", False))
        if left:
            raise PeerRefusal(
                f"alfworld has no settings {', '.join(left)}; it has data, max_steps, "
                "show_commands and planner"
            )
        if self.max_steps < 1:
            raise PeerRefusal(f"max_steps must be at least 1, got {self.max_steps}")
        wanted = FAMILIES if family == "all" else (family,)
        self.games = {split: _games(self.folder / name, wanted) for split, name in FOLDERS.items()}
        if not any(self.games.values()):
            raise PeerRefusal(
                f"no solvable game of {family} in {str(self.folder)!r}; it needs {NEEDS}"
            )
        self._env: Any = None
        self._steps = 0
        self._walkthrough: list[str] = []

    def about(self) -> dict[str, Any]:
        """Return the number of games of each split, and the bounds of the reward."""
        return {
            "sizes": {name: len(games) for name, games in self.games.items()},
            "rewards": [0, 1],
        }

    def reset(self, task: dict[str, Any]) -> dict[str, Any]:
        """Load the game of the task."""
        games = self.games[str(task["split"])]
        game = games[int(task["index"]) % len(games)]
        textworld = importlib.import_module("textworld")
        wrappers = importlib.import_module("alfworld.agents.environment.alfred_tw_env")
        infos = textworld.EnvInfos(
            feedback=True, won=True, admissible_commands=True, policy_commands=self.planner
        )
        engine = importlib.import_module("textworld.envs").PddlEnv(infos)
        self._env = wrappers.AlfredDemangler(engine, shuffle=False)
        self._env.load(str(game))
        self._steps = 0
        self._walkthrough = json.loads(game.read_text(encoding="utf-8")).get("walkthrough") or []
        state = self._env.reset()
        return {
            "observation": self._shown(state),
            "system_prompt": SYSTEM,
            "max_turns": self.max_steps,
            "expert": self._expert(state),
        }

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Give a command to the game. The reward is 1 when the task is done, else 0."""
        if self._env is None:
            raise PeerBroken("a step before the first reset")
        command = str(action["text"]).strip()
        state, _, done = self._env.step(command)
        self._steps += 1
        follows = self._walkthrough[:1] == [command]
        self._walkthrough = self._walkthrough[1:] if follows else []
        won = bool(state["won"])
        return {
            "observation": self._shown(state),
            "reward": as_reward(won),
            "terminated": bool(done),
            "truncated": not done and self._steps >= self.max_steps,
            "expert": None if done else self._expert(state),
        }

    def _shown(self, state: Any) -> str:
        shown = as_text(state["feedback"]).strip()
        if not self.show_commands:
            return shown
        return f"{shown}\n\nCommands: {', '.join(sorted(state['admissible_commands']))}"

    def _expert(self, state: Any) -> str | None:
        planned = state["policy_commands"] if self.planner else self._walkthrough
        return planned[0] if planned and planned[0] in state["admissible_commands"] else None


def _games(folder: Path, wanted: tuple[str, ...]) -> list[Path]:
    """Return the files of solvable games below a folder, by the package's own rules: games with
    movable receptacles or sliced objects are not supported.
    """
    games: list[Path] = []
    for description in sorted(folder.rglob("traj_data.json")):
        game = description.with_name("game.tw-pddl")
        if (
            "movable" in str(description.parent)
            or "Sliced" in str(description.parent)
            or not game.is_file()
        ):
            continue
        if json.loads(description.read_text(encoding="utf-8")).get("task_type") not in wanted:
            continue
        if json.loads(game.read_text(encoding="utf-8")).get("solvable"):
            games.append(game)
    return games
