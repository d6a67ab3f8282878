"""Reports about a world whose truth is known."""

from __future__ import annotations

import re

import pytest

from ludus.envs import make_async
from ludus.envs.families.fiction import build_world
from ludus.envs.families.research import ReportReading, Topic, draw_topic, facts_of, read_report
from ludus.errors import ConfigError
from ludus.messages import ToolCall, assistant
from ludus.rewards.judge import read_rubric

WORLD = build_world(0, 240)
PERSON = next(one for one in WORLD.realm("train") if len(facts_of(one)) == 6)
TOPIC = Topic(
    f"Write a short report on what is known about {PERSON.name}.",
    (PERSON.name,),
    tuple(facts_of(PERSON)),
)
TOWN = PERSON.links["born_in"]
ELSEWHERE = next(
    one.name for one in WORLD.realm("train") if one.kind == "town" and one.name != TOWN
    and one.name not in PERSON.links.values()
)  # fmt: skip


def read(text: str) -> ReportReading:
    return read_report(text, TOPIC, WORLD)


def test_a_fact_counts_where_its_subject_is_named() -> None:
    assert read(f"{PERSON.name} was born in {TOWN}.").stated == 1
    assert read(f"Born in {TOWN} [{PERSON.name}].").stated == 0
    assert read(f"Somebody was born in {TOWN}.").stated == 0


def test_only_the_page_that_says_so_is_a_citation() -> None:
    right = read(f"{PERSON.name} was born in {TOWN} [{PERSON.name}].")
    wrong = read(f"{PERSON.name} was born in {TOWN} [{ELSEWHERE}].")
    assert (right.cited, wrong.cited) == (1, 0)
    assert right.truth(0.2) == pytest.approx(1 / 6)
    assert wrong.truth(0.2) == pytest.approx(0.8 / 6)


def test_a_false_claim_costs_a_fact() -> None:
    said = read(f"{PERSON.name} was born in {TOWN}. {PERSON.name} lives in {ELSEWHERE}.")
    assert (said.stated, said.false) == (1, 1)
    assert said.truth(0.0) == 0.0
    assert read(f"{PERSON.name} was born in 1234.").false == 1


def test_naming_everything_earns_nothing() -> None:
    everybody = ", ".join(WORLD.entities)
    assert read(f"{PERSON.name} knows {everybody}.").truth(0.2) == 0.0


def test_a_fact_may_be_said_the_other_way_round() -> None:
    assert read(f"{TOWN} is where {PERSON.name} was born.").stated == 1


def report_of(topic: Topic, values: list[str]) -> str:
    """The expert's sentences about the facts of a topic, with these values."""
    return " ".join(
        f"{fact.about} is {value} [{fact.subject}]."
        for fact, value in zip(topic.facts, values, strict=True)
    )


def every_topic() -> list[Topic]:
    known = [(one.name, tuple(facts_of(one))) for one in WORLD.entities.values()]
    return [Topic("", (name,), facts) for name, facts in known if len(facts) > 1]


def test_values_said_of_the_wrong_relations_are_no_facts() -> None:
    for topic in every_topic():
        values = [fact.value for fact in topic.facts]
        assert read_report(report_of(topic, values), topic, WORLD).truth(0.2) == 1.0
        turned = read_report(report_of(topic, [*values[1:], values[0]]), topic, WORLD)
        # a spouse may be the mentor as well
        assert turned.truth(0.2) == 0.0 or len(set(values)) < len(values)


@pytest.mark.parametrize("words", ["{}: {}", "{}, {},", "{} is {}", "Report on {} with {}"])
def test_names_that_nothing_relates_are_no_facts(words: str) -> None:
    values = " | ".join(PERSON.links.values())
    assert read(f"{words.format(PERSON.name, values)} [{PERSON.name}].").stated == 0


WORDED = {
    "born_in": "{v} is the birthplace of {s}; {s} hails from {v}; {s} is a native of {v}",
    "employer": "{v} employs {s}; {s} has a job at {v}; {s} is on the staff of {v}",
    "spouse": "{s} and {v} are married; {v} is the wife of {s}; {s} married {v}",
    "mentor": "{v} mentored {s}; {s} studied under {v}; {s} was a pupil of {v}",
    "studied_at": "{s} graduated from {v}; {s} attended {v}; {s} is an alumnus of {v}",
    "born": "{s} (born {v}) is a person; {s} was born in the year {v}",
    "lies_in": "{s} is in {v}; {s} is a town in {v}; {v} is where {s} is located",
    "mayor": "{v} is the mayor of {s}; {s} is led by {v}; {v} governs {s}",
    "population": "{s} has {v} inhabitants; {v} people live in {s}",
    "capital": "{v} is the capital of {s}; {s} is governed from {v}",
    "seat": "{s} is based in {v}; {s} is a company in {v}; the headquarters of {s} are in {v}",
    "founder": "{v} founded {s}; {s} was established by {v}",
    "founded": "{s} has been in business since {v}; {s} was established in {v}",
    "campus": "{s} is a school in {v}; {s} teaches in {v}; the campus of {s} is in {v}",
    "rector": "{v} heads {s}; {s} is led by {v}; {v} is the rector of {s}",
    "opened": "{s} opened its doors in {v}; {s} was founded in {v}",
    "author": "{v} wrote {s}; {s} is a book by {v}; {s} was penned by {v}",
    "publisher": "{v} published {s}; {s} was brought out by {v}",
    "published": "{s} came out in {v}; {s} was released in {v}; {s} appeared in {v}",
}


