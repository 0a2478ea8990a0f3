"""The classifier that finetuning produces: an encoder with a linear layer.

    10 clips -> 5 mixtures of neighbours -> K samples of each -> linear layer -> probabilities, all averaged

A folder written by `Classifier.save` holds

    encoder/                 an encoder like any other
    classifier.safetensors   weight and bias of the layer on samples of its embedding
    classifier.json          the classes, and the settings it was trained with
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from safetensors.torch import save_file
from torch import Tensor, nn

from provico.config.evaluation import FinetuneSettings
from provico.data.catalog import Catalog, Video, open_catalog
from provico.data.library import Library
from provico.data.loader import ClipLoader
from provico.embedding.clips import clip_settings
from provico.embedding.driver import embed_pixels
from provico.errors import TooManyBrokenError, WeightsError
from provico.files import replace_text
from provico.models.encoder import Encoder
from provico.models.export import export_encoder
from provico.models.inference import evaluating
from provico.models.weights import load_into, read_weights
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import seeded_samples
from provico.progress import Progress, silent

ENCODER_FOLDER = "encoder"
LAYER_NAME = "classifier.safetensors"
SETTINGS_NAME = "classifier.json"
VIDEOS_AT_ONCE = 8
"""Number of videos that are read together."""
_NUM_NAMED = 3  # failed videos that a message lists


def log_mean_probability(logits: Float[Tensor, "*batch samples classes"]) -> Float[Tensor, "*batch classes"]:
    """Log of the softmax averaged over samples."""
    return logits.log_softmax(dim=-1).logsumexp(dim=-2) - math.log(logits.shape[-2])


def averaged_cross_entropy(
    logits: Float[Tensor, "videos samples classes"], labels: Int[Tensor, "videos"]
) -> Float[Tensor, ""]:
    """Mean over videos of minus the log of the averaged probability of the true class."""
    return -log_mean_probability(logits).gather(1, labels.unsqueeze(1)).mean()


def neighbouring_clips(clips: Gaussian, clips_per_mixture: int) -> Mixture:
    """Mixtures of consecutive clips: "videos clips dim" becomes "videos*mixtures clips_per_mixture dim"."""
    num_videos, num_clips, dim = clips.mean.shape
    shape = (num_videos * (num_clips // clips_per_mixture), clips_per_mixture, dim)
    return Mixture(Gaussian(clips.mean.reshape(shape), clips.log_var.reshape(shape)))


def average_over_mixtures(
    logits: Float[Tensor, "mixtures samples classes"], num_videos: int
) -> Float[Tensor, "videos classes"]:
    """Log-probabilities of videos from the logits of all samples of all their mixtures."""
    return log_mean_probability(logits.reshape(num_videos, -1, logits.shape[-1]))


def top_k_correct(
    log_probabilities: Float[Tensor, "videos classes"], labels: Int[Tensor, "videos"], k: int
) -> Tensor:
    """Whether the true class is among the k most probable; ties are broken by the order of classes."""
    order = log_probabilities.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return torch.eq(order, labels.unsqueeze(1)).any(dim=1)


@dataclass(frozen=True, eq=False)
class Predictions:
    """The probability of each class for each video that could be read, in the order of their catalog."""

    classes: tuple[str, ...]
    videos: tuple[Video, ...]
    log_probabilities: Float[Tensor, "videos classes"]
    failed: tuple[tuple[Video, str], ...] = ()
    """The videos that could not be read, with the reasons; they are not in the fields above."""

    def __len__(self) -> int:
        return len(self.videos)

    @property
    def predicted(self) -> tuple[str, ...]:
        """The most probable class of each video."""
        return tuple(self.classes[number] for number in self.log_probabilities.argmax(dim=1).tolist())

    @property
    def probability(self) -> Float[Tensor, "videos"]:
        """The probability of the predicted class."""
        return self.log_probabilities.amax(dim=1).exp()

    @classmethod
    def joined(cls, parts: Sequence[Predictions], catalog: Catalog) -> Predictions:
        """Join the predictions of several processes for their parts of a catalog."""
        videos = [video for part in parts for video in part.videos]
        if not videos:
            named = [f"{video.id}: {reason}" for part in parts for video, reason in part.failed][:_NUM_NAMED]
            raise TooManyBrokenError(
                f"None of {len(catalog)} videos can be read, so there is nothing to predict. "
                f"{'; '.join(named)}"
            )
        index_of = {video.id: index for index, video in enumerate(catalog)}
        order = sorted(range(len(videos)), key=lambda row: index_of[videos[row].id])
        log_probabilities = torch.cat([part.log_probabilities for part in parts])[order]
        if not bool(log_probabilities.isfinite().all()):
            raise WeightsError(
                "The network's probabilities are not finite: its training has diverged. Train again "
                "with a lower --learning-rate."
            )
        return cls(
            parts[0].classes,
            tuple(videos[row] for row in order),
            log_probabilities,
            tuple(
                sorted(
                    (pair for part in parts for pair in part.failed), key=lambda pair: index_of[pair[0].id]
                )
            ),
        )


class Classifier(nn.Module):
    """An encoder and one linear layer on samples of its embedding."""

    def __init__(self, encoder: Encoder, classes: Iterable[str], settings: FinetuneSettings) -> None:
        super().__init__()
        self.encoder, self.classes, self.settings = encoder, tuple(classes), settings
        self.linear = nn.Linear(encoder.config.dim, len(self.classes))
        # Coordinates of order one, so that a learning rate does not depend on the units of the embedding.
        self.unit = encoder.config.scale.mean_norm(encoder.config.dim) / math.sqrt(encoder.config.dim)
        # Training starts from equal probabilities, independent of the random seed.
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def predict(
        self,
        data: Catalog | Path | str,
        *,
        num_workers: int = 0,
        library: Library | None = None,
        progress: Progress = silent,
    ) -> Predictions:
        """Predict the class of each video of a catalog, a folder, a list or a file."""
        catalog = data if isinstance(data, Catalog) else open_catalog(data)
        part = self.predict_part(catalog, num_workers=num_workers, library=library, progress=progress)
        return Predictions.joined([part], catalog)

    @torch.no_grad()
    def predict_part(
        self,
        catalog: Catalog,
        *,
        rank: int = 0,
        world_size: int = 1,
        num_workers: int = 0,
        library: Library | None = None,
        progress: Progress = silent,
    ) -> Predictions:
        """Predict one process's part of the videos, which may be empty."""
        settings = self.settings
        loader = ClipLoader(
            catalog,
            clip_settings(self.encoder.config, num_clips=settings.num_clips, short_side=settings.short_side),
            batch_size=VIDEOS_AT_ONCE,
            shuffle=False,
            drop_last=False,
            num_workers=num_workers,
            # Failed videos are counted and listed in the result; the rest of it is kept.
            max_broken_share=1.0,
            rank=rank,
            world_size=world_size,
            library=library,
        )
        videos: list[Video] = []
        parts = [torch.empty(0, len(self.classes))]
        with evaluating(self):
            for number, batch in enumerate(loader, start=1):
                if len(batch):
                    clips = embed_pixels(self.encoder, [batch.pixels.flatten(0, 1)])
                    read = [catalog[video] for video in batch.videos.tolist()]
                    parts.append(self._log_probabilities(read, clips))
                    videos += read
                progress(number, len(loader), "test")
        failed = tuple((catalog[number], error.reason) for number, error in loader.broken.items())
        return Predictions(self.classes, tuple(videos), torch.cat(parts), failed)

    def _log_probabilities(self, videos: Sequence[Video], clips: Gaussian) -> Float[Tensor, "videos classes"]:
        """Log-probabilities from the clips of all videos in order, averaged over all samples, on the CPU.

        A video's samples depend only on its id and the seed, not on the other videos.
        """
        shape = (len(videos), self.settings.num_clips, -1)
        by_video = Gaussian(clips.mean.view(shape), clips.log_var.view(shape))
        mixtures = neighbouring_clips(by_video, self.settings.num_train_clips)
        num_mixtures = len(mixtures.mean) // len(videos)
        samples = seeded_samples(
            [f"{video.id} {number}" for video in videos for number in range(num_mixtures)],
            mixtures,
            num_samples=self.settings.num_samples,
            seed=self.settings.seed,
        )
        logits: Tensor = self.linear(samples.to(self.linear.weight.device) / self.unit).cpu()
        return average_over_mixtures(logits, len(videos))

    def save(self, folder: Path) -> None:
        """Write encoder, layer and settings into a folder without any of them."""
        export_encoder(self.encoder, folder / ENCODER_FOLDER)
        layer = {name: value.detach().cpu().contiguous() for name, value in self.linear.state_dict().items()}
        save_file(layer, folder / LAYER_NAME)
        values = {"classes": self.classes, "settings": asdict(self.settings)}
        # Last, so that a folder with these settings is complete.
        replace_text(folder / SETTINGS_NAME, json.dumps(values, indent=2) + "\n")

    @classmethod
    def from_folder(cls, folder: Path | str) -> Classifier:
        """Load a saved classifier, in evaluation mode."""
        folder = Path(folder)
        path = folder / SETTINGS_NAME
        if not path.is_file():
            raise WeightsError(
                f"{folder} has no {SETTINGS_NAME}, so it is not a completely saved classifier. Name "
                "the folder of a finished finetuning run."
            )
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            classes, settings = values["classes"], FinetuneSettings(**values["settings"])
        except (ValueError, KeyError, TypeError) as error:
            raise WeightsError(f"{path} cannot be read as the settings of a classifier: {error}.") from error
        classifier = cls(Encoder.from_pretrained(folder / ENCODER_FOLDER), classes, settings)
        load_into(classifier.linear, read_weights(folder / LAYER_NAME), source=folder / LAYER_NAME)
        return classifier.eval()
