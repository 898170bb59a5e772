"""The vectors of spec/vectors against any program that speaks the protocol of spec/09-conformance.md."""
