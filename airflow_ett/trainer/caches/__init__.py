"""What a training leaves for later ones: compiled code and what is dear to find out anew."""
