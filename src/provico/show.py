"""Results as readable tables on stdout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from provico.curation.proposals import BUCKETS
from provico.data.scan import FLAGS
from provico.defaults import LEAST_UNRELATED
from provico.wording import counted, percent, share_below, sure

if TYPE_CHECKING:
    from provico.curation.job import CurationReport
    from provico.data.frames.prepared import PrepareReport
    from provico.data.scan import ScanReport
    from provico.duplicates.report import DuplicateReport
    from provico.embedding.job import EmbedReport
    from provico.embedding.report import UncertaintyReport
    from provico.evaluation.statistics import Estimate
    from provico.info import Info
    from provico.probability.calibration import Calibration
    from provico.search.add import AddReport
    from provico.search.answer import Answer
    from provico.search.searchable import Searchable
    from provico.search.words import WordAnswer
    from provico.training.pretrain import PretrainReport

_NUM_SHOWN = 10
_COPIES_SHOWN = 30
_PIPED_WIDTH = 200  # for other programs, which expect unbroken names


def show_scan(report: ScanReport, manifest: Path) -> None:
    """Totals, flags, and the first unreadable files with the reasons."""
    summary = report.summary()
    console = Console()
    table = Table("", "", show_header=False, box=None)
    table.add_row("videos", f"{summary['videos']:,}")
    table.add_row("readable", f"{summary['readable']:,} ({summary['hours']} h, {summary['frames']:,} frames)")
    table.add_row("unreadable", f"{summary['unreadable']:,}")
    if summary["classes"]:
        table.add_row("classes", f"{summary['classes']:,}")
    codecs, flags = summary["codecs"], summary["flags"]
    assert isinstance(codecs, dict)
    assert isinstance(flags, dict)
    table.add_row("codecs", ", ".join(f"{name} {count:,}" for name, count in codecs.items()) or "none")
    for flag, count in flags.items():
        if count:
            table.add_row(flag, f"{count:,} ({FLAGS[flag]})")
    if report.num_other_files:
        others = ", ".join(f"{count:,} x {suffix}" for suffix, count in report.num_other_files.items())
        table.add_row("not scanned", escape(f"{others} (no suffix of a video)"))
    console.print(table)
    for video in report.unreadable[:_NUM_SHOWN]:
        console.print(escape(f"unreadable: {video.path}: {video.reason}"), style="red", soft_wrap=True)
    if len(report.unreadable) > _NUM_SHOWN:
        console.print(f"... and {len(report.unreadable) - _NUM_SHOWN} more in bad_videos.csv")
    console.print(escape(f"Manifest written to {manifest}"), soft_wrap=True)


def show_prepared(report: PrepareReport) -> None:
    """Show how many videos were prepared, and which failed."""
    console = Console()
    console.print(
        f"{report.num_prepared:,} prepared, {report.num_skipped:,} already prepared, "
        f"{len(report.failed):,} failed; {in_bytes(report.num_bytes)} on disk."
    )
    for path, reason in report.failed[:_NUM_SHOWN]:
        console.print(escape(f"failed: {path}: {reason}"), style="red", soft_wrap=True)


def in_bytes(number: float) -> str:
    """A size in readable units."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def show_pretrained(report: PretrainReport) -> None:
    """Show the result of a run."""
    state = "finished" if report.is_finished else "stopped; --resume continues"
    print(f"{report.num_steps} steps on {report.num_videos} videos in {report.seconds:.0f} s, {state}.")
    if report.num_broken:
        print(f"{report.num_broken} videos could not be read: {report.folder / 'bad_videos.csv'}")
    last = report.last
    if (rank := last.get("health/effective_rank")) is not None:
        print(
            f"Loss {last['loss']:.4g}; the means span {rank:.0f} directions; the median uncertainty is "
            f"{last['health/uncertainty_median']:.3g}."
        )
    if report.is_finished:
        print(f"Encoder: {report.encoder_folder}   Curves: {report.folder / 'report.html'}")


