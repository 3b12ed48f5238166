"""What changed on a host between two snapshots: hardware, versions, parameters, placement, figures. Pure."""
