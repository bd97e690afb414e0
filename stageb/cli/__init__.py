"""From a command line to a frozen config, and how loops and commands are found."""
