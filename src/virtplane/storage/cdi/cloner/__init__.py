"""The cloner: sends one volume to the upload server of another, and ends."""
