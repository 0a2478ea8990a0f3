"""The networks are the published ones: their counts, their maps, and what a layer's memory may not change."""

from __future__ import annotations

import pytest
import torch

from provico.errors import ConfigError
from provico.models import BACKBONES, find_backbone
from provico.models.backbones.resnet3d import SpatialMaxPool, tiny

# Trunk parameters without classifier, and the map for 16 frames of 112 x 112.
PUBLISHED = {
    "r3d18": (20_023_872, (512, 16, 4, 4)),
    "r2plus1d18": (15_374_528, (512, 2, 7, 7)),
    "r3d50": (31_672_128, (2048, 16, 4, 4)),
    "tiny": (898_128, (128, 2, 7, 7)),
}


def test_every_trainable_backbone_is_checked_here() -> None:
    single = {name for name, spec in BACKBONES.items() if not spec.is_frozen and spec.num_streams == 1}
    assert PUBLISHED.keys() == single


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_and_shapes(name: str) -> None:
    parameters, map_shape = PUBLISHED[name]
    with torch.device("meta"):
        network = BACKBONES[name].build()
        clips = torch.empty(2, 3, 16, 112, 112)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert network.feature_map(clips).shape == (2, *map_shape)
    assert network(clips).shape == (2, BACKBONES[name].feature_dim)
    assert BACKBONES[name].feature_dim == map_shape[0]


def test_two_streams_are_two_networks_of_differences_and_of_frames() -> None:
    """Each is blind to what the other sees, however large it is."""
    torch.manual_seed(0)
    network = BACKBONES["tiny_two_streams"].build().eval()
    counts = [sum(weights.numel() for weights in part.parameters()) for part in network.children()]
    assert counts == [898_128, 898_128]
    clips = torch.randn(2, 3, 9, 32, 32)
    with torch.no_grad():
        motion, scenery = network(clips).chunk(2, dim=1)
        brighter, _ = network(clips + 5).chunk(2, dim=1)
        moved = clips.clone()
        moved[:, :, [1, 2, 3, 5, 6, 7]] = 0
        _, unmoved = network(moved).chunk(2, dim=1)
        torch.testing.assert_close(motion, network.motion(clips.diff(dim=2)))
    torch.testing.assert_close(brighter, motion, rtol=1e-3, atol=1e-4)
    assert torch.equal(unmoved, scenery)
    assert motion.shape == scenery.shape == (2, 128)


# No stage halves time, and only the last two have kernels in time.
def test_stages_of_r3d18() -> None:
    with torch.device("meta"):
        network = BACKBONES["r3d18"].build()
        video = network.stem(torch.empty(1, 3, 16, 112, 112))
    shapes = [video.shape[1:]]
    for stage in network.stages:
        video = stage(video)
        shapes.append(video.shape[1:])
    assert shapes == [(64, 16, 28, 28), (64, 16, 28, 28), (128, 16, 14, 14), (256, 16, 7, 7), (512, 16, 4, 4)]
    kernels = {
        name.split(".")[1]: module.kernel_size
        for name, module in network.named_modules()
        if name.endswith("branch.conv1")
    }
    assert kernels == {"0": (1, 3, 3), "1": (1, 3, 3), "2": (3, 3, 3), "3": (3, 3, 3)}


@pytest.mark.parametrize("name", ["r3d18", "r2plus1d18", "tiny"])
def test_convolutions_start_with_kaiming_fan_out(name: str) -> None:
    torch.manual_seed(0)
    network = BACKBONES[name].build()
    block = network.stages[-1][-1].branch
    conv = block.conv2 if hasattr(block.conv2, "weight") else block.conv2.spatial
    fan_out = conv.weight.shape[0] * conv.weight[0, 0].numel()
    assert float(conv.weight.detach().std()) == pytest.approx((2 / fan_out) ** 0.5, rel=0.02)


@pytest.mark.parametrize("name", ["tiny", "tiny_two_streams", "r2plus1d18"])
def test_channels_last_gives_the_numbers_of_contiguous_memory(name: str) -> None:
    torch.manual_seed(0)
    network = BACKBONES[name].build().double()
    # Large enough that the last batch norm has several numbers: the spread of two magnifies rounding.
    clips = torch.randn(2, 3, 8, 32, 32, dtype=torch.float64)
    results = []
    for memory_format in (torch.contiguous_format, torch.channels_last_3d):
        network.zero_grad()
        output = network(clips.contiguous(memory_format=memory_format))
        output.square().sum().backward()
        gradients = [parameter.grad.clone() for parameter in network.parameters()]
        results.append((output.detach(), gradients))
    torch.testing.assert_close(results[1], results[0], rtol=1e-7, atol=1e-8)


def test_training_learns_batch_statistics_and_evaluation_only_uses_them() -> None:
    torch.manual_seed(0)
    network = tiny()
    clips = torch.randn(4, 8, 32, 32, 3).permute(0, 4, 1, 2, 3)
    statistics = network.stem.norm.running_mean
    before = statistics.clone()
    network.train()(clips)
    after = statistics.clone()
    assert not torch.equal(before, after)

    network.eval()
    with torch.no_grad():
        together, alone = network(clips), network(clips[:1])
    assert torch.equal(statistics, after)
    torch.testing.assert_close(together[:1], alone, rtol=1e-4, atol=1e-5)


def test_gradients_of_tiny_are_finite_and_reach_every_parameter() -> None:
    torch.manual_seed(0)
    network = tiny()
    network(torch.randn(2, 8, 48, 48, 3).permute(0, 4, 1, 2, 3)).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        assert float(parameter.grad.abs().max()) > 0, name


def test_spatial_max_pool_is_max_pooling_of_each_frame() -> None:
    video = torch.randn(2, 3, 4, 7, 8)
    expected = torch.nn.functional.max_pool3d(video, (1, 3, 3), (1, 2, 2), (0, 1, 1))
    assert torch.equal(SpatialMaxPool()(video), expected)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no backbone 'r3d_18'. Did you mean r3d18\?"):
        find_backbone("r3d_18")
    with pytest.raises(ConfigError, match="needs their number"):
        find_backbone("features")
