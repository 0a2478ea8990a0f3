"""What changes with time: the learning rate, and the stage.

Time is counted in epochs, as in the paper, with fractions, so that it does not jump between them.
"""

from __future__ import annotations

import math


def learning_rate_at(
    epoch: float, *, epochs: float, peak: float, warmup_epochs: float = 20, warmup_from: float = 1e-4
) -> float:
    """Half a period of cosine, peak (1 + cos(pi epoch / epochs)) / 2, reached by a straight line.

    The line starts at `warmup_from` and meets the cosine where the warm-up ends, so there is no jump.
    """
    if epoch >= warmup_epochs:
        return _cosine(epoch, epochs, peak)
    meeting = _cosine(warmup_epochs, epochs, peak)
    return warmup_from + (meeting - warmup_from) * epoch / warmup_epochs


def _cosine(epoch: float, epochs: float, peak: float) -> float:
    return 0.5 * peak * (1 + math.cos(math.pi * min(epoch / epochs, 1.0)))
