# mypy: disable-error-code="arg-type, no-untyped-call"
"""What `ludus train reward` trains: models with a head, read in the verifiers' way."""

from __future__ import annotations

import io
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.utils import logging

from ludus.errors import ConfigError, MissingExtra
from ludus.messages import Message, assistant
from ludus.rewards.learned.text.conversation import Conversations, UnrenderedConversation
from ludus.rewards.learned.text.loading import filler_for, load_tokenizer, padded, token_limit
from ludus.rewards.learned.text.process_reward import written_steps

from ..data.encoding import Unlearnable
from ..models.devices import pick_device
from ..models.tiny import find_model
from ..settings.data import RewardModelConfig


@dataclass(frozen=True, slots=True)
class StepRow:
    """A solution as tokens, with the place at which each step is scored."""

    ids: list[int]
    places: list[int]

    def __len__(self) -> int:
        return len(self.ids)


class RewardHead(ABC):
    """A model with a head, and how the model reads answers.

    It writes itself as the verifiers load it: `broken` and `write` are those of `WeightsWriter`.
    """

    verifier: str
    """The verifier that scores with what is written."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    @abstractmethod
    def encode(self, prompt: Sequence[Message], answer: Sequence[Message]) -> Any:
        """Return an answer in the form that the model reads.

        Raises:
            Unlearnable: the answer cannot be read.
        """

    @abstractmethod
    def scores(self, inputs: Sequence[Any]) -> Tensor:
        """Return the score of each input, [N], with a gradient; of steps those of each in turn."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the model into an existing folder."""

    def size(self, example: Any) -> int:
        """Return how much of a pass an input takes, in tokens."""
        return len(example)

    def broken(self) -> list[str]:
        """Return the names of weights that are not finite."""
        named = self.model.named_parameters()
        return [name for name, weight in named if not bool(weight.isfinite().all())]


class TextHead(RewardHead):
    """A language model with a number for a whole conversation.

    Args:
        path: a causal model, which gets a new head, or a reward model that is trained further.
        max_tokens: the most tokens of a conversation; 0 takes what the model reads.
        device: the torch device.
    """

    verifier = "reward-model"
    auto_class, labels = "AutoModelForSequenceClassification", 1

    def __init__(self, path: str, *, max_tokens: int, device: str) -> None:
        self.folder = Path(find_model(path))
        self.network: Any = _load(self.folder, self.auto_class, self.labels).to(device)
        super().__init__(self.network)
        self.tokenizer = load_tokenizer(self.folder, name=self.verifier)
        self.conversations = Conversations(self.tokenizer, self.verifier)
        self.limit = token_limit(self.network, self.tokenizer, max_tokens)
        self.device = torch.device(device)

    def encode(self, prompt: Sequence[Message], answer: Sequence[Message]) -> Any:
        """Return the ids of a conversation in the form of `reward-model`."""
        try:
            text = self.conversations.render([*prompt, *answer])
        except UnrenderedConversation:
            raise Unlearnable("that the chat template cannot write") from None
        if len(text) > 256 * self.limit or len(ids := self.conversations.encode(text)) > self.limit:
            raise Unlearnable(f"longer than {self.limit} tokens")
        return ids

    def scores(self, inputs: Sequence[Any]) -> Tensor:
        """Return the head's number for each conversation, [N]."""
        ids, mask, filler = self._padded(inputs)
        self.network.config.pad_token_id = filler
        logits: Tensor = self.network(input_ids=ids, attention_mask=mask).logits
        return logits.squeeze(-1).float()

    def write(self, folder: Path) -> None:
        """Write a folder that `reward-model` loads."""
        self.network.config.pad_token_id = self.tokenizer.pad_token_id
        self.network.save_pretrained(str(folder))
        self.tokenizer.save_pretrained(str(folder))

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, int]:
        filler = filler_for(rows, self.tokenizer.pad_token_id)
        return *padded(rows, filler, self.device), filler


class ProcessHead(TextHead):
    """A language model with a number at the end of every step.

    Args:
        separator: the text that ends a step, as `process-reward` is told.
        kept: see `TextHead`.
    """

    verifier = "process-reward"
    auto_class, labels = "AutoModelForTokenClassification", 2

    def __init__(self, path: str, *, separator: str, **kept: Any) -> None:
        super().__init__(path, **kept)
        self.separator = separator
        self.end = self.conversations.encode(separator)

    def encode(self, prompt: Sequence[Message], answer: Sequence[Message]) -> StepRow:
        """Return the tokens of a solution, whose messages are its steps, as `process-reward` writes
        it.
        """
        solution = assistant(self.separator.join(step.text for step in answer))
        try:
            written, _ = written_steps(
                self.conversations, prompt, [solution], separator=self.separator, end=self.end
            )
        except UnrenderedConversation:
            raise Unlearnable("that the chat template cannot write") from None
        if len(written.ids) > self.limit:
            raise Unlearnable(f"longer than {self.limit} tokens")
        if len(written.places) != len(answer):
            raise Unlearnable("with a step that holds the separator")
        return StepRow(written.ids, written.places)

    def scores(self, inputs: Sequence[Any]) -> Tensor:
        """Return the log-odds that each step is right, row by row, [S]."""
        ids, mask, _ = self._padded([row.ids for row in inputs])
        logits: Tensor = self.network(input_ids=ids, attention_mask=mask).logits.float()
        read = [logits[number, row.places] for number, row in enumerate(inputs)]
        both = torch.cat(read)
        return both[:, 1] - both[:, 0]


