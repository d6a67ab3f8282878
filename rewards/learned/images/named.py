"""The image scorers that ludus ships, as verifiers: `ludus serve image-reward clip-score`.

A model stays in the memory of one worker process. Weights are read on the CPU in the template that
the process is forked from, so that a process that had to be killed is replaced at once. They move
to a GPU in the worker process (decision 0310).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar, Final, TypedDict, Unpack

import torch

from ludus.errors import ConfigError

from ..batching import MAX_BATCH, MAX_WAIT_MS
from ..devices import chosen_device
from .clip import Aesthetic, ClipScore, ClipScorer, HpsV2, PickScore
from .image_reward import ImageReward
from .pixels import Image, ImageLimits
from .scorer import ImageScorer, ModelInput
from .verifier import ImageVerifier
from .weights import Wanted, find_weights

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class ModelOptions(TypedDict, total=False):
    """Options of every verifier of this module."""

    device: str
    """"auto" (the default) takes a GPU where there is one; or "cpu", "cuda", "cuda:1"."""
    dtype: str
    """The type the encoders compute in: "float32" (the default), "bfloat16" or "float16"."""
    threads: int
    """Threads of a batch on a CPU; 0 (the default) takes one for each core that may be used."""
    any_size: bool
    """Whether weights of other sizes than the released model's are taken; by default they are not.
    """
    image_root: str
    """See `ImageVerifier`, as for the options below."""
    max_pixels: int
    upright: bool
    max_batch: int
    max_wait_ms: float


class ModelVerifier(ImageVerifier):
    """A verifier that scores images with a model.

    Args:
        scorer: the model, on the CPU.
        name: name of the verifier, for messages.
        options: see `ModelOptions`.

    Raises:
        ConfigError: an option is unknown, or its value cannot work.
    """

    def __init__(self, scorer: ImageScorer, name: str, options: ModelOptions) -> None:
        super().__init__(
            image_root=options.get("image_root", ""),
            max_pixels=options.get("max_pixels", ImageLimits().max_pixels),
            upright=options.get("upright", False),
            max_batch=options.get("max_batch", MAX_BATCH),
            max_wait_ms=options.get("max_wait_ms", MAX_WAIT_MS),
        )
        dtype = options.get("dtype", "float32")
        if dtype not in DTYPES:
            raise ConfigError(f"{name}: dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
        self.name = name
        self.scorer = scorer.to(DTYPES[dtype])
        self.needs_prompt = scorer.reads_text
        # torch's usual check for a GPU initialises CUDA, after which forked processes could not use
        # the GPU. With this variable torch asks the driver's library instead.
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        self.device = chosen_device(options.get("device", "auto"), option=f"{name}: device")
        threads = options.get("threads", 0)
        if threads < 0:
            raise ConfigError(f"{name}: threads must be at least 0, got {threads}")
        self.threads = threads or len(os.sched_getaffinity(0))

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the weights take."""
        return self.scorer.memory_bytes

    def start(self) -> None:
        """Move the model to the chosen device, in the process that computes."""
        if self.device == "cpu":
            torch.set_num_threads(self.threads)
        self.scorer = self.scorer.to(self.device)

    def prepare_image(self, image: Image.Image, prompt: str) -> ModelInput:
        """Preprocess an image and a prompt into the model's pixels and tokens."""
        return self.scorer.prepare(image, prompt)

    def score_images(self, images: Sequence[ModelInput]) -> list[float]:
        """Return the model's reward of each image of a batch, in order."""
        return self.scorer.score_inputs(images)

    def card(self) -> dict[str, Any]:
        """Return the model's card, with the device and the memory."""
        return {
            **self.scorer.card(),
            "device": self.device,
            "memory_bytes": self.memory_bytes,
            "upright": self.upright,
        }


class ImageRewardVerifier(ModelVerifier):
    """ImageReward: how much people would prefer an image for a prompt, about -2 to 2.

    Args:
        checkpoint: the original `ImageReward.pt`; "" looks in the folder of models.
        vocab: `vocab.txt` of bert-base-uncased.
        options: see `ModelOptions`.

    Raises:
        MissingWeights: a file is missing; the message says where to get it.
        WrongCheckpoint: the file holds something else.
    """

    def __init__(
        self, *, checkpoint: str = "", vocab: str = "", **options: Unpack[ModelOptions]
    ) -> None:
        _refuse_unknown("image-reward", options)
        name = "image-reward"
        weights = find_weights(
            name,
            checkpoint,
            Wanted(
                "checkpoint", ("ImageReward.pt",), "ImageReward.pt of hf.co/zai-org/ImageReward"
            ),
        )
        words = find_weights(
            name, vocab, Wanted("vocab", ("vocab.txt",), "vocab.txt of hf.co/bert-base-uncased")
        )
        model = ImageReward.load(weights, words, any_size=options.get("any_size", False))
        super().__init__(model, name, options)


