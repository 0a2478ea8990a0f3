"""What is remembered of videos that come by again and again."""

from __future__ import annotations

import torch

from provico.probability import Gaussian, Mixture
from provico.training.memory import OLD_SHARE, VideoMemory


def clips(seed: int, num_videos: int, num_clips: int = 2) -> Gaussian:
    generator = torch.Generator().manual_seed(seed)
    mean, log_var = torch.randn(2, num_videos, num_clips, 3, generator=generator)
    return Gaussian(mean, 0.3 * log_var)


def test_a_video_is_the_mixture_of_all_its_clips_the_newer_weighing_more() -> None:
    memory = VideoMemory(5, 3)
    visits = [clips(seed, 2) for seed in range(3)]
    for visit in visits:
        recalled = memory.see(torch.tensor([3, 1]), Mixture(visit))
    shares = torch.tensor([OLD_SHARE**2, OLD_SHARE * (1 - OLD_SHARE), 1 - OLD_SHARE]).view(3, 1, 1, 1) / 2
    means = torch.stack([visit.mean for visit in visits])
    variances = torch.stack([visit.var for visit in visits])
    expected_mean = (shares * means).sum(dim=(0, 2))
    expected_var = (shares * (variances + means.square())).sum(dim=(0, 2)) - expected_mean.square()
    torch.testing.assert_close(recalled.batch.mean, expected_mean)
    torch.testing.assert_close(recalled.batch.var, expected_var)
    # Only what was seen is recalled, in the order of the catalog.
    assert recalled.place.tolist() == [1, 0]
    assert torch.equal(recalled.everyone.mean, recalled.batch.mean.flip(0))


def test_what_is_seen_first_counts_whole_and_has_no_gradient() -> None:
    memory = VideoMemory(4, 3)
    seen = clips(0, 3)
    videos = Mixture(Gaussian(seen.mean.requires_grad_(), seen.log_var))
    recalled = memory.see(torch.tensor([0, 2, 3]), videos)
    assert not recalled.everyone.mean.requires_grad
    torch.testing.assert_close(recalled.everyone.mean, videos.mean)
    torch.testing.assert_close(recalled.everyone.log_var, videos.moment_matched.log_var)


def test_a_state_brings_all_back() -> None:
    memory, other = VideoMemory(4, 3), VideoMemory(4, 3)
    memory.see(torch.tensor([1, 2]), Mixture(clips(0, 2)))
    state = {name: value.clone() for name, value in memory.state_dict().items()}
    other.load_state_dict(state)
    again = Mixture(clips(1, 2))
    one, two = (each.see(torch.tensor([2, 3]), again) for each in (memory, other))
    assert torch.equal(one.everyone.mean, two.everyone.mean)
    assert torch.equal(one.everyone.log_var, two.everyone.log_var)
    assert len(two.everyone.mean) == 3
    # The state that was loaded is not what goes on changing.
    assert not torch.equal(state["mean"], other.state_dict()["mean"])
