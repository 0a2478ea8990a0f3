"""What an encoder is worth: one protocol a file, each gives a small frozen report.

Read in this order, which is also that of the data:

    embedding   a catalog of videos, or their stored features, to distributions
    retrieval   queries against a gallery: R@k, what foretells errors, and how sure all that is
"""

from provico.evaluation.embedding import Embeddings, embed, embed_features
from provico.evaluation.retrieval import (
    Draw,
    Exclusion,
    Metric,
    RetrievalReport,
    bootstrap_interval,
    error_auroc,
    retrieve,
    seeded_samples,
)

__all__ = [
    "Draw",
    "Embeddings",
    "Exclusion",
    "Metric",
    "RetrievalReport",
    "bootstrap_interval",
    "embed",
    "embed_features",
    "error_auroc",
    "retrieve",
    "seeded_samples",
]
