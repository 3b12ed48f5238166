"""From engines that run to fleet YAML that renders to the same containers. Pure: it works on a saved snapshot."""
