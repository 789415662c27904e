"""Multiple choice: by the texts of options, and by their letters."""
