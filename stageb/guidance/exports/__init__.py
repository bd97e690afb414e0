"""Rules written for where people judge: modules, queries, decision tables, sheets."""
