"""ludus/search-v0: playing it in each style, bad input, noise, and engines that fail."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ludus.envs import EnvSession, make_async
from ludus.envs.families.search.documents import Hit, load_corpus
from ludus.envs.families.search.questions import SearchQuestion
from ludus.envs.families.search.retrievers import Bm25Index, fictional_index
from ludus.envs.families.search.search_env import Search
from ludus.errors import ConfigError, RewardUnavailable
from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Status

pytest.importorskip("bm25s", reason="the extra 'search' is not installed")


def session(**arguments: Any) -> EnvSession:
    return make_async("ludus/search-v0", **arguments)


def call(query: str, name: str = "search") -> Message:
    return assistant("", [ToolCall(name=name, arguments={"query": query}, id="call_0")])


def question_of(made: EnvSession) -> SearchQuestion:
    assert isinstance(made.env, Search)
    return made.env.question


def said(observation: Any) -> str:
    return observation if isinstance(observation, str) else observation[0].text


async def step_as_shown(made: EnvSession) -> Any:
    action = made.env.demonstrate()
    assert action is not None
    return await made.step(action)


async def played(made: EnvSession, task: str) -> tuple[float, list[str]]:
    """The expert's return, and what it saw."""
    await made.reset(seed=0, options={"task": task})
    total, seen, over = 0.0, list[str](), False
    while not over:
        observation, reward, terminated, truncated, _ = await step_as_shown(made)
        total, over = total + reward, terminated or truncated
        seen.append(said(observation))
    return total, seen


@pytest.mark.parametrize("style", ["tools", "tags"])
async def test_the_expert_finds_what_it_answers(style: str) -> None:
    made, found = session(style=style, max_hops=4), 0
    for index in range(40):
        total, seen = await played(made, f"test/{index}")
        assert total == 1.0
        found += question_of(made).golds[0] in "".join(seen)
    assert found >= 38  # it answers from what it knows; the searches show it nearly always


async def test_a_self_search_is_one_turn_and_needs_no_engine() -> None:
    made = session(style="tags", retriever="self", format_weight=0.2)
    for index in range(10):
        assert (await played(made, f"train/{index}"))[0] == pytest.approx(1.0)
    await made.reset(seed=0)
    gold = question_of(made).golds[0]
    # right answer, wrong format: 0.8 * 1 + 0.2 * 0; wrong answer in format: 0.8 * 0 + 0.2 * 1
    _, reward, terminated, _, _ = await made.step(f"<search>q</search><answer>{gold}</answer>")
    assert (reward, terminated) == (pytest.approx(0.8), True)
    await made.reset(seed=0)
    assert (await made.step("<answer>no</answer>"))[1] == pytest.approx(0.2)
    await made.reset(seed=0)
    assert (await made.step("I do not know."))[1] == 0.0


async def test_f1_gives_part_of_the_reward_and_both_scores_are_metrics() -> None:
    made = session(reward="f1")
    await made.reset(seed=0)
    gold = question_of(made).golds[0]
    words = len(gold.split())
    _, reward, _, _, info = await made.step(f"<answer>{gold} perhaps</answer>")
    assert reward == pytest.approx(2 * words / (2 * words + 1))
    assert info["verdict"].metrics["em"] == 0.0
    assert info["gold"] == gold


async def test_what_is_neither_a_search_nor_an_answer_is_told_and_costs_a_turn() -> None:
    for style in ("tools", "tags"):
        made = session(style=style, max_turns=2)
        await made.reset(seed=0)
        observation, reward, terminated, truncated, _ = await made.step("Ada, I think.")
        assert "<answer>" in said(observation)
        assert (reward, terminated, truncated) == (0.0, False, False)
        _, reward, terminated, truncated, _ = await made.step("")
        assert (reward, terminated, truncated) == (0.0, False, True)


@pytest.mark.parametrize("query", ["", "  ", "x" * 1_001, "x" * 1_000_000])
async def test_empty_and_huge_queries_are_refused_in_words(query: str) -> None:
    made = session()
    await made.reset(seed=0)
    observation, reward, terminated, _, info = await made.step(call(query))
    assert any(word in said(observation) for word in ("empty", "at most"))
    assert len(said(observation)) < 300
    assert (reward, terminated, info["tool_errors"]) == (0.0, False, 1)
    tagged = session(style="tags")
    await tagged.reset(seed=0)
    observation, *_ = await tagged.step(f"<search>{query}</search>")
    assert len(said(observation)) < 300


