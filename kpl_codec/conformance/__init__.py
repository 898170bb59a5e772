"""Tests any program that speaks the protocol of spec/09-conformance.md with the vectors of spec/vectors."""
