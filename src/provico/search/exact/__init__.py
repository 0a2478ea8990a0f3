"""The k best videos by match probability, with a certificate; `docs/exact-search.md` has the proofs."""
