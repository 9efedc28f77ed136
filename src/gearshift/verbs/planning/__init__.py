"""What planners are asked for, from the options of `plan` and `compare`: a request for each kind and shape."""
