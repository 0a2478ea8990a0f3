"""One video against many at once gives what one against one gives, by the definition."""

from __future__ import annotations

import numpy as np
import pytest

from provico.duplicates.fingerprint import CROP_SIDES, CROPS, NUM_KEYS, SIDE, WHOLE, small, spectra
from provico.duplicates.scenes import SAME_SCENE, overlays


def by_definition(ours, theirs):
    """The best score, and whether it is of the mirrored one."""
    best = (-1.0, False)
    for is_mirrored, other in ((False, theirs), (True, theirs.mirrored)):
        for mine, whole in ((ours, other), (other, ours)):
            for crop in range(len(CROPS)):
                keys = mine.in_scenes.keys.reshape(len(CROPS), NUM_KEYS, -1)[crop]
                likeness = np.sort((keys @ whole.in_scenes.looks[0].T).max(axis=1))
                best = max(best, (float(likeness[-3:].mean()), is_mirrored))
    return best


@pytest.fixture(scope="module")
def videos(make_film, fingerprint):
    first = make_film(1, 1)
    frames = [first, first[:, ::2, ::2], first[:, :, ::-1], first[:, 8:64, 10:86], first[25:65]]
    return [fingerprint(some) for some in (*frames, make_film(1, 2), make_film(5, 1), make_film(6, 1))]


@pytest.mark.parametrize("number", range(8))
def test_together_as_one_by_one(videos, number):
    found = overlays(videos[number], videos)
    for other, overlay in zip(videos, found, strict=True):
        score, is_mirrored = by_definition(videos[number], other)
        assert (overlay is not None) == (score > SAME_SCENE)
        if overlay is not None:
            assert overlay.is_mirrored == is_mirrored
            assert WHOLE in (overlay.our_box, overlay.their_box)


def test_crops_lie_where_they_were_cut(videos):
    (middle,) = overlays(videos[0], [videos[3]])
    assert middle is not None
    assert middle.their_box == WHOLE
    top, left, bottom, right = middle.our_box
    assert (top, left) != (0, 0)
    assert (bottom, right) != (SIDE, SIDE)
    (flipped,) = overlays(videos[3], [videos[2]])
    assert flipped is not None
    assert flipped.is_mirrored
    assert flipped.our_box == WHOLE


def test_a_bound_is_never_less(videos):
    first = videos[0]
    for video in videos:
        exact = first.in_scenes.keys @ video.in_scenes.looks[1].T
        assert (first.bounds.keys @ video.bounds.looks[1].T >= exact - 1e-5).all()
        assert first.bounds.size < first.in_scenes.size


def test_products_of_spectra_are_those_of_pictures(videos):
    """And the mirrored spectra are those of mirrored pictures."""
    one, other = (video.pictures[:5] for video in videos[:2])
    (whole,) = spectra(other)
    crops = [crop for side in (SIDE, *CROP_SIDES) for crop in spectra(one, side)]
    for box, crop in zip(CROPS, crops, strict=True):
        flat = [rows - rows.mean(axis=1, keepdims=True) for rows in (small(one, box), small(other))]
        np.testing.assert_allclose(crop @ whole.T, flat[0] @ flat[1].T, rtol=1e-3, atol=5)
    np.testing.assert_allclose(videos[0].in_scenes.looks[1], videos[0].mirrored.in_scenes.looks[0], atol=1e-5)


def test_with_nothing_there_is_nothing(videos):
    assert overlays(videos[0], []) == []
