"""The views of runs as plain data: what the live page asks for, `--json` prints and a file inlines.

Text that a model or an environment wrote stands only in fields of `TEXTS`, which `without_text`
removes: an agent that watches a run is not spoken to by it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any

import msgspec

from ludus.errors import ConfigError, UnknownName
from ludus.findings import gravest_first, newest

from ..trajectory import Episode
from .columns import CURATED, GROUPS, column
from .compare import compare
from .run import RunReader
from .store import BETWEEN, FILTERS, SHOWN, as_number
from .transcript import first_difference, trajectory_data

Query = Mapping[str, str]
MOST_POINTS = 2000
"""Points of a line; of more, the least, the largest and the last of equal stretches are sent."""
INSTRUCTIVE = (
    "SELECT a.task, a.id AS before, b.id AS after, a.reward AS low, b.reward AS high "
    "FROM episodes a JOIN episodes b ON a.task=b.task AND a.idx=b.idx WHERE "
    "a.file=(SELECT MIN(file) FROM episodes WHERE file LIKE 'eval-%') AND "
    "b.file=(SELECT MAX(file) FROM episodes WHERE file LIKE 'eval-%') AND a.file!=b.file "
    "AND a.reward IS NOT NULL AND b.reward IS NOT NULL "
    "ORDER BY b.reward - a.reward DESC, a.task LIMIT 6"
)
"""The held-out tasks whose reward rose most from the first to the last evaluation."""
NEWEST_KEPT = "SELECT * FROM episodes WHERE kept != '' ORDER BY step DESC, id LIMIT 10"
STAGES = 40
"""Steps whose stages are shown."""
TEXTS = frozenset(
    {"text", "messages", "observation", "message", "closing", "gold", "detail", "pieces"}
)


class UnknownView(UnknownName):
    """A view that no page has."""

    kind = "view"


class UnknownColumn(UnknownName):
    """A column that no run has."""

    kind = "column"


class Runs:
    """The runs of a page, by name.

    Raises:
        ConfigError: there are none.
    """

    def __init__(self, readers: Sequence[RunReader]) -> None:
        if not readers:
            raise ConfigError("no run to show: name a run folder, or a folder that holds some")
        self.readers = {reader.name: reader for reader in readers}

    def one(self, query: Query) -> RunReader:
        """Return the run that a query names; the newest without a name."""
        name = query.get("run") or next(reversed(self.readers))
        if name not in self.readers:
            raise UnknownView.near(name, self.readers, hint="ludus watch RUN --json runs")
        return self.readers[name]

    def several(self, query: Query) -> list[RunReader]:
        """Return the runs that a query names; all without names."""
        names = [name for name in query.get("runs", "").split(",") if name]
        return [self.one({"run": name}) for name in names] or list(self.readers.values())


def view(name: str, runs: Runs, query: Query) -> Any:
    """Return a view.

    Raises:
        UnknownView: there is no such view, or no such run.
    """
    if name not in VIEWS:
        raise UnknownView.near(name, VIEWS, hint=f"views: {', '.join(VIEWS)}")
    if name in OF_RUNS:
        return OF_RUNS[name](runs, query)
    reader = runs.one(query)
    if name in OF_ROLLOUTS:
        reader.store.refresh_rollouts()
    return (OF_RUN | OF_ROLLOUTS)[name](reader, query)


def _whole(query: Query, name: str, otherwise: int = 0) -> int:
    """Return a whole number of a query, or `otherwise` where the query has none.

    Raises:
        ConfigError: it is no whole number, or one beyond the 64 bits that SQLite has.
    """
    given = query.get(name) or str(otherwise)
    with suppress(ValueError):
        if abs(number := int(given)) < 1 << 63:
            return number
    raise ConfigError(f"{name}={given:.80}: give a whole number, of 64 bits at most")


def without_text(value: Any) -> Any:
    """Return a view without what models and environments wrote."""
    if isinstance(value, dict):
        return {key: without_text(inner) for key, inner in value.items() if key not in TEXTS}
    return [without_text(inner) for inner in value] if isinstance(value, list) else value


# --- runs and numbers -----------------------------------------------------------------------------


def _run_row(reader: RunReader) -> dict[str, Any]:
    settings = reader.settings
    model = settings.get("model")
    reward, held = reader.columns.get("reward/mean"), reader.columns.get("eval/mean")
    findings = gravest_first(newest(reader.findings).values())
    worst = next((finding for finding in findings if finding.status == "open"), None)
    return {
        "run": reader.name,
        "path": str(reader.path),
        "state": reader.state(),
        "step": reader.step,
        "steps": reader.steps,
        "env": str(settings.get("env", "")),
        "recipe": str(settings.get("recipe", "")),
        "seed": settings.get("seed"),
        "engine": str(settings.get("engine", "")),
        "model": str(model.get("path", "")) if isinstance(model, dict) else "",
        "started": reader.times[0][1] if reader.times else None,
        "last": reader.times[-1][1] if reader.times else None,
        "reward": reward.values[-1] if reward else None,
        "held_out": held.values[-1] if held else None,
        "spark": thinned(reward.steps, reward.values, 60)[1] if reward else [],
        "finding": worst and {"severity": worst.severity, "sentence": worst.sentence},
        "episodes": _count(reader, "episodes"),
        "bad_lines": reader.bad + reader.store.bad,
        "version": reader.version,
    }


def _count(reader: RunReader, table: str) -> int:
    return int(reader.store.base.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


def _overview(reader: RunReader, query: Query) -> Any:
    changes = gravest_first(newest(reader.findings).values())
    ordered = sorted(changes, key=lambda finding: finding.status == "closed")
    return {
        "run": _run_row(reader),
        "findings": [msgspec.to_builtins(finding) for finding in ordered],
        "history": [msgspec.to_builtins(finding) for finding in reader.findings[-200:]],
        "notices": _notices(reader),
        "judges": reader.data("judges.json") or [],
        "cluster": reader.cluster(),
        "charts": [
            {"title": title, "columns": known}
            for title, names in CURATED
            if (known := [name for name in names if name in reader.columns])
        ],
        "held_out": _held_out(reader),
        "instructive": reader.store.rows(INSTRUCTIVE),
        "kept": [_episode_row(row) for row in reader.store.rows(NEWEST_KEPT)],
    }


def _notices(reader: RunReader) -> list[str]:
    """Return the notices of an older run, which had no findings."""
    lines = [line for line in reader.file("notices.jsonl").splitlines() if line.strip()]
    texts: dict[str, str] = {}
    for line in lines:
        try:
            notice = msgspec.json.decode(line)
            texts[str(notice["name"])] = str(notice["text"])
        except (msgspec.DecodeError, KeyError, TypeError):
            continue
    return list(texts.values())


def _held_out(reader: RunReader) -> list[dict[str, float]]:
    """Return the first and the last held-out mean, with its standard error."""
    means, errors = reader.columns.get("eval/mean"), reader.columns.get("eval/standard_error")
    if not means:
        return []
    known = dict(zip(errors.steps, errors.values, strict=True)) if errors else {}
    ends = [0, -1] if len(means.steps) > 1 else [0]
    return [
        {"step": means.steps[end], "mean": means.values[end]}
        | ({"error": known[means.steps[end]]} if means.steps[end] in known else {})
        for end in ends
    ]


def _columns(runs: Runs, query: Query) -> Any:
    of: dict[str, list[str]] = defaultdict(list)
    for reader in runs.several(query):
        for name in reader.columns:
            of[name].append(reader.name)
    known = [{**msgspec.structs.asdict(column(name)), "runs": names} for name, names in of.items()]
    known.sort(
        key=lambda entry: (GROUPS.index(str(entry["group"])), entry["rank"], str(entry["name"]))
    )
    return {"groups": GROUPS, "columns": known}


def _series(runs: Runs, query: Query) -> Any:
    """Return columns of runs as lines: `columns` and `runs` between commas, from `after` on."""
    after, width = _whole(query, "after", -1), _whole(query, "width", MOST_POINTS)
    names = [name for name in query.get("columns", "").split(",") if name]
    lines: dict[str, dict[str, Any]] = {}
    for reader in runs.several(query):
        for name in names:
            series = reader.columns.get(name)
            if series is None:
                continue
            start = next((n for n, step in enumerate(series.steps) if step > after), None)
            if start is None:
                continue
            steps, values = series.steps[start:], series.values[start:]
            x, y = thinned(steps, values, width)
            lines.setdefault(name, {})[reader.name] = {"x": x, "y": y, "points": len(values)}
    wanted = names if query.get("bands") else []
    return {
        "series": lines,
        "bands": {name: _bands(runs.several(query), name, width) for name in wanted},
    }


def _bands(readers: Sequence[RunReader], column_name: str, width: int) -> dict[str, Any]:
    """Return for each recipe with several seeds the mean, least and largest value at each step."""
    members: dict[str, list[RunReader]] = defaultdict(list)
    family_of = families(readers)
    for reader in readers:
        if column_name in reader.columns:
            members[family_of[reader.name]].append(reader)
    bands: dict[str, Any] = {}
    for family, runs in members.items():
        if len(runs) < 2:
            continue
        at: dict[int, list[float]] = defaultdict(list)
        for reader in runs:
            series = reader.columns[column_name]
            for step, value in zip(series.steps, series.values, strict=True):
                at[step].append(value)
        steps = sorted(at)
        kept, means = thinned(steps, [fmean(at[step]) for step in steps], width)
        bands[family] = {
            "runs": [reader.name for reader in runs],
            "x": kept,
            "y": means,
            "low": [min(at[step]) for step in kept],
            "high": [max(at[step]) for step in kept],
        }
    return bands


def families(readers: Sequence[RunReader]) -> dict[str, str]:
    """Return for each run the first run with the settings of its recipe, of which it is a seed."""
    known: dict[str, str] = {}
    return {
        reader.name: known.setdefault(str(sorted(settings.items())), reader.name)
        if (settings := reader.recipe_settings())
        else reader.name
        for reader in readers
    }


def thinned(
    steps: Sequence[int], values: Sequence[float], most: int = MOST_POINTS
) -> tuple[list[int], list[float]]:
    """Return at most about `most` points: of each stretch the least, the largest and the last.

    >>> thinned(range(4), [0.0, 5.0, 1.0, 2.0], 4)
    ([0, 1, 2, 3], [0.0, 5.0, 1.0, 2.0])
    >>> thinned(range(6), [0.0, 5.0, 1.0, 2.0, 3.0, 9.0], 3)
    ([0, 5], [0.0, 9.0])
    """
    count = len(values)
    if count <= most:
        return list(steps), list(values)
    width = math.ceil(count / max(1, most // 3))
    kept: set[int] = set()
    for start in range(0, count, width):
        places = range(start, min(count, start + width))
        kept |= {
            min(places, key=values.__getitem__),
            max(places, key=values.__getitem__),
            places[-1],
        }
    chosen = sorted(kept)
    return [steps[place] for place in chosen], [values[place] for place in chosen]


def _settings(runs: Runs, query: Query) -> Any:
    readers = runs.several(query)
    flat = {reader.name: reader.flat_settings() for reader in readers}
    names = sorted({name for table in flat.values() for name in table})
    return {
        "runs": [reader.name for reader in readers],
        "settings": [
            {"name": name, "values": [flat[reader.name].get(name) for reader in readers]}
            for name in names
        ],
        "files": {
            reader.name: {name: reader.file(name) for name in ("recipe.json", "template.txt")}
            for reader in readers
        },
    }


# --- rollouts -------------------------------------------------------------------------------------


def _accounts(reader: RunReader, query: Query) -> Any:
    fates = reader.store.rows(
        "SELECT fate, reason, COUNT(*) AS count, SUM(tokens) AS tokens, MAX(ordinal) AS top "
        "FROM rollouts GROUP BY fate, reason ORDER BY count DESC"
    )
    known = sum(fate["count"] for fate in fates)
    issued = max((fate.pop("top") for fate in fates), default=-1) + 1
    return {
        "fates": fates,
        "issued": issued,
        "missing": issued - known,
        "law": {
            name: series.values[-1]
            for name, series in reader.columns.items()
            if name.startswith("rollouts/")
        },
    }


def _steps(reader: RunReader, query: Query) -> Any:
    """Return a step's groups with their rollouts; the last step without `step`."""
    (ends,) = reader.store.rows("SELECT MIN(step) AS first, MAX(step) AS last FROM rollouts")
    step = _whole(query, "step", ends["last"] or 0)
    rows = reader.store.rows(
        "SELECT r.*, e.id AS episode, e.kept FROM rollouts r LEFT JOIN "
        "(SELECT ordinal, MIN(id) AS id, kept FROM episodes WHERE split='train' AND ordinal >= 0 "
        "AND file NOT LIKE 'eval-%' GROUP BY ordinal) e ON e.ordinal=r.ordinal "
        "WHERE r.step=? ORDER BY r.ordinal",
        step,
    )
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        del row["spans"]
        groups[row["grp"]].append(row)
    return {
        "step": step if ends["last"] is not None else None,
        **ends,
        "groups": [
            {"group": number, "task": members[0]["task"], "rollouts": members, **_spread(members)}
            for number, members in groups.items()
        ],
    }


