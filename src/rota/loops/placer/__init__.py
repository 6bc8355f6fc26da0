"""The loops of the placements: read what the coordinator and the store know, call one function of
`core/placement`, act on the difference."""
