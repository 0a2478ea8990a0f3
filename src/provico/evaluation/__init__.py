"""What an encoder is worth: one protocol a file, each gives a small frozen report.

Read in this order, which is also that of the data:

    sets            which videos to learn from and to test on
    embedding       a catalog of videos, or their stored features, to distributions
    embedding_file  the same on disk; embedding_formats: its columns; embedding_parts: what survives a kill;
                    embedding_job: all of it, as `provico embed` does
    retrieval       queries against a gallery: R@k
    classification  a class from samples, predictions: what the two protocols below share
    linear          a linear classifier on a frozen encoder
    finetune        the whole network learns; classifier: what that leaves behind
    protocols       the three of them over several splits
    statistics      how sure a score is, and how well doubt foretells errors
    result, paper   numbers with all that they depend on, and the paper's own beside them
"""

from provico.evaluation.embedding import EmbeddedBatch, Embeddings, embed, embed_batches, embed_features
from provico.evaluation.embedding_file import EmbeddingHeader, read_columns, read_embeddings, read_header
from provico.evaluation.embedding_job import EmbedReport, embed_to_file
from provico.evaluation.retrieval import Draw, Exclusion, RetrievalReport, retrieve, seeded_samples
from provico.evaluation.statistics import Share, bootstrap_interval, error_auroc

__all__ = [
    "Draw",
    "EmbedReport",
    "EmbeddedBatch",
    "EmbeddingHeader",
    "Embeddings",
    "Exclusion",
    "RetrievalReport",
    "Share",
    "bootstrap_interval",
    "embed",
    "embed_batches",
    "embed_features",
    "embed_to_file",
    "error_auroc",
    "read_columns",
    "read_embeddings",
    "read_header",
    "retrieve",
    "seeded_samples",
]
