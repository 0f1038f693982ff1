"""The actors: one file each, one verb each; they know the store and never each other."""
