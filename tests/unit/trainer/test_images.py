"""Images from messages to logits: tokens, pixels, positions, and the same numbers everywhere."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from ludus.agent import ChatFormat, Finish, Sampling, Segment, Turn
from ludus.agent.images import ImageRefused, PlacedImage
from ludus.agent.parsing import tool_format
from ludus.errors import ConfigError
from ludus.messages import (
    ImagePart,
    Message,
    Part,
    TextPart,
    ToolCall,
    assistant,
    system,
    tool_result,
    user,
)
from ludus.trainer.config import TrainerConfig
from ludus.trainer.engines.local import EngineLimits, LocalEngine
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.models.images import ImageReader, last_hidden, load_image_reader, reads_images
from ludus.trainer.models.loading import load_model, load_tokenizer
from ludus.trainer.models.tiny import write_tiny_policy, write_tiny_vision_policy
from ludus.trainer.recipes.recipe import VocabularySettings
from ludus.trainer.rollout.batch import as_row, pad


def picture(colour: str, width: int = 64, height: int = 64) -> ImagePart:
    file = io.BytesIO()
    image = Image.new("RGB", (width, height), colour)
    image.paste((10, 200, 30), (0, 0, width // 2, height // 3))  # not the same everywhere
    image.save(file, "PNG")
    return ImagePart(data=file.getvalue())


RED, BLUE, WIDE = picture("red"), picture("blue"), picture("orange", 128, 64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_vision_policy(tmp_path_factory.mktemp("policy"), hidden=48, heads=2)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return load_model(folder)


@pytest.fixture(scope="module")
def reader(folder: Path) -> ImageReader:
    found = load_image_reader(folder, load_tokenizer(folder))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def chat(folder: Path, reader: ImageReader) -> ChatFormat:
    return ChatFormat(load_tokenizer(folder), tool_format("hermes"), images=reader)


def asked(*parts: Part | str) -> list[Message]:
    every = [TextPart(part) if isinstance(part, str) else part for part in parts]
    return [system("Look."), user(every)]


def placed(chat: ChatFormat, messages: Sequence[Message]) -> tuple[list[int], list[PlacedImage]]:
    ids = chat.prompt(messages, [])
    return ids, chat.placed(ids, messages)


def transformers_logits(
    model: Any, reader: ImageReader, ids: list[int], shown: Sequence[ImagePart]
) -> torch.Tensor:
    """What transformers' own forward pass says, told by its processor's inputs alone."""
    rows = torch.tensor([ids])
    inputs: dict[str, Any] = {}
    if shown:
        pixels = [reader.pixels(one) for one in shown]
        inputs = {
            "pixel_values": torch.cat([one.values for one in pixels]),
            "image_grid_thw": torch.stack([one.grid for one in pixels]),
            "mm_token_type_ids": (rows == reader.token_id).int(),
        }
    with torch.no_grad():
        return model(input_ids=rows, use_cache=False, **inputs).logits[0].float()


def reference_logprobs(
    model: Any, reader: ImageReader, ids: list[int], shown: Sequence[ImagePart]
) -> list[float]:
    logits = transformers_logits(model, reader, ids, shown)
    every = torch.log_softmax(logits, -1)[:-1]
    return [0.0, *every.gather(1, torch.tensor(ids[1:]).unsqueeze(1)).squeeze(1).tolist()]


# --- tokens -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (64, 64, 4),  # 2 x 2 of 32 pixels
        (128, 64, 8),
        (96, 32, 3),
        (1, 1, 1),  # enlarged to one token
        (70, 50, 4),  # 70 / 32 = 2.19 -> 2, 50 / 32 = 1.56 -> 2
        (1024, 1024, 64),  # made smaller, to 256 x 256
    ],
)
def test_an_image_takes_a_token_for_32_by_32_pixels(
    chat: ChatFormat, reader: ImageReader, width: int, height: int, tokens: int
) -> None:
    image = picture("red", width, height)
    ids, images = placed(chat, asked("a", image, "b"))
    assert [one.tokens for one in images] == [tokens]
    assert ids.count(reader.token_id) == tokens
    assert set(ids[images[0].start : images[0].end]) == {reader.token_id}
    assert int(reader.pixels(image).grid.prod()) == 4 * tokens


def test_several_images_stand_in_order_and_text_spells_none(chat: ChatFormat) -> None:
    messages = asked("<|image_pad|> ", RED, " and <|vision_start|>", WIDE)
    _, images = placed(chat, messages)
    assert [(one.image, one.tokens) for one in images] == [(RED, 4), (WIDE, 8)]
    assert images[0].end < images[1].start
    # what the policy wrote itself shows no image either, however it is rendered again
    again = [*messages, assistant("I see <|image_pad|>"), user("and?")]
    _, rendered = placed(chat, again)
    assert [one.tokens for one in rendered] == [4, 8]


def test_an_image_in_a_later_turn_extends_the_ids(chat: ChatFormat) -> None:
    first = asked("look at ", RED)
    call = ToolCall(name="look", arguments={})
    for new in (
        [user([TextPart("and "), BLUE, WIDE])],
        [tool_result([TextPart("the page"), BLUE], call), tool_result([WIDE], call)],
    ):
        added = chat.extension(new, ended=True)
        assert added is not None
        whole = chat.prompt([*first, assistant("ok"), *new], [])
        assert whole[-len(added) :] == added
        assert [(one.image, one.tokens) for one in chat.placed(added, new)] == [
            (BLUE, 4),
            (WIDE, 8),
        ]


def test_a_template_that_loses_an_image_is_an_error(folder: Path, reader: ImageReader) -> None:
    tokenizer: Any = load_tokenizer(folder)
    tokenizer.chat_template = tokenizer.chat_template.replace("<|image_pad|>", "")
    chat = ChatFormat(tokenizer, tool_format("hermes"), images=reader)
    with pytest.raises(ConfigError, match=r"wrote 0 placeholders .* for 2 images .* of user"):
        chat.prompt(asked(RED, BLUE), [])


def test_a_model_without_a_vision_tower_refuses_images(tmp_path: Path) -> None:
    path = write_tiny_policy(tmp_path, hidden=16, heads=2)
    tokenizer = load_tokenizer(path)
    assert load_image_reader(path, tokenizer) is None
    chat = ChatFormat(tokenizer, tool_format("hermes"))
    with pytest.raises(ConfigError, match="shows 1 images to a model that reads none"):
        chat.prompt(asked("what is this?", RED), [])


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (ImagePart(data=b"no image"), "not an image of a format"),
        (ImagePart(data=RED.data[:80]), "cannot be decoded"),
        (ImagePart(url="https://example.com/cat.png"), "ludus fetches no URL"),
        (ImagePart(), "needs bytes or a URL, and has neither"),
        (picture("red", 6000, 4), "one side may be at most 100 times"),
    ],
)
def test_an_image_that_cannot_be_shown_is_refused(
    chat: ChatFormat, image: ImagePart, why: str
) -> None:
    with pytest.raises(ImageRefused, match=why):
        chat.prompt(asked(image), [])


def test_bytes_and_pixels_of_an_image_are_bounded(reader: ImageReader) -> None:
    small = ImageReader(reader.processor, "<|image_pad|>", 1, max_bytes=50, max_decoded=5000)
    with pytest.raises(ImageRefused, match="at most 50 are read"):
        small.tokens(RED)
    small = ImageReader(reader.processor, "<|image_pad|>", 1, max_decoded=4095)
    with pytest.raises(ImageRefused, match="64 x 64 pixels; at most 4095 are decoded"):
        small.tokens(RED)


def test_a_bound_on_pixels_makes_images_smaller(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    bounded = load_image_reader(folder, tokenizer, max_pixels=4 * 32 * 32)
    assert bounded is not None
    assert bounded.tokens(picture("red", 512, 512)) == 4
    with pytest.raises(ConfigError, match="a single token shows 1024 pixels"):
        load_image_reader(folder, tokenizer, max_pixels=1000)


def test_a_data_url_is_the_image_that_it_holds(reader: ImageReader) -> None:
    import base64

    url = ImagePart(url="data:image/png;base64," + base64.b64encode(WIDE.data).decode())
    assert reader.tokens(url) == 8
    assert torch.equal(reader.pixels(url).values, reader.pixels(WIDE).values)


# --- numbers ------------------------------------------------------------------

CONVERSATIONS = [
    asked("what is ", RED, "?"),
    asked(BLUE, WIDE, "which?"),
    [system("Look."), user("no picture")],
    [*asked(RED), assistant("red"), user([TextPart("and "), BLUE]), assistant("ok"), user("so?")],
]


def as_segment(chat: ChatFormat, messages: Sequence[Message], out: list[int]) -> Segment:
    ids, images = placed(chat, messages)
    turn = Turn(out_ids=out, logprobs=[0.0] * len(out), versions=[0] * len(out))
    return Segment(prompt_ids=ids, prompt_images=images, turns=[turn])


def test_the_learner_computes_what_transformers_computes(
    model: Any, chat: ChatFormat, reader: ImageReader
) -> None:
    learner = Learner(model, TrainerConfig(), ReadingOptions(images=reader))
    said = chat.answer(assistant("some answer"))
    segments = [as_segment(chat, one, said) for one in CONVERSATIONS]
    rows = [row for one in segments if (row := as_row(one)) is not None]
    scored = learner.score(pad(rows))
    for number, (segment, row) in enumerate(zip(segments, rows, strict=True)):
        shown = [one.image for one in segment.images()]
        expected = reference_logprobs(model, reader, row.ids, shown)
        start = len(segment.prompt_ids)
        got = scored[number, start : len(row.ids)].tolist()
        assert got == pytest.approx(expected[start:], abs=1e-4)


async def test_the_engine_samples_with_the_learner_s_log_probabilities(
    model: Any, chat: ChatFormat, reader: ImageReader, folder: Path
) -> None:
    engine = LocalEngine(load_model(folder), images=reader)
    prompts = [placed(chat, one) for one in CONVERSATIONS]
    said = await asyncio.gather(
        *(
            engine.generate(ids, Sampling(max_tokens=9, seed=seed), images=images)
            for seed, (ids, images) in enumerate(prompts)
        )
    )
    scored = await asyncio.gather(
        *(
            engine.logprobs([*ids, *one.ids], images=images)
            for (ids, images), one in zip(prompts, said, strict=True)
        )
    )
    await engine.close()
    rows = [
        as_row(
            Segment(
                prompt_ids=ids,
                prompt_images=images,
                turns=[Turn(out_ids=one.ids, logprobs=one.logprobs, versions=one.versions)],
            )
        )
        for (ids, images), one in zip(prompts, said, strict=True)
    ]
    learner = Learner(model, TrainerConfig(), ReadingOptions(images=reader))
    batch = pad([row for row in rows if row is not None])
    by_learner = learner.score(batch)
    for number, ((ids, images), one) in enumerate(zip(prompts, said, strict=True)):
        every = [*ids, *one.ids]
        learned = by_learner[number, len(ids) : len(every)].tolist()
        assert one.logprobs == pytest.approx(learned, abs=1e-4)
        expected = reference_logprobs(model, reader, every, [image.image for image in images])
        assert scored[number] == pytest.approx(expected, abs=1e-4)


async def test_a_masking_policy_sees_the_images_too(
    model: Any, chat: ChatFormat, reader: ImageReader, folder: Path
) -> None:
    mask = VocabularySettings(top_p=0.5, every=1)
    reading = ReadingOptions(images=reader, vocabulary=mask)
    learner = Learner(load_model(folder), TrainerConfig(), reading)
    engine = LocalEngine(load_model(folder), images=reader, mask=learner.mask)
    rows = []
    for seed, messages in enumerate(CONVERSATIONS):
        ids, images = placed(chat, messages)
        said = await engine.generate(ids, Sampling(max_tokens=9, seed=seed), images=images)
        turn = Turn(out_ids=said.ids, logprobs=said.logprobs, versions=said.versions)
        rows.append(as_row(Segment(prompt_ids=ids, prompt_images=images, turns=[turn])))
    await engine.close()
    batch = pad([row for row in rows if row is not None])
    got, whole = learner.score(batch), Learner(model, TrainerConfig(), reading).score(batch)
    assert torch.allclose(got, batch.sampler_logp * batch.mask, atol=1e-4)
    unmasked = Learner(model, TrainerConfig(), ReadingOptions(images=reader)).score(batch)
    assert bool((whole >= unmasked - 1e-5).all())
    assert not torch.allclose(whole, unmasked, atol=0.1)


async def test_greedy_answers_are_those_of_transformers_generate(
    model: Any, chat: ChatFormat, reader: ImageReader, folder: Path
) -> None:
    engine = LocalEngine(load_model(folder), images=reader)
    for messages in CONVERSATIONS:
        ids, images = placed(chat, messages)
        greedy = Sampling(max_tokens=6, temperature=0)
        said = await engine.generate(ids, greedy, images=images)
        expected = list(ids)
        for _ in range(6):
            logits = transformers_logits(model, reader, expected, [one.image for one in images])
            expected.append(int(logits[-1].argmax()))
        assert said.ids == expected[len(ids) :]
    await engine.close()


@pytest.mark.parametrize("tokens", [1, 3, 8, 30])
async def test_prompts_with_images_may_be_computed_in_parts(
    chat: ChatFormat, reader: ImageReader, folder: Path, tokens: int
) -> None:
    whole = LocalEngine(load_model(folder), images=reader)
    parts = LocalEngine(load_model(folder), EngineLimits(prefill_tokens=tokens), images=reader)
    for messages in CONVERSATIONS:
        ids, images = placed(chat, messages)
        expected = await whole.generate(ids, Sampling(max_tokens=5), images=images)
        got = await parts.generate(ids, Sampling(max_tokens=5), images=images)
        assert got.ids == expected.ids
        assert got.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
    await whole.close()
    await parts.close()


async def test_the_next_turn_computes_only_new_ids_and_sees_new_images(
    chat: ChatFormat, reader: ImageReader, folder: Path
) -> None:
    engine = LocalEngine(load_model(folder), images=reader)
    ids, images = placed(chat, asked("first ", RED))
    said = await engine.generate(ids, Sampling(max_tokens=5, seed=3), images=images)
    new = [user([TextPart("then "), BLUE, TextPart(" and again "), RED])]
    added = chat.extension(new, ended=False)
    assert added is not None
    row = [*ids, *said.ids]
    shown = [*images, *(one.moved(len(row)) for one in chat.placed(added, new))]
    computed = engine.computed_prompt_tokens
    again = await engine.generate([*row, *added], Sampling(max_tokens=5, seed=4), images=shown)
    assert engine.computed_prompt_tokens - computed == len(added) + 1  # the last was never fed
    fresh = LocalEngine(load_model(folder), images=reader)
    expected = await fresh.generate([*row, *added], Sampling(max_tokens=5, seed=4), images=shown)
    assert again.ids == expected.ids
    assert again.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
    await engine.close()
    await fresh.close()


async def test_equal_ids_with_other_images_share_nothing(
    chat: ChatFormat, reader: ImageReader, folder: Path
) -> None:
    engine = LocalEngine(load_model(folder), images=reader)
    (ids, red), (same, blue) = placed(chat, asked(RED)), placed(chat, asked(BLUE))
    assert ids == same
    greedy = Sampling(max_tokens=4, temperature=0)
    together = await asyncio.gather(
        *(engine.generate(ids, greedy, images=one) for one in (red, blue, red))
    )
    later = await engine.generate(ids, greedy, images=blue)
    await engine.close()
    assert together[0].logprobs == pytest.approx(together[2].logprobs, abs=1e-5)
    assert together[0].logprobs != pytest.approx(together[1].logprobs, abs=1e-3)
    assert later.logprobs == pytest.approx(together[1].logprobs, abs=1e-4)


async def test_a_sampled_placeholder_shows_nothing(
    model: Any, chat: ChatFormat, reader: ImageReader, folder: Path
) -> None:
    # transformers' own forward would take the stray token for an image and fail
    ids, images = placed(chat, asked("look ", RED))
    row = [*ids, 40, reader.token_id, reader.token_id, 41]
    engine = LocalEngine(load_model(folder), images=reader)
    scored = await engine.logprobs(row, images=images)
    more = await engine.generate(row, Sampling(max_tokens=4, temperature=0), images=images)
    await engine.close()
    turn = Turn(out_ids=[*row[len(ids) :], *more.ids])
    made = as_row(Segment(prompt_ids=ids, prompt_images=images, turns=[turn]))
    assert made is not None
    learned = Learner(model, TrainerConfig(), ReadingOptions(images=reader)).score(pad([made]))[0]
    assert learned[len(ids) : len(row)].tolist() == pytest.approx(scored[len(ids) :], abs=1e-4)
    assert learned[len(row) :].tolist() == pytest.approx(more.logprobs, abs=1e-4)
    # the ids before are what they are without the stray ones
    before = reference_logprobs(model, reader, row[: len(ids) + 1], [RED])
    assert scored[: len(ids) + 1] == pytest.approx(before, abs=1e-4)


async def test_an_image_must_stand_on_its_placeholders(
    chat: ChatFormat, reader: ImageReader, folder: Path
) -> None:
    engine = LocalEngine(load_model(folder), images=reader)
    ids, images = placed(chat, asked("look ", RED))
    one = images[0]
    wrong = [
        [one.moved(1)],
        [one.moved(len(ids))],
        [one, one],
        [PlacedImage(RED, one.start, one.tokens + 1)],
    ]
    for shown in wrong:
        with pytest.raises(ConfigError, match="must hold its placeholder"):
            await engine.generate(ids, Sampling(max_tokens=1), images=shown)
    blind = LocalEngine(load_model(folder))
    with pytest.raises(ConfigError, match="reads none"):
        await blind.generate(ids, Sampling(max_tokens=1), images=images)
    # an image of another size was placed: found where the pixels are read
    with pytest.raises(ImageRefused, match="placed as 4 tokens and has 8 features"):
        await engine.generate(
            ids, Sampling(max_tokens=1), images=[PlacedImage(WIDE, one.start, one.tokens)]
        )
    said = await engine.generate(ids, Sampling(max_tokens=2), images=images)
    assert len(said.ids) == 2
    assert said.finish in (Finish.LENGTH, Finish.STOP)
    await engine.close()
    await blind.close()


def test_how_rows_are_split_into_passes_changes_no_gradient(
    folder: Path, chat: ChatFormat, reader: ImageReader
) -> None:
    from ludus.trainer.sft import negative_log_likelihood

    said = chat.answer(assistant("an answer"))
    rows = [as_row(as_segment(chat, one, said)) for one in [*CONVERSATIONS, CONVERSATIONS[0]]]
    batch = pad([row for row in rows if row is not None])
    weights: list[dict[str, torch.Tensor]] = []
    for tokens in (10_000, 1):
        model = load_model(folder)
        config = TrainerConfig(lr=1e-2, tokens_per_pass=tokens)
        Learner(model, config, ReadingOptions(images=reader)).update(
            batch, torch.arange(len(batch)), negative_log_likelihood
        )
        weights.append({name: one.detach() for name, one in model.named_parameters()})
    moved = load_model(folder).state_dict()
    for name, one in weights[0].items():
        assert torch.allclose(one, weights[1][name], atol=2e-3), name
    vision = [name for name in weights[0] if "visual" in name and "merger" in name]
    assert any(not torch.equal(weights[0][name], moved[name]) for name in vision)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
def test_other_qwen_families_are_computed_as_transformers_does(
    chat: ChatFormat, reader: ImageReader, family: str
) -> None:
    from transformers import AutoConfig, AutoModelForImageTextToText

    text: dict[str, Any] = {
        "vocab_size": 320, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 4, 4]},
    }  # fmt: skip
    vision: dict[str, Any] = {
        "depth": 2,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    if family == "qwen2_vl":
        vision |= {"embed_dim": 32, "hidden_size": 48, "num_heads": 2, "mlp_ratio": 2}
    else:
        vision |= {"hidden_size": 32, "intermediate_size": 64, "num_heads": 2}
        vision |= {"out_hidden_size": 48, "window_size": 64, "fullatt_block_indexes": [1]}
    config = AutoConfig.for_model(
        family, text_config=text, vision_config=vision, image_token_id=reader.token_id
    )
    assert reads_images(config)
    torch.manual_seed(0)
    model: Any = AutoModelForImageTextToText.from_config(config).eval()
    for messages in CONVERSATIONS:
        ids, images = placed(chat, messages)
        with torch.no_grad():
            hidden = last_hidden(model, torch.tensor([ids]), [images], reader)
            got = model.lm_head(hidden)[0]
        expected = transformers_logits(model, reader, ids, [one.image for one in images])
        assert torch.allclose(got, expected, atol=1e-5)
