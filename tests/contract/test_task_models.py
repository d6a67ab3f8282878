"""`ludus tasks` with a model: rates, agreement, memory, questions over a corpus, round trips."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import ludus
from ludus.background import run_on_loop
from ludus.cli.main import main
from ludus.envs.curation.measured import final_answer
from ludus.envs.curation.questions import draft_fault, injection_fault
from ludus.envs.families.search.documents import document
from ludus.envs.families.verilog.filed import read_module
from ludus.envs.problem_files import UnusableRow
from ludus.rewards import Sample, make_verifier

Script = Callable[[str, int], str]
"""Answers a conversation, as text, with a seed."""


@contextmanager
def scripted(script: Script) -> Iterator[str]:
    """Serve a script as an OpenAI-compatible server; yields its address."""

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        text = "\n".join(message["content"] for message in body["messages"])
        try:
            said = script(text, body["seed"])
        except LookupError as error:
            return web.json_response({"error": {"message": str(error)}}, status=400)
        message = {"role": "assistant", "content": said}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "model": "scripted"})

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "scripted"}]})

    async def begin() -> web.AppRunner:
        application = web.Application()
        application.router.add_post("/v1/chat/completions", complete)
        application.router.add_get("/v1/models", models)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = run_on_loop(begin(), timeout_s=30)
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        run_on_loop(runner.cleanup(), timeout_s=30)


def lines(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def rows_in(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows of all splits, by question."""
    read = [
        json.loads(line)
        for split in ("train", "validation", "test")
        for line in (folder / f"{split}.jsonl").read_text().splitlines()
    ]
    return {row["question"]: row for row in read}


def left_out(folder: Path) -> dict[int, str]:
    return {
        row["row"]: row["reason"]
        for row in map(json.loads, (folder / "left_out.jsonl").read_text().splitlines())
    }


def tasks(url: str, source: str, out: Path, *more: str) -> int:
    return main(
        ["tasks", source, "--out", str(out), "--model", "scripted", "--base-url", url, *more]
    )


WORDS = ("river", "tower", "horse", "lamp", "garden", "winter", "letter", "bridge", "violin")


def sum_of(n: int) -> dict[str, str]:
    about = " ".join(WORDS[(n * k) % 9] for k in range(1, 9))
    return {"question": f"Case {about}: what is {n} plus {n}?", "answer": str(2 * n)}


def test_the_band_of_rates_is_that_of_the_answers(tmp_path: Path) -> None:
    def passes(text: str, seed: int) -> str:
        n = int(re.findall(r"what is (\d+) plus", text)[-1])
        return rf"It is \boxed{{{2 * n if seed < n else -1 - seed}}}"  # n of 8 samples

    source, out = lines(tmp_path / "a.jsonl", [sum_of(n) for n in range(9)]), tmp_path / "out"
    band = ("--measure.min-rate", "0.25", "--measure.max-rate", "0.75")
    with scripted(passes) as url:
        assert tasks(url, source, out, *band) == 0
    kept = rows_in(out)
    assert {int(row["answer"]) // 2: row["pass_rate"] for row in kept.values()} == {
        n: n / 8 for n in range(2, 7)
    }
    assert {row["pass_model"] for row in kept.values()} == {"scripted"}
    hard, easy = dict.fromkeys((1, 2), "too hard"), dict.fromkeys((8, 9), "too easy")
    assert left_out(out) == hard | easy
    measured = json.loads((out / "card.json").read_text())["measured"]
    assert measured["pass_rate"]["mean"] == 0.5
    assert measured["pass_rates"] == {
        "0": 1, "to 0.25": 2, "to 0.5": 2, "to 0.75": 2, "below 1": 1, "1": 1
    }  # fmt: skip


