"""What is kept of an indexed video, and where: the engines, the folder, the previews."""
