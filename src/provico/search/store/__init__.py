"""What is kept of an indexed video, and where: the engines, their servers, the folder."""
