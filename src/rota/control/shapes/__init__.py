"""The JSON of answers, the same for the command line and every other way in.

Every field is always there; instants are ISO 8601 in UTC. A module for each family of verbs of `control`.
"""
