"""The side that reaches servers: inventories, transports, the commands."""
