"""What people write about jobs, in YAML or Python, becomes `rota.model.job.Definition`, or a list of all that is wrong.

Nothing here reads a clock or the environment, and nothing here runs code of the people who write jobs.
"""