def show_before_and_after(
    before: dict[str, Estimate], after: dict[str, Estimate], *, num_classes: int, failure_line: str
) -> None:
    """Show an encoder's scores before and after training."""
    print(
        f"\nScores on the test videos, in per cent, with 95 % intervals; chance is {100 / num_classes:.1f}."
    )
    table = Table("", "before", "after", box=None)
    for name in before:
        table.add_row(name, *(escape(f"{score[name].percent:.1f}") for score in (before, after)))
    Console().print(table)
    print(failure_line + ".")


def show_embedded(report: EmbedReport) -> None:
    """Show how many videos the file holds, and which could not be read."""
    console = Console()
    dropped = f", {report.num_dropped:,} dropped" if report.num_dropped else ""
    num_ready = report.num_videos - report.num_computed
    console.print(
        f"{report.num_computed:,} videos embedded, {num_ready:,} already embedded{dropped}, "
        f"{len(report.failed):,} failed."
    )
    for name, reason in report.failed[:_NUM_SHOWN]:
        console.print(escape(f"failed: {name}: {reason}"), style="red", soft_wrap=True)
    if len(report.failed) > _NUM_SHOWN:
        console.print(f"... and {len(report.failed) - _NUM_SHOWN} more, listed in the file")
    console.print(
        escape(f"{report.path}: {report.num_videos:,} videos, encoder {report.encoder_hash}"), soft_wrap=True
    )


def show_added(report: AddReport) -> None:
    """Show what changed in an index, and which videos failed."""
    console = Console()
    relabelled = f", {report.num_relabelled:,} have new labels or paths" if report.num_relabelled else ""
    known = f", {report.num_recognised:,} were known under another id" if report.num_recognised else ""
    console.print(
        f"{report.num_added:,} videos added, {report.num_changed:,} updated{relabelled}{known}, "
        f"{report.num_unchanged:,} up to date, {len(report.failed):,} failed."
    )
    for name, reason in report.failed[:_NUM_SHOWN]:
        console.print(escape(f"failed: {name}: {reason}"), style="red", soft_wrap=True)
    if report.num_removed:
        console.print(f"{report.num_removed:,} videos removed because their files are gone.")
    elif report.vanished:
        first = escape(report.vanished[0])
        console.print(
            f"{len(report.vanished):,} files are gone, such as {first}. --prune removes them from the index."
        )
    console.print(escape(f"{report.path}: {report.num_videos:,} videos"), soft_wrap=True)


def show_answer(answer: Answer, index: Searchable) -> None:
    """Show the hits line by line, and whether they are proved to be the best.

    index: the searched index.
    """
    console = Console()
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    span = f" {answer.span}" if answer.span else ""
    unsure, *unsure_of = map(
        percent, index.share_surer([answer.uncertainty, *(hit.uncertainty for hit in answer.hits)]).tolist()
    )
    console.print(escape(f"\n{answer.query}{span}   unsure {unsure}"), style="bold", soft_wrap=True)
    for part in answer.unreached:
        console.print(escape(f"Not searched: {part}"), style="bold", soft_wrap=True)
    if not answer.hits:
        console.print(answer.withheld or _why_nothing(answer), soft_wrap=True)
        return
    score = [] if answer.metric == "match" else ["score"]
    right = [] if answer.calibration is None else ["right"]
    chance = [] if answer.chance is None else ["by chance"]
    table = Table("", *right, *chance, *score, "unsure", "video", "label", "where", "query's clip", box=None)
    for column in table.columns:
        # A truncated id would be useless.
        column.no_wrap, column.overflow = column.header != "video", "fold"
    for rank, (hit, unsure) in enumerate(zip(answer.hits, unsure_of, strict=True), start=1):
        table.add_row(
            str(rank),
            *([] if hit.calibrated_probability is None else [f"{100 * hit.calibrated_probability:.0f} %"]),
            *([] if hit.expected_by_chance is None else [f"{hit.expected_by_chance:.2g}"]),
            *([f"{hit.score:.4g}"] if score else []),
            unsure,
            escape(hit.id),
            escape(hit.label or ""),
            str(hit.clip if hit.is_whole else hit.moment),
            str(hit.query_clip),
        )
    console.print(table)
    certificate, searched = answer.certificate, _searched(answer, index)
    proof = "Exact" if certificate.is_exact else "Not proved to be the best"
    if answer.unreached:
        proof += ", since not all videos were searched"
    # One that was compared by itself and by its moments counts twice.
    num_scored = min(certificate.num_scored, certificate.num_allowed)
    console.print(f"{proof}: {num_scored:,} of {certificate.num_allowed:,} {searched} compared in full.")
    if answer.calibration is not None:
        console.print(
            f"right: how often such hits were right among {answer.calibration.pairs}.", soft_wrap=True
        )
    console.print(_what_chance_is(answer, searched), soft_wrap=True)
    console.print("unsure: share of videos with lower uncertainty.", soft_wrap=True)


