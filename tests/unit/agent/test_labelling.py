"""Labelling: agreement in worked numbers, rows that outlive their server, blinded items."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from ludus.agent.data.preferences import PreferenceReader
from ludus.agent.labelling.agreement import cohen_kappa, krippendorff_alpha, report_of
from ludus.agent.labelling.journal import LabelJournal, LabelRow, row_of
from ludus.agent.labelling.server import LabelServer
from ludus.agent.labelling.sheet import LabelItem, LabelQuestion, in_turn, load_items
from ludus.cli.label import LabelOptions, is_environment, played
from ludus.cli.main import main
from ludus.errors import ConfigError, SaveFailed
from ludus.rewards.judge.examine import load_labelled

# Krippendorff, "Computing Krippendorff's alpha-reliability" (2011): four observers, twelve units.
TABLE = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]
UNITS = [[label for label in column if label is not None] for column in zip(*TABLE, strict=True)]


@pytest.mark.parametrize(
    ("level", "expected"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_alpha_is_that_of_the_paper(level: Any, expected: float) -> None:
    alpha = krippendorff_alpha(UNITS, level)
    assert alpha == pytest.approx(expected, abs=5e-4)


def test_agreement_of_two_people_and_of_nobody() -> None:
    assert krippendorff_alpha([[1, 1], [2, 2]]) == 1
    assert krippendorff_alpha([[1], [2]]) is None
    assert krippendorff_alpha([[1, 1], [1, 1]]) is None
    assert cohen_kappa([1, 2, 1, 2], [1, 2, 1, 2]) == 1
    assert cohen_kappa([1, 1], [1, 1]) is None
    # the table of Cohen (1960): p_o .70, p_e .41
    table = [[88, 14, 18], [10, 40, 10], [2, 6, 12]]
    seen = [(i, j) for i in range(3) for j in range(3) for _ in range(table[i][j])]
    kappa = cohen_kappa([i for i, _ in seen], [j for _, j in seen])
    assert kappa == pytest.approx(0.29 / 0.59)


def lines(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def pairs(count: int) -> list[Any]:
    return [
        {"prompt": f"q{n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(count)
    ]


def test_items_are_blinded_and_everybody_has_an_order_of_their_own(tmp_path: Path) -> None:
    items = load_items(lines(tmp_path / "a.jsonl", pairs(60)))
    first = [item.order("ann")[0] for item in items]
    assert 15 < sum(first) < 45
    assert [item.order("ann") for item in items] != [item.order("bob") for item in items]
    orders = [[item.id for item in in_turn(items, name)] for name in ("ann", "bob")]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"prompt": "q", "chosen": "a", "rejected": "a"}, "its answers are the same"),
        ({"prompt": "q", "answers": list("abcdefghij")}, "10 answers are more than keys can rank"),
        ({"prompt": "q", "chosen": "", "rejected": "a"}, "an answer"),
        ({"prompt": "q"}, "it has no answers; its columns are prompt"),
        ({"prompt": "q", "answers": 3}, "its answers are 3; they are a list"),
        ({"prompt": "q", "answers": None}, "it has no answers; its columns are prompt, answers"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_row(
    row: dict[str, Any], why: str, tmp_path: Path
) -> None:
    source = lines(tmp_path / "a.jsonl", [*pairs(1), row])
    if row.get("chosen") == "":
        pytest.skip("an empty text is an answer: people may prefer silence")
    with pytest.raises(ConfigError, match=f"row 2, cannot be asked: {why}"):
        load_items(source)


def test_two_items_of_one_id_are_refused(tmp_path: Path) -> None:
    first, second = ({**pair, "id": "q1"} for pair in pairs(2))
    with pytest.raises(ConfigError, match="two different items have the id 'q1'"):
        load_items(lines(tmp_path / "a.jsonl", [first, second]))
    assert len(load_items(lines(tmp_path / "b.jsonl", [first, first]))) == 1


def test_items_are_read_as_training_reads_them(tmp_path: Path) -> None:
    """What both answers begin with is the prompt; ranks that are not one for each are refused."""
    rows = [
        {
            "chosen": f"\n\nHuman: hi\n\nAssistant: {said}",
            "rejected": "\n\nHuman: hi\n\nAssistant: no",
        }
        for said in ("yo", "ya")
    ]
    items = load_items(lines(tmp_path / "hh.jsonl", rows))
    reader = PreferenceReader(tmp_path)
    for row, shown in zip(rows, items, strict=True):
        pair = reader.pair(row)
        assert (shown.prompt, shown.answers) == (pair.prompt, pair.answers)
    wrong = {"prompt": "q", "answers": ["a", "b", "c"], "ranks": [1, 2]}
    with pytest.raises(ConfigError, match="row 1, cannot be asked: with 3 answers and 2 ranks"):
        load_items(lines(tmp_path / "ranks.jsonl", [wrong]))


def test_a_criterion_is_asked_of_the_response_and_not_of_a_known_answer(tmp_path: Path) -> None:
    row = {"question": "q", "answer": "Paris", "response": "Lyon", "criterion": "names Paris"}
    alone = {"question": "q", "answer": "Rome", "criterion": "names Paris"}
    items = load_items(lines(tmp_path / "a.jsonl", [row, alone]))
    assert [item.answers[0][0].text for item in items] == ["Lyon", "Rome"]


def test_questions_are_not_mixed_and_tests_say_what_is_right(tmp_path: Path) -> None:
    mixed = lines(tmp_path / "a.jsonl", [*pairs(1), {"prompt": "q", "answer": "a"}])
    with pytest.raises(ConfigError, match="label one kind of question at a time"):
        load_items(mixed)
    plain = lines(tmp_path / "b.jsonl", pairs(2))
    unknown = lines(tmp_path / "c.jsonl", [{"prompt": "q", "answers": ["a", "b"]}])
    with pytest.raises(ConfigError, match="a test item says what is right"):
        load_items(plain, tests=unknown)
    known = load_items(plain, tests=lines(tmp_path / "d.jsonl", pairs(5)[4:]))
    assert [item.expected for item in known] == [None, None, [1, 2]]


def item(question: LabelQuestion = LabelQuestion.PAIR, answers: int = 2) -> LabelItem:
    from ludus.messages import assistant, user

    said = [[assistant(f"answer {n}")] for n in range(answers)]
    return LabelItem(id="i", question=question, prompt=[user("q")], answers=said, criterion="good")


def test_rows_feed_what_learns_from_them(tmp_path: Path) -> None:
    reader = PreferenceReader(tmp_path)

    def told(row: LabelRow) -> dict[str, Any]:
        path = tmp_path / "rows.jsonl"
        path.unlink(missing_ok=True)
        LabelJournal(path).add(row)
        return dict(json.loads(path.read_text()))

    pair = reader.pair(told(row_of(item(), "ann", [2, 1], 1.0)))
    assert pair.answers[0][0].text == "answer 1"
    assert pair.annotator == "ann"
    tie = reader.ranking(told(row_of(item(), "ann", [1, 1], 1.0)))
    assert tie.ranks == [1, 1]
    ranking = reader.ranking(told(row_of(item(LabelQuestion.RANKING, 3), "ann", [3, 1, 2], 1.0)))
    assert ranking.ranks == [3, 1, 2]
    rated = reader.rating(told(row_of(item(LabelQuestion.RATING, 1), "ann", [4], 1.0)))
    assert rated.rating == 4
    criteria = [told(row_of(item(LabelQuestion.CRITERION, 1), "ann", [met], 1.0)) for met in (1, 0)]
    cases = load_labelled(lines(tmp_path / "cases.jsonl", criteria))
    assert [(case.criterion, case.met) for case in cases] == [("good", True), ("good", False)]
    for question, count, label in (
        (LabelQuestion.PAIR, 2, [1, 3]),
        (LabelQuestion.RANKING, 3, [1, 1, 2]),
        (LabelQuestion.RATING, 1, [6]),
        (LabelQuestion.CRITERION, 1, [2]),
    ):
        with pytest.raises(ConfigError, match="is no label of a"):
            row_of(item(question, count), "ann", label, 1.0)


def row(item_id: str, annotator: str = "ann", label: tuple[int, int] = (1, 2)) -> LabelRow:
    return LabelRow(item=item_id, annotator=annotator, seconds=2.0, label=list(label))


def test_the_journal_keeps_whole_rows_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "labels.jsonl"
    journal = LabelJournal(path)
    for number in range(3):
        journal.add(row(str(number)))
    journal.add(row("1"))  # the page asked again
    journal.add(row("2", label=(2, 1)))  # another opinion
    with path.open("ab") as file:
        file.write(b'{"item":"3","annot')  # as kill -9 leaves it
    again = LabelJournal(path)
    assert [(each.item, each.label) for each in again.rows.values()] == [
        ("0", [1, 2]), ("1", [1, 2]), ("2", [2, 1]),
    ]  # fmt: skip
    again.add(row("3"))
    again.add(row("0", label=(2, 1)))  # now the last
    assert again.undo("bob") == ""
    assert again.undo("ann") == "0"
    assert again.undo("ann") == "3"
    again.add(row("0"))
    assert [each.item for each in LabelJournal(path).rows.values()] == ["1", "2", "0"]

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(SaveFailed, match="No space left"):
            again.add(row("4"))
        with pytest.raises(SaveFailed, match="No space left"):
            again.undo("ann")
        for _ in range(2):  # what is not on the disk is not taken for kept
            with pytest.raises(SaveFailed, match="No space left"):
                again.add(row("0", label=(2, 1)))
    assert [each.item for each in LabelJournal(path).rows.values()] == ["1", "2", "0"]
    path.write_text("not json\n")
    with pytest.raises(ConfigError, match="line 1, is no label"):
        LabelJournal(path)


def test_careless_fast_and_one_sided_people_are_told() -> None:
    items = [
        LabelItem(
            id=str(n),
            question=LabelQuestion.PAIR,
            answers=item().answers,
            expected=[1.0, 2.0] if n % 2 else [2.0, 1.0],
        )
        for n in range(40)
    ]
    rows = []
    for each in items:
        for name in ("ann", "bob"):
            rows.append(row_of(each, name, each.expected or [], 8.0))
        order = each.order("eve")
        always_first = [1.0, 2.0] if order[0] == 0 else [2.0, 1.0]
        rows.append(row_of(each, "eve", always_first, 0.5))
    report = report_of(items, rows)
    told = {person.annotator: person for person in report.annotators}
    assert told["ann"].concerns == told["bob"].concerns == []
    assert [concern.partition(":")[0] for concern in told["eve"].concerns] == [
        "fast", "test items", "one side", "alone",
    ]  # fmt: skip
    assert told["ann"].tests is not None
    assert told["ann"].tests.value == 1
    alone = report_of(items, [each for each in rows if each.annotator == "ann"])
    assert alone.alpha is None
    assert alone.notes == ["all labels are of one person, ann: agreement cannot be known"]


# --- the server ----------------------------------------------------------------------------------


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[tuple[TestClient[Any, Any], LabelServer]]:
    items = load_items(lines(tmp_path / "a.jsonl", pairs(4)))
    journal = LabelJournal(tmp_path / "labels.jsonl")
    server = LabelServer(items, journal, ["ann", "bob", "eve"], overlap=2)
    async with TestClient(TestServer(server.application())) as asked:
        yield asked, server


async def enter(client: TestClient[Any, Any], server: LabelServer, name: str) -> None:
    client.session.cookie_jar.clear()
    answer = await client.get("/", params={"token": server.tokens[name]})
    assert answer.status == 200


async def test_a_cookie_of_any_bytes_is_a_strangers(
    client: tuple[TestClient[Any, Any], LabelServer],
) -> None:
    asked, _ = client
    reader, writer = await asyncio.open_connection("127.0.0.1", asked.port)
    head = f"GET /api/item HTTP/1.1\r\nHost: 127.0.0.1:{asked.port}\r\nConnection: close\r\n"
    writer.write(head.encode() + b'Cookie: ludus_label="\xff\xfe"\r\n\r\n')
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    assert answer.split()[1] in (b"401", b"403")


async def test_a_label_is_kept_in_the_order_of_the_source(
    client: tuple[TestClient[Any, Any], LabelServer],
) -> None:
    asked, server = client
    await enter(asked, server, "ann")
    shown = (await (await asked.get("/api/item")).json())["item"]
    texts = [answer[0]["text"] for answer in shown["answers"]]
    label = [1 if text.startswith("good") else 2 for text in texts]
    answer = await asked.post(
        "/api/label", json={"item": shown["id"], "label": label, "seconds": 1e9}
    )
    assert (await answer.json())["done"] == 1
    (row,) = server.journal.rows.values()
    assert row.chosen is not None
    assert row.chosen[0]["content"].startswith("good")
    assert row.seconds == 3600
    assert (await (await asked.post("/api/undo", json={})).json())["done"] == 0


async def test_items_are_shared_out(client: tuple[TestClient[Any, Any], LabelServer]) -> None:
    asked, server = client
    for name in ("ann", "bob", "eve"):
        await enter(asked, server, name)
        while item := (await (await asked.get("/api/item")).json())["item"]:
            sent = {"item": item["id"], "label": [1, 2], "seconds": 1}
            assert (await asked.post("/api/label", json=sent)).status == 200
    counts = [sum(key[1] == each for key in server.journal.rows) for each in server.items]
    assert counts == [2, 2, 2, 2]


async def test_strangers_and_wrong_requests_are_refused(
    client: tuple[TestClient[Any, Any], LabelServer],
) -> None:
    asked, server = client
    for path in ("/", "/page.js", "/api/item"):
        assert (await asked.get(path)).status == 401
    assert (await asked.get("/", params={"token": "x"})).status == 401
    await enter(asked, server, "ann")
    page = await asked.get("/")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "http" not in (await page.text()).replace("http-equiv", "")
    good = {"item": next(iter(server.items)), "label": [1, 2], "seconds": 1}
    foreign = {"Origin": "http://evil.example"}
    assert (await asked.post("/api/label", json=good, headers=foreign)).status == 403
    assert (await asked.post("/api/label", data="{}")).status == 403
    for wrong in ({**good, "item": "?"}, {**good, "label": [1]}, {**good, "label": "x"}, {}):
        assert (await asked.post("/api/label", json=wrong)).status == 400
    large = await asked.post("/api/label", json={**good, "item": "x" * (1 << 17)})
    assert large.status == 413
    assert not server.journal.rows


def test_the_command_line_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = lines(tmp_path / "a.jsonl", pairs(3))
    out = tmp_path / "labels.jsonl"
    assert main(["label", source, "--report", "--out", str(out)]) == 2
    assert "there are no labels in" in capsys.readouterr().err
    items = load_items(source)
    journal = LabelJournal(out)
    for name in ("ann", "bob"):
        for each in items:
            journal.add(row_of(each, name, [1, 2], 2.0))
    assert main(["label", source, "--report", "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["labels"], report["labelled_twice"]) == (6, 3)
    assert main(["label", source, "--overlap", "3", "--annotators", "ann"]) == 2
    assert "asks more people" in capsys.readouterr().err
    assert main(["label", source, "--annotators", "ann", "ann"]) == 2
    assert "named once each" in capsys.readouterr().err


def test_an_environment_is_played_once_and_its_trajectories_are_items(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    options = LabelOptions(
        source="ludus/arithmetic-v0?min_operations=2", out=str(out), tasks=3, samples=3
    )
    folder = played(options)
    pairs_of = load_items(folder)
    assert len(pairs_of) == 3
    assert all(item.question is LabelQuestion.PAIR for item in pairs_of)
    expert = next(answer for answer in pairs_of[0].answers if answer[0].tool_calls)
    assert expert[1].role == "tool"  # what the calculator said is part of the trajectory
    rankings = load_items(folder, ask=LabelQuestion.RANKING)
    assert {len(item.answers) for item in rankings} == {4}  # the expert and three at random
    ratings = load_items(folder, ask=LabelQuestion.RATING)
    assert len({item.id for item in ratings}) == 12
    before = (Path(folder) / "1.jsonl").stat().st_mtime_ns
    assert played(options) == folder  # what was labelled stays what is labelled
    assert (Path(folder) / "1.jsonl").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="have no criterion"):
        load_items(folder, ask=LabelQuestion.CRITERION)
    assert is_environment("ludus/maths-v0?seed=1")
    assert not is_environment("owner/name")
    assert not is_environment("pairs.jsonl")
