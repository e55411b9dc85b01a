"""How findings come about: rules are asked, what they find is priced, bounded and put in order."""
