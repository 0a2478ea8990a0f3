"""A file of features as a data set: each row of the file is a video."""

from __future__ import annotations

from provico.data.layouts.listing import DataPath, Entry, Layout, Listing, sorted_classes

FEATURES_LAYOUT = "features"
"""The name of this layout, by which catalogs of features are told from those of videos."""

SUFFIXES = (".npz", ".safetensors")
"""The formats of a file of features."""


def _recognise(source: DataPath) -> bool:
    return source.path.suffix in SUFFIXES and source.path.is_file()


def _read(source: DataPath, splits: tuple[int, ...]) -> Listing | None:
    """The file stands where the files of the videos would."""
    del splits  # there is only one
    if not _recognise(source):
        return None
    from provico.data.feature_file import read_facts  # catalogs of videos must not wait for torch

    facts = read_facts(source.path)
    unknown = (None,) * len(facts["ids"])
    columns = [facts.get(name, unknown) for name in ("labels", "groups", "subsets")]
    rows = zip(facts["ids"], *columns, strict=True)
    entries = [Entry(name, source.path, label, group, subset) for name, label, group, subset in rows]
    return Listing(source.path, tuple(entries), sorted_classes(entries))


STORED_FEATURES = Layout(
    recognise=_recognise,
    read=_read,
    needs="a .npz or .safetensors file with `ids` and `features`, as FeatureFile.save writes it",
)
