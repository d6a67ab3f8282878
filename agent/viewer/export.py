"""Runs as files of other tools: tidy tables, chats, and trajectories with exact ids.

jsonl, parquet    `windows`: a row for each context window, with its ids, mask, log-probabilities
                  and what the learner found; `metrics`: step, column, value; `rollouts`
hf                the windows as a folder that `datasets.load_dataset` reads, a file for each split
sharegpt          {"conversations": [{"from": "human", "value": ...}]}
trl               {"prompt": [...], "completion": [...], "label": ...}, conversational
atif              a document for each role of an episode, ATIF 1.7, with ids and log-probabilities
pi                a session of Pi, version 3: messages as a tree
training-trace    OpenEnv's TrainingTrace 1: ids, log-probabilities and mask of each turn
inspect           a log of Inspect (`.eval`): a sample for each role of an episode, with its score
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError, MissingExtra
from ludus.messages import Message

from ..trajectory import Episode, Finish, Segment, Trajectory, Turn
from .inspect_log import write_eval_log
from .run import RunReader

AT_ONCE = 500
"""Episodes that are read at a time."""
WINDOW = (
    "run", "step", "split", "task", "group", "index", "ordinal", "role", "window", "parent",
    "ended", "stop", "status", "reward", "in_loss", "ids", "mask", "logprobs", "versions",
    "advantages", "learner_logprobs", "entropies", "parts", "messages",
)  # fmt: skip
"""The columns of a window's row."""

Found = tuple[Any, Episode]
"""The row of the index, and the episode."""


