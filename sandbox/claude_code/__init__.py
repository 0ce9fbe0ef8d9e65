"""The Claude Code CLI as a program that is driven, read and not trusted."""
