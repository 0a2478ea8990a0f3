"""The paper's tables and figures, each by one command, with a verdict on the claim behind it.

Read in this order:

    figures         how numbers are drawn
    experiment      claim, rule, sizes; checks, verdict, and the files that are written
    bench           where experiments work, and runs that are done only once
    settings        what is trained; measure: what a training run is worth
    knobs, comparisons, toy_mining, embedding_3d, uncertainty, corruption, qualitative, distance_example
    report          one page about all
    reproduce       all of them by name; run them
"""
