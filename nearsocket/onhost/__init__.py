"""What runs on the server. Python 3.9+, standard library and nvidia-ml-py only."""
