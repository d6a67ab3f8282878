"""A run as a log of Inspect: a `.eval` file, which its viewer and `read_eval_log` open.

The file is a ZIP with a JSON document for each sample, a summary of each, and a header. A sample is
what one role did in an episode: its id is the task, and its epoch counts the rollouts of the task.
An episode without a reward is a sample with an error and no score, which no metric counts.
"""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ludus.messages import Message, Role

from ..trajectory import Episode, Finish, Trajectory, Turn
from .transcript import spoken

SCORER, MODEL = "ludus_reward", "ludus/policy"
VERSION = 2
"""The layout of the log."""

_SUMMARISED = ["id", "epoch", "uuid", "input", "target", "metadata", "turn_count", "total_time"]


def write_eval_log(
    path: Path, name: str, created: float, episodes: Iterator[tuple[Any, Episode]]
) -> None:
    """Write a log with a sample for each trajectory.

    Args:
        path: the file, which ends in `.eval`.
        name: what the log calls the task; the run's name.
        created: when the run began, in seconds since 1970.
        episodes: rows of the index (`step` is read) with their episodes.
    """
    epochs, summaries, rewards = Counter[str](), list[dict[str, Any]](), list[float | None]()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        start = {"version": VERSION, "eval": _spec(name, created, []), "plan": {}}
        _member(archive, "_journal/start.json", start)
        for row, episode in episodes:
            for trajectory in episode.trajectories:
                is_alone = len(episode.trajectories) == 1
                sample_id = episode.task if is_alone else f"{episode.task}:{trajectory.role}"
                epochs[sample_id] += 1
                sample = _sample(sample_id, epochs[sample_id], row["step"], episode, trajectory)
                _member(archive, f"samples/{sample_id}_epoch_{sample['epoch']}.json", sample)
                summary = {name: sample[name] for name in _SUMMARISED}
                summary |= {"scores": sample["scores"]} if "scores" in sample else {}
                summary |= {"error": sample["error"]["message"]} if "error" in sample else {}
                summaries.append(
                    {**summary, "completed": True, "message_count": len(sample["messages"])}
                )
                rewards.append(trajectory.verdict.reward)
        _member(archive, "_journal/summaries/1.json", summaries)
        _member(archive, "summaries.json", summaries)
        header = {
            "version": VERSION,
            "status": "success",
            "eval": _spec(name, created, list(epochs)),
            "plan": {},
            "results": _results(rewards),
            "stats": {},
        }
        _member(archive, "header.json", header)


def _member(archive: zipfile.ZipFile, name: str, value: Any) -> None:
    archive.writestr(name, msgspec.json.encode(value, enc_hook=str))


def _spec(name: str, created: float, ids: list[str]) -> dict[str, Any]:
    return {
        "eval_id": name,
        "run_id": name,
        "created": datetime.fromtimestamp(created, UTC).isoformat(),
        "task": name,
        "task_id": name,
        "dataset": {"name": name, "samples": len(ids), "sample_ids": ids},
        "model": MODEL,
        "config": {},
        "scorers": [{"name": SCORER}],
    }


def _sample(
    sample_id: str, epoch: int, step: int | None, episode: Episode, trajectory: Trajectory
) -> dict[str, Any]:
    turns = trajectory.turns
    said = [message for segment in trajectory.segments for message, _ in spoken(segment)]
    opening = [_chat(message) for message in turns[0].observation] if turns else []
    verdict = trajectory.verdict
    sample: dict[str, Any] = {
        "id": sample_id,
        "epoch": epoch,
        "uuid": f"{episode.split}-{episode.ordinal}-{sample_id}-{epoch}",
        "input": opening,
        "target": "",
        "messages": [_chat(message) for message in said],
        "output": _output(turns[-1], trajectory) if turns else {"model": MODEL, "choices": []},
        "metadata": {
            "step": step,
            "split": episode.split,
            "ordinal": episode.ordinal,
            "group": episode.group,
            "role": trajectory.role,
            "stop": str(trajectory.stop),
        },
        "turn_count": len(turns),
        "total_time": episode.wall_s,
    }
    if verdict.reward is None:
        why = verdict.detail or f"the verdict is {verdict.status}"
        sample["error"] = {"message": why, "traceback": "", "traceback_ansi": ""}
    else:
        parts = {name: value for name, (value, _) in verdict.parts.items()}
        sample["scores"] = {
            SCORER: {
                "value": verdict.reward,
                "explanation": verdict.detail or None,
                "metadata": {"parts": parts},
            }
        }
    return sample


def _chat(message: Message) -> dict[str, Any]:
    chat: dict[str, Any] = {"role": str(message.role), "content": message.text}
    if message.role is Role.TOOL:
        return {**chat, "tool_call_id": message.tool_call_id, "function": message.name}
    if message.role is not Role.ASSISTANT:
        return chat
    if message.reasoning:
        thought = {"type": "reasoning", "reasoning": message.reasoning}
        chat["content"] = [thought, {"type": "text", "text": message.text}]
    if message.tool_calls:
        chat["tool_calls"] = [
            {
                "id": call.id,
                "function": call.name,
                "arguments": call.arguments,
                "type": "function",
                "parse_error": call.error or None,
            }
            for call in message.tool_calls
        ]
    return chat


def _output(last: Turn, trajectory: Trajectory) -> dict[str, Any]:
    """Return the last answer, with the tokens of all."""
    said = last.message or Message(role=Role.ASSISTANT, content="")
    stop = "max_tokens" if last.finish is Finish.LENGTH else "stop"
    if said.tool_calls and stop == "stop":
        stop = "tool_calls"
    sampled = trajectory.sampled_tokens
    return {
        "model": MODEL,
        "choices": [{"message": _chat(said), "stop_reason": stop}],
        "completion": said.text,
        "usage": {"input_tokens": 0, "output_tokens": sampled, "total_tokens": sampled},
    }


def _results(rewards: list[float | None]) -> dict[str, Any]:
    known = [reward for reward in rewards if reward is not None]
    mean = math.fsum(known) / len(known) if known else 0.0
    score = {
        "name": SCORER,
        "scorer": SCORER,
        "scored_samples": len(known),
        "unscored_samples": len(rewards) - len(known),
        "metrics": {"mean": {"name": "mean", "value": mean}} if known else {},
    }
    completed = {"total_samples": len(rewards), "completed_samples": len(known)}
    return {**completed, "scores": [score]}
