"""Launcher files of a deployment: templates, and `launcher`, which fills them."""
