"""Recomputing a run from its log, and explaining where it diverges."""
