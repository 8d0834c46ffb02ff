"""A loopback server as strict as the real APIs, and the script language that it plays."""
