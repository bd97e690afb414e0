"""The detector: a vision-language model, its adapters, its inputs, its checkpoints."""
