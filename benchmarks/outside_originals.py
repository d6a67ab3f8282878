"""The original's side of `outside_sample.py`: a package plays and scores, in its own interpreter.

PYTHON outside_originals.py < cases as JSON > answers, each "case: " and JSON in a line

It imports the package and the standard library, and nothing of ludus. A case names the kind, the
family, the variant, the seed and a manner of answering; its answer has the actions that were
played, what was first shown, and the rewards by player, or the name of what was raised.
"""

import contextlib
import importlib
import importlib.util
import json
import random
import re
import signal
import sys
import warnings

MARK = "case: "
MAX_TURNS = 40
BRACKETS = re.compile(r"\[[^\[\]\n]{1,40}\]")
FIXED = {"malformed": "[[1, 2], (3 + ", "empty": "", "wrong": "[17]"}


def reasoning_gym(case):
    package = importlib.import_module("reasoning_gym")
    dataset = package.create_dataset(case["family"], seed=case["seed"], size=1)
    entry = dataset[0]
    gold = entry["answer"]
    answer = gold if case["manner"] == "gold" else FIXED[case["manner"]]
    if answer is None or (case["manner"] == "wrong" and answer == gold):
        return None  # the family tells no answer
    record = {"actions": [answer], "shown": entry["question"]}
    return {**record, "rewards": {"0": float(dataset.score_answer(answer, entry))}}


def textarena(case):
    package = importlib.import_module("textarena")
    name = case["family"] + "-v0" + (f"-{case['variant']}" if case["variant"] else "")
    env = package.make(name)
    env.reset(num_players=case["players"], seed=case["seed"])
    chance, actions, shown, done = random.Random(case["seed"]), [], "", False
    while not done and len(actions) < MAX_TURNS:
        _, seen = env.get_observation()
        shown = shown or str(seen)
        moves = BRACKETS.findall(str(seen))
        drawn = chance.choice(moves) if moves else f"[{chance.randrange(9)}]"
        actions.append(FIXED.get(case["manner"], drawn))
        done, _ = env.step(actions[-1])
    rewards = env.close()[0] if done else None
    return {"actions": actions, "shown": shown, "rewards": _plain(rewards)}


def _plain(rewards):
    if rewards is None:
        return None
    # a message where a reward belongs is the package's slip, which our side reads as -1
    return {
        str(n): -1.0 if isinstance(reward, str) else float(reward) for n, reward in rewards.items()
    }


def gem(case):
    package = importlib.import_module("gem")
    family, variant = case["family"], case["variant"]
    rules = {"seed": case["seed"], "size": 1} if family == "reasoning-gym" else {}
    name = f"game:{family}-v0" + (f"-{variant}" if variant else "")
    env = package.make(f"rg:{variant}" if rules else name, **rules)
    shown, _ = env.reset(seed=case["seed"])
    actions, total, done = [], 0.0, False
    while not done and len(actions) < MAX_TURNS:
        kept = random.getstate()
        drawn = _gem_move(env, family) if case["manner"] == "random" else ""
        random.setstate(kept)  # our side replays actions, and draws none
        actions.append(FIXED.get(case["manner"], drawn) or "")
        _, reward, ended, cut, _ = env.step(actions[-1])
        total += float(reward)
        done = ended or cut
    return {"actions": actions, "shown": str(shown), "rewards": {"0": total} if done else None}


def _gem_move(env, family):
    """Draw a move where the package does, or write one; problems are answered right."""
    if family == "reasoning-gym":
        return f"\\boxed{{{env.data['answer']}}}"
    try:
        return env.sample_random_action()
    except NotImplementedError:
        towers, cell = random.sample("ABC", 2), random.choices("123456789", k=3)
        words = towers if family == "TowerofHanoi" else cell  # the other is Sudoku
        return "\\boxed{" + " ".join(words) + "}"


def inspect(case):
    """Play a task by the package's own `eval`, with a model that says what is listed."""
    whole = importlib.import_module("inspect_ai")
    models = importlib.import_module("inspect_ai.model")
    scorers = importlib.import_module("inspect_ai.scorer")
    spec = importlib.util.spec_from_file_location("tasks_at_hand", case["path"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    task = getattr(module, case["family"])()
    sample = next(candidate for candidate in task.dataset if str(candidate.input) in case["asked"])
    target = sample.target if isinstance(sample.target, str) else sample.target[0]
    answer = {"gold": f"ANSWER: {target}"}.get(case["manner"], FIXED.get(case["manner"], ""))
    task.dataset = whole.dataset.MemoryDataset([sample])
    said = [models.ModelOutput.from_content("mockllm/model", answer) for _ in range(4)]
    for output in said:  # or its tokens are counted with a vocabulary that is a download
        output.usage = models.ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    model = models.get_model("mockllm/model", custom_outputs=said)
    log = whole.eval(task, model=model, display="none", log_dir=case["scratch"])[0]
    if log.status != "success":
        raise RuntimeError(f"the evaluation ended with {log.status}: {log.error}")
    value = next(iter(log.samples[0].scores.values())).value
    turns = sum(message.role == "assistant" for message in log.samples[0].messages)
    reward = {"0": float(scorers.value_to_float()(value))}
    return {"actions": [answer] * turns, "shown": str(sample.input), "rewards": reward}


PLAYERS = {
    "reasoning-gym": reasoning_gym, "textarena": textarena, "gem": gem, "inspect": inspect,
}  # fmt: skip


def late(*_):
    raise TimeoutError("the package takes longer than a minute")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, late)
    for asked in json.load(sys.stdin):
        random.seed(asked["seed"])
        with contextlib.suppress(ImportError):
            importlib.import_module("numpy").random.seed(asked["seed"])
        signal.alarm(60)
        try:
            answered = PLAYERS[asked["kind"]](asked)
        except Exception as problem:
            answered = {"raised": f"{type(problem).__name__}: {problem}"[:200]}
        signal.alarm(0)
        print(f"\n{MARK}{json.dumps(answered)}", flush=True)
