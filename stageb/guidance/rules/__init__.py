"""What a mission's guidance says: rules as texts and as code, evidence, prompts, the files that
hold them."""
