"""Search by match probability: exact, fast, and certified; `docs/exact-search.md` has the proofs.

`docs/architecture.md` names the five files that tell how a search works.
"""

from provico.search.add import AddReport
from provico.search.answer import Answer
from provico.search.exact.bounds import DistanceMoments, MomentBound
from provico.search.exact.clouds import Spread, describe
from provico.search.exact.found import Certificate, TopK
from provico.search.exact.gallery import Fetch, Gallery
from provico.search.exact.scoring import exact_log_probabilities
from provico.search.exact.top_k import exact_top_k
from provico.search.hits import Hit
from provico.search.index import Index
from provico.search.parts import PartedIndex, open_indexes
from provico.search.query import Filter, Span

__all__ = [
    "AddReport",
    "Answer",
    "Certificate",
    "DistanceMoments",
    "Fetch",
    "Filter",
    "Gallery",
    "Hit",
    "Index",
    "MomentBound",
    "PartedIndex",
    "Span",
    "Spread",
    "TopK",
    "describe",
    "exact_log_probabilities",
    "exact_top_k",
    "open_indexes",
]
