"""A two-socket virtual machine as a test host."""
