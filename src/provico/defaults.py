"""Settings that commands and functions share, each declared once."""

from typing import Final

SHORT_SIDE = 128
"""Pixels of the shorter side of a frame before it is cropped (the customary size for 112-pixel networks)."""
CROP_SIZE = 112
"""Pixels of the square that a network sees (paper, section 4.2)."""
NUM_FRAMES = 16
"""Frames of a clip (paper, section 4.2)."""
DECODER: Final = "decoder"
SCALINGS = (
    DECODER,
    "pil-bilinear",
    "pil-bicubic",
    "pil-lanczos",
    "torch-bilinear",
    "torch-bicubic",
    "float-bilinear",
    "float-bicubic",
)
"""Who scales frames, and with which kernel; float rounds only at the end (`data.scaling`)."""
STORE: Final = "jpeg"
"""How prepared frames are stored (docs/decisions/0002-frame-store.md)."""
DIM = 128
"""Coordinates of an embedding: the paper does not say how many."""
PARAMETRISATION = "sqrt_dim"
"""The units of the embedding (docs/decisions/0003-embedding-scale.md)."""
TIMEOUT_SECONDS = 60.0
"""A video file of which no frame comes for so long is given up."""
CALIBRATION_QUERIES = 1000
"""Indexed videos that are asked for, at most, to see how often hits are right."""
LEAST_UNRELATED = 50
"""With fewer videos of other recordings, nothing is said of how surprising a match is."""
MAX_CHANCE = 1.0
"""A hit is shown if at most so many unrelated videos are expected to match as well by chance."""
TEST_CLIPS = 10
"""Evenly spaced clips through which a video is seen when nothing is learnt (paper, appendix C.2)."""
LONG_SECONDS = 20.0
"""Longer videos have a timeline in an index ..."""
STEP_SECONDS = 1.0
"""... with a clip every so many seconds (docs/moments.md)."""
MAX_CLIPS = 10_000
"""More clips of a video than this are a mistake, and would take all memory."""
MAX_SHORT_SIDE = 4096
"""Larger frames than this are a mistake, too."""
MAX_SAMPLES = 10_000
NUM_SAMPLES = 10
"""K, the samples of a video (paper, section 4.2)."""
MAX_BROKEN_SHARE = 0.05
"""More unreadable videos than this share end what reads them."""
