"""Plays the actions of a line of JSON in TextArena itself, unmodified; prints the rewards.

PYTHON in_textarena_replay.py < {"id": ..., "players": ..., "seed": ..., "actions": [...]}
"""

import json
import random
import sys

import textarena

asked = json.loads(sys.stdin.read())
random.seed(asked["seed"])
env = textarena.make(asked["id"])
env.reset(num_players=asked["players"], seed=asked["seed"])
done = False
for action in asked["actions"]:
    env.get_observation()
    done, _ = env.step(action)
print(json.dumps({"done": done, "rewards": env.close()[0]}))
