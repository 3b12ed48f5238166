"""A driver's upgrade on its host, step by step, each journaled whole so that another client goes on with it."""
