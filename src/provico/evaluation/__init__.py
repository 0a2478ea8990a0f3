"""What an encoder is worth: one protocol a file, each gives a small frozen report.

Read in this order:

    sets                which videos to learn from and to test on
    retrieval           queries against a gallery: R@k
    recognition         a linear classifier on a frozen encoder; the whole network learns
    protocols           the three of them over several splits
    uncertainty         does uncertainty predict errors? rivals, uncertainty_report
    statistics          how sure a score is
    result, paper       numbers with all that they depend on, and the paper's own beside them
"""
