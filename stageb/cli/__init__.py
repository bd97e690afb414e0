"""From a command line to a frozen config, and the table of loops and commands."""
