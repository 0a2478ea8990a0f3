"""Search by match probability: exact, fast, and certified.

Read in this order, which is also that of the data:

    clouds      the samples of a video, in a few numbers
    scoring     the match probability of a query with many videos
    bounds      how large it can be, if only moments of the squared distances are known
    moments     those moments, from the few numbers
    stage_one   the nearest videos by mean squared distance
    gallery     the videos that are searched
    exact       the k best, and a certificate

and then what makes an index of it:

    store, engines            what is kept of a video, and where: lance_store, postgres_store
    folder                    an index on disk
    content, row_writer       from files to rows
    additions                 bringing an index up to date
    snapshot, query, ranking  one version in memory, what is asked, what is best
    hits, answers             what is said of it
    index                     all of it together
    served, served_index      the same without loading anything, where a server has the rows
    export                    rows for other programs

`docs/exact-search.md` has the proofs.
"""

from provico.search.exact.bounds import MomentBound, Moments
from provico.search.exact.clouds import Spread, describe
from provico.search.exact.gallery import Fetch, Gallery
from provico.search.exact.scoring import exact_log_probabilities
from provico.search.exact.stage_one import Candidates
from provico.search.exact.top_k import TopK, exact_top_k
from provico.search.hits import AddReport, Answer, Certificate, Hit, Span
from provico.search.index import Index
from provico.search.served_index import ServedIndex
from provico.search.snapshot import Filter

__all__ = [
    "AddReport",
    "Answer",
    "Candidates",
    "Certificate",
    "Fetch",
    "Filter",
    "Gallery",
    "Hit",
    "Index",
    "MomentBound",
    "Moments",
    "ServedIndex",
    "Span",
    "Spread",
    "TopK",
    "describe",
    "exact_log_probabilities",
    "exact_top_k",
]
