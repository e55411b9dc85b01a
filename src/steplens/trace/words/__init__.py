"""What findings about the data say in other languages than English."""
