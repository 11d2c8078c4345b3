"""What holds for every test."""

from hypothesis import HealthCheck, settings

# The same examples in every run, however slow the machine is: a failure is never a matter of luck.
settings.register_profile("distmon", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("distmon")
