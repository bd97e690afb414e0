"""What all rooms speak of: records, config, columns, texts, costs."""
