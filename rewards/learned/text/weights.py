"""Finds folders of weights, and names weights and templates by digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ludus.user_paths import user_path

from ..missing import MissingWeights

WEIGHTS = ("*.safetensors", "*.bin", "*.pt")


def model_folder(model: str, *, verifier: str) -> Path:
    """Return the folder of a model, after a check that config.json and weights are present.

    Args:
        model: a folder that transformers wrote, with config.json, weights and a tokenizer.
        verifier: name of the verifier, for the message.

    Raises:
        MissingWeights: no folder was named, or the folder lacks config.json or weights; the message
            says where to get weights.
    """
    if not model:
        raise MissingWeights(
            f"{verifier} needs weights: {verifier}?model=FOLDER. ludus ships none; "
            "'hf download OWNER/NAME --local-dir FOLDER' gets those of a model hub, and "
            "save_pretrained() writes your own"
        )
    folder = user_path(model)
    if not (folder / "config.json").is_file():
        raise MissingWeights(
            f"{verifier}: {model!r} is not a folder of a transformers model: no config.json; "
            f"'hf download OWNER/NAME --local-dir {model}' gets one. Nothing is downloaded unasked"
        )
    if not weight_files(folder):
        raise MissingWeights(
            f"{verifier}: {model!r} has a config.json and no weights ({', '.join(WEIGHTS)}); "
            f"'hf download OWNER/NAME --local-dir {model}' gets those that are missing"
        )
    return folder


def weight_files(folder: Path) -> list[Path]:
    """Return the files of weights in `folder`, by name; of several formats only the safest."""
    for pattern in WEIGHTS:
        if files := sorted(folder.glob(pattern)):
            return files
    return []


def weights_digest(folder: Path) -> str:
    """Return the SHA-256 of a model's weights, in hexadecimal. A single file gives the digest of
    the bytes (as `sha256sum` prints); several give the digest of the lines "digest  name" in order
    of names.
    """
    digests: dict[str, str] = {}
    for path in weight_files(folder):
        with path.open("rb") as file:
            digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    if len(digests) == 1:
        return next(iter(digests.values()))
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def text_digest(text: str) -> str:
    """Return the first 16 hexadecimal digits of a text's SHA-256, which name a chat template."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
