"""Agents that play environments of other projects. Each is one file that imports nothing of Hindcast's.

The interpreter `actors.agent_python` runs them, in which the other project's package is installed. docs/protocols.md.
"""
