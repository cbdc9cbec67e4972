"""The parts of a profile: each counts one trace into a tally, and makes its part of a tally."""
