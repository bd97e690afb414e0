"""The content of a mission's guidance: rules as texts and as code, evidence, prompts, and the files
that hold them."""
