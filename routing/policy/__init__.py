"""The layers of configuration that say what work may use and cost."""
