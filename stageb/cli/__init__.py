"""From a command line to a frozen config, and the registry of loops and commands."""