def export(
    reader: RunReader, to: str, out: Path, *, filters: Mapping[str, str], passing: float = 1.0
) -> list[Path]:
    """Write the episodes of a run that pass the filters, and return the files.

    Args:
        reader: the run, or a file of episodes.
        to: one of `FORMATS`.
        out: the folder, which is created.
        filters: as on the page; see `store.Store.conditions`.
        passing: the least reward with which `trl` labels a completion as good.

    Raises:
        ConfigError: there is no such format, no episode passes the filters, or the folder cannot be
            written.
        MissingExtra: pyarrow is not installed.
    """
    if to not in FORMATS:
        raise ConfigError(f"there is no format {to!r}; formats: {', '.join(FORMATS)}")
    total, _ = reader.store.query(filters, limit=1)
    if not total:
        raise ConfigError(f"no episode of {reader.name} passes {dict(filters)}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        return FORMATS[to](reader, out, _episodes(reader, filters, total), passing)
    except OSError as error:
        raise ConfigError(f"cannot write {str(out)!r}: {error.strerror}") from None


def _episodes(reader: RunReader, filters: Mapping[str, str], total: int) -> Iterator[Found]:
    reader.store.refresh_rollouts()
    for offset in range(0, total, AT_ONCE):
        _, rows = reader.store.query(filters, offset=offset, limit=AT_ONCE)
        for row in rows:
            read = reader.episode(row["id"])
            if read is not None:
                yield read


# --- tables ---------------------------------------------------------------------------------------


def windows(reader: RunReader, found: Iterator[Found]) -> Iterator[dict[str, Any]]:
    """Yield a row for each context window, its ids exactly as recorded."""
    for row, episode in found:
        learned = reader.store.learned(episode.ordinal) if "eval-" not in row["file"] else None
        known = {(one["role"], one["window"]): one for one in (learned or {}).get("windows", [])}
        for role, trajectory in enumerate(episode.trajectories):
            for number, segment in enumerate(trajectory.segments):
                yield {
                    "run": reader.name,
                    "step": row["step"],
                    "split": episode.split,
                    "task": episode.task,
                    "group": episode.group,
                    "index": episode.index,
                    "ordinal": episode.ordinal,
                    "role": trajectory.role,
                    "window": number,
                    "parent": segment.parent,
                    "ended": segment.break_reason,
                    "stop": str(trajectory.stop),
                    "status": str(trajectory.verdict.status),
                    "reward": trajectory.verdict.reward,
                    "in_loss": not trajectory.exclude_from_loss,
                    **_tokens(segment),
                    **_found(known.get((role, number), {})),
                    "parts": msgspec.json.encode(trajectory.verdict.parts).decode(),
                    "messages": msgspec.json.encode(_messages(segment)).decode(),
                }


def _tokens(segment: Segment) -> dict[str, list[Any]]:
    """Return the ids of a window with mask, log-probability and version, all of one length."""
    ids = segment.ids()
    mask, logprobs, versions = [0] * len(ids), [0.0] * len(ids), [-1] * len(ids)
    for start, turn in segment.spans():
        end = start + len(turn.out_ids)
        mask[start:end] = [int(turn.trained)] * len(turn.out_ids)
        logprobs[start:end] = turn.logprobs or [0.0] * len(turn.out_ids)
        versions[start:end] = turn.versions or [-1] * len(turn.out_ids)
    return {"ids": ids, "mask": mask, "logprobs": logprobs, "versions": versions}


def _found(window: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return what the learner found, a number for each trained token; empty where not known."""
    names = {"advantage": "advantages", "logp": "learner_logprobs", "entropy": "entropies"}
    return {name: list(window.get(key, [])) for key, name in names.items()}


def _messages(segment: Segment) -> list[Message]:
    messages: list[Message] = []
    for turn in segment.turns:
        messages += [*turn.observation, *([turn.message] if turn.message else [])]
    return messages


def _metrics(reader: RunReader) -> Iterator[dict[str, Any]]:
    for name, series in reader.columns.items():
        for step, value in zip(series.steps, series.values, strict=True):
            yield {"run": reader.name, "step": step, "column": name, "value": value}


def _rollouts(reader: RunReader) -> Iterator[dict[str, Any]]:
    for row in reader.store.base.execute("SELECT * FROM rollouts ORDER BY ordinal"):
        yield {"run": reader.name, **dict(row)}


def _to_jsonl(reader: RunReader, out: Path, found: Iterator[Found], _: float) -> list[Path]:
    tables = (
        ("windows", windows(reader, found)),
        ("metrics", _metrics(reader)),
        ("rollouts", _rollouts(reader)),
    )
    return [_lines(out / f"{name}.jsonl", rows) for name, rows in tables]


def _lines(path: Path, rows: Iterator[Any]) -> Path:
    with path.open("wb") as file:
        file.writelines(msgspec.json.encode(row, enc_hook=str) + b"\n" for row in rows)
    return path


def _to_parquet(reader: RunReader, out: Path, found: Iterator[Found], _: float) -> list[Path]:
    tables = {"metrics": _metrics(reader), "rollouts": _rollouts(reader)}
    files = [_parquet(out / "windows.parquet", windows(reader, found), _schema())]
    files += [_parquet(out / f"{name}.parquet", rows, None) for name, rows in tables.items()]
    return [path for path in files if path.exists()]  # a table without a row has no file


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet  # makes pyarrow.parquet an attribute
    except ImportError:
        raise MissingExtra.of("export", needed_for="writing Parquet") from None
    return pyarrow


def _schema() -> Any:
    arrow = _arrow()
    integers, floats = arrow.list_(arrow.int64()), arrow.list_(arrow.float64())
    kinds = {
        **dict.fromkeys(["step", "index", "ordinal", "window", "parent"], arrow.int64()),
        **dict.fromkeys(["ids", "mask", "versions"], integers),
        **dict.fromkeys(["logprobs", "advantages", "learner_logprobs", "entropies"], floats),
        "reward": arrow.float64(),
        "in_loss": arrow.bool_(),
    }
    return arrow.schema([(name, kinds.get(name, arrow.string())) for name in WINDOW])


def _parquet(path: Path, rows: Iterator[dict[str, Any]], schema: Any) -> Path:
    arrow, writer = _arrow(), None
    while batch := list(itertools.islice(rows, AT_ONCE)):
        table = arrow.Table.from_pylist(batch, schema=schema)
        schema = table.schema  # of the first batch, where none was given
        if writer is None:
            writer = arrow.parquet.ParquetWriter(path, schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    return path


CARD = """---
configs:
- config_name: default
  data_files:
{splits}
---

# Rollouts of {run}

A row is a context window with its token ids as sampled. Written by `ludus export --to hf`.
"""


def _to_hf(reader: RunReader, out: Path, found: Iterator[Found], _: float) -> list[Path]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in windows(reader, found):
        rows.setdefault(row["split"], []).append(row)
    (out / "data").mkdir(exist_ok=True)
    files = [
        _parquet(out / "data" / f"{split}-00000-of-00001.parquet", iter(of), _schema())
        for split, of in rows.items()
    ]
    splits = "\n".join(f"  - split: {split}\n    path: data/{split}-*.parquet" for split in rows)
    card = out / "README.md"
    card.write_text(CARD.format(splits=splits, run=reader.name), encoding="utf-8")
    return [*files, card]


# --- chats ----------------------------------------------------------------------------------------


def _to_sharegpt(reader: RunReader, out: Path, found: Iterator[Found], _: float) -> list[Path]:
    def rows() -> Iterator[dict[str, Any]]:
        for _row, episode, trajectory, segment in _chats(found):
            said = [_shared(message) for message in _messages(segment)]
            if said:
                yield {
                    "conversations": [turn for turns in said for turn in turns],
                    **_about(episode, trajectory),
                }

    return [_lines(out / "sharegpt.jsonl", rows())]


def _chats(found: Iterator[Found]) -> Iterator[tuple[Any, Episode, Trajectory, Segment]]:
    for row, episode in found:
        for trajectory in episode.trajectories:
            for segment in trajectory.segments:
                yield row, episode, trajectory, segment


def _about(episode: Episode, trajectory: Trajectory) -> dict[str, Any]:
    return {
        "task": episode.task,
        "ordinal": episode.ordinal,
        "reward": trajectory.verdict.reward,
        "status": str(trajectory.verdict.status),
    }


def _shared(message: Message) -> list[dict[str, str]]:
    role = {"user": "human", "assistant": "gpt", "tool": "observation"}.get(message.role, "system")
    turns = (
        [{"from": role, "value": message.text}] if message.text or not message.tool_calls else []
    )
    return turns + [
        {
            "from": "function_call",
            "value": msgspec.json.encode({"name": call.name, "arguments": call.arguments}).decode(),
        }
        for call in message.tool_calls
    ]


def _to_trl(reader: RunReader, out: Path, found: Iterator[Found], passing: float) -> list[Path]:
    def rows() -> Iterator[dict[str, Any]]:
        for _row, episode, trajectory, segment in _chats(found):
            messages = [_chat(message) for message in _messages(segment)]
            first = next((n for n, m in enumerate(messages) if m["role"] == "assistant"), None)
            if first is None or trajectory.verdict.reward is None:
                continue  # a failure is no label
            yield {
                "prompt": messages[:first],
                "completion": messages[first:],
                "label": trajectory.verdict.reward >= passing,
                **_about(episode, trajectory),
            }

    return [_lines(out / "trl.jsonl", rows())]


def _chat(message: Message) -> dict[str, Any]:
    chat: dict[str, Any] = {"role": str(message.role), "content": message.text}
    if message.reasoning:
        chat["reasoning_content"] = message.reasoning
    if message.tool_calls:
        chat["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return chat | ({"name": message.name} if message.name else {})


# --- trajectories ---------------------------------------------------------------------------------


def _to_atif(reader: RunReader, out: Path, found: Iterator[Found], _: float) -> list[Path]:
    files: list[Path] = []
    for row, episode in found:
        for trajectory in episode.trajectories:
            steps = [step for segment in trajectory.segments for step in _steps(segment)]
            if not steps:
                continue
            document = {
                "schema_version": "ATIF-v1.7",
                "session_id": reader.name,
                "trajectory_id": f"{row['id']}-{trajectory.role}",
                "agent": {"name": "ludus", "version": "1", "extra": {"role": trajectory.role}},
                "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
                "final_metrics": {
                    "total_completion_tokens": trajectory.sampled_tokens,
                    "total_steps": len(steps),
                },
                "extra": {**_about(episode, trajectory), "stop": str(trajectory.stop)},
            }
            path = out / f"{document['trajectory_id']}.json"
            path.write_bytes(msgspec.json.format(msgspec.json.encode(document, enc_hook=str)))
            files.append(path)
    return files


def _steps(segment: Segment) -> list[dict[str, Any]]:
    """Return the steps of a window; results of tools belong to the step that called them."""
    prompt, steps = list(segment.prompt_ids), list[dict[str, Any]]()
    for turn in segment.turns:
        prompt += turn.obs_ids
        last = steps[-1] if steps else {}
        calls = {call["tool_call_id"] for call in last.get("tool_calls", [])}
        results: list[dict[str, Any]] = []
        for message in turn.observation:
            if message.role == "tool" and message.tool_call_id in calls:
                results.append({"source_call_id": message.tool_call_id, "content": message.text})
            elif message.role != "assistant":
                source = "system" if message.role == "system" else "user"
                steps.append({"source": source, "message": message.text})
        if results:
            last["observation"] = {"results": results}
        steps.append(_agent_step(turn, prompt))
        prompt += turn.out_ids
    return steps


def _agent_step(turn: Turn, prompt: list[int]) -> dict[str, Any]:
    message = turn.message
    step: dict[str, Any] = {"source": "agent", "message": message.text if message else ""}
    if message and message.reasoning:
        step["reasoning_content"] = message.reasoning
    if message and message.tool_calls:
        step["tool_calls"] = [
            {"tool_call_id": call.id, "function_name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ]
    if turn.out_ids:
        step["metrics"] = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(turn.out_ids),
            "prompt_token_ids": list(prompt),
            "completion_token_ids": turn.out_ids,
            "logprobs": turn.logprobs,
            "extra": {"versions": turn.versions, "kind": str(turn.kind), "trained": turn.trained},
        }
    return step


def _to_pi(reader: RunReader, out: Path, found: Iterator[Found], _: float) -> list[Path]:
    return [
        _lines(out / f"{row['id']}.jsonl", _session(reader, row, episode)) for row, episode in found
    ]


def _session(reader: RunReader, row: Any, episode: Episode) -> Iterator[dict[str, Any]]:
    at = datetime.fromtimestamp(0, UTC).isoformat()
    yield {
        "type": "session",
        "version": 3,
        "id": f"{reader.name}-{row['id']}",
        "timestamp": at,
        "cwd": str(reader.path),
        "harness": "ludus",
    }
    number = 0
    for trajectory in episode.trajectories:
        for place, segment in enumerate(trajectory.segments):
            parent: str | None = None
            for message, turn in _spoken(segment):
                entry = f"{place}-{number}"
                number += 1
                yield {
                    "type": "message",
                    "id": entry,
                    "parentId": parent,
                    "timestamp": at,
                    "message": _pi_message(message, turn),
                }
                parent = entry


def _spoken(segment: Segment) -> Iterator[tuple[Message, Turn | None]]:
    for turn in segment.turns:
        for message in turn.observation:
            yield message, None
        if turn.message is not None:
            yield turn.message, turn


def _pi_message(message: Message, turn: Turn | None) -> dict[str, Any]:
    text = [{"type": "text", "text": message.text}]
    if message.role == "tool":
        return {
            "role": "toolResult",
            "toolCallId": message.tool_call_id,
            "toolName": message.name,
            "content": text,
            "isError": False,
        }
    if turn is None:
        return {"role": "developer" if message.role == "system" else "user", "content": text}
    thought = [{"type": "thinking", "thinking": message.reasoning}] if message.reasoning else []
    calls = [
        {"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    stop = "length" if turn.finish is Finish.LENGTH else "toolUse" if calls else "stop"
    usage = {"input": 0, "output": len(turn.out_ids), "cacheRead": 0, "cacheWrite": 0}
    return {
        "role": "assistant",
        "content": [*thought, *(text if message.text else []), *calls],
        "api": "ludus",
        "provider": "ludus",
        "model": "policy",
        "usage": {**usage, "totalTokens": len(turn.out_ids), "cost": {"total": 0}},
        "stopReason": stop,
    }


def _to_training_trace(
    reader: RunReader, out: Path, found: Iterator[Found], _: float
) -> list[Path]:
    def rows() -> Iterator[dict[str, Any]]:
        for row, episode in found:
            turns = [
                node
                for role, trajectory in enumerate(episode.trajectories)
                for place, segment in enumerate(trajectory.segments)
                for node in _nodes(segment, f"{row['id']}-{role}-{place}", episode, trajectory)
            ]
            if turns:
                yield {"schema_version": 1, "turns": turns}

    return [_lines(out / "traces.jsonl", rows())]


def _nodes(
    segment: Segment, name: str, episode: Episode, trajectory: Trajectory
) -> Iterator[dict[str, Any]]:
    """Yield the sampled turns of a window: those without log-probabilities are no training data."""
    ids = segment.ids()
    for number, (start, turn) in enumerate(segment.spans()):
        if not turn.out_ids or len(turn.logprobs) != len(turn.out_ids):
            continue
        trained = int(turn.trained and not trajectory.exclude_from_loss)
        yield {
            "node_id": f"{name}-{number}",
            "prompt_token_ids": ids[:start],
            "completion_token_ids": turn.out_ids,
            "per_token_logps": [min(0.0, value) for value in turn.logprobs],
            "loss_mask": [0] * start + [trained] * len(turn.out_ids),
            "request": {"messages": [_chat(message) for message in turn.observation]},
            "response": _chat(turn.message) if turn.message else {},
            "metadata": _about(episode, trajectory),
        }


def _to_inspect(reader: RunReader, out: Path, found: Iterator[Found], _: float) -> list[Path]:
    path = out / f"{reader.name.replace('/', '-')}.eval"
    write_eval_log(path, reader.name, reader.path.stat().st_mtime, found)
    return [path]


FORMATS: dict[str, Callable[[RunReader, Path, Iterator[Found], float], list[Path]]] = {
    "jsonl": _to_jsonl,
    "parquet": _to_parquet,
    "hf": _to_hf,
    "sharegpt": _to_sharegpt,
    "trl": _to_trl,
    "atif": _to_atif,
    "pi": _to_pi,
    "training-trace": _to_training_trace,
    "inspect": _to_inspect,
}
"""Each format by its name."""