async def test_an_unknown_tool_and_wrong_arguments_are_told() -> None:
    made = session()
    await made.reset(seed=0)
    observation, *_ = await made.step(call("x", name="serach"))
    assert "no tool named 'serach'; there is search" in said(observation)
    wrong = assistant("", [ToolCall(name="search", arguments={"query": ["x"]})])
    assert "invalid arguments" in said((await made.step(wrong))[0])


async def test_a_million_characters_of_answer_are_wrong_at_once() -> None:
    made = session()
    await made.reset(seed=0)
    gold = question_of(made).golds[0]
    _, reward, *_ = await made.step(f"<answer>{gold} {'x ' * 500_000}</answer>")
    assert reward == 0.0


async def test_words_nobody_wrote_find_nothing() -> None:
    made = session()
    await made.reset(seed=0)
    assert said((await made.step(call("zzzz qqqq")))[0]) == "Nothing was found."


async def test_noisy_searches_never_show_a_page_that_helps_or_the_answer() -> None:
    made = session(noise=1.0, max_hops=2)
    for index in range(15):
        _, seen = await played(made, f"train/{index}")
        question = question_of(made)
        shown = "\n".join(seen)
        assert all(f'(Title: "{page}")' not in shown for page in question.pages)
        assert f" {question.golds[0]}" not in shown


async def test_noise_is_a_reset_option_and_repeats_with_the_seed() -> None:
    made = session()

    async def seen(seed: int, noise: float) -> list[str]:
        await made.reset(seed=seed, options={"task": "train/3", "noise": noise})
        query = call(question_of(made).searches[0])
        return [said((await made.step(query))[0]) for _ in range(8)]

    assert len(set(await seen(0, 0.0))) == 1
    half = await seen(0, 0.5)
    assert len(set(half)) == 2
    assert half == await seen(0, 0.5)
    assert len({tuple(await seen(seed, 0.5)) for seed in range(4)}) > 1
    with pytest.raises(ConfigError, match="noise must be from 0 to 1, got 2"):
        await made.reset(options={"noise": 2.0})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"retriever": "bm52"}, "bm25, simulated, self or a server's address"),
        ({"retriever": "simulated"}, "base_url and model"),
        ({"retriever": "self"}, "style='tags'"),
        ({"style": "xml"}, "style must be tools or tags"),
        ({"reward": "rouge"}, "reward must be em or f1"),
        ({"topk": 0}, "topk must be from 1"),
        ({"min_hops": 3, "max_hops": 2}, "got 3, 2"),
        ({"max_hops": 9}, "got 1, 9"),
        ({"shapes": ["compare"]}, "set min_hops=2"),
        ({"shapes": ["circle"]}, "'circle'"),
        ({"noise": 1.5}, "noise"),
        ({"timeout_s": 60}, "timeout_s must be from 0.01 to 25"),
        ({"people": 10}, "people must be from 60"),
        ({"corpus": "x.json"}, "both corpus and questions"),
        ({"corpus": "x.json", "retriever": "http://127.0.0.1:8000"}, "leave corpus out"),
        ({"corpus": "x.json", "retriever": "self", "style": "tags"}, "leave corpus out"),
        ({"retriever": "http://127.0.0.1:port"}, "not a server's address"),
        ({"retriever": "http://127.0.0.1:0"}, "port 0"),
        ({"corpus": "none.json", "questions": "none.json"}, "cannot read 'none.json'"),
    ],
)
def test_settings_that_cannot_be_say_why(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        session(**arguments)


async def test_any_corpus_and_questions_file_can_be_played(tmp_path: Path) -> None:
    corpus, questions = tmp_path / "corpus.jsonl", tmp_path / "questions.jsonl"
    rows = [{"id": "a", "contents": '"Thebes"\nThebes was founded by Cadmus.'},
            {"id": "b", "contents": '"Delphi"\nDelphi has an oracle.'}]  # fmt: skip
    corpus.write_text("\n".join(map(json.dumps, rows)))
    questions.write_text('{"question": "Who founded Thebes?", "golden_answers": ["Cadmus"]}\n')
    made = session(corpus=str(corpus), questions=str(questions), test=0.0, validation=0.0, topk=20)
    observation, _ = await made.reset(seed=0)
    assert observation == "Who founded Thebes?"
    found, *_ = await made.step(call("founded Thebes"))
    assert said(found) == 'Doc 1(Title: "Thebes") Thebes was founded by Cadmus.'
    assert (await made.step("<answer>cadmus</answer>"))[1] == 1.0


async def test_the_demonstrator_follows_the_searches_of_a_questions_file(tmp_path: Path) -> None:
    corpus, questions = tmp_path / "corpus.jsonl", tmp_path / "questions.jsonl"
    rows = [{"title": "Thebes", "text": "It was founded by Cadmus."},
            {"title": "Cadmus", "text": "Cadmus was born in Tyre."}]  # fmt: skip
    corpus.write_text("\n".join(map(json.dumps, rows)))
    asked = {"question": "Where was the founder of Thebes born?", "answer": "Tyre"}
    questions.write_text(json.dumps(asked | {"searches": ["Thebes", "Cadmus"]}) + "\n")
    files = {"corpus": str(corpus), "questions": str(questions), "test": 0.0, "validation": 0.0}
    made = session(**files, topk=1)
    await made.reset(seed=0)
    shown = [said((await step_as_shown(made))[0]) for _ in range(2)]
    assert shown == [
        'Doc 1(Title: "Thebes") It was founded by Cadmus.',
        'Doc 1(Title: "Cadmus") Cadmus was born in Tyre.',
    ]
    assert made.env.demonstrate_summary(newest=True) == (
        "Found Thebes: Cadmus; Cadmus: Tyre. Answer: Tyre."
    )
    assert (await step_as_shown(made))[1] == 1.0
    recalled = session(**files | {"corpus": ""}, retriever="self", style="tags")
    await recalled.reset(seed=0)
    assert (await step_as_shown(recalled))[1] == 1.0


# --- the index ---------------------------------------------------------------------------------


def test_a_page_is_found_by_its_name_and_the_best_comes_first() -> None:
    index = fictional_index(0, 240)
    (hits,) = index.search([index.documents[17].title], 5)
    assert hits[0].document.id == "17"
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert index.search(["qqqq", ""], 5) == [[], []]
    assert index.search([], 5) == []


def test_more_documents_than_there_are_can_be_asked_for() -> None:
    index = Bm25Index(fictional_index(0, 240).documents[:4])
    assert len(index.search([index.documents[0].title], 100)[0]) <= 4


def test_a_corpus_of_stop_words_finds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('[{"title": "The", "text": "of the"}]')
    assert Bm25Index(load_corpus(str(path))).search(["the"], 3) == [[]]


@pytest.mark.parametrize("text", ["[]", '[{"title": "x"}]', '[{"text": 3}]'])
def test_a_corpus_without_documents_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="no document"):
        load_corpus(str(path))


