"""The catalogue of all facts, one module per topic. Importing this package fills the registry.

Everything that a module declares is imported from here as well, so that a new fact is declared in one place.
"""
# ruff: noqa: F403

from hindcast.events.catalogue.curriculum import *
from hindcast.events.catalogue.episode import *
from hindcast.events.catalogue.evaluation import *
from hindcast.events.catalogue.operation import *
from hindcast.events.catalogue.run import *
from hindcast.events.catalogue.training import *
from hindcast.events.catalogue.verdict import *
