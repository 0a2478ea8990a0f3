"""All layouts by name. To add one, write a `Layout` and its line here."""

from __future__ import annotations

from provico.data.layouts.listing import Layout
from provico.data.layouts.official import HMDB51, KINETICS, UCF101
from provico.data.layouts.own import CLASS_FOLDERS, FEATURES_LAYOUT, FOLDER, LIST, MANIFEST, STORED_FEATURES

LAYOUTS: dict[str, Layout] = {
    "ucf101": UCF101,
    "hmdb51": HMDB51,
    "kinetics": KINETICS,
    FEATURES_LAYOUT: STORED_FEATURES,
    "manifest": MANIFEST,
    "list": LIST,
    "class-folders": CLASS_FOLDERS,
    "folder": FOLDER,
}
"""The first that recognises the data reads it, so the most particular stand first."""
