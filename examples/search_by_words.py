"""Search videos by words, with a network that was trained on images and text.

    pip install 'provico[hf]'
    python examples/search_by_words.py "a white square that spins"

The network is downloaded from the Hugging Face Hub on first use, unless PROVICO_CLIP names a folder with
CLIP, SigLIP or X-CLIP. Only this example needs a download: no such network is small enough to include.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from prepared import videos
from provico import Index, open_catalog, untrained_encoder

NETWORK = os.environ.get("PROVICO_CLIP", "hf:openai/clip-vit-base-patch32")


def main() -> None:
    """Index the videos without training, and search."""
    words = sys.argv[1] if len(sys.argv) > 1 else "a white square that spins"
    catalog = open_catalog(videos())
    with tempfile.TemporaryDirectory() as folder:
        encoder = untrained_encoder(NETWORK, catalog, num_clips=2)
        index = Index.create(Path(folder) / "index", encoder, num_clips=2)
        index.add(catalog)
        print(f"{words!r}:")
        for hit in index.search_words(words, k=3, max_chance=None).hits:
            print(f"  {hit.id}: cosine {hit.score:.3f}, spread {hit.spread:.3f}")


if __name__ == "__main__":
    main()
