"""Corpora and their index: every kind of file, what is wrong with a file, ranks by hand."""

import gzip
import json
import logging
from pathlib import Path

import pytest

from ludus.envs.families.search.documents import (
    Document,
    Hit,
    document,
    load_corpus,
    read_rows,
    shown,
)
from ludus.envs.families.search.retrievers import Bm25Index
from ludus.errors import ConfigError

ROWS = [
    {"id": "a", "contents": '"Thebes"\nFounded by Cadmus.'},
    {"id": "b", "contents": '"Delphi"\nHas an oracle.'},
]
LINES = "".join(f"{json.dumps(row)}\n" for row in ROWS)
TABLE = 'title,text\nThebes,Founded by Cadmus.\nDelphi,"Has an\u2028\noracle."\n'


def written(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.jsonl", LINES),
        ("c.jsonl", f"\ufeff\n{LINES}\n\n"),
        ("c.jsonl", LINES.replace("\n", "\r\n")),
        ("c.json", json.dumps(ROWS)),
        ("c.json", f"\ufeff{json.dumps(ROWS, indent=1)}"),
        ("c.csv", TABLE),
        ("c.csv", f"\ufeff{TABLE}"),
        ("c.tsv", TABLE.replace(",", "\t")),
    ],
)
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_each_kind_of_file_is_read(tmp_path: Path, name: str, text: str, packed: str) -> None:
    documents = load_corpus(written(tmp_path, name + packed, text))
    assert [one.title for one in documents] == ["Thebes", "Delphi"]
    assert documents[0].text == "Founded by Cadmus."
    assert documents[1].text.startswith("Has an")
    assert documents[1].text.endswith("oracle.")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("c.jsonl", LINES + '{"id": "c", "conte\n', ["c.jsonl, line 3", '"conte', "mend or"]),
        ("c.jsonl", LINES + "[1]\n", ["c.jsonl, line 3", "[1]", "is .json"]),
        ("c.jsonl", b'{"text": "a"}\n{"text": "caf\xe9"}\n', ["c.jsonl, line 2", "UTF-8"]),
        ("c.jsonl", LINES + LINES, ["c.jsonl, line 3", "'a'", "line 1", "leave all ids out"]),
        ("c.json", '[{"text": "a"},\n {"text" "b"}]', ["c.json", "line 2", "mend"]),
        ("c.json", '[{"text": "a"}, 7]', ["c.json", "item 2: 7"]),
        ("c.json", b'[{"text": "a"},\n{"text": "caf\xe9"}]', ["c.json", "line 2"]),
        ("c.json", LINES, ["c.json", ".jsonl if it has one object a line"]),
        ("c.json", '{"text": "a"}', ["c.json", "one dict"]),
        ("c.json", json.dumps(ROWS + ROWS), ["c.json, item 3", "c.json, item 1"]),
        ("c.csv", "id,text\n7,a\n7,b\n", ["c.csv, line 3", "'7'", "c.csv, line 2"]),
        ("c.csv", b"text\ncaf\xe9\n", ["c.csv", "UTF-8", "convert"]),
        ("c.csv", f"text\na\n{'x' * 200_000}\n", ["c.csv, line 2 is the last", ".jsonl"]),
        ("c.jsonl", "", ["c.jsonl", "has no rows", "'title' and 'text'"]),
        ("c.csv", "title,text\n", ["c.csv", "has no rows"]),
        ("c.jsonl", '{"id": 1, "body": "a"}\n', ["c.jsonl, line 1 has no text", "'contents'"]),
        ("c.txt", "a", ["c.txt", ".jsonl, .json, .csv, .tsv"]),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_the_place_and_what_to_do(
    tmp_path: Path, name: str, text: str | bytes, words: list[str]
) -> None:
    source = written(tmp_path, name, text)
    with pytest.raises(ConfigError) as caught:
        load_corpus(source)
    said = str(caught.value)
    assert [word for word in words if word not in said] == [], said
    assert "\n" not in said


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.json.gz", "c.csv.gz"])
def test_packed_files_that_are_broken_cannot_be_read(tmp_path: Path, name: str) -> None:
    whole = gzip.compress(b"".join(b'{"text": "%d"}\n' % n for n in range(999)))
    for data in (b"plain", whole[:99], whole[:20] + b"\xff" * 20 + whole[40:]):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigError, match=r"cannot read .*c\.\w+\.gz"):
            list(read_rows(str(tmp_path / name)))


