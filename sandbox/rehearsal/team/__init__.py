"""The rehearsal model as a team: it plays every agent of a run, with file tools or with the tools of Claude Code."""
