"""The `kpl-codec` command. Each command is a module here, imported when it is asked for."""
