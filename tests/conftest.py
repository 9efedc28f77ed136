"""What holds for all tests."""

import signal

# Started in the background by a shell, the tests and all that they start would ignore Ctrl-C, which some are about.
signal.signal(signal.SIGINT, signal.default_int_handler)
