"""Cleaning a collection: what to drop, trim, look at or keep, and why.

proposals   what a scan and an encoder say of a video to a bucket with reasons, and the parts worth keeping
decisions   what people decide, safe against crashes and other writers
manifest    the collection as it then is, which every command accepts as DATA
job         all of it for a folder of videos
"""
