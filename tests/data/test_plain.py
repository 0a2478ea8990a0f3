"""What is plain comes back as it was; any other bytes are refused with ValueError, and run nothing."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from provico import errors
from provico.data import plain
from provico.errors import ConfigError, ProvicoError, VideoError

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_plain_values_come_back(value: object) -> None:
    assert plain.from_bytes(plain.to_bytes(value)) == value


@given(arrays(st.sampled_from(["<f4", "<i8", "|u1", "|b1"]), array_shapes(min_dims=0, min_side=0)))
def test_arrays_come_back(array: np.ndarray) -> None:
    found = plain.from_bytes(plain.to_bytes([array, b"after"]))
    assert found[0].dtype == array.dtype
    assert found[0].tobytes() == array.tobytes()
    assert found[0].shape == array.shape


def test_errors_come_back() -> None:
    for name in ("UnreadableVideoError", "VideoTimeoutError"):
        found = plain.from_bytes(plain.to_bytes(getattr(errors, name)(Path("a\udcff.mp4"), "why")))
        assert (type(found).__name__, found.path, found.reason) == (name, Path("a\udcff.mp4"), "why")
    found = plain.from_bytes(plain.to_bytes(ConfigError("a sentence")))
    assert (type(found), str(found)) == (ConfigError, "a sentence")
    unknown = type("Strange", (Exception,), {})("words")
    assert str(plain.from_bytes(plain.to_bytes(unknown))) == "Strange: words"


@given(st.binary(max_size=200) | VALUES.map(plain.to_bytes), st.integers(0, 400), st.binary(max_size=4))
def test_other_bytes_are_refused_or_plain(data: bytes, place: int, other: bytes) -> None:
    spoilt = data[:place] + other + data[place + len(other) :]
    with contextlib.suppress(ValueError):
        plain.to_bytes(plain.from_bytes(spoilt))


@pytest.mark.parametrize(
    "text",
    [
        '["error", "SystemExit", "0"]',
        '["error", "exec", "print()"]',
        '["video error", "did_you_mean", "a", "b"]',
        '["array", "O", [1]]',
        '["array", "<f4", [1000000000000]]',
        '["bytes", -1]',
        '["set"]',
        "[" * 100_000,
    ],
)
def test_nothing_can_be_called(text: str) -> None:
    data = len(text).to_bytes(8) + text.encode()
    try:
        found = plain.from_bytes(data)
    except ValueError:
        return
    assert isinstance(found, RuntimeError)
    assert not isinstance(found, ProvicoError | VideoError)


def test_a_pickle_is_not_loaded() -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        plain.from_bytes(pickle.dumps([1]))
