"""What Chronos does by itself when a job comes due: the handlers of kinds `chronos.…`."""
