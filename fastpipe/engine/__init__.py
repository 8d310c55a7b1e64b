"""Plans -> pixels, by the native engine's threads."""
