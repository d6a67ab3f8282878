"""Images of every kind that arrives: decoded, or refused with the reason, within bounds."""

from __future__ import annotations

import base64
import io
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ludus.errors import ConfigError, RewardUnavailable
from ludus.messages import ImagePart, TextPart, assistant, user
from ludus.rewards import Sample, Status
from ludus.rewards.learned.images.pixels import BadImage, ImageLimits, decode_image
from ludus.rewards.learned.images.reading import BadPrompt, image_of, prompt_of, read_image
from ludus.rewards.learned.images.verifier import ImageVerifier, PreparedImage

LIMITS = ImageLimits()


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def plain(size: tuple[int, int] = (40, 30), mode: str = "RGB") -> Image.Image:
    return Image.new(mode, size, "red" if mode == "RGB" else 0)


def png_that_claims(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG of a few bytes whose header tells any size."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )


def test_the_usual_formats_are_decoded() -> None:
    for format in ("PNG", "JPEG", "WEBP", "GIF", "BMP"):
        assert decode_image(encoded(plain(), format)).size == (40, 30)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the image is empty"),
        (b"hello, I am text", "not an image of a format that is read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image of a format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image of a format"),
        (encoded(plain())[:60], "cannot be decoded"),
        (encoded(plain((400, 300)), "JPEG")[:900], "cannot be decoded"),
        (encoded(plain((90, 90)), "GIF")[:40], "cannot be decoded"),
        (png_that_claims(20_000, 20_000), "too many pixels|400000000|20000 x 20000"),
        (png_that_claims(2**31 - 1, 2**31 - 1), "too many pixels|cannot be decoded"),
        (png_that_claims(0, 10), "not an image|cannot be decoded"),
        (png_that_claims(20_000, 1), "at most 100 times"),
        (png_that_claims(7_000, 7_500), "52500000|7000 x 7500"),
    ],
)
def test_what_is_no_usable_image_is_refused_with_the_reason(data: bytes, words: str) -> None:
    with pytest.raises(BadImage, match=words):
        decode_image(data)


def test_a_bomb_is_refused_before_it_is_inflated() -> None:
    # 100 MB of zeros in 100 kB: the header alone decides
    bomb = png_that_claims(10_000, 10_000, b"\0" * 100_010_000)
    assert len(bomb) < 200_000
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadImage, match=r"at most 50000000 are decoded|too many pixels"):
        decode_image(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


def test_more_data_than_pixels_is_no_more_pixels() -> None:
    bomb = png_that_claims(10, 10, b"\0" * 50_000_000)
    assert decode_image(bomb).size == (10, 10)


def test_a_text_chunk_that_is_a_bomb_is_refused() -> None:
    from PIL import PngImagePlugin

    text = PngImagePlugin.PngInfo()
    text.add_text("comment", "x" * 80_000_000, zip=True)
    with pytest.raises(BadImage):
        decode_image(encoded(plain(), pnginfo=text))


def test_more_bytes_than_allowed_are_refused() -> None:
    with pytest.raises(BadImage, match="at most 10 are read"):
        decode_image(encoded(plain()), ImageLimits(max_bytes=10))


def test_bounds_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be positive"):
        ImageLimits(max_pixels=0)


def test_one_pixel_is_an_image() -> None:
    assert decode_image(encoded(plain((1, 1)))).size == (1, 1)


def test_cmyk_and_palettes_keep_their_modes() -> None:
    assert decode_image(encoded(plain(mode="CMYK"), "JPEG")).mode == "CMYK"
    palette = plain().quantize(4)
    kept = decode_image(encoded(palette, transparency=0))
    assert kept.mode == "P"
    assert "transparency" in kept.info


def test_sixteen_bits_become_the_upper_eight() -> None:
    values = np.array([[0, 255, 256, 32768, 65535]], dtype=np.uint16)
    decoded = decode_image(encoded(Image.fromarray(values)))
    assert decoded.mode == "L"
    assert np.asarray(decoded).tolist() == [[0, 0, 1, 128, 255]]


def test_the_first_frame_of_an_animation_is_taken() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode_image(data).convert("RGB").getpixel((4, 4)) == (255, 0, 0)


def test_exif_turns_an_image_only_where_that_is_asked_for() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    data = encoded(plain((40, 30)), "JPEG", exif=exif)
    assert decode_image(data).size == (40, 30)
    assert decode_image(data, upright=True).size == (30, 40)


# --- where an image comes from ------------------------------------------------------------------


def test_bytes_and_data_urls_are_read() -> None:
    data = encoded(plain())
    written = base64.b64encode(data).decode()
    assert read_image(ImagePart(data=data), LIMITS) == data
    assert read_image(ImagePart(url=f"data:image/png;base64,{written}"), LIMITS) == data


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/a.png",
        "https://example.org/a.png",
        "HTTP://example.org/a.png",
        "ftp://example.org/a.png",
        "/etc/passwd",
        "a.png",
        "",
        "data:image/png;base64",
        "data:image/png;base64,@@@@",
    ],
)
def test_no_url_is_fetched(url: str, tmp_path: Path) -> None:
    with pytest.raises(BadImage, match=r"fetches no URL|holds no data|not base64|has neither"):
        read_image(ImagePart(url=url), LIMITS, root=str(tmp_path))


