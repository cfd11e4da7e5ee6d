"""The pictures that samples were read with: processed again from their files, and held against what the policy read.

Nothing of a picture but its file and two digests is kept: processing is deterministic, and a library that does it otherwise
than the one that the policy was shown it by is found out instead of trained with.
"""

from collections.abc import Sequence
from pathlib import Path

from hindcast.core.errors import BlobCorrupt, BlobMissing, PictureUnreadable
from hindcast.core.models.vision import ImageProcessor, ProcessedImage
from hindcast.events.catalogue.episode import ShownPicture
from hindcast.storage.blobs.store import BlobStore


class ScreenshotStore:
    """The pictures of a run. Reads nothing before the first one is asked for."""

    def __init__(self, folder: Path, blobs: BlobStore) -> None:
        """`folder`: of the policy that was shown them."""
        self._folder = folder
        self._blobs = blobs
        self._eyes: ImageProcessor | None = None

    def seen(self, shown: Sequence[ShownPicture]) -> tuple[ProcessedImage, ...]:
        """Each picture as the policy read it.

        Raises:
            BlobMissing, BlobCorrupt, ModelFileError: it, or what processes it, is not there as it was.
            PictureUnreadable: it comes out otherwise here.

        """
        return tuple(map(self._seen, shown))

    def _seen(self, shown: ShownPicture) -> ProcessedImage:
        if self._eyes is None:
            self._eyes = ImageProcessor(self._folder)
        try:
            image = self._blobs.get(shown.blob)
        except (BlobMissing, BlobCorrupt) as error:
            raise type(error)(
                f"a step is trained on with the screenshot that the policy read: {error}. Bring that file back from an archive or "
                "a copy of the run, and start again: nothing else is lost."
            ) from error
        found = self._eyes.look(image)
        if (found.digest, len(found.ids)) != (shown.digest, shown.tokens):
            raise PictureUnreadable(
                f"the screenshot {shown.blob.sha256} comes to {len(found.ids)} tokens and {found.digest[:16]}… here, and came to "
                f"{shown.tokens} and {shown.digest[:16]}… when the policy read it: Pillow, transformers or the policy's "
                "preprocessor_config.json is another. Use those that the run began with (its first event names the versions)."
            )
        return found
