"""The embedded demo set: videos drawn from looks, motions and scenes."""
