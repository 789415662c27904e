"""What people see of a diagnosis: figures and a page."""