def test_rubrics_are_written_from_what_a_search_finds(tmp_path: Path) -> None:
    """A model that knows what it reads and nothing else; each faulty criterion has one fault."""
    facts = {"Ada": "Oslo", "Bo": "Turin"}
    corpus = lines(
        tmp_path / "corpus.jsonl",
        [
            {"id": f"p{n}", "title": name, "text": f"{name} was born in {city}."}
            for n, (name, city) in enumerate(facts.items())
        ]
        + [{"id": "p9", "title": "Lamps", "text": "Lamps give light."}],
    )
    asked = [{"question": f"Where was {name} born?"} for name in (*facts, "Cy")]
    source = lines(tmp_path / "asked.jsonl", [*asked, asked[0], {"other": "x"}])
    shown: list[str] = []

    def criteria(text: str) -> str:
        name = re.findall(r"Where was (\w+) born", text)[0]
        city = facts.get(name, "nowhere") if f"{name} was born" in text else "nowhere"
        texts = [
            (f"The response says {city}.", 1),
            ("The response says Paris.", 1),  # no page says so
            ("The response says answer.", 1),  # a response without content says so
            (f"The response says {name}.", 1),  # known without the pages
            ("The judge is pleased.", 1),
            ("The response says Rome.", -1),
        ]
        rows = [{"text": criterion, "weight": weight} for criterion, weight in texts[:5]]
        return json.dumps({"criteria": rows if name != "Bo" else [rows[0], *rows[4:], rows[1]]})

    def reads(text: str, seed: int) -> str:
        if "write criteria for grading" in text:
            shown.append(text)
            return criteria(text)
        if "What should be searched for next" in text:
            return '{"query": "lamps"}'
        if "Criterion:" in text:
            word = re.findall(r"Criterion: .*The response says (\w+)", text)[0]
            response = re.findall(r"response: (.*)", text)[0]
            return json.dumps({"reason": "", "met": word in response})
        name = re.findall(r"Where was (\w+) born", text)[-1]
        known = facts.get(name, "") if f"{name} was born in" in text else "somewhere"
        return f"{name} comes from {known}."

    out, more = tmp_path / "out", ("--validation", "0", "--test", "0", "--corpus", corpus)
    with scripted(reads) as url:
        assert tasks(url, source, out, "--write", "rubrics", *more) == 0
        kept = {row["question"]: row["rubric"] for row in rows_in(out).values()}
        assert kept == {
            f"Where was {name} born?": [{"text": f"The response says {city}.", "weight": 1.0}]
            for name, city in facts.items()
        }
        assert left_out(out) == {
            3: "no criterion stood its tests", 4: "repeated", 5: "no question"
        }  # fmt: skip
        assert any("Lamps" in text for text in shown)  # found by the model's own search
        card = json.loads((out / "card.json").read_text())
        assert card["measured"]["criteria"] == {"kept": 2, "refused": 6}
        judge = make_verifier(
            "judge", rubric=str(out / "train.jsonl"), base_url=url, model="scripted"
        )
        prompt = "Search, then answer.\n\nWhere was Bo born?"
        for said, reward in (("It was Turin.", 1.0), ("It was Oslo.", 0.0)):
            sample = Sample(prompt=prompt, response=said)
            assert run_on_loop(judge.score(sample), timeout_s=30).reward == reward
        stranger = Sample(prompt="Where was Di born?", response="In Turin.")
        verdict = run_on_loop(judge.score(stranger), timeout_s=30)
        assert verdict.status == "invalid"
        assert "has no rubric for the question 'Where was Di born?'" in verdict.detail
        run_on_loop(judge.close(), timeout_s=30)


def test_rubrics_need_a_corpus_and_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = lines(tmp_path / "asked.jsonl", [{"question": "Why?"}])
    words = ["tasks", source, "--out", str(tmp_path / "out"), "--model", "tiny"]
    assert main([*words, "--write", "rubrics"]) == 2
    assert "--write rubrics and --corpus FILE" in capsys.readouterr().err
    assert main([*words, "--corpus", source]) == 2
    assert "belong together" in capsys.readouterr().err