def test_bytes_and_a_url_together_are_refused() -> None:
    with pytest.raises(BadImage, match="not both"):
        read_image(ImagePart(data=b"x", url="file:a.png"), LIMITS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "a b.png").write_bytes(b"inside")
    (tmp_path / "outside.png").write_bytes(b"outside")
    (tmp_path / "root-too").mkdir()
    (tmp_path / "root-too" / "a.png").write_bytes(b"outside")
    (root / "link.png").symlink_to(tmp_path / "outside.png")
    (root / "folder").symlink_to(tmp_path)
    (root / "good.png").symlink_to(root / "inner" / "a b.png")
    (root / "loop").symlink_to(root / "loop")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize(
    "path", ["inner/a b.png", "inner/a%20b.png", "./good.png", "{root}/good.png"]
)
def test_a_path_below_the_root_is_read(root: Path, path: str) -> None:
    for start in ("file:", "FILE:"):
        part = ImagePart(url=start + path.format(root=root))
        assert read_image(part, LIMITS, root=str(root)) == b"inside"
    if path.startswith("{root}"):
        url = "file://" + path.format(root=root)
        assert read_image(ImagePart(url=url), LIMITS, root=str(root)) == b"inside"


@pytest.mark.parametrize(
    "path",
    [
        "../outside.png",
        "inner/../../outside.png",
        "%2e%2e/outside.png",
        "link.png",
        "folder/outside.png",
        "{root}/../outside.png",
        "{root}-too/a.png",
        "/etc/hostname",
        "//etc/hostname",
        "loop",
        "pipe",
        "inner",
        "missing.png",
        "a%00b.png",
        "",
        "//example.org/share/a.png",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(root: Path, path: str) -> None:
    with pytest.raises(BadImage):
        read_image(ImagePart(url="file:" + path.format(root=root)), LIMITS, root=str(root))


def test_no_path_is_read_where_no_root_is_allowed() -> None:
    with pytest.raises(BadImage, match="without image_root"):
        read_image(ImagePart(url="file:/etc/hostname"), LIMITS)


# --- the sample ---------------------------------------------------------------------------------


def test_the_image_may_be_in_the_response() -> None:
    part = ImagePart(data=b"x")
    said = msg_with(part)
    assert image_of(Sample(response=[user("draw"), said])) == part
    assert image_of(Sample(response="", images=[part])) == part


def msg_with(*parts: ImagePart) -> Any:
    import msgspec

    return msgspec.structs.replace(assistant(), content=[TextPart("here"), *parts])


@pytest.mark.parametrize("number", [0, 2])
def test_a_sample_has_exactly_one_image(number: int) -> None:
    images = [ImagePart(data=b"x")] * number
    with pytest.raises(BadImage, match=f"exactly one image, got {number}"):
        image_of(Sample(response="", images=images))


def test_the_prompt_is_text_of_some_length() -> None:
    assert prompt_of(Sample(response="", prompt=[user("a"), user("b"), assistant("c")])) == "b"
    assert prompt_of(Sample(response=""), needed=False) == ""
    assert len(prompt_of(Sample(response="", prompt="word " * 10_000))) == 50_000
    not_text: Any = b"bytes"
    for prompt, words in [
        ("", "empty"),
        (" \n", "empty"),
        (not_text, "bytes"),
        ("x" * 100_001, "at"),
    ]:
        with pytest.raises(BadPrompt, match=words):
            prompt_of(Sample(response="", prompt=prompt))


class Blank(ImageVerifier):
    """Pays nothing; only its reading of samples is under test."""

    def score_images(self, images: Sequence[Any]) -> Sequence[float]:
        return [0.0] * len(images)


def test_a_verifier_without_score_images_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="score_images"):
        ImageVerifier()  # type: ignore[abstract] # pyright: ignore[reportAbstractUsage]


def test_a_sample_that_cannot_be_used_is_invalid_and_has_no_reward() -> None:
    verifier = Blank()
    good = verifier.prepare(
        Sample(response="", prompt="red", images=[ImagePart(data=encoded(plain()))])
    )
    assert isinstance(good, PreparedImage)
    with pytest.raises(RewardUnavailable) as caught:
        verifier.prepare(Sample(response="", prompt="red", images=[ImagePart(data=b"no image")]))
    assert caught.value.verdict.status is Status.INVALID
    assert caught.value.verdict.reward is None
