"""Copies: which videos show the same recording, whole or in part, and on which sides of a split.

`docs/dedup.md` has the measurements.
"""

from provico.duplicates.find import find_duplicates
from provico.duplicates.report import DuplicateReport, Group, Member, Pair

__all__ = ["DuplicateReport", "Group", "Member", "Pair", "find_duplicates"]
