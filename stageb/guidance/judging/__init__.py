"""How tickets are judged under a guidance: rollouts, verdicts parsed and selected, calibration, the
ranks' part."""
