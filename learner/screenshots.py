"""Screenshots in prompts: processed again from their files, and compared with what the policy read.

Of a picture only its file and two digests are kept, since processing is deterministic. A library that processes it in
another way than when the policy read it is detected.
"""

from collections.abc import Sequence
from pathlib import Path

from hindcast.core.errors import BlobCorrupt, BlobMissing, PictureUnreadable
from hindcast.core.models.vision import ImageProcessor, ProcessedImage
from hindcast.events.catalogue.episode import ShownPicture
from hindcast.storage.blobs.store import BlobStore


class ScreenshotStore:
    """The screenshots of a run. Loads the image processor at the first request."""

    def __init__(self, folder: Path, blobs: BlobStore) -> None:
        """`folder`: the policy that read them."""
        self._folder = folder
        self._blobs = blobs
        self._eyes: ImageProcessor | None = None

    def seen(self, shown: Sequence[ShownPicture]) -> tuple[ProcessedImage, ...]:
        """Each picture as the policy read it.

        Raises:
            BlobMissing, BlobCorrupt, ModelFileError: the picture or its processor is missing or altered.
            PictureUnreadable: processing gives another result here.
        """
        return tuple(map(self._seen, shown))

    def _seen(self, shown: ShownPicture) -> ProcessedImage:
        if self._eyes is None:
            self._eyes = ImageProcessor(self._folder)
        try:
            image = self._blobs.get(shown.blob)
        except (BlobMissing, BlobCorrupt) as error:
            raise type(error)(
                f"training on a step needs the screenshot that the policy read: {error}. Restore that file from an archive or "
                "a copy of the run, and start again: nothing else is lost."
            ) from error
        found = self._eyes.look(image)
        if (found.digest, len(found.ids)) != (shown.digest, shown.tokens):
            raise PictureUnreadable(
                f"the screenshot {shown.blob.sha256} gives {len(found.ids)} tokens and {found.digest[:16]}… here, but gave "
                f"{shown.tokens} and {shown.digest[:16]}… when the policy read it: Pillow, transformers or the policy's "
                "preprocessor_config.json differs. Use those that the run began with (its first event names the versions)."
            )
        return found
