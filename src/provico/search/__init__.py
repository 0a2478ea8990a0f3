"""Search by match probability: exact, fast, and certified.

Five files tell how a search works, in this order:

    searchable  ask, rank, answer
    query       what is asked, as the Gaussians of its clips; what it may find and what not
    loaded      one version in memory, and which of its videos are best for a query
    exact/top_k the k best by match probability, with a certificate
    answer      what is said of them: Hit, Answer

Around them:

    exact/      the mathematics: clouds, scoring, bounds, moments, gallery, top_k
    store/      what is kept of a video, and where: video_store, lance, postgres, server, folder
    served      rank where a server has the rows, without loading them
    parts       several indexes as one; parted: their videos
    index       one index; open_or_create: the one that is there, or a new one
    add         bringing an index up to date; row_writer: from embedded videos to rows
    chance      how surprising hits are, without labels
    calibrate   how often hits are right, where there are labels or judgements
    judgements, confidence, population, lots, select, guarantee   answers with a guarantee, in this order
    export      rows for other programs

`docs/exact-search.md` has the proofs.
"""

from provico.search.add import AddReport
from provico.search.answer import Answer
from provico.search.exact.bounds import DistanceMoments, MomentBound
from provico.search.exact.clouds import Spread, describe
from provico.search.exact.gallery import Fetch, Gallery
from provico.search.exact.scoring import exact_log_probabilities
from provico.search.exact.top_k import Certificate, TopK, exact_top_k
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
