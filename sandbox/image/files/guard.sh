# Read by every shell in a box (BASH_ENV). What is not on the list was never put into the image; this says so.
command_not_found_handle() {
	printf 'guard: %s is not a command of this box\n' "$1" >&2
	return 126
}