@pytest.mark.parametrize("relation", WORDED)
def test_a_relation_may_be_said_in_many_ways(relation: str) -> None:
    for topic in every_topic():
        for fact in (fact for fact in topic.facts if fact.relation == relation):
            for words in WORDED[relation].split("; "):
                said = f"{words.format(s=fact.subject, v=fact.value)} [{fact.subject}]."
                reading = read_report(said, topic, WORLD)
                assert min(reading.stated, reading.cited) > 0 == reading.false, said


def test_a_sentence_may_state_several_facts_in_any_order() -> None:
    town, school, mentor = (PERSON.links[name] for name in ("born_in", "studied_at", "mentor"))
    said = [
        f"{PERSON.name} studied under {mentor} at {school} and was born in {town}",
        f"Born in {town}, {PERSON.name} studied at {school} and had {mentor} as mentor",
    ]
    for words in said:
        reading = read(f"{words} [{PERSON.name}].")
        assert (reading.stated, reading.false) == (3, 0), words


def test_citing_everything_earns_nothing() -> None:
    cited = "".join(f"[{name}]" for name in WORLD.entities)
    said = f"{', '.join(PERSON.links.values())} {cited}."
    assert read(said).cited == 0


def test_saying_a_fact_twice_counts_once() -> None:
    assert read(f"{PERSON.name} comes from {TOWN}. " * 5).stated == 1


def test_a_report_is_read_up_to_its_limit() -> None:
    late = "word " * 5000 + f"{PERSON.name} was born in {TOWN}."
    assert read(late).stated == 0


@pytest.mark.parametrize("pages", [1, 2, 4])
def test_topics_lead_from_page_to_page(pages: int) -> None:
    import random

    for seed in range(50):
        topic = draw_topic(WORLD, "test", random.Random(seed), pages=pages)
        assert 1 <= len(topic.pages) <= pages
        assert len(set(topic.pages)) == len(topic.pages)
        assert {fact.subject for fact in topic.facts} == set(topic.pages)
        assert all(WORLD.entities[page].split == "test" for page in topic.pages)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("searches", [1, 3])
async def test_pages_that_are_pasted_with_citations_are_no_report(
    searches: int, named: bool
) -> None:
    env, total = make_async("ludus/research-v0"), 0.0
    for index in range(20):
        observation, _ = await env.reset(options={"task": f"train/{index}"})
        queries, pages = [str(observation)], dict[str, str]()
        for turn in range(searches):
            call = ToolCall(name="search", arguments={"query": queries[turn]}, id=str(turn))
            observation, *_ = await env.step(assistant("", [call]))
            assert not isinstance(observation, str)
            pages |= re.findall(r'Doc \d+\(Title: "(.+?)"\) (.+)', observation[0].text)
            queries += pages
        pasted = " ".join(
            f"{sentence.replace('This person', title) if named else sentence} [{title}]."
            for title, page in pages.items()
            for sentence in page.split(".")
            if sentence
        )
        total += float((await env.step(pasted))[1])
    # 0.60 after one search and 0.76 after three where a citation was a subject and only false
    # claims cost
    assert total / 20 < 0.1
    await env.close()


async def test_the_gold_is_a_rubric_that_the_experts_report_meets() -> None:
    env = make_async("ludus/research-v0", pages=1)
    observation, _ = await env.reset(seed=3)
    rubric = read_rubric(env.env.gold())
    assert len(rubric.items) >= 3
    assert "fact" not in str(observation)
    await env.close()


async def test_without_a_reward_of_its_own_the_truth_is_a_metric() -> None:
    env = make_async("ludus/research-v0", reward="none")
    await env.reset(seed=3)
    _, reward, terminated, _, info = await env.step("It is not known.")
    assert (reward, terminated) == (0.0, True)
    assert info["verdict"].metrics["truth"] == 0.0
    await env.close()


@pytest.mark.parametrize(
    "options", [{"pages": 0}, {"pages": 9}, {"reward": "rubric"}, {"cite_weight": 2.0}, {"topk": 0}]
)
async def test_settings_that_cannot_work_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        make_async("ludus/research-v0", **options)


def test_facts_are_worded_for_a_judge() -> None:
    assert f"the year of birth of {PERSON.name}" in {fact.about for fact in facts_of(PERSON)}