def show_words(answer: WordAnswer) -> None:
    """Show the hits of a search by words, line by line."""
    console = Console()
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    console.print(escape(f"\n{answer.query}"), style="bold", soft_wrap=True)
    if not answer.hits:
        best = answer.best_expected_by_chance
        how = "" if best is None else f": {best:.2g} videos are expected to match as well as the best one"
        console.print(f"No match beyond chance{how}. --max-chance inf shows the best ones anyway.")
        return
    is_known = answer.best_expected_by_chance is not None
    table = Table("", "by chance" if is_known else "score", "video", "label", "where", box=None)
    for column in table.columns:
        column.no_wrap, column.overflow = column.header != "video", "fold"
    for rank, hit in enumerate(answer.hits, start=1):
        said = f"{hit.score:.3f}" if hit.expected_by_chance is None else f"{hit.expected_by_chance:.2g}"
        table.add_row(str(rank), said, escape(hit.id), escape(hit.label or ""), str(hit.moment))
    console.print(table)
    if is_known:
        console.print("by chance: the expected number of videos as near to words that do not describe them.")
    else:
        console.print(f"Too few videos to say how surprising a match is: {LEAST_UNRELATED} are needed.")


def _searched(answer: Answer, index: Searchable) -> str:
    """Moments of long videos are ranked with the videos."""
    return "videos and moments" if answer.certificate.num_allowed > len(index) else "videos"


def _what_chance_is(answer: Answer, searched: str) -> str:
    if answer.chance is None:
        return (
            f"Too few videos to say how surprising a match is: {LEAST_UNRELATED} of other recordings are "
            "needed."
        )
    return (
        f"by chance: how many of {answer.certificate.num_allowed:,} unrelated {searched} are expected to "
        "match as well."
    )


def _why_nothing(answer: Answer) -> str:
    if answer.best_probability is None:
        return "The filters leave no video to search."
    limit, least = answer.max_chance, answer.best_expected_by_chance
    if limit is not None and least is not None and least > limit:
        return (
            f"No match beyond chance: {least:.2g} unrelated videos are expected to match as well as the "
            f"best, more than {limit:g}. --max-chance inf shows it anyway."
        )
    right, asked = answer.best_calibrated_probability or 0, answer.min_probability or 0
    return f"No confident match: {100 * right:.0f} % of such hits are right, less than {100 * asked:g} %."


def show_uncertainty(report: UncertaintyReport) -> None:
    """Show the most and the least certain videos."""
    console = Console()
    unsure, differ = (share_below(part, of=part) for part in (report.uncertainty, report.disagreement))
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    for title, rows in (
        ("Least certain", report.least_certain(_NUM_SHOWN)),
        ("Most certain", report.most_certain(_NUM_SHOWN)),
    ):
        table = Table("video", "label", "unsure", "parts differ", title=title, box=None)
        for row in rows:
            table.add_row(
                escape(report.ids[row]),
                escape(report.labels[row] or ""),
                percent(unsure[row]),
                percent(differ[row]),
            )
        console.print(table)
    console.print(
        "unsure, parts differ: share of the other videos with lower values. The tables have the values."
    )
    console.print(f"{len(report):,} videos, {len(report.failed):,} failed.")
    for name, reason in report.failed[:_NUM_SHOWN]:
        console.print(escape(f"failed: {name}: {reason}"), style="red", soft_wrap=True)