def _spread(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rewards = [reward for member in members if (reward := member["reward"]) is not None]
    if not rewards:
        return {"mean": None, "equal": False}
    return {"mean": fmean(rewards), "equal": len(rewards) > 1 and min(rewards) == max(rewards)}


def _lanes(reader: RunReader, query: Query) -> Any:
    """Return rollouts by wall clock, and the stages of steps: the last `most`, up to `step`."""
    last = reader.store.rows("SELECT MAX(step) AS last FROM rollouts")[0]["last"]
    step, most = _whole(query, "step", last or 0), _whole(query, "most", 512)
    rows = reader.store.rows(
        "SELECT * FROM rollouts WHERE step<=? AND started>0 ORDER BY step DESC, ordinal LIMIT ?",
        step,
        max(0, min(most, 4000)),  # to SQLite, a number below 0 is no limit
    )
    first = min((row["step"] for row in rows), default=step)
    return {
        "step": step,
        "last": last,
        "rollouts": [{**row, "spans": msgspec.json.decode(row["spans"])} for row in rows],
        "steps": _stages(reader, min(first, step - STAGES + 1), step),
    }


def _stages(reader: RunReader, first: int, last: int) -> list[dict[str, Any]]:
    """Return when each step's line was written, and the seconds of its stages."""
    ends = {step: at for step, at in reader.times if first <= step <= last}
    stages: dict[int, dict[str, float]] = defaultdict(dict)
    for name, series in reader.columns.items():
        if name.startswith("time/"):
            for step, value in zip(series.steps, series.values, strict=True):
                if first <= step <= last:
                    stages[step][name[5:].removesuffix("_s")] = value
    return [
        {"step": step, "end": ends.get(step), "seconds": stages[step]} for step in sorted(stages)
    ]


def _tasks(reader: RunReader, query: Query) -> Any:
    """Return each task with its share of solved rollouts in the first and last half of its plays.

    A rollout is solved where its reward is at least `passing`, by default above 0.
    """
    passing = as_number(given := query.get("passing") or "0")
    if passing is None:
        raise ConfigError(f"passing={given}: give a number")
    tasks = reader.store.rows(TASKS, passing)
    return {
        "tasks": tasks[:2000],
        "count": len(tasks),
        "never": sum(task["solved"] == 0 for task in tasks),
        "always": sum(task["solved"] == task["plays"] for task in tasks),
        "forgotten": sum(task["early"] > 0 and task["late"] == 0 for task in tasks),
    }


# Rollouts of one step are samples of one policy: a trend is between steps alone.
TASKS = """
WITH every AS (
  SELECT task, step, reward FROM rollouts WHERE reward IS NOT NULL
  UNION ALL SELECT task, step, reward FROM episodes WHERE reward IS NOT NULL
  AND file NOT LIKE 'step-%' AND file NOT LIKE 'kept-%'
), plays AS (
  SELECT task, step, reward, IIF(?1, reward >= ?1, reward > 0) AS solved,
  2 * step > MIN(step) OVER (PARTITION BY task) + MAX(step) OVER (PARTITION BY task) AS late
  FROM every
)
SELECT *, late - early AS gain FROM (
  SELECT task, COUNT(*) AS plays, SUM(solved) AS solved, AVG(IIF(late, NULL, solved)) AS early,
  COALESCE(AVG(IIF(late, solved, NULL)), AVG(solved)) AS late, MIN(step) AS first,
  MAX(step) AS last, AVG(reward) AS mean FROM plays GROUP BY task
) ORDER BY gain, late, task
"""


# --- episodes -------------------------------------------------------------------------------------


def filters_of(query: Query) -> dict[str, str]:
    """Return the filters of a query; see `Store.conditions`."""
    return {name: query[name] for name in query if name in FILTERS or name.startswith("part:")}


def refuse_query(name: str, runs: Runs, query: Query) -> None:
    """Refuse what is misspelt in a query: a filter of `episodes`, a column of `series`, or a word
    that the view does not read.

    Raises:
        ConfigError: there is no such filter or word, or nothing to sort by.
        UnknownColumn: no run has such a column, and no chart shows one.
    """
    words = WORDS.get(name, "run").split()
    if name == "episodes":
        refuse_filters(query, words)
        if (sort := query.get("sort", "").lstrip("-")) and sort not in SHOWN:
            raise ConfigError(f"nothing to sort by named {sort!r}; columns: {', '.join(SHOWN)}")
    elif name in VIEWS and (unread := sorted(query.keys() - set(words))):
        known_words = ", ".join(words) or "nothing"
        raise ConfigError(f"the view {name} does not read {unread[0]!r}; it reads {known_words}")
    if name == "series":
        known = {each for reader in runs.several(query) for each in reader.columns}
        known |= {each for _, names in CURATED for each in names}  # which a young run may yet get
        for each in filter(None, query.get("columns", "").split(",")):
            if each not in known:
                raise UnknownColumn.near(each, known, hint="ludus watch RUN --json columns")


def refuse_filters(query: Query, beside: Sequence[str] = ()) -> None:
    """Refuse filters that do not exist, and bounds that are no numbers.

    The page reads past both, since a query there may be half typed.

    Args:
        query: a query that somebody wrote in full.
        beside: what else it may hold than filters.

    Raises:
        ConfigError: a filter does not exist, or a bound is no number.
    """
    filters = filters_of(query)
    for name in query.keys() - filters.keys() - set(beside):
        known = f"{', '.join(FILTERS)}, part:NAME"
        raise ConfigError(f"no filter named {name!r}; filters: {known}")
    for name, given in filters.items():
        bounds = given.split("..", 1) if name in BETWEEN or name.startswith("part:") else ()
        for bound in bounds:
            if bound and as_number(bound) is None:
                raise ConfigError(
                    f"filter {name}={given}: {bound!r} is no number; write one number, or LOW..HIGH"
                )


def _episodes(reader: RunReader, query: Query) -> Any:
    total, rows = reader.store.query(
        filters_of(query),
        sort=query.get("sort", ""),
        offset=_whole(query, "offset"),
        limit=max(0, min(_whole(query, "limit", 200), 1000)),
    )
    return {
        "total": total,
        "all": _count(reader, "episodes"),
        "rows": [_episode_row(row) for row in rows],
        "choices": {
            name: sorted(filter(None, values))
            for name, values in (reader.store.counts() if query.get("choices") else {}).items()
        },
    }


def _episode_row(row: Any) -> dict[str, Any]:
    shown = {"id": row["id"]} | {name: row[name] for name in SHOWN}
    return shown | {"parts": msgspec.json.decode(row["parts"] or "{}")}


def _episode(reader: RunReader, query: Query) -> Any:
    """Return an episode with its tokens, what the learner found, and its relatives."""
    read = reader.episode(_whole(query, "id"))
    if read is None:
        return {"gone": True}
    row, episode = read
    learned = reader.store.learned(episode.ordinal) if "eval-" not in row["file"] else None
    windows = {
        (window["role"], window["window"]): window for window in (learned or {}).get("windows", [])
    }
    decode = reader.decoder()
    same_task = reader.store.rows(
        "SELECT * FROM episodes WHERE task=? AND id!=? AND (grp!=? OR file!=?) "
        "ORDER BY step, id LIMIT 60",
        *(row[name] for name in ("task", "id", "grp", "file")),
    )
    return {
        "row": _episode_row(row),
        "seed": episode.seed,
        "decoded": decode is not None,
        "learned": bool(learned),
        "trajectories": [
            trajectory_data(trajectory, number, windows, decode)
            for number, trajectory in enumerate(episode.trajectories)
        ],
        "siblings": _siblings(reader, row, episode),
        "same_task": [_episode_row(other) for other in same_task],
    }


def _siblings(reader: RunReader, row: Any, episode: Episode) -> list[dict[str, Any]]:
    """Return the kept rollouts of the same group, each with the first token that differs from the
    best of them.
    """
    if not row["grp"]:
        return []
    of_group = "SELECT * FROM episodes WHERE grp=? AND file=? ORDER BY idx LIMIT 64"
    rows = reader.store.rows(of_group, row["grp"], row["file"])
    best = max(rows, key=lambda each: -math.inf if each["reward"] is None else each["reward"])
    other = reader.episode(best["id"]) if best["id"] != row["id"] else None
    place = first_difference(episode, other[1]) if other else None
    return [
        _episode_row(sibling)
        | ({"best": True, "differs": place} if sibling["id"] == best["id"] else {})
        for sibling in rows
    ]


def _counts(reader: RunReader, query: Query) -> Any:
    """Return the counts of episodes by stop, status, split, reason of keeping, and part."""
    counts = reader.store.counts()
    return {
        name: {value or "all": number for value, number in of.items()}
        for name, of in counts.items()
    }


OF_RUNS: dict[str, Callable[[Runs, Query], Any]] = {
    "runs": lambda runs, _: {"runs": [_run_row(reader) for reader in runs.readers.values()]},
    "columns": _columns,
    "series": _series,
    "settings": _settings,
    "compare": lambda runs, query: compare(
        runs.several(query), by=query.get("by", ""), column=query.get("column", "")
    ),
}
OF_RUN: dict[str, Callable[[RunReader, Query], Any]] = {
    "overview": _overview,
    "episodes": _episodes,
    "counts": _counts,
}
OF_ROLLOUTS: dict[str, Callable[[RunReader, Query], Any]] = {
    "lanes": _lanes,
    "steps": _steps,
    "tasks": _tasks,
    "episode": _episode,
    "accounts": _accounts,
}
"""Views of a run that also read the records of its rollouts."""
VIEWS = (*OF_RUNS, *OF_RUN, *OF_ROLLOUTS)
"""The names of all views."""
WORDS = {
    "runs": "", "columns": "runs", "series": "runs columns after width bands", "settings": "runs",
    "compare": "runs by column", "episodes": "run sort offset limit choices",
    "lanes": "run step most", "steps": "run step", "tasks": "run passing", "episode": "run id",
}  # fmt: skip
"""The words that a query of a view may have, besides filters; `run` alone for other views."""
