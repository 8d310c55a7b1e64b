"""Files of annotation tools and of datasets, each in a form of its own -> annotated images."""
