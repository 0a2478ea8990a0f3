"""The groups of a view and their names, kept until the videos or what is proposed for them change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from provico.curation.group_names import Fit, GroupName, name_groups
from provico.curation.groups import find_groups
from provico.curation.junk import JUNK
from provico.errors import ProvicoError
from provico.explorer.collection import IndexView
from provico.explorer.curation import Curation, Duplicates
from provico.search.index import Index

SHOWS_NOTHING = frozenset(JUNK) - {"short", "damaged"}
"""Junk of a kind whose pictures say nothing of what a collection shows."""
log = logging.getLogger("provico.explorer")


@dataclass(frozen=True, eq=False)
class Groups:
    """The videos of a view that look alike."""

    members: NDArray[np.int64]
    """The group of each video that a map shows; below zero for junk."""
    names: list[GroupName]
    """Of each group, the largest first."""
    note: str = ""
    """Why given words name no group, for people."""


class Grouping:
    """Finds groups; for any thread."""

    def __init__(self, curation: Curation, duplicates: Duplicates, words: Sequence[str]) -> None:
        self._curation, self._duplicates, self._words = curation, duplicates, words
        self._lock = threading.Lock()
        self._known: tuple[IndexView, tuple[NDArray[np.bool_], NDArray[np.int64]], Groups] | None = None

    def of(self, view: IndexView) -> Groups:
        """The groups of a view."""
        with self._lock:
            aside = self._junk(view), self._copies(view)
            if self._known is not None:
                known, before, groups = self._known
                if known is view and all(map(np.array_equal, before, aside)):
                    return groups
            groups = self._found(view, *aside)
            self._known = view, aside, groups
            return groups

    def _junk(self, view: IndexView) -> NDArray[np.bool_]:
        proposals = self._curation.proposals(view)
        return np.array([proposals[number].kind in SHOWS_NOTHING for number in view.shown.tolist()], bool)

    def _copies(self, view: IndexView) -> NDArray[np.int64]:
        """Of each copy the place of the one to keep among those that are shown; below zero of all others."""
        places = {view.ids[number]: place for place, number in enumerate(view.shown.tolist())}
        found = np.full(len(places), -1, np.int64)
        for keep, *copies in self._duplicates.groups():
            if keep in places:
                found[[places[copy] for copy in copies if copy in places]] = places[keep]
        return found

    def _found(self, view: IndexView, junk: NDArray[np.bool_], copy_of: NDArray[np.int64]) -> Groups:
        shown = view.shown
        means = view.index.loaded.videos.mean.numpy()[shown].astype(float)
        members = find_groups(means, junk=junk, copy_of=copy_of, num_labels=len(view.counts("label")))
        fit, note = self._fit(view)
        labels = view.words["label"][shown].tolist()
        return Groups(members, name_groups([view.ids[row] for row in shown], labels, members, fit), note)

    def _fit(self, view: IndexView) -> tuple[Fit | None, str]:
        """How well the given words fit the videos, or why that is not known."""
        if not self._words:
            return None, ""
        if not isinstance(view.index, Index):
            return None, "Words can name the groups of one index only."
        try:
            scores, phrases = view.index.words.fits(self._words)
        except ProvicoError as error:
            log.warning("The given words cannot be used: %s", error)
            backbone = Path(view.index.settings.embedding.encoder_config.backbone).name
            return (
                None,
                f"The given words are not used: {backbone} has no text tower, or it cannot be opened.",
            )
        return Fit(self._words, scores.numpy()[:, view.shown], phrases.numpy()[:, view.shown]), ""
