"""Values of fields: checked, moved with the picture, and laid out as members, notes and columns."""
