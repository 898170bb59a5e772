"""The job behind `kpl-codec validate`: over captures, and over a stream as it grows."""
