"""Rules as code: what a rule says of a ticket, read exactly or not at all."""
