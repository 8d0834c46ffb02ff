"""What tools change in a notebook, and how it is put back."""