class ImageHead(RewardHead):
    """ImageReward's head over its own network.

    Args:
        checkpoint: an `ImageReward.pt`, or the folder of a run.
        vocab: `vocab.txt` of bert-base-uncased; empty takes that beside the checkpoint.
        frozen: the share of each encoder's layers, from the bottom, that is not trained; 0.7 in the
            authors' code. 1 trains the head alone.
        device: the torch device.
    """

    verifier = "image-reward"

    def __init__(self, checkpoint: str, *, vocab: str, frozen: float, device: str) -> None:
        try:
            from ludus.rewards.learned.images.image_reward import ImageReward, our_name
            from ludus.rewards.learned.images.weights import read_checkpoint
        except ImportError as error:
            raise MissingExtra.of("image", needed_for="ludus train reward --kind image") from error
        path = Path(checkpoint)
        path = path / "ImageReward.pt" if path.is_dir() else path
        self.vocab = Path(vocab) if vocab else path.with_name("vocab.txt")
        for place, what in ((path, "ImageReward.pt"), (self.vocab, "vocab.txt")):
            if not place.exists():
                raise ConfigError(f"kind image needs {what}: there is no {str(place)!r}")
        self.original = read_checkpoint(path)
        self.names = {name: our_name(name) for name in self.original}
        model = ImageReward.load(path, self.vocab, any_size=True)
        super().__init__(model.to(device))
        self.scorer = model
        for name, weight in model.named_parameters():
            weight.requires_grad_(name.startswith("head.") or _above(name, model, frozen))

    def encode(self, prompt: Sequence[Message], answer: Sequence[Message]) -> Any:
        """Return an image and its text in the form that the model reads."""
        from PIL import Image, UnidentifiedImageError

        images = [image for message in answer for image in message.images]
        if len(images) != 1:
            raise Unlearnable(f"with {len(images)} images: an answer is one image")
        try:
            opened = Image.open(io.BytesIO(images[0].data))
            return self.scorer.prepare(opened, "\n".join(message.text for message in prompt))
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError):
            raise Unlearnable("with an image that cannot be decoded") from None

    def scores(self, inputs: Sequence[Any]) -> Tensor:
        """Return the reward of each image, [N]."""
        tokens, mask = self.scorer.padded([item.tokens for item in inputs])
        pixels = torch.stack([torch.from_numpy(item.pixels) for item in inputs])
        rewards: Tensor = self.scorer(tokens, mask, pixels.to(self.scorer.device))
        return rewards

    def size(self, example: Any) -> int:
        """Return the patches and tokens of an image and its text."""
        return 197 + len(example.tokens)

    def write(self, folder: Path) -> None:
        """Write the checkpoint under the original's names, and the vocabulary."""
        state = self.model.state_dict()
        trained = {
            name: state[ours].detach().cpu().clone() if ours in state else self.original[name]
            for name, ours in self.names.items()
        }
        torch.save(trained, folder / "ImageReward.pt")
        source = self.vocab / "vocab.txt" if self.vocab.is_dir() else self.vocab
        shutil.copyfile(source, folder / "vocab.txt")


def _above(name: str, model: Any, frozen: float) -> bool:
    """Whether a weight is in a layer above the share that is frozen."""
    for prefix, layers in (
        ("vision.encoder.layers.", model.vision.encoder.layers),
        ("text.encoder.layer.", model.text.encoder.layer),
    ):
        if name.startswith(prefix):
            return int(name.split(".")[3]) >= round(frozen * len(layers))
    return frozen == 0


def _load(folder: Path, auto_class: str, labels: int) -> Any:
    """Load a model with a head, which is new where the folder has none.

    Raises:
        ConfigError: the folder cannot be read, or has a head of another width.
    """
    logging.disable_progress_bar()
    wanted = auto_class.removeprefix("AutoModelFor")
    try:
        config = transformers.AutoConfig.from_pretrained(str(folder))
        built = str((config.architectures or [""])[0])
        heads = ("SequenceClassification", "TokenClassification")
        if any(built.endswith(head) for head in heads):
            if not built.endswith(wanted):
                raise ConfigError(f"{str(folder)!r} holds {built}, and a {wanted} head is trained")
            if config.num_labels != labels:
                raise ConfigError(
                    f"{str(folder)!r} has a head of {config.num_labels} numbers; {labels} needed"
                )
        level = logging.get_verbosity()
        logging.set_verbosity_error()  # says that the head is new, which is meant
        try:
            model = getattr(transformers, auto_class).from_pretrained(
                str(folder), num_labels=labels, dtype=torch.float32
            )
        finally:
            logging.set_verbosity(level)
    except ConfigError:
        raise
    except Exception as error:  # a damaged file may raise anything, in any of the formats
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"cannot put a head on {str(folder)!r}: {first}") from error
    return model.eval()  # no dropout: a comparison of two answers should not be noisy


def serving_name(config: RewardModelConfig, checkpoint: Path) -> str:
    """Return the name under which `ludus serve` scores with a checkpoint."""
    if config.kind == "image":
        files = f"checkpoint={checkpoint}/ImageReward.pt&vocab={checkpoint}/vocab.txt"
        return f"image-reward?{files}&any_size=true"
    return f"{'reward-model' if config.kind == 'text' else 'process-reward'}?model={checkpoint}"


def open_head(config: RewardModelConfig, path: str) -> RewardHead:
    """Load what is trained.

    Raises:
        ConfigError: the model cannot have the head.
    """
    device = pick_device(config.model.device)
    if config.kind == "image":
        return ImageHead(path, vocab=config.vocab, frozen=config.frozen, device=device)
    if config.kind == "process":
        return ProcessHead(
            path, separator=config.separator, max_tokens=config.max_tokens, device=device
        )
    return TextHead(path, max_tokens=config.max_tokens, device=device)
