"""What we race with: each module has an `operation` and runs where its library is installed, without our code."""
