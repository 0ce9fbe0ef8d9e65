"""A run's repository: workspace, trees and transport."""
