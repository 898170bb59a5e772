"""Drop-in replacements for other libraries, with their bugs fixed and each difference listed."""