# --- servers that are not ours -----------------------------------------------------------------

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def foreign() -> AsyncIterator[Callable[[Handle], Awaitable[str]]]:
    """Starts a server that answers /retrieve in its own way; its address."""
    servers: list[TestServer] = []

    async def start(handle: Handle) -> str:
        application = web.Application()
        application.router.add_post("/retrieve", handle)
        servers.append(TestServer(application))
        await servers[-1].start_server()
        return str(servers[-1].make_url(""))

    yield start
    for server in servers:
        await server.close()


async def test_it_asks_as_search_r1_does_and_reads_scores_written_as_text(
    foreign: Callable[[Handle], Awaitable[str]],
) -> None:
    asked: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append((request.content_type, await request.json()))
        row = {"document": {"id": 7, "contents": '"Thebes"\nA town.'}, "score": "1.5"}
        return web.json_response({"result": [[row] * 5]})

    made = session(retriever=await foreign(handle))
    await made.reset(seed=0)
    observation, *_ = await made.step(call("Thebes"))
    assert said(observation).count("Thebes") == 3  # no more than topk
    expected = {"queries": ["Thebes"], "topk": 3, "return_scores": True}
    assert asked == [("application/json", expected)]
    await made.close()


async def test_bare_documents_are_read_too(foreign: Callable[[Handle], Awaitable[str]]) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"result": [[{"id": "7", "contents": '"Thebes"\nA town.'}]]})

    made = session(retriever=await foreign(handle) + "/retrieve")
    await made.reset(seed=0)
    assert said((await made.step(call("x")))[0]) == 'Doc 1(Title: "Thebes") A town.'
    await made.close()


