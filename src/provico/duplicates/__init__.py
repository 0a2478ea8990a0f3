"""Copies: which videos show the same recording, whole or in part, and on which sides of a split.

Read in this order, which is also that of the data:

    neighbours    which videos are worth comparing
    fingerprint   a file as small grey pictures
    alignment     which moment of one video is which of the other
    verify        how well two videos agree where they agree best
    judgement     how sure that is, and how they lie to each other
    report        pairs, groups, leaks
    find          all of it, for an index

`docs/dedup.md` has the measurements.
"""

from provico.duplicates.find import find_duplicates
from provico.duplicates.report import DuplicateReport, Group, Member, Pair

__all__ = ["DuplicateReport", "Group", "Member", "Pair", "find_duplicates"]