def test_answers_that_agree_on_another_gold_leave_the_task_out(tmp_path: Path) -> None:
    halves = (r"\frac{1}{2}", "0.5", "1/2", "5/10")
    rows = [
        {"question": "A river runs: what is the half of the tower?", "answer": "2"},
        {"question": "A lamp shines: who guesses at the garden wall?", "answer": "3"},
        {"question": "A horse neighs: what is six by three in winter?", "answer": "2"},
    ]

    def agrees(text: str, seed: int) -> str:
        if "half" in text:
            return rf"\boxed{{{halves[seed % 4]}}}"  # always a half, in four forms
        if "guesses" in text:
            return rf"\boxed{{{seed}}}"  # never twice the same
        return r"\boxed{2}" if seed < 5 else r"\boxed{18}"

    source, out = lines(tmp_path / "a.jsonl", rows), tmp_path / "out"
    with scripted(agrees) as url:
        assert tasks(url, source, out, "--measure.agree", "0.6") == 0
    assert left_out(out) == {1: "answer in doubt"}
    assert {row["pass_rate"] for row in rows_in(out).values()} == {1 / 8, 5 / 8}


def test_questions_that_are_completed_word_for_word_are_left_out(tmp_path: Path) -> None:
    rows = [sum_of(n) for n in range(2, 8)]
    known = rows[3]["question"]

    def remembers(text: str, seed: int) -> str:
        shown = text.rpartition("\n\n")[2]
        return known.removeprefix(shown).strip() if known.startswith(shown) else "the end of it."

    source, out = lines(tmp_path / "a.jsonl", rows), tmp_path / "out"
    probe = ("--measure.probe", "0.5", "--measure.samples", "0")
    with scripted(remembers) as url:
        assert tasks(url, source, out, *probe) == 0
    assert left_out(out) == {4: "known by heart"}
    heart = json.loads((out / "card.json").read_text())["measured"]["known_by_heart"]
    assert (heart["probed"], heart["share"]) == (6, 1 / 6)
    assert heart["low"] < 1 / 6 < heart["high"]


def test_a_model_that_fails_leaves_no_set(tmp_path: Path) -> None:
    source, out = lines(tmp_path / "a.jsonl", [sum_of(n) for n in range(4)]), tmp_path / "out"

    def refuses(text: str, seed: int) -> str:
        raise LookupError("no such model is loaded")

    with scripted(refuses) as url:
        assert tasks(url, source, out) == 2
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--write", "search"], "--write needs --model"),
        (["--measure.samples", "4"], "--measure needs --model"),
        (["--model", "tiny", "--cache", "folder"], "set --base-url"),
        (["--model", "tiny", "--measure.min-rate", "0.9", "--measure.max-rate", "0.1"], "min_rate"),
        (["--model", "tiny", "--measure.samples", "0", "--measure.agree", "0.5"], "need samples"),
        (["--model", "tiny", "--measure.probe", "1"], "probe=1 shows whole questions"),
        (["--model", "m", "--write", "search", "--question", "q"], "which --write writes"),
    ],
)
def test_options_that_cannot_work_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], told: str
) -> None:
    source = lines(tmp_path / "a.jsonl", [sum_of(1)])
    assert main(["tasks", source, "--out", str(tmp_path / "out"), *more]) == 2
    assert told in capsys.readouterr().err


def test_final_answers_are_boxed_or_the_last_line() -> None:
    assert final_answer("I think\n \\boxed{\\frac{1}{2}}, so.") == "\\frac{1}{2}"
    assert final_answer("so\n\n  12 \n") == "12"
    assert final_answer("") == ""


# --- questions over a corpus ---------------------------------------------------------------------

PAGES = {
    "Alto Mill": "Alto Mill is a mill. It was founded by Runa Larley.",
    "Bemford": "Bemford is a town by a river. The only mill in it is Alto Mill.",
    "Kestrel Bay": "Kestrel Bay is a harbour. Its keeper is Ost Gray.",
    "Capital City": "Capital City is a capital. Its river is the Thames.",
    "Odd Page": "Odd Page tells of nothing. It holds 7 lines.",
    "Blurred Hill": "Blurred Hill is a hill. Its height is 412 metres.",
}
DRAFTS = {
    "Alto Mill": ("Who founded Alto Mill?", "Runa Larley"),
    "Bemford": ("Which mill is in Bemford?", "Alto Mill"),
    "Kestrel Bay": ("Who is the keeper of Kestrel Bay?", "Ost Gray"),
    "Capital City": ("Which river is in Capital City?", "the Thames"),
    "Odd Page": ("What does Odd Page tell of?", "Everything"),  # stands nowhere
    "Blurred Hill": ("How high is Blurred Hill?", "412 metres"),
}


