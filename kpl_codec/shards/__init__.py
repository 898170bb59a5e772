"""Predicts which shard a record belongs to, and checks on which it is: shards, their lineage, shard maps,
placements."""
