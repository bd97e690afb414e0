"""From judged tickets to proposed edits: what an answer is shown, how it is read, what an edit does to the rules."""
