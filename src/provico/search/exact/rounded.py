"""Vectors in fewer bits, and how far that moves them: eight to be scanned, sixteen to be looked at again.

A vector v is its codes, whole numbers from -127 to 127, times a scale, up to what is lost. Products of codes
are whole numbers, so they are the same on every machine, and a product of vectors is off by no more than

    |v . w - v' . w'| <= |v| lost(w) + lost(v) |w'|,      v' = scale * codes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int8
from torch import Tensor

LARGEST_CODE = 127
MULTIPLE = 16
"""Codes are filled up with zeros to a multiple of so many."""
LOG_LARGEST, LEAST_LONGEST = 15, 2.0**-80
"""Halves go up to 2^15, and down to 2^-24; of vectors shorter than the second number nothing may be left."""
UPWARDS = 1 + 2.0**-20
"""Lengths are taken in float32 and rounded up by more than that loses."""


@dataclass(frozen=True, eq=False)
class Rounded:
    """Sets of vectors; those of one set have one scale."""

    codes: Int8[Tensor, "sets vectors filled"]
    scale: Float[Tensor, "sets"]
    lost: Float[Tensor, "sets"]
    """At least the root of the mean, over the vectors of a set, of the squared length of what is lost."""
    length: Float[Tensor, "sets"]
    """At least the same of what is kept."""

    @classmethod
    def of(cls, vectors: Float[Tensor, "sets vectors dim"]) -> Rounded:
        """Round some sets of float32 vectors."""
        most = vectors.abs().amax(dim=(1, 2))
        # A scale of next to nothing would make codes too large; such vectors are all lost, and known to be.
        scale = (most / LARGEST_CODE).clamp(min=1e-30)
        codes = (vectors / scale[:, None, None]).round_().clamp_(-LARGEST_CODE, LARGEST_CODE)
        kept = codes * scale[:, None, None]
        slack = 2.0**-22 * most * vectors.shape[2] ** 0.5  # of the two roundings above
        # Whole multiples are faster, and a single column is multiplied wrongly by torch 2.13.
        codes = F.pad(codes, (0, -vectors.shape[2] % MULTIPLE))
        return cls(
            codes=codes.to(torch.int8),
            scale=scale,
            lost=UPWARDS * _root_mean_square(vectors - kept) + slack,
            length=UPWARDS * _root_mean_square(kept) + slack,
        )

    @classmethod
    def joined(cls, parts: Sequence[Rounded]) -> Rounded:
        """Several of them as one."""
        return cls(*(torch.cat(column) for column in zip(*(part.parts for part in parts), strict=True)))

    def __len__(self) -> int:
        return len(self.scale)

    def __getitem__(self, some: slice | Int[Tensor, "some"]) -> Rounded:
        return Rounded(*(taken(part, some, 0) for part in self.parts))

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All of it."""
        return self.codes, self.scale, self.lost, self.length


class Halved:
    """Vectors in half the bytes: float16, times a power of two, so that any length of float32 fits."""

    def __init__(self, num: int, dim: int, *, longest: float) -> None:
        """Room for so many vectors, none of them longer than this."""
        self._scale = 2.0 ** (math.ceil(math.log2(max(longest, LEAST_LONGEST))) - LOG_LARGEST)
        self._values = torch.zeros(num, dim, dtype=torch.float16)
        self.step = 0.0
        """At least the distance by which the furthest was moved."""

    def put(self, first: int, vectors: Float[Tensor, "some dim"]) -> None:
        """Keep vectors, given in float64, from a place on."""
        kept = self._values[first : first + len(vectors)]
        kept.copy_(vectors / self._scale)
        moved = (kept.double() * self._scale - vectors).square().sum(dim=1)
        self.step = max(self.step, float(moved.max().sqrt()) * (1 + 2.0**-40))

    def __getitem__(self, some: slice | Int[Tensor, "some"]) -> Float[Tensor, "some dim"]:
        """Some of them, in float32, which holds them as they are."""
        return taken(self._values, some, 0).float().mul_(self._scale)


def taken(values: Tensor, some: slice | Int[Tensor, "some"], dim: int) -> Tensor:
    """Some places along one axis: by `index_select`, which copies rows of bytes many times as fast."""
    if isinstance(some, slice):
        return values.narrow(dim, some.start, some.stop - some.start)
    return values.index_select(dim, some)


@torch.no_grad()
def products_of_codes(
    left: Int8[Tensor, "rows dim"], right: Int8[Tensor, "columns dim"]
) -> Float[Tensor, "rows columns"]:
    """All products of two lists of codes."""
    if eight_bits_are_fast():
        return torch._int_mm(left, right.T).float()
    return left.float() @ right.float().T


@lru_cache(maxsize=1)
def eight_bits_are_fast() -> bool:
    """Whether this machine multiplies eight-bit numbers rightly, and faster than float32.

    Some processors lose the sum of two large products of eight bits, so the largest are tried.
    """
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(-LARGEST_CODE, LARGEST_CODE + 1, (1024, 128), dtype=torch.int8, generator=generator)
    codes[::2] = torch.where(codes[::2] > 0, LARGEST_CODE, -LARGEST_CODE).to(torch.int8)
    codes[:8] = LARGEST_CODE
    few = codes[:64]
    try:
        is_right = torch.equal(torch._int_mm(few, codes.T).float(), few.float() @ codes.float().T)
    except (AttributeError, RuntimeError):
        return False
    return is_right and _least_seconds(few, codes) < _least_seconds(few.float(), codes.float())


def _least_seconds(few: Tensor, many: Tensor) -> float:
    multiply = torch.mm if few.is_floating_point() else torch._int_mm
    spent = []
    for _ in range(5):
        began = time.thread_time()
        multiply(few, many.T)
        spent.append(time.thread_time() - began)
    return min(spent)


def _root_mean_square(vectors: Tensor) -> Tensor:
    return vectors.square().sum(dim=2).mean(dim=1).sqrt()
