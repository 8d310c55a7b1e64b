"""An index, options, seed and epoch -> what is read, cropped and mirrored, batch by batch, ahead of
all work.
"""
