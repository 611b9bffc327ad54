"""Jobs a person can run with pyinfra; steps/ holds the parts they share."""
