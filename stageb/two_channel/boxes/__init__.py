"""Images and their objects: read, written, matched, measured, drawn."""
