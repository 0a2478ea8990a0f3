"""How well the Gaussian of a clip predicts another clip of its video.

    -1/D log N(mu_b; mu_a, v_a)  =  1/(2D) sum_d [ log v_a + (mu_a - mu_b)^2 / v_a + log 2 pi ]

with v = sigma^2. A proper score: it is lowest where v_a is the mean square of mu_a - mu_b among clips that
look like a. The certainty weight of eq. (10) asks for something else, the contrastive loss of a pair, which
is why `uncertainty.doubt` teaches variances by this instead.
"""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from provico.probability.gaussian import Gaussian


def negative_log_likelihood(clips: Gaussian, others: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
    """Of the means `others` under the Gaussians `clips`, per coordinate."""
    scaled = (clips.mean - others).square() * (-clips.log_var).exp()
    return 0.5 * (clips.log_var + scaled + math.log(2 * math.pi)).mean(dim=-1)
