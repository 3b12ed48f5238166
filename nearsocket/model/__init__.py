"""Pure values and judgements: snapshot, parsers, host, verdicts. Python 3.9+, standard library only."""
