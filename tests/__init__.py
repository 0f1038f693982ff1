"""The promises of Chronos, one test each."""
