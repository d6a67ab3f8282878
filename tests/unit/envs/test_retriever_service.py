"""`/retrieve` over HTTP as the trainers that speak it send it, and what it refuses."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ludus.envs.families.search.documents import Document
from ludus.envs.families.search.protocol import (
    MAX_DOCUMENTS,
    MAX_QUERIES,
    MAX_QUERY_CHARS,
    MAX_RESULTS,
)
from ludus.envs.families.search.retrievers import SEARCH_TIMEOUT_S, Bm25Index, RetrieverService
from ludus.wire.server import BackgroundServer, HttpServer

pytest.importorskip("bm25s", reason="the extra 'search' is not installed")
PAGE = (Path(__file__).parents[3] / "docs" / "search.md").read_text()
CORPUS = [
    Document(id=str(n), contents=f'"{name}"\n{name} is a town of {land}.')
    for n, (name, land) in enumerate(
        [
            ("Thebes", "Boeotia"),
            ("Delphi", "Phocis"),
            ("Orchomenos", "Boeotia"),
            ("Argos", "Argolis"),
        ]
    )
]


@contextmanager
def serving(token: str = "", **arguments: Any) -> Generator[str]:
    service = RetrieverService(Bm25Index(CORPUS), **arguments)
    with BackgroundServer(HttpServer([service], token=token)) as url:
        yield url


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(topk=2) as url:
        yield url


def sent(url: str, body: object) -> tuple[int, Any]:
    """Status and JSON; a body that is not bytes is sent as `requests.post(url, json=body)` does."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Accept": "*/*"}
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def found(url: str, body: object) -> Any:
    status, reply = sent(f"{url}/retrieve", body)
    assert status == 200, reply
    return reply["result"]


def test_all_searches_of_a_step_go_in_one_request(server: str) -> None:
    """512 questions with 5 rollouts each, as Search-R1 trains by default."""
    queries = ["Thebes", "Delphi"] * 1280
    results = found(server, {"queries": queries, "topk": 3, "return_scores": True})
    assert len(results) == 2560
    assert {hits[0]["document"]["id"] for hits in results[::2]} == {"0"}
    assert {hits[0]["document"]["id"] for hits in results[1::2]} == {"1"}


def test_one_query_that_babbles_does_not_cost_the_others(server: str) -> None:
    babble = "Argos " + "zzzz " * 200_000
    first, second = found(server, {"queries": ["Thebes", babble], "topk": 1})
    assert (first[0]["id"], second[0]["id"]) == ("0", "3")
    assert found(server, {"queries": ["z" * MAX_QUERY_CHARS + " Thebes"]}) == [[]]


def test_skyrl_asks_one_thing_at_a_time(server: str) -> None:
    ((hit,),) = found(server, {"query": "Delphi", "topk": 3, "return_scores": True})
    assert hit["document"] == {"id": "1", "contents": '"Delphi"\nDelphi is a town of Phocis.'}
    assert hit["score"] > 0
    assert found(server, {"query": "Delphi"}) == [[hit["document"]]]


@pytest.mark.parametrize("bare", [{}, {"topk": None}, {"topk": 0}, {"return_scores": None}])
def test_what_is_left_open_is_the_servers_own(server: str, bare: dict[str, object]) -> None:
    (documents,) = found(server, {"queries": ["town Boeotia"], **bare})
    assert [set(one) for one in documents] == [{"id", "contents"}] * 2


