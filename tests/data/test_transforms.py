from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage, stats
from torch import Tensor

from provico.data.transforms import (
    AUGMENTATIONS,
    Augmentation,
    Box,
    apply,
    blur_matrix,
    centre_box,
    crop_clips,
    cut,
    hue_matrix,
    random_box,
    random_resized_box,
    resize,
    saturation_matrix,
)
from provico.errors import ConfigError

CONTRASTIVE = AUGMENTATIONS["contrastive"]
ALWAYS = replace(
    CONTRASTIVE, flip_probability=1.0, jitter_probability=1.0, grey_probability=0.0, blur_probability=1.0
)
LUMA = np.array([0.299, 0.587, 0.114])

sides = st.integers(1, 90)
seeds = st.integers(0, 2**63)


def some_clips(*shape: int, seed: int = 0) -> Tensor:
    """Pictures with structure on several scales, since pure noise averages away."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (*shape[:2], -(-shape[2] // 8), -(-shape[3] // 8), 3))
    clips = coarse.repeat(8, axis=2).repeat(8, axis=3)[:, :, : shape[2], : shape[3]]
    noisy = np.clip(clips + rng.integers(-20, 21, clips.shape), 0, 255)
    return torch.from_numpy(noisy.astype(np.uint8))


# ----------------------------------------------------------------------------------------------------
# Crops


@given(sides, sides, st.data(), seeds)
@settings(deadline=None)
def test_boxes_lie_inside_the_frame(height: int, width: int, data: st.DataObject, seed: int) -> None:
    size = data.draw(st.integers(1, min(height, width)))
    rng = np.random.default_rng(seed)
    middle = centre_box(height, width, size)
    assert abs((height - size) - 2 * middle.top) <= 1
    assert abs((width - size) - 2 * middle.left) <= 1
    resized = random_resized_box(height, width, area=(0.01, 1.0), aspect=(0.2, 5.0), rng=rng)
    for box in (middle, random_box(height, width, size, rng=rng), resized):
        assert min(box.top, box.left) >= 0
        assert min(box.height, box.width) >= 1
        assert box.top + box.height <= height
        assert box.left + box.width <= width


def test_every_place_of_a_random_crop_is_equally_likely() -> None:
    rng = np.random.default_rng(0)
    boxes = [random_box(10, 12, 8, rng=rng) for _ in range(6000)]
    counts = np.bincount([5 * box.top + box.left for box in boxes], minlength=15)
    assert stats.chisquare(counts).pvalue > 0.001


def test_resized_boxes_have_the_areas_and_aspects_asked_for() -> None:
    rng = np.random.default_rng(0)
    boxes = [random_resized_box(200, 200, area=(0.1, 0.4), aspect=(0.5, 2.0), rng=rng) for _ in range(2000)]
    area = np.array([box.height * box.width / 40_000 for box in boxes])
    aspect = np.array([box.width / box.height for box in boxes])
    assert stats.kstest(area, stats.uniform(0.1, 0.3).cdf).pvalue > 0.001
    assert stats.kstest(np.log2(aspect), stats.uniform(-1, 2).cdf).pvalue > 0.001


@pytest.mark.parametrize("as_torch", [True, False])
@pytest.mark.parametrize("per_clip", [True, False])
@pytest.mark.parametrize("kind", [Augmentation(crop="random"), Augmentation(crop="resized")])
def test_all_frames_of_a_clip_are_cut_alike(kind: Augmentation, per_clip: bool, as_torch: bool) -> None:
    still = some_clips(1, 1, 40, 60).expand(3, 4, 40, 60, 3)
    clips = still if as_torch else still.numpy()
    augmentation = replace(kind, crop_per_clip=per_clip)

    def crop() -> np.ndarray:
        boxes = augmentation.boxes(40, 60, 24, num_clips=3, rng=np.random.default_rng(3))
        cropped = crop_clips(clips, boxes, 24)
        assert isinstance(cropped, Tensor) == as_torch
        return np.asarray(cropped)

    cropped = crop()
    assert cropped.shape == (3, 4, 24, 24, 3)
    assert cropped.dtype == np.uint8
    assert np.array_equal(cropped, crop())
    assert np.all(cropped == cropped[:, :1])
    assert np.all(cropped == cropped[:1]) == (not per_clip)


def test_a_box_of_the_right_size_is_cut_and_not_resized() -> None:
    clips = some_clips(2, 3, 20, 30)
    boxes = [Box(5, 10, 10, 10), Box(0, 20, 10, 10)]
    expected = torch.stack([clips[0, :, 5:15, 10:20], clips[1, :, 0:10, 20:30]])
    assert torch.equal(crop_clips(clips, boxes, 10), expected)
    assert np.shares_memory(cut(clips.numpy(), boxes[0]), clips.numpy())


def test_crops_of_a_read_only_file_work() -> None:
    clips = some_clips(2, 3, 20, 30).numpy()
    clips.flags.writeable = False
    cropped = crop_clips(clips, [Box(0, 0, 20, 20), Box(4, 4, 12, 16)], 8)
    assert cropped.shape == (2, 3, 8, 8, 3)


def test_resize_keeps_flat_colour_and_means() -> None:
    flat = torch.full((2, 13, 17, 3), 77, dtype=torch.uint8)
    assert torch.equal(resize(flat, 30, 9), torch.full((2, 30, 9, 3), 77, dtype=torch.uint8))
    picture = some_clips(1, 2, 64, 64)[0]
    assert (resize(picture, 16, 16).float().mean() - picture.float().mean()).abs() < 1
    assert resize(picture, 64, 64) is picture


@pytest.mark.parametrize("size", [0, 21])
def test_a_crop_that_does_not_fit_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=f"{size} x {size} pixels does not fit into frames of 20 x 30"):
        centre_box(20, 30, size)


# ----------------------------------------------------------------------------------------------------
# Augmentation


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_still_clip_stays_still(name: str) -> None:
    still = some_clips(1, 1, 30, 46).expand(24, 7, 30, 46, 3)
    changed = apply(still, AUGMENTATIONS[name].draw(range(24)))
    assert torch.equal(changed, changed[:, :1].expand_as(changed))


@pytest.mark.parametrize("augmentation", [CONTRASTIVE, ALWAYS])
def test_a_clip_does_not_depend_on_its_batch(augmentation: Augmentation) -> None:
    clips = some_clips(12, 4, 28, 36)
    together = apply(clips, augmentation.draw(range(12)))
    order = [7, 3, 11, 0]
    assert torch.equal(apply(clips[order], augmentation.draw(order)), together[order])
    alone = [apply(clips[number : number + 1], augmentation.draw([number])) for number in range(12)]
    assert torch.equal(torch.cat(alone), together)


@given(st.lists(seeds, min_size=1, max_size=5))
@settings(max_examples=30, deadline=None)
def test_seeds_reproduce_and_differ(numbers: list[int]) -> None:
    first, again = ALWAYS.draw(numbers), ALWAYS.draw(numbers)
    for field in fields(first):
        assert torch.equal(getattr(first, field.name), getattr(again, field.name))
    other = ALWAYS.draw([number + 1 for number in numbers])
    assert not torch.equal(first.colour, other.colour)


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_no_strength_is_no_change(seed: int) -> None:
    clips = some_clips(1, 2, 9, 11)
    weak = replace(
        ALWAYS, flip_probability=0, blur_probability=0, brightness=0, contrast=0, saturation=0, hue=0
    )
    assert torch.equal(apply(clips, weak.draw([seed])), clips)
    assert torch.equal(apply(clips, Augmentation.none().draw([seed])), clips)


def test_the_input_is_left_alone() -> None:
    clips = some_clips(3, 2, 16, 16)
    before = clips.clone()
    assert not torch.equal(apply(clips, ALWAYS.draw(range(3))), before)
    assert torch.equal(clips, before)


def test_a_new_probability_leaves_the_other_choices_alone() -> None:
    draw, other = CONTRASTIVE.draw(range(50)), replace(CONTRASTIVE, flip_probability=0.9).draw(range(50))
    assert not torch.equal(draw.flip, other.flip)
    assert torch.equal(draw.colour, other.colour)
    assert torch.equal(draw.blur_std, other.blur_std)


def test_flip_mirrors_and_twice_is_nothing() -> None:
    flip = Augmentation(flip_probability=1.0).draw(range(2))
    clips = some_clips(2, 3, 6, 7)
    once = apply(clips, flip)
    np.testing.assert_array_equal(once.numpy(), clips.numpy()[:, :, :, ::-1])
    assert torch.equal(apply(once, flip), clips)


def test_all_clips_of_a_video_are_mirrored_or_none() -> None:
    together = Augmentation(flip_probability=0.5, flip_per_clip=False)
    flips = [together.draw([seed, seed + 100, seed + 200]).flip.tolist() for seed in range(40)]
    assert {tuple(flip) for flip in flips} == {(True,) * 3, (False,) * 3}
    apart = Augmentation(flip_probability=0.5)
    assert len({tuple(apart.draw([seed, seed + 100, seed + 200]).flip.tolist()) for seed in range(40)}) > 2


def test_shift_colour_moves_clips_as_shift_does_and_colours_them_as_contrastive_does() -> None:
    both, shift = AUGMENTATIONS["shift_colour"], AUGMENTATIONS["shift"]
    boxes = [kind.boxes(40, 60, 24, num_clips=3, rng=np.random.default_rng(3)) for kind in (both, shift)]
    assert boxes[0] == boxes[1]
    drawn, moved, coloured = (kind.draw(range(30)) for kind in (both, shift, CONTRASTIVE))
    assert torch.equal(drawn.flip, moved.flip)
    for name in ("colour", "pivot", "blur_std"):
        assert torch.equal(getattr(drawn, name), getattr(coloured, name))


def test_grey_has_equal_channels_and_the_luma_of_the_colour() -> None:
    clips = some_clips(2, 2, 8, 9)
    grey = apply(clips, Augmentation(grey_probability=1.0).draw(range(2))).numpy()
    assert np.all(grey == grey[..., :1])
    assert np.abs(grey[..., 0] - clips.numpy() @ LUMA).max() <= 0.5 + 1e-3


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_one_matrix_is_the_steps_one_after_another(seed: int) -> None:
    """Against the definition of each step in float64, with nothing cut off between them."""
    augmentation = replace(ALWAYS, flip_probability=0.0, blur_probability=0.0)
    # Every fourth pixel has the mean of all, which is what contrast turns about.
    clips = some_clips(1, 3, 8, 12)[:, :, ::4, ::4].repeat_interleave(4, dim=2).repeat_interleave(4, dim=3)
    strength = 2 * np.random.default_rng(seed).random(9).astype(np.float32) - 1
    pixels = clips.numpy().astype(np.float64)
    pixels = pixels * (1 + augmentation.brightness * strength[4])
    contrast = 1 + augmentation.contrast * strength[5]
    pixels = contrast * pixels + (1 - contrast) * (pixels @ LUMA).mean()
    saturation = 1 + augmentation.saturation * strength[6]
    pixels = saturation * pixels + (1 - saturation) * (pixels @ LUMA)[..., None]
    pixels = pixels @ hue_matrix(torch.tensor([augmentation.hue * strength[7]]))[0].double().numpy().T
    changed = apply(clips, augmentation.draw([seed])).numpy()
    assert np.abs(changed - np.clip(pixels, 0, 255)).max() <= 0.5 + 1e-2


@given(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5), st.floats(0, 2))
@settings(max_examples=50, deadline=None)
def test_matrices_of_colour_keep_grey_and_luma(turn: float, other: float, factor: float) -> None:
    hue, saturation = hue_matrix(torch.tensor([turn]))[0], saturation_matrix(torch.tensor([factor]))[0]
    ones, luma = torch.ones(3), torch.tensor(LUMA, dtype=torch.float32)
    for matrix in (hue, saturation):
        torch.testing.assert_close(matrix @ ones, ones, atol=1e-5, rtol=0)
        torch.testing.assert_close(luma @ matrix, luma, atol=1e-5, rtol=0)
    both = hue_matrix(torch.tensor([turn + other]))[0]
    torch.testing.assert_close(hue @ hue_matrix(torch.tensor([other]))[0], both, atol=1e-4, rtol=0)


def test_hue_0_and_a_whole_turn_are_nothing() -> None:
    torch.testing.assert_close(
        hue_matrix(torch.tensor([0.0, 1.0])), torch.eye(3).repeat(2, 1, 1), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("std", [0.1, 0.6, 1.3, 2.0])
@pytest.mark.parametrize("shape", [(112, 112), (31, 57), (5, 3)])
def test_blur_is_gaussian(std: float, shape: tuple[int, int]) -> None:
    clips = some_clips(1, 2, *shape)
    blurred = apply(clips, Augmentation(blur_probability=1.0, blur_std=(std, std)).draw([0])).numpy()
    # Weights that fall outside are shared by those inside, so divide by what blur makes of ones.
    pixels = clips.numpy().astype(np.float64)
    radius = int(np.ceil(3 * std))

    def smooth(values: np.ndarray) -> np.ndarray:
        for axis in (2, 3):
            values = ndimage.gaussian_filter1d(values, std, axis=axis, mode="constant", radius=radius)
        return values

    assert np.abs(blurred - smooth(pixels) / smooth(np.ones_like(pixels))).max() <= 0.5 + 1e-2


@given(st.integers(1, 40), st.floats(0.1, 5))
@settings(max_examples=50, deadline=None)
def test_blur_weights_sum_to_one(length: int, std: float) -> None:
    torch.testing.assert_close(blur_matrix(length, std).sum(dim=1), torch.ones(length))


def test_probabilities_are_kept() -> None:
    draw = CONTRASTIVE.draw(range(4000))
    is_grey = (draw.colour - draw.colour[:, :1]).abs().amax(dim=(1, 2)) < 1e-5
    unchanged = (draw.colour - torch.eye(3)).abs().amax(dim=(1, 2)) < 1e-5
    for happened, probability in (
        (draw.flip, 0.5),
        (is_grey, 0.2),
        (draw.blur_std > 0, 0.5),
        (unchanged, 0.2 * 0.8),
    ):
        assert stats.binomtest(int(happened.sum()), 4000, probability).pvalue > 0.001
    assert draw.blur_std.max() <= 2.0


def test_no_clips_are_no_clips() -> None:
    assert apply(some_clips(1, 2, 4, 4)[:0], CONTRASTIVE.draw([])).shape == (0, 2, 4, 4, 3)


def test_wrong_pixels_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Needed uint8 clips \[2, .* got torch.float32"):
        apply(some_clips(2, 2, 4, 4).float(), CONTRASTIVE.draw([0, 1]))
    with pytest.raises(ValueError, match=r"Needed uint8 clips \[1, .* \[2, 2, 4, 4, 3\]"):
        apply(some_clips(2, 2, 4, 4), CONTRASTIVE.draw([0]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"flip_probability": 1.5},
        {"brightness": -0.1},
        {"hue": 0.6},
        {"blur_std": (0.0, 1.0)},
        {"crop_area": (0.5, 1.5)},
        {"crop_aspect": (2.0, 0.5)},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Augmentation(**wrong)
