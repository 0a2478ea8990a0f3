"""Our convolution is PyTorch's, whatever path it takes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.models.backbones import convolution
from provico.models.backbones.convolution import Conv3d, weight_gradient

CHANNELS_LAST = torch.channels_last_3d


def make_clips(batch: int, channels: int, size: tuple[int, int, int], dtype=torch.float64) -> torch.Tensor:
    return torch.randn(batch, channels, *size, dtype=dtype).contiguous(memory_format=CHANNELS_LAST)


@st.composite
def geometries(draw: st.DrawFn):
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(3))
    stride = tuple(draw(st.integers(1, 3)) for _ in range(3))
    padding = tuple(draw(st.integers(0, size // 2)) for size in kernel)
    size = tuple(draw(st.integers(k, 6)) for k in kernel)
    return kernel, stride, padding, size


@settings(max_examples=80, deadline=None)
@given(geometry=geometries(), batch=st.integers(1, 3), patch_bytes=st.sampled_from([1, 3000, 2**22]))
def test_forward_and_gradients_are_those_of_pytorch(geometry, batch, patch_bytes) -> None:
    kernel, stride, padding, size = geometry
    torch.manual_seed(0)
    clips = make_clips(batch, 4, size).requires_grad_()
    conv = Conv3d(4, 5, kernel, stride=stride, padding=padding).double()
    expected = F.conv3d(clips, conv.weight, None, stride, padding)
    grad = torch.randn_like(expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution, "MIN_CHANNELS_FOR_PRODUCTS", 1)
        patch.setattr(convolution, "PATCH_BYTES", patch_bytes)
        found = conv(clips)
        found_grads = torch.autograd.grad(found, (clips, conv.weight), grad)
    torch.testing.assert_close(found, expected)
    expected_grads = torch.autograd.grad(expected, (clips, conv.weight), grad)
    torch.testing.assert_close(found_grads, expected_grads)


@pytest.mark.parametrize("channels", [16, 64])
@pytest.mark.parametrize(
    ("kernel", "padding"), [((1, 3, 3), (0, 1, 1)), ((3, 1, 1), (1, 0, 0)), ((3, 3, 3), (1, 1, 1))]
)
def test_float32_on_both_sides_of_the_channel_limit(channels, kernel, padding) -> None:
    torch.manual_seed(0)
    clips = make_clips(2, channels, (4, 7, 7), torch.float32).requires_grad_()
    conv = Conv3d(channels, 32, kernel, padding=padding)
    found = conv(clips)
    expected = F.conv3d(clips, conv.weight, None, 1, padding)
    grad = torch.randn_like(found)
    assert found.grad_fn.name() == "_ChannelsLastConvBackward"
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(
        torch.autograd.grad(found, (clips, conv.weight), grad),
        torch.autograd.grad(expected, (clips, conv.weight), grad),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def test_gradcheck() -> None:
    torch.manual_seed(0)
    clips = make_clips(1, 2, (3, 4, 3)).requires_grad_()
    conv = Conv3d(2, 3, (3, 1, 1), stride=(2, 1, 1), padding=(1, 0, 0)).double()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution, "MIN_CHANNELS_FOR_PRODUCTS", 1)
        assert torch.autograd.gradcheck(conv, clips)


@pytest.mark.parametrize("kernel", [(3, 1, 1), (1, 3, 3)])
def test_a_single_clip_stays_in_channels_last_memory(kernel) -> None:
    # With one clip the batch stride is arbitrary, and later layers guess the memory format from strides.
    clips = make_clips(1, 8, (4, 5, 6), torch.float32).requires_grad_()
    output = Conv3d(8, 16, kernel, padding=tuple(k // 2 for k in kernel))(clips)
    assert output.stride() == (16 * 4 * 5 * 6, 1, 16 * 5 * 6, 16 * 6, 16)


def test_contiguous_memory_and_autocast_take_the_ordinary_path() -> None:
    conv = Conv3d(4, 4, (1, 3, 3), padding=(0, 1, 1))
    clips = make_clips(2, 4, (3, 5, 5), torch.float32)
    assert conv(clips.contiguous()).grad_fn.name() == "ConvolutionBackward0"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert conv(clips).dtype == torch.bfloat16


@pytest.mark.parametrize("frames", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", [(3, 1, 1), (3, 3, 3), (5, 1, 1)])
def test_bfloat16_gradients_of_clips_shorter_than_the_kernel(kernel, frames) -> None:
    torch.manual_seed(0)
    clips = make_clips(4, 16, (frames, 4, 4), torch.float32).requires_grad_()
    conv = Conv3d(16, 16, kernel, padding=tuple(size // 2 for size in kernel))
    expected = conv(clips)
    grad = torch.randn_like(expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = conv(clips)
    found_grads = torch.autograd.grad(found, (clips, conv.weight), grad.to(found.dtype))
    expected_grads = torch.autograd.grad(expected, (clips, conv.weight), grad)
    for one, other in zip((found, *found_grads), (expected, *expected_grads), strict=True):
        assert (one - other).norm() < 0.02 * other.norm()


def test_only_the_wanted_gradients_are_computed() -> None:
    clips = make_clips(2, 64, (2, 4, 4), torch.float32)
    conv = Conv3d(64, 4, (1, 3, 3), padding=(0, 1, 1))
    conv(clips).sum().backward()
    assert clips.grad is None
    assert conv.weight.grad is not None

    conv = Conv3d(64, 4, (1, 3, 3), padding=(0, 1, 1)).requires_grad_(False)
    clips.requires_grad_()
    conv(clips).sum().backward()
    assert clips.grad is not None
    assert conv.weight.grad is None


def test_weight_gradient_by_the_definition() -> None:
    torch.manual_seed(0)
    clips, grad = torch.randn(2, 2, 3, 3, 3).double(), torch.randn(2, 1, 3, 2, 2).double()
    found = weight_gradient(grad, clips, kernel_size=(1, 2, 2), stride=(1, 1, 1), padding=(0, 0, 0))
    for channel in range(2):
        for i in range(2):
            for j in range(2):
                seen = clips[:, channel, :, i : i + 2, j : j + 2]
                assert float(found[0, channel, 0, i, j]) == pytest.approx(float((seen * grad[:, 0]).sum()))
