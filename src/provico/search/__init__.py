"""Search by match probability: exact, fast, and certified.

Read in this order, which is also that of the data:

    clouds      the samples of a video, in a few numbers
    scoring     the match probability of a query with many videos
    bounds      how large it can be, if only moments of the squared distances are known
    moments     those moments, from the few numbers
    stage_one   the nearest videos by mean squared distance
    gallery     the videos that are searched
    exact       the k best, and a certificate

`docs/exact-search.md` has the proofs.
"""

from provico.search.bounds import MomentBound, Moments
from provico.search.clouds import Spread, describe
from provico.search.exact import TopK, exact_top_k
from provico.search.gallery import Fetch, Gallery
from provico.search.scoring import exact_log_probabilities
from provico.search.stage_one import Candidates

__all__ = [
    "Candidates",
    "Fetch",
    "Gallery",
    "MomentBound",
    "Moments",
    "Spread",
    "TopK",
    "describe",
    "exact_log_probabilities",
    "exact_top_k",
]