async def test_servers_that_ask_the_web_have_no_ids_and_no_scores(
    foreign: Callable[[Handle], Awaitable[str]],
) -> None:
    async def handle(request: web.Request) -> web.Response:
        page = {"document": {"contents": '"Thebes"\nA town.'}}
        return web.json_response({"result": [[page, {**page, "score": None}]]})

    made = session(retriever=await foreign(handle))
    await made.reset(seed=0)
    assert said((await made.step(call("x")))[0]).count('(Title: "Thebes") A town.') == 2
    await made.close()


def reply(status: int, text: str) -> Handle:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=status, text=text, content_type="application/json")

    return handle


async def hang(request: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


async def crash(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize(
    ("handle", "status"),
    [
        (hang, Status.UNAVAILABLE),
        (crash, Status.UNAVAILABLE),
        (reply(500, "Internal Server Error"), Status.UNAVAILABLE),
        (reply(503, "loading the index"), Status.UNAVAILABLE),
        (reply(404, "not here"), Status.ERROR),
        (reply(200, "<html>"), Status.ERROR),
        (reply(200, '{"results": []}'), Status.ERROR),
        (reply(200, '{"result": []}'), Status.ERROR),
        (reply(200, '{"result": [[{"text": "x"}]]}'), Status.ERROR),
        (reply(200, '{"result": [[{"document": null, "score": 1}]]}'), Status.ERROR),
    ],
)
@pytest.mark.parametrize("style", ["tools", "tags"])
async def test_a_retriever_that_fails_is_no_reward(
    foreign: Callable[[Handle], Awaitable[str]], handle: Handle, status: Status, style: str
) -> None:
    made = session(retriever=await foreign(handle), style=style, timeout_s=0.3)
    await made.reset(seed=0)
    action = call("x") if style == "tools" else "<search>x</search>"
    with pytest.raises(RewardUnavailable) as caught:
        await made.step(action)
    assert caught.value.verdict.status is status
    assert "retriever at http" in str(caught.value)
    await made.close()


async def test_ten_megabytes_of_results_are_cut(
    foreign: Callable[[Handle], Awaitable[str]],
) -> None:
    row = {"document": {"id": "1", "contents": '"T"\n' + "x" * 10_000_000}, "score": 1}
    made = session(retriever=await foreign(reply(200, json.dumps({"result": [[row]]}))))
    await made.reset(seed=0)
    assert len(said((await made.step(call("x")))[0])) < 2_100
    await made.close()


# --- a model that plays the search engine --------------------------------------------------------


async def test_a_model_can_play_the_search_engine(
    foreign: Callable[[Handle], Awaitable[str]],
) -> None:
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append((await request.json())["messages"][0]["content"])
        text = 'Doc 1(Title: "Thebes") A town.\nDoc 2(Title: "Delphi") Another.'
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice]})

    application = web.Application()
    application.router.add_post("/v1/chat/completions", handle)
    server = TestServer(application)
    await server.start_server()
    made = session(retriever="simulated", base_url=str(server.make_url("/v1")), model="m", topk=2)
    assert not made.deterministic
    await made.reset(seed=0, options={"noise": 0.0})
    question = question_of(made)
    observation, *_ = await made.step(call("Thebes"))
    assert said(observation).count("Doc ") == 2
    assert "The query: Thebes" in asked[0]
    assert question.text in asked[0]
    assert question.golds[0] in asked[0]
    await made.reset(seed=0, options={"noise": 1.0})
    await made.step(call("Thebes"))
    assert "None of the documents may help" in asked[1]
    await made.close()
    await server.close()


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:9/v1"])
async def test_a_simulated_engine_that_is_down_is_no_reward(base_url: str) -> None:
    made = session(retriever="simulated", base_url=base_url, model="m", timeout_s=0.5)
    await made.reset(seed=0)
    with pytest.raises(RewardUnavailable) as caught:
        await made.step(call("Thebes"))
    assert caught.value.verdict.status is Status.UNAVAILABLE
    await made.close()


def test_hits_travel_with_their_scores() -> None:
    index = fictional_index(0, 240)
    hits = index.search([index.documents[0].title], 1)[0]
    assert isinstance(hits[0], Hit)


async def test_one_hop_is_asked_for_in_chains_whatever_the_shapes() -> None:
    session = EnvSession(Search(min_hops=1, max_hops=1, people=120))
    _, info = await session.reset(seed=4)
    assert info["task"]
    await session.close()
