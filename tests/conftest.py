"""What holds for all tests."""

import signal

from hypothesis import HealthCheck, settings

# Started in the background by a shell, the tests and all that they start would ignore Ctrl-C, which some are about.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes, or is being made, is the machine's affair, and a test is to fail every time or never.
settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")
