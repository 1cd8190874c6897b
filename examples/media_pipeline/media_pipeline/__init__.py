"""A media pipeline: downloads the videos of web pages, cuts them into segments, and makes previews."""