def searcher(text: str, seed: int) -> str:
    """Write questions as they should be, but for the pages whose names say otherwise."""
    if "Write a question about it" in text:
        title = json.loads(re.findall(r"^\{.*\}$", text, re.M)[0])["title"]
        question, answer = DRAFTS[title]
        return f"Here it is.\n{json.dumps({'question': question, 'answer': answer})}"
    if "Rewrite the question" in text:
        assert "'Alto Mill'" in text
        return json.dumps({"question": "Who founded the only mill in Bemford?"})
    question = text.rpartition("\n\n")[2]
    answers = dict(DRAFTS.values())
    answers["Who founded the only mill in Bemford?"] = "Runa Larley"
    if "Here are pages" not in text:  # only what everybody knows
        return f"<answer>{'Thames' if 'Capital' in question else 'unknown'}</answer>"
    titles = {json.loads(page)["title"] for page in re.findall(r"^\{.*\}$", text, re.M)}
    assert titles & set(PAGES)
    return f"<answer>{'412 feet' if 'Blurred' in question else answers[question]}</answer>"


def test_questions_over_a_corpus_are_verified_before_they_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    rows = [{"title": title, "text": text} for title, text in PAGES.items()]
    corpus, out = lines(tmp_path / "corpus.jsonl", rows), tmp_path / "out"
    shares = ("--test", "0.4", "--validation", "0")
    with scripted(searcher) as url:
        assert tasks(url, corpus, out, "--write", "search", *shares) == 0
    kept = rows_in(out)
    assert set(kept) == {
        "Who founded the only mill in Bemford?", "Which mill is in Bemford?",
        "Who is the keeper of Kestrel Bay?",
    }  # fmt: skip
    two_hops = kept["Who founded the only mill in Bemford?"]
    assert (two_hops["hops"], two_hops["searches"]) == (2, ["Bemford", "Alto Mill"])
    assert left_out(out) == {
        4: "known without searching", 5: "no question was written", 6: "not answered from its pages"
    }  # fmt: skip
    card = json.loads((out / "card.json").read_text())
    assert card["clusters"] == 2  # two questions share the page of Bemford
    splits = [(out / f"{split}.jsonl").read_text() for split in ("train", "test")]
    assert [split.count("Bemford?") for split in splits] in ([2, 0], [0, 2])
    for split in ("train", "test"):
        env = ludus.make(
            "ludus/search-v0", corpus=corpus, questions=str(out / f"{split}.jsonl"),
            validation=0.0, test=0.0,
        )  # fmt: skip
        env.reset(seed=0)
        reward, terminated = 0.0, False
        while not terminated:
            _, reward, terminated, _, _ = env.step(env.session.env.demonstrate())  # type: ignore[attr-defined]
        assert reward == 1.0
        env.close()


def test_faults_of_a_written_question_are_named() -> None:
    page = document("1", "Alto Mill", PAGES["Alto Mill"])
    assert draft_fault("Who founded Alto Mill?", "Runa Larley", page) == ""
    assert "does not stand on" in draft_fault("Who founded Alto Mill?", "Runa", document(
        "1", "Alto Mill", "It was founded by Runarley."))  # fmt: skip
    assert "no words" in draft_fault("Who founded Alto Mill?", "the", page)
    assert "holds its answer" in draft_fault("Did Runa Larley found Alto Mill?", "Larley", page)
    assert "does not name" in draft_fault("Who founded it?", "Runa Larley", page)
    again = "Who founded Alto Mill in Bemford?"
    assert "still names" in injection_fault(again, "Alto Mill", "Bemford", "Runa")


# --- round trips of designs ----------------------------------------------------------------------

