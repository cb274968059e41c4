"""podspec."""
