"""How samples share forward passes. Depends on the samples alone, so that a recomputation packs them the same way."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.errors import BlobCorrupt, BlobMissing, PictureUnreadable
from hindcast.core.models.logprobs import SampleToScore, packs, score_pack
from hindcast.core.models.token_trees import TokenTree, token_trees, tree_passes
from hindcast.core.models.vision import ImageProcessor, ProcessedImage
from hindcast.events.catalogue.episode import ShownPicture
from hindcast.learner.buffer.records import Sample
from hindcast.storage.blobs.store import BlobStore


class ScreenshotStore:
    """Screenshots in prompts: processed again from their files, and compared with what the policy read.

    Of a picture only its file and two digests are kept, since processing is deterministic. A library that processes it in
    another way than when the policy read it is detected. The image processor is loaded at the first request.
    """

    def __init__(self, folder: Path, blobs: BlobStore) -> None:
        """`folder`: the policy that read them."""
        self._folder = folder
        self._blobs = blobs
        self._eyes: ImageProcessor | None = None

    def seen(self, pictures: Sequence[ShownPicture]) -> tuple[ProcessedImage, ...]:
        """Each picture as the policy read it.

        Raises:
            BlobMissing, BlobCorrupt, ModelFileError: the picture or its processor is missing or altered.
            PictureUnreadable: processing gives another result here.
        """
        return tuple(map(self._seen, pictures))

    def _seen(self, picture: ShownPicture) -> ProcessedImage:
        if self._eyes is None:
            self._eyes = ImageProcessor(self._folder)
        try:
            image = self._blobs.get(picture.blob)
        except (BlobMissing, BlobCorrupt) as error:
            raise type(error)(
                f"training on a step needs the screenshot that the policy read: {error}. Restore that file from an archive or "
                "a copy of the run, and start again: nothing else is lost."
            ) from error
        processed = self._eyes.look(image)
        if (processed.digest, len(processed.ids)) != (picture.digest, picture.tokens):
            raise PictureUnreadable(
                f"the screenshot {picture.blob.sha256} gives {len(processed.ids)} tokens and {processed.digest[:16]}… here, but gave "
                f"{picture.tokens} and {picture.digest[:16]}… when the policy read it: Pillow, transformers or the policy's "
                "preprocessor_config.json differs. Use those that the run began with (its first event names the versions)."
            )
        return processed


class ForwardPass(NamedTuple):
    """Samples that are scored in one forward pass."""

    indices: list[int]
    """Indices of its samples in the sequence given."""
    scored: list[SampleToScore]
    temperature: float
    joined: bool = False
    """Whether the samples share one row without padding."""
    trees: Sequence[TokenTree] = ()
    """Rows that the samples share with those that begin alike, in the order of the samples; empty: they share none."""
    shown: Sequence[Sequence[ShownPicture]] = ()
    """Pictures in the prompt of each sample; empty: no sample has any."""
    album: ScreenshotStore | None = None
    """Store of those pictures."""

    def log_probs(self, model: Any) -> list[torch.Tensor]:
        """Log-probabilities of each sample's action tokens at its sampling temperature, differentiable.

        Invariant 4: under the sets of tokens that they were drawn from, where recorded. Pictures are processed here and not
        earlier: those of a whole batch would take gigabytes.

        Raises:
            BlobMissing, BlobCorrupt, PictureUnreadable: a picture cannot be read as it was shown.
        """
        samples = self.scored
        if self.album is not None and self.shown:
            samples = [
                sample._replace(pictures=self.album.seen(pictures))
                for sample, pictures in zip(samples, self.shown, strict=True)
            ]
        return score_pack(model, samples, temperature=self.temperature, joined=self.joined, trees=self.trees)


def forward_passes(
    samples: Sequence[Sample],
    *,
    tokens_per_forward: int,
    joined: bool = False,
    reach: int | None = None,
    masks_all: bool = False,
    album: ScreenshotStore | None = None,
) -> list[ForwardPass]:
    """Split samples into passes of at most `tokens_per_forward` tokens, grouped by temperature, shortest first.

    Padding counts unless samples are `joined` in one row. `reach`: those that begin alike share rows, unless some read pictures
    (`token_trees`); None: they do not. `masks_all`: also a sample that is longer than a pass, and so alone, is computed with
    the mask of a tree, as by `learner.arithmetic` 1; the mask takes the square of its length. `album`: holds the pictures in
    their prompts.
    """
    seeing = any(sample.pictures for sample in samples)
    passes: list[ForwardPass] = []
    for temperature in sorted({sample.temperature for sample in samples}):
        indices = [index for index, sample in enumerate(samples) if sample.temperature == temperature]
        inputs = [
            SampleToScore(
                unpack_ids(samples[index].prompt_ids).tolist(),
                unpack_ids(samples[index].action_ids).tolist(),
                samples[index].allowed,
            )
            for index in indices
        ]
        alone: Sequence[int] = range(len(inputs))
        if reach is not None and not seeing:
            trees = _trees(inputs, tokens_per_forward, reach)
            shared = [tree for tree in trees if masks_all or len(tree.ids) <= tokens_per_forward]
            alone = [] if masks_all else [t.members[0] for t in trees if len(t.ids) > tokens_per_forward]
            for rows in tree_passes(shared, tokens_per_forward=tokens_per_forward):
                members = [member for tree in rows for member in tree.members]
                passes.append(
                    ForwardPass(
                        [indices[m] for m in members], [inputs[m] for m in members], temperature, trees=rows
                    )
                )
        packed = packs([inputs[m] for m in alone], tokens_per_forward=tokens_per_forward, joined=joined)
        passes += [
            ForwardPass(
                [indices[m] for m in members],
                [inputs[m] for m in members],
                temperature,
                joined,
                shown=[samples[indices[m]].pictures for m in members] if seeing else (),
                album=album,
            )
            for members in [[alone[index] for index in pack] for pack in packed]
        ]
    return passes


def _trees(samples: Sequence[SampleToScore], tokens_per_forward: int, reach: int) -> list[TokenTree]:
    prompts, answers = [sample.prompt_ids for sample in samples], [sample.action_ids for sample in samples]
    return token_trees(prompts, answers, max_tokens=tokens_per_forward, reach=reach)