class ClipVerifier(ModelVerifier):
    """A verifier whose scores come from a CLIP model.

    Args:
        checkpoint: a folder of Hugging Face, or a file in the format of OpenAI or open_clip; ""
            looks in the folder of models.
        tokenizer: a folder with CLIP's tokenizer; "" takes the checkpoint's.
        options: see `ModelOptions`.

    Raises:
        MissingWeights: a file is missing; the message says where to get it.
        WrongCheckpoint: the file holds something else.
    """

    model: ClassVar[type[ClipScorer]]
    """The scorer that reads the weights."""
    called: ClassVar[str]
    """The name of the verifier."""
    wanted: ClassVar[Wanted]
    """The files of the weights, and where to get them."""

    def __init__(
        self, *, checkpoint: str = "", tokenizer: str = "", **options: Unpack[ModelOptions]
    ) -> None:
        _refuse_unknown(self.called, options)
        path = find_weights(self.called, checkpoint, self.wanted)
        scorer = self.model.load(path, tokenizer, any_size=options.get("any_size", False))
        super().__init__(scorer, self.called, options)


class ClipScoreVerifier(ClipVerifier):
    """CLIPScore: the cosine of image and prompt under CLIP, or with `scaled` 2.5 max(cosine, 0)."""

    model = ClipScore
    called = "clip-score"
    wanted = Wanted(
        "checkpoint",
        ("clip-vit-large-patch14", "ViT-L-14.pt", "clip-vit-base-patch32", "ViT-B-32.pt"),
        "the files of hf.co/openai/clip-vit-large-patch14",
    )

    def __init__(
        self,
        *,
        checkpoint: str = "",
        tokenizer: str = "",
        scaled: bool = False,
        **options: Unpack[ModelOptions],
    ) -> None:
        super().__init__(checkpoint=checkpoint, tokenizer=tokenizer, **options)
        assert isinstance(self.scorer, ClipScore)
        self.scorer.scaled = scaled

    def card(self) -> dict[str, Any]:
        """Return the model's card, with the device and the formula."""
        scaled = isinstance(self.scorer, ClipScore) and self.scorer.scaled
        return {**super().card(), "formula": "2.5 max(cosine, 0)" if scaled else "cosine"}


class PickScoreVerifier(ClipVerifier):
    """PickScore: preference of people for an image, by a CLIP ViT-H/14 trained on Pick-a-Pic."""

    model = PickScore
    called = "pick-score"
    wanted = Wanted(
        "checkpoint",
        ("PickScore_v1",),
        "the files of hf.co/yuvalkirstain/PickScore_v1 and the tokenizer of "
        "hf.co/laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
    )


class HpsV2Verifier(ClipVerifier):
    """HPSv2 or HPSv2.1: preference of people for an image, by a CLIP ViT-H/14."""

    model = HpsV2
    called = "hps-v2"
    wanted = Wanted(
        "checkpoint",
        ("HPS_v2.1_compressed.pt", "HPS_v2_compressed.pt"),
        "HPS_v2.1_compressed.pt of hf.co/xswu/HPSv2 and the tokenizer of "
        "hf.co/laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
    )


class AestheticVerifier(ModelVerifier):
    """LAION's aesthetic predictor, version 2: how an image looks, from 1 to 10; reads no prompt.

    Args:
        checkpoint: CLIP ViT-L/14, as for clip-score; "" looks in the folder of models.
        head: the predictor's own weights.
        options: see `ModelOptions`.

    Raises:
        MissingWeights: a file is missing; the message says where to get it.
        WrongCheckpoint: a file holds something else.
    """

    def __init__(
        self, *, checkpoint: str = "", head: str = "", **options: Unpack[ModelOptions]
    ) -> None:
        name = "aesthetic-score"
        _refuse_unknown(name, options)
        weights = find_weights(name, checkpoint, ClipScoreVerifier.wanted)
        predictor = find_weights(
            name,
            head,
            Wanted(
                "head",
                ("sac+logos+ava1-l14-linearMSE.pth",),
                "sac+logos+ava1-l14-linearMSE.pth of "
                "github.com/christophschuhmann/improved-aesthetic-predictor",
            ),
        )
        any_size = options.get("any_size", False)
        scorer = Aesthetic.load_with_head(weights, predictor, any_size=any_size)
        super().__init__(scorer, name, options)


def _refuse_unknown(name: str, options: ModelOptions) -> None:
    """Refuse options that no verifier here takes, since Python checks no names of a TypedDict."""
    unknown = sorted(set(options) - set(ModelOptions.__annotations__))
    if unknown:
        option_names = ", ".join(ModelOptions.__annotations__)
        raise ConfigError(f"{name} takes no option {', '.join(unknown)}; it takes {option_names}")
