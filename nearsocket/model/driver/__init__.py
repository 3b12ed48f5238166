"""The driver's packages as one family: what is installed, what one transaction names, what stands in its way. Pure."""
