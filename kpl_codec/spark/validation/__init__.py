"""The validate job on Spark: its tasks (`engine`), and streams as they are (`stream`)."""
