"""Scores answers by reasoning-gym's own functions, unmodified, in its own interpreter.

PYTHON in_reasoning_gym_scores.py SEEDS < families > cases, each "case: " and JSON in a line.
"""

import json
import random
import sys
import warnings

import reasoning_gym

MARK = "case: "  # the package prints, too
warnings.simplefilter("ignore")
for family in sys.stdin.read().split():
    for seed in map(int, sys.argv[1].split(",")):
        random.seed(seed)
        dataset = reasoning_gym.create_dataset(family, seed=seed, size=1)
        entry = dataset[0]
        gold = entry["answer"]
        said = {
            "gold": gold,
            "wrong": "17" if gold != "17" else "18",
            "malformed": "[[1, 2], (3 + ",
            "empty": "",
            "literal": str(list(gold or "")),
            "arithmetic": "2*x**2 + 3 - 1/4",
        }
        for kind, answer in said.items():
            if answer is None:
                continue
            try:
                score = float(dataset.score_answer(answer, entry))
            except Exception as error:
                score = type(error).__name__
            case = [family, seed, entry["question"], kind, answer, score]
            print(f"\n{MARK}{json.dumps(case)}", flush=True)
