"""The executable specification: what the text says, in construct, to be read beside it.

Shares no line with kpl_codec, and is not fast. `model` has chapters 1 and 2 (frame, message, user
records, hash keys), `shards` chapter 4. Tests and fuzzing hold kpl_codec equal to it.
"""
