"""The paper's tables and figures, each by one command, with a verdict on the claim behind it."""
