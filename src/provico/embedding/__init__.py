"""VIDEO -> EMBEDDING: the one way from pixels to Gaussians, and what is kept of it."""
