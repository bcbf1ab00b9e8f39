"""The commands of `ike-data`, a file each, and what they show."""
