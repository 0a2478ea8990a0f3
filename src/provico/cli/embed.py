"""Verbs that apply, export or describe an encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from provico.cli.arguments import Embedding, Json, Videos, give, open_choice
from provico.config.data import EmbedOptions
from provico.errors import ConfigError


def embed(
    choice: Videos,
    *,
    checkpoint: Path,
    out: Path = Path("embeddings.parquet"),
    options: Embedding = EmbedOptions(),
    as_json: Json = False,
) -> None:
    """Embed videos: write each video's distribution, its clips with times, its uncertainty and the causes.

    An interrupted run resumes where it stopped. If OUT exists it is brought up to date: only new and changed
    videos are embedded. docs/embeddings.md describes the columns.

    Args:
        choice: which videos to use.
        checkpoint: a run, an encoder folder or a checkpoint.
        out: file to write; .parquet or .npz.
        options: how videos are embedded.
    """
    from provico.embedding.job import embed_to_file
    from provico.models.saved import open_encoder
    from provico.processes import join, keep_freed_memory
    from provico.progress import progress_bar
    from provico.show import show_embedded

    keep_freed_memory()
    encoder = open_encoder(checkpoint, allow_import=options.allow_import)
    with join(options.device) as processes, progress_bar("Embedding") as progress:
        report = embed_to_file(
            encoder,
            open_choice(choice, features=True),
            out,
            num_clips=options.clips_of_a_video,
            short_side=options.short_side,
            num_workers=processes.num_readers(options.num_workers),
            device=processes.device,
            progress=progress,
        )
    give(report, show_embedded, as_json=as_json)


def export(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    out: Path | None = None,
    to_hub: str | None = None,
    private: bool = False,
    format: Literal["safetensors", "onnx", "csv", "parquet", "fiftyone"] = "safetensors",
    allow_import: bool = False,
) -> None:
    """Export an encoder, or the videos of an index, for use in other programs.

    The ONNX file takes uint8 pixels (clips, time, height, width, 3) and returns clip_mean and clip_log_var;
    its output is checked against PyTorch before the file is kept.

    Args:
        run: a run, an encoder folder or a checkpoint; an index for csv, parquet and fiftyone.
        out: file or folder to write; it must not exist yet.
        to_hub: instead, publish the encoder in this repository of the Hugging Face Hub, OWNER/NAME; others
            then open it as hf:OWNER/NAME. Needs a login (hf auth login).
        private: make a new repository that only you can see.
        format: of an encoder, safetensors, which `Encoder.from_pretrained` reads, or onnx; of an index, csv
            without distributions, parquet as `provico embed` writes it, or a folder for FiftyOne.
        allow_import: allow the encoder to import a network by name, which runs its code.
    """
    if (out is None) == (to_hub is None):
        raise ConfigError("Give either --out or --to-hub OWNER/NAME.")
    if to_hub is not None:
        if format != "safetensors":
            raise ConfigError(f"--to-hub takes an encoder as safetensors. Leave out --format {format}.")
        from provico.models.export import publish_encoder
        from provico.models.saved import open_encoder

        address = publish_encoder(open_encoder(run, allow_import=allow_import), to_hub, private=private)
        print(f"Encoder published: {address}")
        print(f'Others open it with open_encoder("hf:{to_hub}").')
        return
    assert out is not None
    if format == "safetensors" or format == "onnx":
        from provico.models.export import export_encoder
        from provico.models.saved import open_encoder

        export_encoder(open_encoder(run, allow_import=allow_import), out, format=format)
        print(f"Encoder written to {out}")
    else:
        from provico.search.export import export_index

        print(f"{export_index(run, out, format=format):,} videos written to {out}")


def info(
    path: Annotated[Path, tyro.conf.Positional], *, allow_import: bool = False, as_json: Json = False
) -> None:
    """Describe a run, an encoder, a network, a checkpoint, a file of embeddings or an index.

    Args:
        path: the folder or file, or the name of a network or of an encoder on the Hub, hf:OWNER/NAME.
        allow_import: allow the encoder to import a network by name, which runs its code.
    """
    from provico.info import describe
    from provico.show import show_info

    found = describe(path, allow_import=allow_import)
    give(found, show_info, as_json=as_json)
