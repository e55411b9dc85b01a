"""What is kept beside a capture, and by what it is known as ours."""
