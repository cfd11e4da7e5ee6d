"""LASER (arXiv 2309.08172): a scaffold round any policy. A site is states, each with what may be done in it."""
