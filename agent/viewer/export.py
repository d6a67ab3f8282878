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
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError, MissingExtra
from ludus.messages import Message

from ..trajectory import Episode, Finish, Segment, Trajectory, Turn
from .inspect_log import write_eval_log
from .run import RunReader
from .transcript import spoken

AT_ONCE = 500
"""Episodes that are read at a time."""
WINDOW: dict[str, Any] = {
    "run": str, "step": int, "split": str, "task": str, "group": str, "index": int,
    "ordinal": int, "role": str, "window": int, "parent": int, "ended": str, "stop": str,
    "status": str, "reward": float, "in_loss": bool, "ids": list[int], "mask": list[int],
    "logprobs": list[float], "versions": list[int], "advantages": list[float],
    "learner_logprobs": list[float], "entropies": list[float], "parts": str, "messages": str,
}  # fmt: skip
"""The columns of a window's row, and their types."""
METRIC: dict[str, Any] = {"run": str, "step": int, "column": str, "value": float}
ROLLOUT: dict[str, Any] = {
    "run": str, "ordinal": int, "grp": int, "task": str, "fate": str, "step": int, "reason": str,
    "issued": int, "oldest": int, "newest": int, "tokens": int, "seconds": float, "reward": float,
    "started": float, "spans": str,
}  # fmt: skip

Found = tuple[Any, Episode]
"""The row of the index, and the episode."""
File = tuple[str, Any]
"""The name of a file, and its content: rows, or what the writer of its ending takes (`WRITERS`)."""


@dataclass(frozen=True)
class Selection:
    """The episodes of a run that are exported."""

    reader: RunReader
    episodes: Iterator[Found]
    passing: float
    """The least reward with which `trl` labels a completion as good."""

    def windows(self) -> Iterator[tuple[Episode, Trajectory, Segment]]:
        """Yield each context window, with its episode and its role."""
        for _, episode in self.episodes:
            for trajectory in episode.trajectories:
                for segment in trajectory.segments:
                    yield episode, trajectory, segment


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
        ConfigError: there is no such format, no episode passes the filters, the folder cannot be
            written, or what is exported would be replaced.
        MissingExtra: pyarrow is not installed.
    """
    if to not in FORMATS:
        raise ConfigError(f"there is no format {to!r}; formats: {', '.join(FORMATS)}")
    total, _ = reader.store.query(filters, limit=1)
    if not total:
        query = "&".join(f"{name}={value}" for name, value in filters.items())
        every, _ = reader.store.query({}, limit=1)
        if not every:
            raise ConfigError(f"{reader.name} has no episode to export")
        raise ConfigError(
            f"no episode of {reader.name} passes the filter {query!r}, of {every}; give a wider one"
        )
    selection = Selection(reader, _episodes(reader, filters, total), passing)
    files: list[Path] = []
    place = reader.path.resolve()
    own = (place, place / "episodes")
    lost = f"{str(out)!r} holds what is exported, which would be replaced; name another folder"
    if out.resolve() in own:
        raise ConfigError(lost)
    try:
        for name, content in FORMATS[to](selection):
            path = out / name
            if path.suffix == ".parquet":
                _arrow()  # refused before a folder is made, or an earlier file is gone
            if path.resolve() == place:
                raise ConfigError(lost)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # of an earlier export
            WRITERS[path.suffix](path, content)
            files += [path] if path.exists() else []  # Parquet without a row has no columns
    except OSError as error:
        raise ConfigError(f"cannot write {str(out)!r}: {error.strerror}") from error
    return files


def _episodes(reader: RunReader, filters: Mapping[str, str], total: int) -> Iterator[Found]:
    reader.store.refresh_rollouts()
    for offset in range(0, total, AT_ONCE):
        _, rows = reader.store.query(filters, offset=offset, limit=AT_ONCE)
        for row in rows:
            read = reader.episode(row["id"])
            if read is not None:
                yield read


# --- tables ---------------------------------------------------------------------------------------


def windows(reader: RunReader, episodes: Iterator[Found]) -> Iterator[dict[str, Any]]:
    """Yield a row for each context window, its ids exactly as recorded."""
    for row, episode in episodes:
        learned = reader.store.learned(episode.ordinal) if "eval-" not in row["file"] else None
        known = {
            (window["role"], window["window"]): window
            for window in (learned or {}).get("windows", [])
        }
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
                    **_learner_columns(known.get((role, number), {})),
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


def _learner_columns(window: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return what the learner found, a number for each trained token; empty where not known."""
    names = {"advantage": "advantages", "logp": "learner_logprobs", "entropy": "entropies"}
    return {name: list(window.get(key, [])) for key, name in names.items()}


