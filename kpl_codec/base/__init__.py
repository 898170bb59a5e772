"""What every room stands on: values whose fields may grow, checked arguments, names that are imported when
they are first asked for, and the choice of the compiled code."""
