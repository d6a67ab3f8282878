"""Fictional worlds: what their generator promises."""

from collections import Counter

import pytest

from ludus.envs.families.fiction import (
    MAX_PEOPLE,
    NUMBERS,
    OUTGOING,
    RELATIONS,
    EntityKind,
    Pages,
    build_world,
)
from ludus.errors import ConfigError


def test_the_same_seed_and_size_give_the_same_world() -> None:
    build_world.cache_clear()
    one = build_world(3, 60).entities
    build_world.cache_clear()
    assert build_world(3, 60).entities == one
    assert build_world(4, 60).entities != one


def test_no_relation_leads_out_of_its_realm() -> None:
    entities = build_world(0, 240).entities
    for entity in entities.values():
        assert all(entities[target].split == entity.split for target in entity.links.values())


def test_six_in_ten_people_are_in_the_realm_of_training() -> None:
    entities = build_world(0, 240).entities.values()
    people = Counter(one.split for one in entities if one.kind is EntityKind.PERSON)
    assert people == {"train": 144, "validation": 48, "test": 48}


def test_every_relation_leads_to_its_kind_and_all_but_spouses_are_there() -> None:
    entities = build_world(1, 120).entities
    for entity in entities.values():
        for relation in OUTGOING[entity.kind]:
            target = entity.links.get(relation.name)
            assert target != entity.name
            if target is None:
                assert relation.name == "spouse"
            else:
                assert entities[target].kind is relation.target


def test_spouses_are_married_to_each_other_and_capitals_lie_in_their_region() -> None:
    entities = build_world(2, 120).entities
    couples = [one for one in entities.values() if "spouse" in one.links]
    assert couples
    assert all(entities[one.links["spouse"]].links["spouse"] == one.name for one in couples)
    towns = {one.links["lies_in"] for one in entities.values() if one.kind is EntityKind.TOWN}
    for region in (one for one in entities.values() if one.kind is EntityKind.REGION):
        if region.name in towns:
            assert entities[region.links["capital"]].links["lies_in"] == region.name


def test_following_relations_goes_where_the_pages_say() -> None:
    world = build_world(0, 60)
    person = next(one for one in world.entities.values() if one.kind is EntityKind.PERSON)
    born, mayor = (next(r for r in RELATIONS if r.name == name) for name in ("born_in", "mayor"))
    town = person.links["born_in"]
    assert world.follow(person.name, [born, mayor]) == world.entities[town].links["mayor"]
    assert world.follow(town, [born]) is None


def test_a_page_says_every_fact_of_its_entity_and_is_always_the_same() -> None:
    world = build_world(0, 120)
    pages = Pages(world)
    for name, entity in world.entities.items():
        text = pages.text(name)
        assert text == Pages(world).text(name)
        assert all(target in text for target in entity.links.values())
        assert (entity.kind in NUMBERS) == (entity.number is not None)
        assert entity.number is None or str(entity.number) in text
        assert all(mentioned in text for mentioned in pages.mentioned(name))


def test_names_share_their_parts() -> None:
    entities = build_world(0, 240).entities.values()
    surnames = Counter(one.name.split()[-1] for one in entities if one.kind is EntityKind.PERSON)
    assert surnames.most_common(1)[0][1] >= 5
    towns = {one.name for one in entities if one.kind is EntityKind.TOWN}
    assert any(f"Old {name}" in towns for name in towns)


@pytest.mark.parametrize("people", [59, MAX_PEOPLE + 1])
def test_a_world_that_is_too_small_or_large_is_refused(people: int) -> None:
    with pytest.raises(ConfigError, match=f"got {people}"):
        build_world(0, people)
