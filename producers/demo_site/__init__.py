"""Data: the site that the demo imports and edits, `site.json` with its drawings in `assets/`."""
