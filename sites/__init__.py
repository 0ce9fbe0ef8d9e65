"""What is edited: site files, specs, HTML, diffs, the scan, releases and previews."""
