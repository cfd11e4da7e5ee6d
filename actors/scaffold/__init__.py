"""LASER (arXiv 2309.08172): a scaffold around any policy that divides a site into states, each with its allowed actions."""