def show_calibration(calibration: Calibration) -> None:
    """Show the data of a calibration and its quality."""
    before, after = calibration.before, calibration.after
    table = Table("", "match probability", "calibrated", box=None)
    table.add_row(
        "expected calibration error", f"{before.calibration_error:.3f}", f"{after.calibration_error:.3f}"
    )
    table.add_row("log loss", f"{before.log_loss:.3f}", f"{after.log_loss:.3f}")
    print(f"Calibrated ({calibration.source}) on {calibration.pairs}.")
    print(
        f"{calibration.num_matches:,} of {calibration.num_pairs:,} pairs match "
        f"({100 * calibration.prevalence:.1f} %), in {calibration.num_groups:,} groups."
    )
    Console().print(table)
    print("The calibrated values come from cross-validation over groups of videos.")


def show_curated(report: CurationReport) -> None:
    """Show how many videos are in each bucket, as the page counts them, with the main reasons."""
    console = Console()
    unreadable = [video for video in report.videos if video.kind == "unreadable"]
    for bucket in BUCKETS:
        videos = [one for one in report.videos if one.bucket == bucket and one.kind != "unreadable"]
        number = len(videos)
        console.print(f"{bucket:<7}{number:>7,}", style="bold")
        for video in videos[:_NUM_SHOWN] if bucket != "keep" else ():
            console.print(escape(f"    {video.id}: {video.reason}"), soft_wrap=True)
        if bucket != "keep" and number > _NUM_SHOWN:
            console.print(f"    ... and {number - _NUM_SHOWN:,} more in proposals.csv")
    if unreadable:
        console.print(f"{counted(len(unreadable), 'file')} that cannot be read", style="bold")
        for video in unreadable[:_NUM_SHOWN]:
            console.print(escape(f"    {video.id}: {video.reason}"), soft_wrap=True)
    console.print(escape(f"{report.folder}/manifest.csv lists the videos to keep."), soft_wrap=True)


def show_duplicates(report: DuplicateReport) -> None:
    """Show groups, parts and leaks, the most certain first."""
    console = Console()
    groups, parts, leaks = report.groups, report.parts, report.leaks
    for group in groups[:_COPIES_SHOWN]:
        dropped = ", ".join(member.id for member in group.drop)
        text = f"{sure(group.probability)}: keep {group.keep.id} ({group.reason}), drop {dropped}"
        console.print(escape(text), soft_wrap=True)
    for title, pairs in (("Parts", parts), ("On both sides", leaks)):
        if pairs:
            console.print(f"\n{title}", style="bold")
        for pair in pairs[:_COPIES_SHOWN]:
            console.print(escape(f"{sure(pair.probability)}: {pair}"), soft_wrap=True)
    if max(len(groups), len(parts), len(leaks)) > _COPIES_SHOWN:
        console.print(f"... only the first {_COPIES_SHOWN} of each are shown; --out and --json have all.")
    for names, what in ((report.blank, "without a picture"), ([n for n, _ in report.failed], "unreadable")):
        if names:
            more = ", ..." if len(names) > _NUM_SHOWN else ""
            console.print(
                escape(f"{counted(len(names), 'video')} {what}: {', '.join(names[:_NUM_SHOWN])}{more}")
            )
    found = f"{counted(len(parts), 'part')}, {counted(len(leaks), 'leak')}"
    console.print(
        f"\n{report.num_videos:,} videos, {report.num_compared:,} pairs compared: "
        f"{counted(len(groups), 'group')} of copies with {report.num_droppable:,} to drop, {found}. "
        f"Pairs below {percent(report.min_probability)} are left out; --json has the probabilities.",
        soft_wrap=True,
    )


def show_info(info: Info) -> None:
    """Show the facts line by line."""
    table = Table("", "", show_header=False, box=None)
    table.add_row("kind", info.kind)
    for name, value in info.facts.items():
        table.add_row(name.replace("_", " "), escape(_in_words(value)))
    sizes = {name: in_bytes(size) for name, size in info.files.items()}
    table.add_row("files", escape("\n".join(f"{name} ({size})" for name, size in sizes.items())))
    Console().print(table)


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        between = ", " if len(value) <= _NUM_SHOWN else "\n"
        return between.join(f"{name} {_in_words(part)}" for name, part in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_in_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
