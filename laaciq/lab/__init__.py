"""The lab: every claim of the theory as a test with a rule that is fixed before data are seen."""
