"""Tells what evaluations of inspect_evals need: by trying them, and by the package's own lists.

An id names a task of inspect_evals, or a function of the file that the setting `path` names. The
solver runs here and waits at each `generate` for the policy; then the task's first scorer says what
the answer is worth. Tasks with tools or a sandbox of their own are refused.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from ..contract import PeerBroken, PeerRefusal, as_reward, split
from ..line import load_file

TRYING_S = 20
"""For how long an evaluation may take to be made and to be asked and answered once."""
_SHOWN = 3
"""How many downloads of a family are named."""
_MARKS = (
    ("its samples have a sandbox", "a sandbox of its own (containers), which is not given"),
    ("brings a sandbox", "a sandbox of its own (containers), which is not given"),
    ("solver has tools", "tools of its own solver, which are not played here"),
    ("needs a model", "a model that grades, or that plays another part"),
    ("No model specified", "a model that grades, or that plays another part"),
    ("optional dependencies", "a model that grades, or that plays another part"),
    ("API_KEY", "a model that grades, or that plays another part"),
    ("no scorer", "a scorer"),
)

Make = Callable[[str, dict[str, Any]], Any]


def families_with_needs(make: Make) -> dict[str, Any]:
    """Return the families of inspect_evals, their tasks as variants, and what each needs.

    A family is tried task by task until one is played to a reward. It is tried without a network,
    so that what has to be downloaded fails, and nothing is left behind.

    Args:
        make: opens a task by its name and settings.
    """
    registry = import_module("inspect_evals._registry")
    yaml: Any = import_module("yaml")
    tasks: dict[str, list[str]] = {}
    for name, maker in sorted(vars(registry).items()):
        if not name.startswith("_") and inspect.isfunction(maker):
            tasks.setdefault(maker.__module__.split(".")[1], []).append(name)
    folder = Path(str(registry.__file__)).parent
    families: list[dict[str, Any]] = []
    with _without_network():
        for topic, names in tasks.items():
            about = folder / topic / "eval.yaml"
            declared = yaml.safe_load(about.read_text(encoding="utf-8")) if about.exists() else {}
            outcomes = {name: _tried(make, name) for name in names}
            played = [name for name, outcome in outcomes.items() if not outcome]
            needs = "" if played else _need(declared, list(outcomes.values()))
            # the first task is the one that is played unless another one is asked for
            ordered = [*played, *(name for name in names if name not in played)]
            families.append({"name": topic, "variants": ordered, "needs": needs})
    version = metadata.version("inspect-evals")
    return {"package": "inspect-evals", "version": version, "families": families}


def _tried(make: Make, name: str) -> str:
    """Make a task and play the first sample; return the failure, empty for a success."""
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(TRYING_S)
    try:
        task = make(name, {})
        sizes = task.about()["sizes"]
        task.reset({"split": max(sizes, key=lambda split: int(sizes[split])), "index": 0})
        for _ in range(8):
            if task.step({"text": "A"}).get("terminated"):
                return ""
        return "it asks more than eight times"
    except Exception as error:
        signal.alarm(0)
        return (
            f"{type(error).__name__}: {error}" if not isinstance(error, PeerRefusal) else str(error)
        )
    finally:
        signal.alarm(0)


def _need(declared: dict[str, Any], outcomes: list[str]) -> str:
    """Say what a family needs that could not be played.

    Args:
        declared: what the package declares of the family.
        outcomes: what went wrong with each of its tasks.
    """
    needs = (need for mark, need in _MARKS if any(mark in outcome for outcome in outcomes))
    parts = list(dict.fromkeys(needs))
    package = next(
        (o.rpartition("named ")[2].strip("'\"") for o in outcomes if "No module named" in o), ""
    )
    if extra := declared.get("dependency") or declared.get("dependency-group"):
        parts.insert(0, f"the package inspect-evals[{extra}]")
    elif package:
        parts.insert(0, f"the package {package}")
    if assets := _downloads(declared):
        parts.insert(0, assets)
    runs = (declared.get("metadata") or {}).get("sandbox") or []
    if runs and not any("sandbox" in part for part in parts):
        who = " and ".join(sorted(f"its {sandbox}" for sandbox in runs))
        parts.append(f"a sandbox of its own (containers) for {who}, which is not given")
    return "; ".join(parts) or f"what its task asks for: {outcomes[0].rpartition(': ')[2][:100]}"


def _downloads(declared: dict[str, Any]) -> str:
    """Name the data that the package lists as coming from elsewhere."""
    places: dict[str, None] = {}
    for asset in declared.get("external_assets") or []:
        source = str(asset["source"])
        on_hub = asset["type"] == "huggingface"
        places[f"{source} of Hugging Face" if on_hub else source] = None
    if not places:
        return ""
    shown = ", ".join(list(places)[:_SHOWN])
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return f"a download: {shown}{more}"


@contextmanager
def _without_network() -> Generator[None]:
    """Let every connection fail at once, and no retry wait."""
    kept = socket.getaddrinfo, time.sleep
    os.environ["HF_HUB_OFFLINE"] = "1"
    socket.getaddrinfo, time.sleep = _refused, _no_pause
    try:
        yield
    finally:
        socket.getaddrinfo, time.sleep = kept


def _refused(*_: Any, **__: Any) -> Any:
    raise OSError("the network is not asked while the catalogue is written")


def _no_pause(_: Any) -> None:
    """Return at once."""


def _late(*_: object) -> None:
    raise TimeoutError(f"not done within {TRYING_S} s")


def load(settings: dict[str, Any]) -> dict[str, Any]:
    """Import the package."""
    importlib.import_module("inspect_ai.solver")
    importlib.import_module("inspect_ai.scorer")
    return {"version": metadata.version("inspect_ai")}


def make(family: str, settings: dict[str, Any]) -> InspectTask:
    """Return the environment of a task."""
    return InspectTask(family, settings)


def catalogue() -> dict[str, Any]:
    """Return the evaluations of inspect_evals, and what each needs according to a trial."""
    return families_with_needs(make)


def _registry() -> Any:
    return importlib.import_module("inspect_evals._registry")


class InspectTask:
    """An Inspect task; `settings` are the arguments of the task's function, besides `path`."""

    def __init__(self, family: str, settings: dict[str, Any]) -> None:
        self.family = family
        self._loop = asyncio.new_event_loop()
        self._asked: asyncio.Future[Any] | None = None
        self._run: asyncio.Task[Any] | None = None
        self._shown = 0
        self.task = _task(family, dict(settings))
        if getattr(self.task, "sandbox", None) is not None:
            raise PeerRefusal(
                f"{family} of inspect cannot be played: it brings a sandbox of its own"
            )
        self._scorers = _listed(self.task.scorer)
        if not self._scorers:
            raise PeerRefusal(f"{family} of inspect has no scorer, so that nothing is rewarded")
        samples = list(self.task.dataset)
        for number, sample in enumerate(samples):
            if sample.id is None:
                sample.id = number + 1
            if sample.sandbox is not None or sample.files:
                raise PeerRefusal(
                    f"{family} of inspect cannot be played: its samples have a sandbox"
                )
        self._samples = split(samples, lambda sample: str(sample.input) + str(sample.id))
        self._state: Any = None

    def about(self) -> dict[str, Any]:
        """Return the sizes of the splits."""
        return {"sizes": {name: len(samples) for name, samples in self._samples.items()}}

    def reset(self, task: dict[str, Any]) -> dict[str, Any]:
        """Run the solver up to the first question to the model."""
        if self._run is not None:
            self._run.cancel()
        self._asked = None  # what the solver of another sample asked
        sample = self._samples[str(task["split"])][int(task["index"])]
        self._state, self._shown = _state(sample), 0
        self._run = self._loop.create_task(self._play(sample))
        if self._went_on():
            raise PeerBroken("the solver ended without asking a model")
        messages = self._new_messages()
        system = [message["content"] for message in messages if message["role"] == "system"]
        shown = [message for message in messages if message["role"] != "system"]
        return {"observation": shown, "system_prompt": "\n\n".join(system)}

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Answer the solver, and score the sample when the solver ends."""
        if self._asked is None or self._run is None:
            raise PeerBroken("the solver does not wait for an answer")
        asked, self._asked = self._asked, None
        asked.set_result(str(action["text"]))
        if not self._went_on():
            return {"observation": self._new_messages(), "reward": 0.0}
        reward, scores = self._run.result()
        return {"observation": "", "reward": reward, "terminated": True, "info": {"scores": scores}}

    def _went_on(self) -> bool:
        """Run the solver until the next question or the end; return whether the end has come."""
        assert self._run is not None
        self._loop.run_until_complete(self._until_asked(self._run))
        return self._run.done()

    async def _until_asked(self, run: asyncio.Task[Any]) -> None:
        while not run.done() and self._asked is None:
            await asyncio.wait([run], timeout=0.001)
        if run.done():
            run.result()

    async def _play(self, sample: Any) -> tuple[float, dict[str, str]]:
        scorers: Any = importlib.import_module("inspect_ai.scorer")
        for solver in _listed(self.task.solver):
            self._state = await solver(self._state, self._generate)
            if self._state.completed:
                break
        target, reward, scores = scorers.Target(sample.target), None, dict[str, str]()
        for number, scorer in enumerate(self._scorers):
            score = await scorer(self._state, target)
            if score is None:
                raise PeerBroken("the scorer gave no score")
            scores[f"scorer {number}"] = f"{score.value}: {score.explanation or ''}"[:500]
            if reward is None:
                if isinstance(score.value, (dict, list)):
                    raise PeerBroken(f"the first scorer gives several values: {score.value!r:.80}")
                reward = as_reward(scorers.value_to_float()(score.value))
        assert reward is not None
        return reward, scores

    async def _generate(self, state: Any, *_: Any, **__: Any) -> Any:
        models: Any = importlib.import_module("inspect_ai.model")
        if state.tools:
            raise PeerBroken("the solver has tools, which are not played here")
        if self._asked is not None and not self._asked.done():
            raise PeerBroken(
                "the solver asks again before it has an answer, which cannot be played"
            )
        self._state = state
        self._asked = asyncio.get_running_loop().create_future()
        said = await self._asked
        state.output = models.ModelOutput.from_content("policy", said)
        state.messages.append(state.output.message)
        self._shown = len(state.messages)
        return state

    def _new_messages(self) -> list[dict[str, str]]:
        new = self._state.messages[self._shown :]
        self._shown = len(self._state.messages)
        return [{"role": str(message.role), "content": str(message.text)} for message in new]


def _task(family: str, settings: dict[str, Any]) -> Any:
    name = str(settings.pop("variant", family.rpartition("/")[2]))
    try:
        if path := settings.pop("path", ""):
            task = getattr(load_file("inspect_tasks_at_hand", str(path)), name)
        else:
            task = getattr(_registry(), name, None) or _first_of(name)
        return task(**settings)
    except (AttributeError, TypeError, ModuleNotFoundError) as error:
        raise PeerRefusal(f"{family} of inspect cannot be made: {error}") from error
    except TimeoutError:  # the limit of whoever asks
        raise
    except Exception as error:  # whatever the task's download raises
        said = f"{type(error).__name__}: {error}"[:300]
        raise PeerRefusal(
            f"{family} of inspect cannot be made, as its data set cannot be had here: {said}"
        ) from error


def _first_of(topic: str) -> Any:
    """Return the first task of a family whose name is not the name of a task."""
    tasks = sorted(vars(_registry()).items())
    for _, task in tasks:
        if getattr(task, "__module__", "").split(".")[1:2] == [topic]:
            return task
    raise AttributeError(f"inspect_evals has no task or family {topic!r}")


def _state(sample: Any) -> Any:
    models: Any = importlib.import_module("inspect_ai.model")
    solvers: Any = importlib.import_module("inspect_ai.solver")
    scorers: Any = importlib.import_module("inspect_ai.scorer")
    given = sample.input
    messages = [models.ChatMessageUser(content=given)] if isinstance(given, str) else list(given)
    return solvers.TaskState(
        model=models.ModelName("mockllm/policy"),
        sample_id=sample.id,
        epoch=1,
        input=given,
        messages=messages,
        target=scorers.Target(sample.target),
        choices=sample.choices,
        metadata=dict(sample.metadata or {}),
    )


def _listed(one_or_more: Any) -> list[Any]:
    if one_or_more is None:
        return []
    return list(one_or_more) if isinstance(one_or_more, (list, tuple)) else [one_or_more]
