"""Folders of weights: found or refused with where to get them, and named by digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..missing import MissingWeights

WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
CHUNK = 1 << 22


def model_folder(model: str, *, verifier: str) -> Path:
    """The folder of a model.

    Args:
        model: a folder that transformers wrote, with config.json, weights and a tokenizer.
        verifier: who needs it, for the message.

    Raises:
        MissingWeights: there is none, or it holds no weights; the message says where to get them.
    """
    if not model:
        raise MissingWeights(
            f"{verifier} needs weights: {verifier}?model=FOLDER. ludus ships none; "
            "'hf download OWNER/NAME --local-dir FOLDER' gets those of a model hub, and "
            "save_pretrained() writes your own"
        )
    folder = Path(model).expanduser()
    if not (folder / "config.json").is_file():
        raise MissingWeights(
            f"{verifier}: {model!r} is no folder of a transformers model (it has no config.json); "
            f"'hf download OWNER/NAME --local-dir {model}' gets one. Nothing is downloaded unasked"
        )
    if not weight_files(folder):
        raise MissingWeights(
            f"{verifier}: {model!r} has a config.json and no weights ({', '.join(WEIGHTS)}); "
            f"'hf download OWNER/NAME --local-dir {model}' gets those that are missing"
        )
    return folder


def weight_files(folder: Path) -> list[Path]:
    """The files of weights in `folder`, by name; of several formats the safest one."""
    for pattern in WEIGHTS:
        if found := sorted(folder.glob(pattern)):
            return found
    return []


def weights_digest(folder: Path) -> str:
    """The SHA-256 of a model's weights: of one file that of its bytes (what `sha256sum` prints), of
    several that of the lines "digest  name" in order of names.
    """
    digests = {path.name: _sha256(path) for path in weight_files(folder)}
    if len(digests) == 1:
        return next(iter(digests.values()))
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def text_digest(text: str) -> str:
    """The first 16 hexadecimal digits of a text's SHA-256: names a chat template on a card."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