ADDER = "module add(input [3:0] a, b, output [4:0] y); assign y = a + b; endmodule"
COUNTER = """module counter(input clock, input rst_n, input step, output reg [3:0] n);
always @(posedge clock or negedge rst_n)
  if (!rst_n) n <= 0; else if (step) n <= n + 1;
endmodule"""
SHIFTED = "module s(input [3:0] a, output [3:0] y); assign y = a << 1; endmodule"


def test_designs_are_read_with_their_ports() -> None:
    counter = read_module(COUNTER)
    assert (counter.inputs, counter.widths, counter.clocked) == (
        {"rst_n": 1, "step": 1}, {"n": 4}, True
    )  # fmt: skip
    assert "input clk" in counter.heading
    assert read_module(ADDER).inputs == {"a": 4, "b": 4}
    for source, why in (
        ("module m #(parameter W = 4)(input [W-1:0] a, output y); endmodule", "parameters"),
        ("module m(a, y); input a; output y; endmodule", "not declared in the head"),
        ("module m(input [W:0] a, output y); endmodule", "width is no number"),
        ("module m(input a, output y); always @(negedge a) y = 0; endmodule", "falling edge"),
        (f"{ADDER} {SHIFTED}", "2 modules"),
        ("module m(input a, output y); initial $finish; endmodule", "refused"),
    ):
        with pytest.raises(UnusableRow, match=why):
            read_module(source)


@pytest.mark.usefixtures("a_sandbox")
@pytest.mark.skipif(shutil.which("iverilog") is None, reason="iverilog is not installed")
def test_designs_that_are_written_again_from_their_description_are_tasks(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"verilog": ADDER}, {"code": COUNTER}, {"code": SHIFTED},
        {"code": "module k(input a, output y); assign y = 1; endmodule"}, {"text": "nothing"},
    ]  # fmt: skip

    def engineer(text: str, seed: int) -> str:
        if "Describe in words" in text:
            known = {"a + b": "the sum", "n + 1": "a counter", "<< 1": "a doubled"}
            return f"It shows {next(said for mark, said in known.items() if mark in text)}."
        if "the sum" in text:  # two of four are right
            return (
                f"```verilog\n{ADDER.replace('add(', 'top_module(') if seed % 2 else 'none'}\n```"
            )
        if "a counter" in text:
            design = COUNTER.replace("clock", "clk").replace("counter(", "top_module(")
            return f"```verilog\n{design}\n```"
        return f"```verilog\n{SHIFTED.replace('s(', 'top_module(').replace('<<', '>>')}\n```"

    source, out = lines(tmp_path / "designs.jsonl", rows), tmp_path / "out"
    shares = ("--test", "0", "--validation", "0")
    with scripted(engineer) as url:
        assert tasks(url, source, out, "--write", "verilog", *shares) == 0
    assert left_out(out) == {
        3: "not written again", 4: "not a design that is read", 5: "not a design that is read"
    }  # fmt: skip
    rates = {row["pass_rate"] for row in rows_in(out).values()}
    assert rates == {0.5, 1.0}
    train = str(out / "train.jsonl")
    env = ludus.make("ludus/verilog-v0", source=train, validation=0.0, test=0.0)
    for index in range(2):
        env.reset(seed=index)
        answer = str(env.session.env.demonstrate())  # type: ignore[attr-defined]
        assert env.step(answer)[1] == 1.0
        env.reset(seed=index)
        assert env.step(answer.replace("+", "-"))[1] == 0.0
    env.close()


@pytest.mark.slow
def test_a_model_in_this_process_is_measured_too(tmp_path: Path) -> None:
    source, out = lines(tmp_path / "a.jsonl", [sum_of(n) for n in range(3)]), tmp_path / "out"
    options = ["--measure.samples", "2", "--measure.max-tokens", "8", "--measure.probe", "0.5"]
    assert main(["tasks", source, "--out", str(out), "--model", "tiny", *options]) == 0
    measured = json.loads((out / "card.json").read_text())["measured"]
    assert measured["model"] == "tiny"
    assert measured["pass_rates"]["0"] == 3
