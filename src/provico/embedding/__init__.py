"""VIDEO -> EMBEDDING: from pixels to Gaussians, and the files of embeddings."""
