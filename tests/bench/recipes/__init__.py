"""`hindcast bench recipes`: the published systems head to head, from one base policy, on the same unseen tasks."""
