"""How a guidance changes: reflection, the gate, the state of a run, its schedule."""
