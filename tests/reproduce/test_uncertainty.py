"""The rank correlation against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from provico.reproduce.uncertainty import rank_correlation

numbers = st.floats(-100, 100, allow_nan=False).map(lambda value: round(value, 3))


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=20))
def test_rank_correlation_is_spearmans(pairs):
    first, second = zip(*pairs, strict=True)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert np.isnan(rank_correlation(first, second))
    else:
        assert rank_correlation(first, second) == pytest.approx(stats.spearmanr(first, second)[0], abs=1e-9)
