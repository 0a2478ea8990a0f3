"""From a folder of videos to answers: all that `provico open` keeps and does.

folder     where everything lies, and which index is the current one
status     what is being done, for whoever looks
stages     the work: read, embed, index, propose, find duplicates, learn
worker     the process that does it
learning   pretraining beside, and whether it was worth it
actions    videos tagged, moved, put into the trash or linked, with undo
"""
