"""One page to search, doubt and clean a collection: what `provico serve INDEX` opens.

docs/explorer.md describes the API and what is done for safety.
"""
