"""The extensions that say that a member of a WebDataset is a picture."""

_ENDINGS = "jpg jpeg jpe jfif png apng webp bmp dib tif tiff gif avif jp2 j2k ppm pgm pbm pnm tga ico heic heif fpc"
PICTURES = frozenset(_ENDINGS.split())
