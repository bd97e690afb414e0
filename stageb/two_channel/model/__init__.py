"""The detector: a vision-language model, its inputs, its checkpoints."""
