"""What people see of a geometry: figures and a page."""
