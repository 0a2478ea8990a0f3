"""Defaults shared by commands and functions, each declared once."""

from typing import Final

SHORT_SIDE = 128
"""Pixels of the shorter side of a frame before it is cropped (the usual size for 112-pixel networks)."""
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
"""The library that scales frames and its kernel; float rounds only at the end (`data.scaling`)."""
STORE: Final = "jpeg"
"""How prepared frames are stored (docs/decisions/0002-frame-store.md)."""
DIM = 128
"""Dimension of an embedding. The paper does not state it."""
PARAMETRISATION = "sqrt_dim"
"""The units of the embedding (docs/decisions/0003-embedding-scale.md)."""
TIMEOUT_SECONDS = 60.0
"""Give up on a video file if no frame of it is decoded for this long."""
CALIBRATION_QUERIES = 1000
"""At most this many indexed videos are used as queries for a calibration."""
LEAST_UNRELATED = 50
"""With fewer videos of other recordings, no chance is reported for a match."""
MAX_CHANCE = 1.0
"""Show a hit if at most this many unrelated videos are expected to match as well by chance."""
TEST_CLIPS = 10
"""Evenly spaced clips of a video outside of training (paper, appendix C.2)."""
LONG_SECONDS = 20.0
"""In an index, videos longer than this have a timeline ..."""
STEP_SECONDS = 1.0
"""... with one clip in this many seconds (docs/moments.md)."""
MAX_CLIPS = 10_000
"""Upper limit of clips per video. More are a mistake and would exhaust the memory."""
MAX_SHORT_SIDE = 4096
"""Upper limit of the shorter side of a frame, for the same reason."""
MAX_SAMPLES = 10_000
NUM_SAMPLES = 10
"""K, the number of samples per video (paper, section 4.2)."""
MAX_BROKEN_SHARE = 0.05
"""Stop if more than this share of the videos is unreadable."""
