"""Training an encoder from clips: the objective, and the loop around it."""
