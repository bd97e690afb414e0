"""The ways in which a guidance changes: reflection, the gate, the state of a run, its schedule."""
