"""The vocabulary of all rooms: records, config, columns, texts, costs."""