def test_queries_that_find_nothing_have_their_place(server: str) -> None:
    queries = ["", "qqqq", "日本 \U0001f600 \x00", "Argos"]
    assert [len(hits) for hits in found(server, {"queries": queries})] == [0, 0, 0, 1]
    assert found(server, {"queries": []}) == []


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 422, 'send {"queries": ["..."]}'),
        ({"queries": ["x"], "topk": -1}, 422, "topk is -1; it must be from 1 to 100"),
        ({"queries": ["x"], "topk": 10**6}, 422, "topk is 1000000"),
        ({"queries": ["x"] * 2000, "topk": 100}, 422, "2000 queries with topk 100; at most 1000"),
        ({"queries": ["x"] * 20_000}, 422, "at most 16384 at once, send several"),
        ({"queries": "x"}, 422, "$.queries"),
        ({"queries": ["x", 1]}, 422, "$.queries[1]"),
        ({"queries": ["x", None]}, 422, "$.queries[1]"),
        ({"query": ["x"]}, 422, "$.query"),
        (["x"], 422, "object"),
        (b'{"queries": [', 400, "not JSON"),
        (b"", 400, "not JSON"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_words(
    server: str, body: object, status: int, words: str
) -> None:
    code, reply = sent(f"{server}/retrieve", body)
    assert code == status
    assert words in reply["error"]["message"]


def test_a_token_may_stand_in_the_path() -> None:
    """None of these clients can be given a header."""
    with serving(token="secret") as url:
        assert sent(f"{url}/secret/retrieve", {"queries": ["Argos"]})[0] == 200
        assert sent(f"{url}/wrong/retrieve", {"queries": ["Argos"]})[0] == 401
        assert sent(f"{url}/retrieve", {"queries": ["Argos"]})[0] == 401


class Slow(Bm25Index):
    """Takes its time."""

    def search(self, queries: Any, topk: int) -> Any:
        """Later."""
        time.sleep(0.3)
        return super().search(queries, topk)


def test_a_full_queue_is_a_503_which_these_clients_send_again() -> None:
    service = RetrieverService(Slow(CORPUS), max_queue=1)
    with BackgroundServer(HttpServer([service])) as url, ThreadPoolExecutor(8) as clients:
        replies = clients.map(sent, [f"{url}/retrieve"] * 8, [{"queries": ["Argos"]}] * 8)
        assert {status for status, _ in replies} == {200, 503}


def test_a_search_that_takes_too_long_ends_and_says_so() -> None:
    service = RetrieverService(Slow(CORPUS), timeout_s=0.5)
    with BackgroundServer(HttpServer([service])) as url:
        status, reply = sent(f"{url}/retrieve", {"queries": ["Argos"] * 1000})
        assert status == 504
        assert "128 of 1000 queries" in reply["error"]["message"]
        assert sent(f"{url}/retrieve", {"queries": ["Argos"]})[0] == 200


def test_clients_that_leave_in_the_middle_leave_nothing_behind(server: str) -> None:
    host, port = server.removeprefix("http://").split(":")
    body = json.dumps({"queries": ["Argos"] * 500}).encode()
    head = (
        f"POST /retrieve HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    for number in range(40):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + body[: len(body) if number % 2 else 9])
    assert len(found(server, {"queries": ["Argos"]})) == 1
    deadline = time.monotonic() + 60
    while (depth := _depth(server)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert depth == 0


def _depth(url: str) -> int:
    with urllib.request.urlopen(f"{url}/readyz", timeout=60) as response:
        return json.load(response)["services"]["retriever"]["queue_depth"]


def test_256_clients_at_once_are_all_answered_alike(server: str) -> None:
    with ThreadPoolExecutor(256) as clients:
        body = {"queries": ["Thebes Boeotia", "Phocis"], "return_scores": True}
        replies = list(clients.map(found, [server] * 512, [body] * 512))
    assert all(reply == replies[0] for reply in replies)
    assert [hit["document"]["id"] for hit in replies[0][0]] == ["0", "2"]


# --- docs/search.md ------------------------------------------------------------------------------


def test_the_page_says_the_bounds() -> None:
    for bound in (MAX_QUERIES, MAX_RESULTS, MAX_QUERY_CHARS):
        assert f"{bound:,}" in PAGE
    assert f"{MAX_DOCUMENTS} documents" in PAGE
    assert f"{SEARCH_TIMEOUT_S:g} s" in PAGE


def test_the_requests_on_the_page_are_answered(server: str) -> None:
    bodies = re.findall(r"^POST /retrieve +(\{.*\})$", PAGE, re.M)
    assert len(bodies) >= 3
    for body in bodies:
        assert isinstance(found(server, json.loads(body)), list)
