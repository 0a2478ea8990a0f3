"""The verb that cleans a collection."""

from __future__ import annotations

from pathlib import Path

from provico.cli.arguments import Json, open_choice, print_json
from provico.config import DataChoice
from provico.config.curation import CurationRules
from provico.config.data import EmbedOptions


def curate(
    choice: DataChoice,
    *,
    checkpoint: Path,
    out: Path = Path("curation"),
    rules: CurationRules = CurationRules(),
    options: EmbedOptions = EmbedOptions(),
    as_json: Json = False,
) -> None:
    """What to drop, trim, look at and keep, with a reason for each video. No video is touched.

    Writes manifest.csv (the videos that are kept, which every command accepts as DATA), proposals.csv and
    segments.csv. Decisions that were made on the page of `provico serve` hold.

    Args:
        choice: which videos to use.
        checkpoint: a run, an encoder folder or a checkpoint.
        out: folder of the curation.
        rules: when a video stands out.
        options: how videos are embedded.
    """
    from provico.curation.job import curate as curate_videos
    from provico.models.allocator import keep_freed_memory
    from provico.models.saved import open_encoder
    from provico.processes import join
    from provico.progress import progress_bar
    from provico.show import show_curated

    keep_freed_memory()
    encoder = open_encoder(checkpoint, allow_import=options.allow_import)
    with join(options.device) as processes, progress_bar("Curating") as progress:
        report = curate_videos(
            open_choice(choice),
            encoder,
            out=out,
            rules=rules,
            num_clips=options.clips_of_a_video,
            short_side=options.short_side,
            num_workers=processes.num_readers(options.num_workers),
            device=processes.device,
            progress=progress,
        )
    if as_json:
        print_json(report.summary())
    else:
        show_curated(report)
