"""The file for spark-submit. Run alone, it prints its own path.

    spark-submit "$(python -m kpl_codec.spark.job)" validate DIR --shards FILE --output DIR

The arguments are those of `kpl-codec`; master, packages and settings are spark-submit's. kpl_codec must be
installed where the driver and the workers run.
"""

import sys

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.stdout.write(__file__ + "\n")
    else:
        del sys.path[0]  # this folder: its modules are not top-level ones
        from kpl_codec.cli.main import entry

        entry()
