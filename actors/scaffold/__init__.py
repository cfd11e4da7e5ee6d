"""LASER (arXiv 2309.08172): a scaffold around any policy. A site is states, each with its allowed actions."""
