"""Which edits may stay: the race that picks, the test that proves, the search for rules that earn nothing."""