def test_rows_without_text_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = written(tmp_path, "c.jsonl", LINES + '{"id": "c", "contents": " "}\n{"id": "d"}\n')
    with caplog.at_level(logging.WARNING):
        assert [one.id for one in load_corpus(source)] == ["a", "b"]
    assert "left out 2 rows without text, the first at" in caplog.text
    assert "line 3" in caplog.text


@pytest.mark.parametrize(
    ("row", "identity", "contents"),
    [
        ({"title": "T", "text": "u"}, "0", '"T"\nu'),
        ({"id": None, "title": "T", "text": "u"}, "0", '"T"\nu'),
        ({"id": 7, "contents": '"T"\nu'}, "7", '"T"\nu'),
        ({"_id": "x", "title": "T", "text": "u"}, "x", '"T"\nu'),
        ({"docid": 3, "text": "u"}, "3", "u"),
        ({"title": "T", "contents": '"T"\nu'}, "0", '"T"\nu'),  # the title is there already
        ({"title": "T", "text": "u", "contents": '"T"\nu'}, "0", '"T"\nu'),
        ({"title": "T\nand", "text": "u"}, "0", '"T and"\nu'),
    ],
)
def test_the_shapes_rows_come_in(
    tmp_path: Path, row: dict[str, object], identity: str, contents: str
) -> None:
    (made,) = load_corpus(written(tmp_path, "c.jsonl", json.dumps(row)))
    assert (made.id, made.contents) == (identity, contents)


@pytest.mark.parametrize("title", ["Thebes", '"Heroes" (album)', 'The "Nose"', '"', ""])
def test_a_title_keeps_its_own_quotes(title: str) -> None:
    made = document("1", title, "A text.")
    assert made.title == title
    assert shown([Hit(document=made, score=1.0)], 99) == f'Doc 1(Title: "{title}") A text.'


# --- the index ---------------------------------------------------------------------------------


def index_of(*contents: str) -> Bm25Index:
    pytest.importorskip("bm25s", reason="the extra 'search' is not installed")
    return Bm25Index([Document(id=str(n), contents=one) for n, one in enumerate(contents)])


def test_scores_are_bm25_by_hand() -> None:
    index = index_of("ada\nbook book", "bo\nbook", "cy\ntown")
    # lengths 3, 2, 2, mean 7/3; idf(book) = ln(1 + (3 - 2 + 0.5) / (2 + 0.5)) = ln 1.6 = 0.470004
    # 0: 2 / (2 + 1.5 (0.25 + 0.75 * 3 / (7/3))) = 2 / 3.821429 = 0.523364, by idf 0.245983
    # 1: 1 / (1 + 1.5 (0.25 + 0.75 * 2 / (7/3))) = 1 / 2.339286 = 0.427481, by idf 0.200918
    (hits,) = index.search(["book"], 3)
    assert [hit.document.id for hit in hits] == ["0", "1"]
    assert [hit.score for hit in hits] == pytest.approx([0.245983, 0.200918], abs=1e-6)
    (twice,) = index.search(["Book, BOOK!"], 3)  # a word counts as often as it is asked for
    assert [hit.score for hit in twice] == pytest.approx([0.491966, 0.401836], abs=1e-6)


def test_equal_scores_keep_the_order_of_the_corpus_whatever_topk() -> None:
    index = index_of(*["same words"] * 50, "same words better", "another")
    found = [[hit.document.id for hit in index.search(["words"], k)[0]] for k in (1, 3, 50, 99)]
    assert found[-1] == [str(n) for n in range(51)]  # the longer one scores less
    assert all(one == found[-1][: len(one)] for one in found)


@pytest.mark.parametrize("query", ["", "  ", "the of", "qqqq", "a b c", "\x00", "\U0001f600", "¿?"])
def test_a_query_without_a_known_word_finds_nothing(query: str) -> None:
    assert index_of("ada\nbook", "the zürich 日本").search([query, "zürich"], 3)[0] == []


def test_words_of_other_scripts_are_found_whole() -> None:
    index = index_of("Zürich\n日本 town", "Москва\ntown")
    assert [hits[0].document.id for hits in index.search(["ZÜRICH", "日本", "москва"], 1)] == [
        "0", "0", "1",
    ]  # fmt: skip
