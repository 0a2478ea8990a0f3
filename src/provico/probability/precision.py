"""At least float32 precision, whatever the surrounding training uses.

The weights 1 / (4 sigma_i^2 sigma_j^2) reach 1e7 and distances are differences of squares, which bfloat16 and
float16 cannot represent. So everything in this package converts half precision to float32 on entry, keeps
float64 (the tests rely on it), and switches autocast off around matrix products.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def at_least_float32(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Convert values in half precision to float32; leave others unchanged."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def autocast_off(values: Tensor) -> torch.autocast:
    """A context in which products on the device of `values` keep their precision."""
    return torch.autocast(device_type=values.device.type, enabled=False)
