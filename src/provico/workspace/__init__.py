"""From a folder of videos to answers: all that `provico open` keeps and does."""
