"""Many ranks beside each other, from what is kept of each: what it recorded, where it runs, and how its steps go."""
