"""ProViCo: probabilistic representations for video contrastive learning."""
