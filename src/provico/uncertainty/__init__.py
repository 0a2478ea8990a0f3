"""How unsure an encoder is, why, when, and what that is worth.

Read in this order, which is also that of the data:

    report           the uncertainty of videos and clips, as tables
    plots            the same as pictures
    doubt            teach an encoder to doubt clips that were spoilt
    calibrating      how often are the hits of a search right?
    embedded_search  embeddings in memory, of which that can be asked
    risk             does doubt foretell errors: risk-coverage curve and its area
    rivals           what anyone can measure of a video without an encoder
    resampling       how sure such numbers are
    judging          all doubts and probabilities against each other
    judged_report    the same as text, files and a figure

`docs/uncertainty.md` says what was found. Nothing is imported here: search calibrates, but draws nothing.
"""
