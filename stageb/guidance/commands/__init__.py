"""What people call: fit, predict, evaluate, validate, report, summarize, guidance."""
