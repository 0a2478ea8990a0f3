"""The order of videos follows from seed and epoch, for one process or several."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provico.data.batch_order import BatchOrder
from provico.errors import ConfigError


@given(
    num_videos=st.integers(1, 60),
    share=st.integers(1, 5),
    world_size=st.integers(1, 3),
    seed=st.integers(0, 5),
    drop_last=st.booleans(),
)
def test_processes_share_the_batches_of_one(num_videos, share, world_size, seed, drop_last):
    if drop_last and num_videos < share * world_size:
        return
    whole = BatchOrder(num_videos, batch_size=share * world_size, seed=seed, drop_last=drop_last)
    parts = [
        BatchOrder(
            num_videos, batch_size=share, seed=seed, drop_last=drop_last, rank=rank, world_size=world_size
        )
        for rank in range(world_size)
    ]
    batches = list(whole)
    for batch, *own in zip(batches, *parts, strict=True):
        assert np.array_equal(batch, np.concatenate(own))
    seen = np.concatenate(batches)
    assert len(set(seen.tolist())) == len(seen)
    if not drop_last:
        assert sorted(seen) == list(range(num_videos))


@given(num_batches=st.integers(0, 9), epoch=st.integers(0, 3))
def test_it_goes_on_from_any_place(num_batches, epoch):
    order = BatchOrder(30, batch_size=3, seed=7)
    for _ in range(epoch):
        order.end_epoch()
    expected = [batch.tolist() for batch in order]
    for _ in range(num_batches):
        order.advance()
    again = BatchOrder(30, batch_size=3, seed=7)
    again.load_state_dict(order.state_dict())
    assert [batch.tolist() for batch in again] == expected[num_batches:]


def test_another_order_is_refused_by_name():
    state = BatchOrder(30, batch_size=3, seed=7).state_dict()
    with pytest.raises(ConfigError, match="seed was 7 and is 8"):
        BatchOrder(30, batch_size=3, seed=8).load_state_dict(state)
    with pytest.raises(ConfigError, match="number of videos was 30 and is 33"):
        BatchOrder(33, batch_size=3, seed=7).load_state_dict(state)


def test_too_few_videos_are_refused_with_the_batch_that_would_fit():
    with pytest.raises(
        ConfigError, match=r"There are 5 videos, but one batch takes 8. Lower the batch size to 4"
    ):
        BatchOrder(5, batch_size=4, world_size=2)
