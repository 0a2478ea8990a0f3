"""Each file is decoded once, however little memory there is."""

from __future__ import annotations

import numpy as np

from provico.duplicates.fingerprint import SIDE, Fingerprint, FingerprintCache


def of(number: int) -> Fingerprint:
    rng = np.random.default_rng(number)
    return Fingerprint(
        pictures=rng.integers(0, 255, size=(20, SIDE, SIDE), dtype=np.uint8),
        seconds=np.arange(20) / 10,
        duration_seconds=2.0,
        num_pixels=number,
        frames_hash=str(number),
    )


def test_what_does_not_fit_into_memory_is_not_read_again():
    read: list[int] = []

    def reader(number: int) -> Fingerprint:
        read.append(number)
        return of(number)

    cache = FingerprintCache(reader, max_bytes=1)
    for _ in range(2):
        for number in (0, 1, 2, 3, 4, 1):
            found = cache(number)
            np.testing.assert_array_equal(found.pictures, of(number).pictures)
            np.testing.assert_array_equal(found.in_scenes.keys, of(number).in_scenes.keys)
            assert (found.num_pixels, found.frames_hash) == (number, str(number))
    assert read == [0, 1, 2, 3, 4]
