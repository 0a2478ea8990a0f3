"""The probability is averaged, not the logits, nor the logarithms."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from provico.probability.gaussian import Gaussian
from provico.training.classifier import (
    average_over_mixtures,
    averaged_cross_entropy,
    log_mean_probability,
    neighbouring_clips,
    top_k_correct,
)


def softmax(logits):
    terms = [math.exp(value) for value in logits]
    return [term / sum(terms) for term in terms]


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(2, 5))
def test_it_is_the_mean_of_softmaxes(seed, num_samples, num_classes):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, num_samples, num_classes, generator=generator, dtype=torch.float64)
    expected = []
    for video in logits.tolist():
        each = [softmax(sample) for sample in video]
        expected.append([math.log(sum(column) / num_samples) for column in zip(*each, strict=True)])
    torch.testing.assert_close(log_mean_probability(logits), torch.tensor(expected, dtype=torch.float64))
    labels = torch.tensor([0, num_classes - 1])
    loss = -(expected[0][0] + expected[1][-1]) / 2
    torch.testing.assert_close(averaged_cross_entropy(logits, labels).item(), loss)


def test_samples_that_contradict_each_other_cost_log_two():
    """Half the samples sure of the right class: p = 1/2, however sure the others are of the wrong one."""
    logits = torch.tensor([[[1e4, 0.0], [0.0, 1e4]]])
    torch.testing.assert_close(averaged_cross_entropy(logits, torch.tensor([0])).item(), math.log(2))


def test_mixtures_are_of_neighbours_and_stay_with_their_video():
    mean = torch.arange(2 * 6.0).view(2, 6, 1)
    mixtures = neighbouring_clips(Gaussian(mean, -mean), 2)
    assert mixtures.clips.mean.squeeze(-1).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert torch.equal(mixtures.clips.log_var, -mixtures.clips.mean)


def test_all_samples_of_all_mixtures_are_averaged():
    logits = torch.randn(6, 4, 3, generator=torch.Generator().manual_seed(0))
    log_p = average_over_mixtures(logits, 2)
    torch.testing.assert_close(log_p[1].exp(), logits[3:].softmax(dim=-1).mean(dim=(0, 1)))


def test_of_equal_classes_the_first_counts():
    log_p = torch.tensor([[0.0, 0.0, -1.0], [0.0, 0.0, -1.0], [0.0, 0.0, -1.0]])
    labels = torch.tensor([0, 1, 2])
    assert top_k_correct(log_p, labels, 1).tolist() == [True, False, False]
    assert top_k_correct(log_p, labels, 2).tolist() == [True, True, False]
