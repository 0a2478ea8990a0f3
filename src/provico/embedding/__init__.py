"""VIDEO -> EMBEDDING: the one way from pixels to Gaussians, and what is kept of it.

Read in this order, which is also that of the data:

    clips         which clips an encoder is shown, and their pixels
    features      what its backbone makes of them, computed once and remembered
    embeddings    one video as a distribution, or many
    driver        catalogs, files, clips, pixels and features to distributions
    file          a file of embeddings, .parquet or .npz, with a header that says which encoder made it
    job           a catalog to a file, of which parts lie beside it until it is complete: `provico embed`
    report        how unsure the encoder is of videos, why, and when
    report_plots  its pictures
"""
