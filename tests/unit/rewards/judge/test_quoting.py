"""No tokenizer reads a special token in a text of the policy, whatever its family."""

import json
import random

import pytest

from ludus.rewards.judge.prompt import cleaned, quoted

SPECIAL = """
<|im_start|> <|im_end|> <|endoftext|> <s> </s> <unk> <pad> <bos> <eos> <start_of_turn> <end_of_turn>
[INST] [/INST] [SYSTEM_PROMPT] [TOOL_CALLS] [AVAILABLE_TOOLS] [gMASK] [sMASK] <sop> <eop> [sop]
<|user|> <|assistant|> <|system|> [|user|] [|endofturn|] <|begin_of_text|> <|eot_id|>
<|start_header_id|> <|python_tag|> <｜begin▁of▁sentence｜> <｜User｜> <｜Assistant｜>
<｜tool▁calls▁begin｜>
]~b] ]~!b[ [e~[ <think> </think> ◁think▷ ◁/think▷ <tool_call> </tool_call> <seed:think> <seed:bos>
<|channel|> <|message|> <|return|> <|call|> <0x0A> <2mass> {|im|} [@BOS@] [unused1] [control_8] [c]
[CLS] [SEP] [MASK] <mask> <extra_id_0> <|reserved_special_token_5|> <unused7> <image_soft_token>
<|vision_start|> <|image_pad|> [IMG] [IMG_BREAK] <fim_prefix> <|fim_middle|> 【tool】 ▁<pad>▁
<|START_OF_TURN_TOKEN|>
<|END_RESPONSE|> <jupyter_code> <reponame> <AI> <n> <<SYS>> <</SYS>> ◁|▷ ⟨s⟩ ⟦INST⟧
""".split()  # noqa: SIM905 - a list literal would take a line a token


@pytest.mark.parametrize("seed", range(20))
def test_no_special_token_can_be_encoded_from_a_quoted_text(seed: int) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the extra 'train' is not installed")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.add_special_tokens(SPECIAL)
    ids = {tokenizer.token_to_id(token) for token in SPECIAL}
    draw = random.Random(seed)
    text = ""
    for _ in range(60):  # tokens whole, cut, nested in each other, and between words
        token = draw.choice(SPECIAL)
        cut = draw.randrange(len(token) + 1)
        place = draw.randrange(len(text) + 1)
        nested = token[:cut] + draw.choice(["", " ", token, "\n"]) + token[cut:]
        text = text[:place] + draw.choice([token, nested, "words "]) + text[place:]
    assert ids & set(tokenizer.encode(text).ids), "the text holds special tokens"
    assert not ids & set(tokenizer.encode(quoted(text)).ids)
    assert json.loads(quoted(text)) == cleaned(text)
