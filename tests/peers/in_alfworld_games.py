"""Runs in ALFWorld's own interpreter, unmodified: writes small games in the project's format, and
plays commands through the project's own environment.

PYTHON in_alfworld_games.py write FOLDER
PYTHON in_alfworld_games.py replay FOLDER TASK_TYPE < {"commands": [...]}
"""

import json
import os
import sys
from pathlib import Path

os.environ["ALFWORLD_DATA"] = os.devnull  # otherwise a folder is made in the home folder

import alfworld.info as package
import textworld

PROBLEM = """
(define (problem household)
 (:domain alfred)
 (:objects
   agent1 - agent
   hall place_1 place_2 place_3 - location
   {first}_bar_01 Knife_bar_02 - object
   CounterTop_bar_01 Fridge_bar_02 Sink_bar_03_bar_SinkBasin - receptacle
   {first}Type KnifeType - otype
   CounterTopType FridgeType SinkBasinType MicrowaveType - rtype)
 (:init
   (= (total-cost) 0)
   (atLocation agent1 hall)
   (receptacleAtLocation CounterTop_bar_01 place_1)
   (receptacleAtLocation Fridge_bar_02 place_2)
   (receptacleAtLocation Sink_bar_03_bar_SinkBasin place_3)
   (receptacleType CounterTop_bar_01 CounterTopType)
   (receptacleType Fridge_bar_02 FridgeType)
   (receptacleType Sink_bar_03_bar_SinkBasin SinkBasinType)
   (openable Fridge_bar_02)
   (canContain FridgeType {first}Type) (canContain CounterTopType {first}Type)
   (canContain CounterTopType KnifeType)
   (objectType {first}_bar_01 {first}Type) (objectType Knife_bar_02 KnifeType)
   (pickupable {first}_bar_01) (pickupable Knife_bar_02) (cleanable {first}_bar_01)
   (inReceptacle {first}_bar_01 CounterTop_bar_01)
   (inReceptacle Knife_bar_02 CounterTop_bar_01)
   (objectAtLocation {first}_bar_01 place_1) (objectAtLocation Knife_bar_02 place_1))
 (:goal (exists (?r - receptacle) (exists (?o - object)
   (and {clean} (inReceptacle ?o ?r) (objectType ?o {first}Type)
        (receptacleType ?r FridgeType))))))
"""
OBJECTS = {
    "train": ["Apple", "Egg", "Tomato", "Potato"],
    "valid_seen": ["Bread", "Lettuce", "Cup", "Mug"],
    "valid_unseen": ["Bowl", "Plate", "Pan", "Pot"],
}
WALK = ["go to countertop 1", "take {0} 1 from countertop 1", "go to fridge 1", "open fridge 1"]
CLEAN = ["go to sinkbasin 1", "clean {0} 1 with sinkbasin 1"]


def write(folder: Path) -> None:
    """Write four games of two types for each split, one that is unsolvable, and one without a game
    file.
    """
    domain = Path(package.ALFRED_PDDL_PATH).read_text()
    grammar = Path(package.ALFRED_TWL2_PATH).read_text()
    game: dict[str, object] = {}
    for split, objects in OBJECTS.items():
        for kind in ("pick_and_place_simple", "pick_clean_then_place_in_recep"):
            clean = "clean" in kind
            for number, first in enumerate(objects):
                place = folder / split / f"{kind}-{first}" / f"trial_{number}"
                place.mkdir(parents=True)
                steps = [*WALK[:2], *(CLEAN if clean else []), *WALK[2:]]
                walk = [step.format(first.lower()) for step in steps]
                goal = f"put {'a clean' if clean else 'some'} {first.lower()} in fridge"
                game = {
                    "pddl_domain": domain,
                    "grammar": grammar.replace("UNKNOWN GOAL", goal),
                    "pddl_problem": PROBLEM.format(
                        first=first, clean="(isClean ?o)" if clean else ""
                    ),
                    "solvable": True,
                    "walkthrough": [*walk, f"move {first.lower()} 1 to fridge 1"],
                }
                (place / "game.tw-pddl").write_text(json.dumps(game))
                (place / "traj_data.json").write_text(json.dumps({"task_type": kind}))
        refused = folder / split / "pick_and_place_simple-Nothing"
        for name in ("trial_8", "trial_9"):
            place = refused / name
            place.mkdir(parents=True)
            told = json.dumps({"task_type": "pick_and_place_simple"})
            (place / "traj_data.json").write_text(told)
        unsolvable = json.dumps({**game, "solvable": False})
        (refused / "trial_8" / "game.tw-pddl").write_text(unsolvable)


def replay(folder: Path, kind: str, commands: list[str]) -> dict[str, object]:
    """Play the commands in the first game of a type, through the project's own environment."""
    from alfworld.agents.environment import alfred_tw_env

    types = [n for n, name in alfred_tw_env.TASK_TYPES.items() if name == kind]
    config = {
        "env": {"goal_desc_human_anns_prob": 0, "task_types": types},
        "dataset": {"data_path": str(folder / "train"), "num_train_games": -1},
    }
    files = sorted(alfred_tw_env.AlfredTWEnv(config, train_eval="train").game_files)
    infos = textworld.EnvInfos(won=True, admissible_commands=True)
    env_id = textworld.gym.register_games(
        files[:1], infos, max_episode_steps=50, wrappers=[alfred_tw_env.AlfredDemangler]
    )
    env = textworld.gym.make(env_id)
    shown, told = env.reset()
    observations, won, done = [shown], [told["won"]], [False]
    for command in commands:
        shown, _, over, told = env.step(command)
        observations.append(shown)
        won.append(bool(told["won"]))
        done.append(bool(over))
    return {"games": len(files), "observations": observations, "won": won, "done": done}


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        asked = json.loads(sys.stdin.read())
        print(json.dumps(replay(Path(sys.argv[2]), sys.argv[3], asked["commands"])))
