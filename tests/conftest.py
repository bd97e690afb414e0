"""For all tests: a busy machine is no failure."""

from hypothesis import HealthCheck, settings

settings.register_profile("stageb", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("stageb")