def _messages(segment: Segment) -> list[Message]:
    return [message for message, _ in spoken(segment)]


def _tables(selection: Selection, ending: str) -> Iterator[File]:
    reader = selection.reader
    yield f"windows{ending}", windows(reader, selection.episodes)
    metrics = (
        {"run": reader.name, "step": step, "column": name, "value": value}
        for name, series in reader.columns.items()
        for step, value in zip(series.steps, series.values, strict=True)
    )
    yield f"metrics{ending}", metrics
    rollouts = reader.store.base.execute("SELECT * FROM rollouts ORDER BY ordinal")
    yield f"rollouts{ending}", ({"run": reader.name, **dict(row)} for row in rollouts)


def _write_lines(path: Path, rows: Iterable[Any]) -> None:
    with path.open("wb") as file:
        file.writelines(msgspec.json.encode(row, enc_hook=str) + b"\n" for row in rows)


def _arrow() -> Any:
    try:
        import pyarrow as arrow
        import pyarrow.parquet  # makes pyarrow.parquet an attribute
    except ImportError:
        raise MissingExtra.of("export", needed_for="writing Parquet") from None
    return arrow


def _write_parquet(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    arrow = _arrow()
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    lists = {list[int]: arrow.list_(arrow.int64()), list[float]: arrow.list_(arrow.float64())}
    schema, writer, remaining = None, None, iter(rows)
    try:
        while batch := list(itertools.islice(remaining, AT_ONCE)):
            if schema is None:
                # A column that holds nothing in the first rows has a type all the same.
                named = next(t for t in (WINDOW, METRIC, ROLLOUT) if list(t) == list(batch[0]))
                schema = arrow.schema([(n, (kinds | lists)[kind]) for n, kind in named.items()])
            writer = writer or arrow.parquet.ParquetWriter(path, schema)
            writer.write_table(arrow.Table.from_pylist(batch, schema=schema))
    finally:
        if writer is not None:
            writer.close()


WRITERS: dict[str, Callable[[Path, Any], object]] = {
    ".jsonl": _write_lines,
    ".json": lambda path, document: path.write_bytes(
        msgspec.json.format(msgspec.json.encode(document, enc_hook=str))
    ),
    ".parquet": _write_parquet,
    ".md": lambda path, text: path.write_text(text, encoding="utf-8"),
    ".eval": lambda path, selection: write_eval_log(
        path, selection.reader.name, selection.reader.path.stat().st_mtime, selection.episodes
    ),
}
"""What writes a file, by the ending of its name."""

CARD = """---
configs:
- config_name: default
  data_files:
{splits}
---

# Rollouts of {run}

A row is a context window with its token ids as sampled. Written by `ludus export --to hf`.
"""


def _hf(selection: Selection) -> Iterator[File]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in windows(selection.reader, selection.episodes):
        rows.setdefault(_file_name(row["split"]), []).append(row)
    for split, of in rows.items():
        yield f"data/{split}-00000-of-00001.parquet", of
    splits = "\n".join(f"  - split: {split}\n    path: data/{split}-*.parquet" for split in rows)
    yield "README.md", CARD.format(splits=splits, run=selection.reader.name)


# --- chats ----------------------------------------------------------------------------------------


def _sharegpt(selection: Selection) -> Iterator[dict[str, Any]]:
    for episode, trajectory, segment in selection.windows():
        turns = [turn for message in _messages(segment) for turn in _shared(message)]
        if turns:
            yield {"conversations": turns, **_about(episode, trajectory)}


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


def _trl(selection: Selection) -> Iterator[dict[str, Any]]:
    for episode, trajectory, segment in selection.windows():
        messages = [_chat(message) for message in _messages(segment)]
        first = next((n for n, m in enumerate(messages) if m["role"] == "assistant"), None)
        if first is None or trajectory.verdict.reward is None:
            continue  # a failure is no label
        yield {
            "prompt": messages[:first],
            "completion": messages[first:],
            "label": trajectory.verdict.reward >= selection.passing,
            **_about(episode, trajectory),
        }


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


def _atif(selection: Selection) -> Iterator[File]:
    for row, episode in selection.episodes:
        taken = set[str]()
        for number, trajectory in enumerate(episode.trajectories):
            steps = [step for segment in trajectory.segments for step in _steps(segment)]
            if not steps:
                continue
            name = f"{row['id']}-{_file_name(trajectory.role)}"
            name += f"-{number}" if name in taken else ""  # two of one role
            taken.add(name)
            document = {
                "schema_version": "ATIF-v1.7",
                "session_id": selection.reader.name,
                "trajectory_id": name,
                "agent": {"name": "ludus", "version": "1", "extra": {"role": trajectory.role}},
                "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
                "final_metrics": {
                    "total_completion_tokens": trajectory.sampled_tokens,
                    "total_steps": len(steps),
                },
                "extra": {**_about(episode, trajectory), "stop": str(trajectory.stop)},
            }
            yield f"{name}.json", document


def _file_name(text: str) -> str:
    """Return a role or a split as a part of a name, which stays in its folder."""
    return re.sub(r"[^\w.-]", "_", text)[:100]


def _steps(segment: Segment) -> list[dict[str, Any]]:
    """Return the steps of a window; results of tools belong to the step of the call."""
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
    numbers = itertools.count()
    for trajectory in episode.trajectories:
        for place, segment in enumerate(trajectory.segments):
            parent: str | None = None
            for message, turn in spoken(segment):
                entry = f"{place}-{next(numbers)}"
                yield {
                    "type": "message",
                    "id": entry,
                    "parentId": parent,
                    "timestamp": at,
                    "message": _pi_message(message, turn),
                }
                parent = entry


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
    if turn is None and message.role != "assistant":
        return {"role": "developer" if message.role == "system" else "user", "content": text}
    thought = [{"type": "thinking", "thinking": message.reasoning}] if message.reasoning else []
    calls = [
        {"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    is_cut = turn is not None and turn.finish is Finish.LENGTH
    stop = "length" if is_cut else "toolUse" if calls else "stop"
    sampled = 0 if turn is None else len(turn.out_ids)  # 0: a message that the window opens with
    usage = {"input": 0, "output": sampled, "cacheRead": 0, "cacheWrite": 0}
    return {
        "role": "assistant",
        "content": [*thought, *(text if message.text else []), *calls],
        "api": "ludus",
        "provider": "ludus",
        "model": "policy",
        "usage": {**usage, "totalTokens": sampled, "cost": {"total": 0}},
        "stopReason": stop,
    }


def _traces(selection: Selection) -> Iterator[dict[str, Any]]:
    for row, episode in selection.episodes:
        turns = [
            node
            for role, trajectory in enumerate(episode.trajectories)
            for place, segment in enumerate(trajectory.segments)
            for node in _nodes(segment, f"{row['id']}-{role}-{place}", episode, trajectory)
        ]
        if turns:
            yield {"schema_version": 1, "turns": turns}


def _nodes(
    segment: Segment, name: str, episode: Episode, trajectory: Trajectory
) -> Iterator[dict[str, Any]]:
    """Yield the sampled turns of a window: a turn without log-probabilities is no training data."""
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


FORMATS: dict[str, Callable[[Selection], Iterable[File]]] = {
    "jsonl": lambda selection: _tables(selection, ".jsonl"),
    "parquet": lambda selection: _tables(selection, ".parquet"),
    "hf": _hf,
    "sharegpt": lambda selection: [("sharegpt.jsonl", _sharegpt(selection))],
    "trl": lambda selection: [("trl.jsonl", _trl(selection))],
    "atif": _atif,
    "pi": lambda selection: (
        (f"{row['id']}.jsonl", _session(selection.reader, row, episode))
        for row, episode in selection.episodes
    ),
    "training-trace": lambda selection: [("traces.jsonl", _traces(selection))],
    "inspect": lambda selection: [(f"{selection.reader.name.replace('/', '-')}.eval", selection)],
}
"""Each format by its name: the files that it writes."""
