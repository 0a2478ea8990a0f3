"""A fast 3-D convolution for CPUs, with the weights and results of `torch.nn.Conv3d`.

Pixels arrive as (batch, time, height, width, channels), which is PyTorch's `channels_last_3d` memory format,
and every layer keeps it. In that format oneDNN runs forward and input gradient of a (1,3,3) or (3,3,3) kernel
near the machine's peak, but two cases far below it, which are handled here:

- a temporal kernel (k,1,1): here it runs as a 2-D convolution over (time, height * width), a view of
  the same memory, which has a fast kernel;
- the gradient of the weights: here it is a matrix product. Each output pixel is multiplied with the patch of
  input that it saw, so with patches as rows the sum over all pixels is one product. Only patches within a
  frame are copied; the taps in time are whole frames, so they are slices.

`benchmarks/step.py` measures the gain. Anything but dense float32 or float64 in channels-last
memory on a CPU (a GPU, autocast, an export) uses the ordinary path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Triple = tuple[int, int, int]
Ints = tuple[int, ...]

MIN_CHANNELS_FOR_PRODUCTS = 64
"""With fewer input channels, copying patches costs more than the faster product saves."""

PATCH_BYTES = 4 * 2**20
"""Bytes of patches that are held at once: about the size of the caches."""


class Conv3d(nn.Conv3d):
    """`torch.nn.Conv3d` without bias, groups or dilation, with the faster path described above."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Triple,
        *,
        stride: Triple = (1, 1, 1),
        padding: Triple = (0, 0, 0),
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, bias=False)
        self.steps: Triple = stride
        self.margins: Triple = padding

    def forward(
        self, input: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch out_channels out_time out_height out_width"]:
        """The convolution, by the fast path if it applies."""
        if _fast_path_applies(input, self.weight):
            output: Tensor = _ChannelsLastConv.apply(  # type: ignore[no-untyped-call]
                input, self.weight, self.steps, self.margins
            )
            return output
        if self.margins[0] > 0 and input.shape[2] < self.weight.shape[2] and _computes_bfloat16(input):
            # oneDNN leaves the gradient of the weights unwritten if a clip is shorter than the kernel.
            margin = self.margins[0]
            padded = F.pad(input, (0, 0, 0, 0, margin, margin))
            return F.conv3d(padded, self.weight, None, self.steps, (0, *self.margins[1:]))
        return super().forward(input)


def _computes_bfloat16(input: Tensor) -> bool:
    autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return input.device.type == "cpu" and (autocast or input.dtype == torch.bfloat16)


def _fast_path_applies(input: Tensor, weight: Tensor) -> bool:
    return (
        input.device.type == "cpu"
        and input.dtype == weight.dtype
        and input.dtype in (torch.float32, torch.float64)
        and input.is_contiguous(memory_format=torch.channels_last_3d)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class _ChannelsLastConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, stride: Triple, padding: Triple) -> Tensor:
        ctx.save_for_backward(input, weight)
        ctx.stride, ctx.padding = stride, padding
        form = _Form.of(weight, stride, padding)
        output = torch.convolution(form.view(input), form.weight, None, *form.settings)
        return form.unview(output, height=input.shape[3], width=input.shape[4])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        input, weight = ctx.saved_tensors
        grad_output = grad_output.contiguous(memory_format=torch.channels_last_3d)
        wants_input, wants_weight, *_ = ctx.needs_input_grad
        by_products = wants_weight and input.shape[1] >= MIN_CHANNELS_FOR_PRODUCTS
        mask = [wants_input, wants_weight and not by_products, False]

        form = _Form.of(weight, ctx.stride, ctx.padding)
        grad_input, grad_weight, _ = torch.ops.aten.convolution_backward(
            form.view(grad_output), form.view(input), form.weight, None, *form.settings, mask
        )
        if by_products:
            grad_weight = weight_gradient(
                grad_output, input, kernel_size=weight.shape[2:], stride=ctx.stride, padding=ctx.padding
            )
        return (
            form.unview(grad_input, height=input.shape[3], width=input.shape[4]) if wants_input else None,
            grad_weight.reshape(weight.shape) if wants_weight else None,
            None,
            None,
        )


@dataclass(frozen=True)
class _Form:
    """The form of the convolution for oneDNN: 3-D, or 2-D if the kernel extends only in time."""

    weight: Tensor
    stride: Ints
    padding: Ints

    @classmethod
    def of(cls, weight: Tensor, stride: Triple, padding: Triple) -> _Form:
        if weight.shape[2] > 1 and weight.shape[3:] == (1, 1) and stride[1:] == (1, 1):
            return cls(weight.squeeze(-1), stride[:2], padding[:2])
        return cls(weight, stride, padding)

    @property
    def dims(self) -> int:
        return len(self.stride)

    @property
    def settings(self) -> tuple[Ints, Ints, Ints, bool, Ints, int]:
        """Stride, padding, dilation, transposed, output padding and groups, in PyTorch's order."""
        return self.stride, self.padding, (1,) * self.dims, False, (0,) * self.dims, 1

    def view(self, video: Tensor) -> Tensor:
        """The video itself, or a view as (batch, channels, time, height * width)."""
        if self.dims == 3:
            return video
        return video.permute(0, 2, 3, 4, 1).flatten(2, 3).permute(0, 3, 1, 2)

    def unview(self, result: Tensor, *, height: int, width: int) -> Tensor:
        """The inverse of `view`, always in channels-last memory.

        PyTorch uses another format for single small clips, which it does not pass to oneDNN. The strides of
        the view are explicit because for a single clip the stride of the batch axis would be arbitrary, and
        the following layers would no longer recognise the format.
        """
        if self.dims == 3:
            return result.contiguous(memory_format=torch.channels_last_3d)
        result = result.contiguous(memory_format=torch.channels_last)
        batch, channels, time, pixels = result.shape
        frame = pixels * channels
        strides = (time * frame, 1, frame, width * channels, channels)
        return result.as_strided((batch, channels, time, height, width), strides)


def weight_gradient(
    grad_output: Float[Tensor, "batch out_channels out_time out_height out_width"],
    input: Float[Tensor, "batch channels time height width"],
    *,
    kernel_size: Ints,
    stride: Triple,
    padding: Triple,
) -> Float[Tensor, "out_channels channels kernel_time kernel_height kernel_width"]:
    """Gradient of a convolution's weights as a sum of matrix products over groups of frames."""
    taps, height_taps, width_taps = kernel_size
    frames = input.permute(0, 2, 3, 4, 1)
    grads = grad_output.permute(0, 2, 3, 4, 1)
    if taps == 1 and stride[0] == 1 and padding[0] == 0:
        # Without a kernel in time all clips can be joined to one long clip, for longer products.
        frames, grads = frames.flatten(0, 1).unsqueeze(0), grads.flatten(0, 1).unsqueeze(0)
    num_clips, num_frames, *_, channels = frames.shape
    _, out_frames, out_height, out_width, out_channels = grads.shape

    patch_size = height_taps * width_taps * channels
    frame_bytes = out_height * out_width * patch_size * input.element_size()
    frames_at_once = min(num_frames, max(1, PATCH_BYTES // frame_bytes))
    clips_at_once = max(1, PATCH_BYTES // (frame_bytes * num_frames))

    # Patches first: a product with the longer side in front is a tenth faster than its transpose.
    total = input.new_zeros(taps, patch_size, out_channels)
    for clip in range(0, num_clips, clips_at_once):
        clips = slice(clip, clip + clips_at_once)
        for first in range(0, num_frames, frames_at_once):
            group = frames[clips, first : first + frames_at_once]
            patches = _patches(group, kernel_size[1:], stride[1:], padding[1:])
            for tap in range(taps):
                # Output frame t saw input frame t * stride + shift; keep those in this group.
                shift = tap - padding[0] - first
                start = max(0, -(shift // stride[0]))
                stop = min(out_frames, (group.shape[1] - 1 - shift) // stride[0] + 1)
                if start >= stop:
                    continue
                seen = patches[:, start * stride[0] + shift :: stride[0]][:, : stop - start]
                grad_rows = grads[clips, start:stop].reshape(-1, out_channels)
                total[tap].addmm_(seen.reshape(-1, patch_size).t(), grad_rows)
    return total.view(taps, height_taps, width_taps, channels, out_channels).permute(4, 3, 0, 1, 2)


def _patches(frames: Tensor, kernel_size: Ints, stride: Ints, padding: Ints) -> Tensor:
    """The input that each output pixel sees: (clips, frames, pixels, height taps * width taps * channels)."""
    if any(padding):
        frames = F.pad(frames, (0, 0, padding[1], padding[1], padding[0], padding[0]))
    windows = frames.unfold(2, kernel_size[0], stride[0]).unfold(3, kernel_size[1], stride[1])
    return windows.permute(0, 1, 2, 3, 5, 6, 4).flatten(4).flatten(2, 3)
