"""Tiny networks of other libraries, with random weights, saved as those libraries save them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

Network = Callable[[str], Path]
"""From a model type to the folder of a tiny network."""

SIDE, PATCH, WIDTH = 32, 8, 16
SMALL = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
MEAN, STD = [0.48, 0.45, 0.40], [0.26, 0.25, 0.27]
CROPPED = {
    "do_resize": True,
    "size": {"shortest_edge": 36},
    "do_center_crop": True,
    "crop_size": {"height": SIDE, "width": SIDE},
    "image_mean": MEAN,
    "image_std": STD,
}
SQUASHED = {"do_resize": True, "size": {"height": SIDE, "width": SIDE}, "image_mean": MEAN, "image_std": STD}
BILINEAR, BICUBIC = 2, 3


def _patches(**more: Any) -> dict[str, Any]:
    return {**SMALL, "image_size": SIDE, "patch_size": PATCH, **more}


def _two_towers(**more: Any) -> dict[str, Any]:
    text = {**SMALL, "vocab_size": 20, "max_position_embeddings": 8, "bos_token_id": 0, "eos_token_id": 1}
    return {"text_config": text, "vision_config": _patches(**more), "projection_dim": 12}


_DINO3 = {"image_processor_type": "DINOv3ViTImageProcessorFast", "resample": BILINEAR, **SQUASHED}
NETWORKS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "dinov2": ("Dinov2", _patches(), "BitImageProcessorPil", {"resample": BICUBIC, **CROPPED}),
    "dinov2_with_registers": (
        "Dinov2WithRegisters",
        _patches(num_register_tokens=2),
        "BitImageProcessorPil",
        {"resample": BICUBIC, **CROPPED},
    ),
    "dinov3_vit": ("DINOv3ViT", _patches(num_register_tokens=2), "", _DINO3),
    "dinov3_convnext": (
        "DINOv3ConvNext",
        {"hidden_sizes": [4, 8, 8, 16], "depths": [1, 1, 1, 1]},
        "",
        _DINO3,
    ),
    "clip": (
        "CLIP",
        _two_towers(projection_dim=12),
        "CLIPImageProcessorPil",
        {"resample": BICUBIC, **CROPPED},
    ),
    "siglip": ("Siglip", _two_towers(), "SiglipImageProcessorPil", {"resample": BICUBIC, **SQUASHED}),
    "siglip2": (
        "Siglip2",
        {
            **_two_towers(),
            "vision_config": {**SMALL, "patch_size": PATCH, "num_patches": 16},
        },
        "Siglip2ImageProcessorPil",
        {"patch_size": PATCH, "max_num_patches": 16, "image_mean": MEAN, "image_std": STD},
    ),
    "xclip": (
        "XCLIP",
        _two_towers(
            num_frames=4,
            mit_hidden_size=12,
            mit_intermediate_size=16,
            mit_num_hidden_layers=1,
            mit_num_attention_heads=2,
        ),
        "VideoMAEImageProcessorPil",
        {"resample": BILINEAR, **CROPPED},
    ),
    "videomae": (
        "VideoMAE",
        _patches(num_frames=4, tubelet_size=2),
        "VideoMAEImageProcessorPil",
        {"resample": BILINEAR, **CROPPED},
    ),
    "vjepa2": (
        "VJEPA2",
        {
            **SMALL,
            "crop_size": SIDE,
            "patch_size": PATCH,
            "frames_per_clip": 4,
            "tubelet_size": 2,
            "mlp_ratio": 2,
            "pred_hidden_size": 12,
            "pred_num_attention_heads": 2,
            "pred_num_hidden_layers": 1,
            "pred_num_mask_tokens": 1,
        },
        "",
        {"video_processor_type": "VJEPA2VideoProcessor", "resample": BILINEAR, **CROPPED},
    ),
    "timesformer": (
        "Timesformer",
        _patches(num_frames=4),
        "VideoMAEImageProcessorPil",
        {"resample": BILINEAR, **CROPPED},
    ),
}
"""Model type to the names and settings of model and preprocessor; one without a name needs torchvision."""


def save_network(model_type: str, folder: Path, *, seed: int = 0) -> Any:
    """Write a tiny network with its preprocessor; gives the model."""
    import json

    import torch
    import transformers

    name, settings, processor, preprocessing = NETWORKS[model_type]
    torch.manual_seed(seed)
    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**settings)).eval()
    with torch.no_grad():
        for value in model.parameters():  # fresh weights are so small that nothing would show
            value.add_(0.2 * torch.randn_like(value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
        if processor:
            getattr(transformers, processor)(**preprocessing).save_pretrained(folder)
            return model
    kind = "video_preprocessor_config" if model_type == "vjepa2" else "preprocessor_config"
    (folder / f"{kind}.json").write_text(json.dumps(preprocessing))
    return model


def saver(model_type: str) -> Callable[[Path], object]:
    """For `made_once`."""
    return lambda folder: save_network(model_type, folder)


def save_tokenizer(folder: Path, words: str) -> None:
    """Write a tokenizer that knows these words, of a vocabulary as large as that of the networks above."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    known = {word: number for number, word in enumerate(["<start>", "<end>", "<other>", *words.split()])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="<other>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<start> $A <end>", special_tokens=[("<start>", 0), ("<end>", 1)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<end>", unk_token="<other>"
    ).save_pretrained(folder)
