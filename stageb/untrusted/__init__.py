"""What others wrote (JSON, YAML, JSON Lines, names, pictures), read strictly."""
