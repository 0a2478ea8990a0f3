"""The learning rate: a straight line to half a period of cosine."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provico.training.descent import learning_rate_at

PAPER = {"epochs": 200, "peak": 1e-3, "warmup_epochs": 20, "warmup_from": 1e-4}


def test_the_schedule_of_the_paper():
    assert learning_rate_at(0, **PAPER) == 1e-4
    meeting = 0.5e-3 * (1 + math.cos(math.pi * 0.1))
    assert learning_rate_at(10, **PAPER) == pytest.approx((1e-4 + meeting) / 2)
    assert learning_rate_at(20, **PAPER) == pytest.approx(meeting)
    assert learning_rate_at(100, **PAPER) == pytest.approx(0.5e-3)
    assert learning_rate_at(200, **PAPER) == pytest.approx(0, abs=1e-18)


@given(epoch=st.floats(0, 199.9), step=st.floats(1e-6, 0.1))
def test_it_never_jumps(epoch, step):
    slope = abs(learning_rate_at(epoch + step, **PAPER) - learning_rate_at(epoch, **PAPER)) / step
    assert slope <= 1e-3 / 20 + 1e-9


@given(epochs=st.integers(1, 300), warmup=st.integers(0, 30), share=st.floats(0, 1))
def test_it_is_positive_before_the_end_whatever_the_warm_up(epochs, warmup, share):
    rate = learning_rate_at(
        share * epochs * 0.99, epochs=epochs, peak=1e-3, warmup_epochs=warmup, warmup_from=1e-5
    )
    assert 0 < rate <= 1e-3
